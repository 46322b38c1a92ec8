// The workspace: which runs are shown, their charts, and views that are kept. runs.js has their list.
"use strict";

const mostShown = 20; // runs whose curves are shown unless the user says which
// The address keeps the view: what is chosen, and how it is shown.
const viewNames = ["view", "where", "columns", "group", "fold", "sort", "as", "hide", "show", "pin", "x", "log", "logx", "smooth", "order", "wide"];
const viewOf = text => { const given = new URLSearchParams(text); return Object.fromEntries(viewNames.map(k => [k, given.get(k) ?? ""])); };
const view = viewOf(location.search);
const inCharts = () => view.view !== "table";

// The runs whose curves are shown: the first of the list, but for those that the user hides, and those that they show besides.
const listOf = key => new Set(view[key].split(",").filter(v => v).map(Number));
let hiddenRuns = listOf("hide"), shownRuns = listOf("show");
const isShown = (run, place) => run !== undefined && (shownRuns.has(run.id) || view.pin === String(run.id) || place < mostShown && !hiddenRuns.has(run.id));
function toggleShown(id) {
  const place = [...parts].flatMap(([n, runs]) => runs.map((r, i) => [r.id, n * part + i])).find(([other]) => other === id)?.[1] ?? Infinity;
  if (view.pin === String(id)) view.pin = "";
  if (isShown({ id }, place)) { shownRuns.delete(id); if (place < mostShown) hiddenRuns.add(id); } else { hiddenRuns.delete(id); if (place >= mostShown) shownRuns.add(id); }
  view.hide = [...hiddenRuns].join(",");
  view.show = [...shownRuns].join(",");
  remember();
  rows();
  drawCharts();
}

// pin makes a run the baseline, or no longer.
function pin(id) {
  view.pin = view.pin === String(id) ? "" : String(id);
  remember();
  rows();
  drawCharts();
}

// colourOfRun is the colour of a run by its id, so that it keeps it, and dashes where others that are shown have the same.
function colourOfRun(id) {
  const colour = id % colours, alike = drawn.settings.runs.filter(r => r.id % colours === colour).map(r => r.id).sort((a, b) => b - a);
  return colour + colours * Math.max(0, alike.indexOf(id));
}

// drawCharts shows the curves of the runs that are shown, the baseline's first.
let drawn = null, drawing = 0;
async function drawCharts() {
  if (!inCharts() || !names) return;
  drawn ??= charts($("charts"), [], { look: view, keep: look => { Object.assign(view, look); remember(); }, colour: colourOfRun, toggle: key => { if (typeof key === "number") toggleShown(key); }, pointed, none: "No curves: the runs that are shown have logged no metrics. The dot of a run shows it." });
  $("panels").hidden = !total;
  const all = [...parts].flatMap(([n, runs]) => runs.map((r, i) => [r, n * part + i])).filter(([r, i]) => isShown(r, i)).map(([r]) => r);
  for (const id of [...shownRuns, ...view.pin ? [Number(view.pin)] : []]) if (!all.some(r => r.id === id)) all.push({ id, name: "" });
  all.sort((a, b) => (String(b.id) === view.pin) - (String(a.id) === view.pin));
  const mine = ++drawing, { settings } = drawn, key = JSON.stringify([all.map(r => r.id), view.group, view.as, view.pin]), fresh = drawn.key !== key;
  if (!fresh && !all.some(goesOn) && drawn.latest === JSON.stringify(all.map(r => r.status))) return;
  drawn.latest = JSON.stringify(all.map(r => r.status));
  try {
    const metrics = all.length ? (await api("names", { run: all.map(r => r.id) })).metrics : [];
    const groups = view.group && all.length ? await grouped(view.group, all) : null;
    if (mine !== drawing) return;
    drawn.key = key;
    $("aslabel").hidden = !groups || Boolean(window.exported);
    $("as").value = view.as;
    settings.runs = all;
    settings.thick = Number(view.pin);
    drawn.group(groups, view.as !== "each" && !window.exported);
    if (drawn.colours !== groups?.labels.join()) { drawn.colours = groups?.labels.join(); rows(); }
    for (const refreshed of [drawn.refresh()]) { drawn.metrics(metrics, undefined, true); await refreshed; }
  } catch (e) {
    if (mine === drawing) { $("fault").className = ""; $("fault").textContent = why(e); }
  }
}
$("as").addEventListener("change", () => { view.as = $("as").value; remember(); drawCharts(); });

// pointed stands out the row of the run at the crosshair.
function pointed(id) {
  for (const r of $("rows").children) r.classList.toggle("at", id !== null && r.dataset.run === String(id));
}

// Views with names. The server keeps them in the home where the pages may write, and otherwise the browser.
async function views() {
  let own = {};
  try { own = JSON.parse(localStorage.getItem("drun-views") ?? "{}"); } catch { /* none can be kept */ }
  const kept = window.exported ? {} : await api("pages").then(p => { may.write = p.write; showActs(); return p.views; }).catch(() => ({}));
  return { ...kept, ...own };
}
async function keepView(name, text) {
  if (!window.exported && may.write) return change("pages", { name, view: text });
  const own = JSON.parse(localStorage.getItem("drun-views") ?? "{}");
  if (text) own[name] = text; else delete own[name];
  localStorage.setItem("drun-views", JSON.stringify(own));
}
async function showViews(now = "") {
  const all = await views();
  $("views").replaceChildren(el("option", { value: "" }, Object.keys(all).length ? "…" : "none saved"), ...Object.keys(all).sort().map(n => el("option", { value: n }, n)));
  $("views").value = now;
  $("forget").hidden = !now;
  $("views").onchange = () => { const text = all[$("views").value]; if (text !== undefined) location.href = "index.html?" + new URLSearchParams([...new URLSearchParams(text), ["named", $("views").value]]); };
}
$("keep").addEventListener("click", async () => {
  const name = await ask("Save this view", "Name", new URLSearchParams(location.search).get("named") ?? "");
  if (!name) return;
  try { await keepView(name, path("", view).slice(1)); await showViews(name); } catch (e) { $("fault").textContent = why(e); }
});
$("forget").addEventListener("click", async () => { try { await keepView($("views").value, ""); await showViews(); } catch (e) { $("fault").textContent = why(e); } });

// Where the pages may write, the selected runs are tagged and removed together.
function showActs() { for (const id of ["tag", "remove"]) $(id).hidden = !may.write || !selected.size; }
async function changeSelected(body) {
  let fault = "";
  for (const id of selected) try { await change("runs/" + id, body); if (body.trash) selected.delete(id); } catch (e) { fault = why(e); break; }
  await load(false);
  choice();
  if (fault) { $("fault").className = ""; $("fault").textContent = fault; }
}
$("tag").addEventListener("click", async () => { const tag = await ask("Tag the selected runs", "Tag", ""); if (tag) changeSelected({ tag: [tag] }); });
$("remove").addEventListener("click", async () => { if (await sure(`Remove ${selected.size} run${selected.size === 1 ? "" : "s"}?`, inTrash)) changeSelected({ trash: true }); });

// By keyboard: j and k go from row to row, and what is at hand is the row with the mark.
let atRow = -1;
const rowAt = () => $("rows").querySelector(`tr[data-i="${atRow}"]`);
function goRow(by) {
  atRow = Math.max(0, Math.min(lines.length - 1, atRow + by));
  const top = atRow * rowHeight, box = $("scroll");
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + 2 * rowHeight > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * rowHeight - box.clientHeight;
  rows();
  for (const r of $("rows").children) r.classList.toggle("at", Number(r.dataset.i) === atRow);
  rowAt()?.querySelector("a, button")?.focus({ preventScroll: true });
}
const ofRow = fn => () => { const run = lines[atRow] >= 0 ? runAt(atRow) : null; if (run) fn(run); };
keys.push(["j", "goes to the next run", () => goRow(1)], ["k", "goes to the one before", () => goRow(-1)], ["x", "selects the run, to compare it", ofRow(() => rowAt()?.querySelector("input")?.click())],
  ["h", "hides or shows its curves", ofRow(run => toggleShown(run.id))], ["b", "makes the run the baseline, which stays shown", ofRow(run => pin(run.id))],
  ["v", "changes between charts and table", () => $(inCharts() ? "as-table" : "as-charts").click()], ["c", "compares the selected runs", () => $("compare").click()]);
