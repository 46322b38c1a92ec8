// The list and the table of runs. Only the rows that can be seen are in the page; their values are fetched in parts.
"use strict";

const rowHeight = 30, part = 100, spare = 10;
const mostCompared = 500;
let total = 0, heads = [], order = [], parts = new Map(), turn = 0, names = null;
let numeric = new Set(); // heads of columns of numbers
let groups = [], lines = []; // a line of the table is a run by its place, or a group: -1 for the first, -2 for the second, …
const turned = new Set(); // groups that are not as fold says
const selected = new Set(); // ids
const fixed = ["id", "name", "status"];

// usual are the columns until the user names others: what differs between the newest runs, how good they are, and what they are.
function usual() {
  const differ = names.differing_params ?? 0;
  return [...names.recent_params.slice(0, Math.max(3, Math.min(6, differ))).map(n => reference("params", n)), ...objectivesFirst().slice(0, 4).map(n => reference("metrics", n) + ".last"),
    "recipe", "world_size", "started", "seconds", "tags"].join(", ");
}
// objectivesFirst are the metrics of the newest runs, those first by which their sweep judges.
const objectivesFirst = () => [...names.recent_metrics].sort((a, b) => (b === names.objective) - (a === names.objective));
// meant is what the box says as an expression: a number is that of a run, and a plain word a state, a tag, or part of a name or the recipe's name.
const meant = text => /^\d+$/.test(text) ? `id == ${text} or "${text}" in name` : /^[\w.-]*[A-Za-z-][\w.-]*$/.test(text) && !/^(params|metrics)\b/.test(text) && !names.fields.includes(text) && !["True", "False", "None"].includes(text)
  ? ["name", "tags", "recipe"].map(of => `${JSON.stringify(text)} in ${of}`).join(" or ") + ` or status == ${JSON.stringify(text)}` : text;
// wanted begins with what the user has typed, so that an error's place is a place in that.
const wanted = () => [unfixed(view.columns || usual()), ...fixed].filter(c => c.trim()).join(", ");
// unfixed leaves out the columns that are always there; a comma within brackets divides no columns.
function unfixed(columns) {
  let depth = 0;
  return columns.split(",").filter(c => {
    const within = depth;
    depth += (c.match(/[([{]/g) ?? []).length - (c.match(/[)\]}]/g) ?? []).length;
    return within || !fixed.includes(c.trim());
  }).join(",").trim();
}

const expression = () => window.exported ? view.where : meant(view.where.trim());
function fetchPart(n) {
  return api("runs", { where: expression(), sort: view.sort, group: view.group, columns: wanted(), offset: n * part, limit: part });
}

const keyOf = g => JSON.stringify(g.value);
const folded = g => (view.fold !== "") !== turned.has(keyOf(g));

// layOut puts groups and runs into lines.
function layOut() {
  lines = [];
  let run = 0;
  groups.forEach((g, k) => {
    lines.push(-1 - k);
    g.first = run;
    run += g.ids.length;
    if (!folded(g)) for (let i = g.first; i < run; i++) lines.push(i);
  });
  if (!groups.length) for (; run < total; run++) lines.push(run);
}

// sound takes back that a box is wrong.
function sound() { for (const box of ["where", "columns"]) $(box).removeAttribute("aria-invalid"); }

// load gets what can be seen anew; fresh forgets what was there before.
async function load(fresh) {
  const mine = ++turn;
  const numbers = fresh ? [0] : [...new Set(lines.slice(...seen()).filter(i => i >= 0).map(i => Math.floor(i / part)))];
  if (!numbers.length) numbers.push(0);
  let answers;
  try {
    answers = await Promise.all(numbers.map(fetchPart));
  } catch (e) {
    if (mine !== turn) return;
    $("fault").className = "";
    const text = why(e), ofColumns = text.includes(wanted());
    $("fault").textContent = ofColumns ? text.replace(wanted(), unfixed(view.columns)) : text;
    sound();
    $(ofColumns ? "columns" : "where").setAttribute("aria-invalid", "true");
    return;
  }
  if (mine !== turn) return;
  sound();
  $("fault").className = "note";
  $("fault").textContent = answers[0].notes.map(clean).join("\n");
  parts = new Map();
  total = answers[0].total;
  groups = answers[0].groups ?? [];
  numbers.forEach((n, i) => parts.set(n, answers[i].runs));
  spans.clear();
  order = Object.keys(answers[0].runs[0] ?? {}); // that of wanted, as of the cells of groups
  heads = [...new Set([...fixed, ...order])];
  const loaded = answers.flatMap(a => a.runs);
  numeric = new Set(heads.filter(h => loaded.some(r => isNumeric(r[h])) && loaded.every(r => isNumeric(r[h]) || r[h] === null)));
  if (window.exported) $("columns").value = unfixed(heads.join(", "));
  layOut();
  if (fresh) $("scroll").scrollTop = 0;
  head();
  rows();
  $("count").textContent = (total === 1 ? "1 run" : `${total} runs`) + (view.group ? ` in ${groups.length} group${groups.length === 1 ? "" : "s"}` : "");
  $("all").disabled = !total;
  $("nothing").hidden = total > 0;
  if (!total) $("nothing").replaceChildren(...(view.where ? ["No run is as Where says."] : window.exported ? ["No runs were exported."] : ["There are no runs yet. Start one with ", el("code", null, "drun run RECIPE.star"), "; it appears here."]));
  $("fold").disabled = !view.group;
  $("fold").setAttribute("aria-pressed", view.fold !== "");
  drawCharts();
  if (document.documentElement.dataset.ready === undefined) performance.mark("ready");
  document.documentElement.dataset.ready = "";
}

// seen are the first row that can be seen and the one after the last.
function seen() {
  const top = Math.max(0, Math.floor($("scroll").scrollTop / rowHeight) - spare);
  return [Math.min(top, lines.length), Math.min(lines.length, top + Math.ceil($("scroll").clientHeight / rowHeight) + 2 * spare)];
}

function head() {
  const key = [...columns(), ...numeric, view.sort].join("\n");
  if ($("heads").dataset.key === key) return;
  $("heads").dataset.key = key;
  $("heads").replaceChildren(el("th", { scope: "col" }, el("span", { class: "away" }, "select")), ...columns().map(h => {
    const sorted = view.sort === h ? "ascending" : view.sort === "-" + h ? "descending" : null;
    return el("th", { scope: "col", class: numeric.has(h) ? "n" : null, "aria-sort": sorted }, el("button", { type: "button", title: h, onclick: () => {
      // The largest first is what one looks for in a metric, and the first letter in a name.
      const down = h.startsWith("metrics");
      view.sort = sorted === null ? (down ? "-" + h : h) : sorted === (down ? "descending" : "ascending") ? (down ? h : "-" + h) : "";
      show();
    } }, titleOf(h) + (sorted ? sorted === "ascending" ? " ▲" : " ▼" : "")));
  }));
}

function cell(h, v) {
  if (h === "name" || h === "status") return h === "status" ? status(v) : null;
  if (v === null) return "-";
  if (h === "recipe") return v.split("/").at(-1);
  if (h === "started") return ago(v);
  if (h === "tags") return v.length ? el("span", null, v.flatMap(t => [el("span", { class: "tag" }, t), " "])) : "";
  if (h === "seconds") return duration(v);
  return text(v);
}

// columns are those that are shown: beside charts the number, the name, the first metric and the state.
function columns() {
  if (!inCharts()) return heads;
  const lead = heads.includes(view.sort.replace(/^-/, "")) && numeric.has(view.sort.replace(/^-/, "")) ? view.sort.replace(/^-/, "") : heads.find(h => h.startsWith("metrics"));
  return ["id", "name", ...lead && lead !== "id" ? [lead] : [], "status"];
}
// titleOf is how the head of a column reads: a parameter's or a metric's name, where no other column has the same.
const shortOf = h => metricOf(h) || (/^params\.\w+$/.test(h) ? h.slice("params.".length) : ({ world_size: "ranks", seconds: "took" })[h] ?? h);
const titleOf = h => heads.filter(o => shortOf(o) === shortOf(h)).length > 1 ? h : shortOf(h);

// groupRow sums up a group; its box selects all of its runs.
function groupRow(i) {
  const g = groups[-1 - lines[i]], r = el("tr", { "aria-rowindex": i + 2, class: "group" });
  const label = `${view.group} = ${g.value === null ? "none" : text(g.value)}`, n = g.ids.filter(id => selected.has(id)).length;
  const tick = el("input", { type: "checkbox", "aria-label": `select the ${g.ids.length} runs of ${clean(label)}`, onchange: e => {
    for (const id of g.ids) if (e.target.checked) selected.add(id); else selected.delete(id);
    choice();
  } });
  tick.checked = n === g.ids.length;
  tick.indeterminate = n > 0 && n < g.ids.length;
  const open = el("button", { type: "button", "aria-expanded": String(!folded(g)), title: label, onclick: () => {
    const key = keyOf(g);
    if (!turned.delete(key)) turned.add(key);
    layOut();
    rows();
  } }, (folded(g) ? "▸ " : "▾ ") + clean(label));
  r.append(el("td", null, tick), ...columns().map(h => {
    if (h === "id") return el("td", { class: "n soft", title: `${g.ids.length} runs` }, `${g.ids.length} ×`);
    if (h === "name") return el("th", { scope: "rowgroup" }, open);
    const c = g.cells?.[order.indexOf(h)] ?? {};
    if (c.mean !== undefined) {
      const shown = h === "seconds" ? duration : number;
      return el("td", { class: "n", title: `mean ${c.mean}, from ${c.min} to ${c.max}` }, shown(c.mean), inCharts() ? "" : el("small", { class: "soft" }, ` ${shown(c.min)}…${shown(c.max)}`));
    }
    return c.same === undefined ? el("td") : el("td", { class: isNumeric(c.same) ? "n" : null }, cell(h, c.same) ?? text(c.same));
  }));
  return r;
}

const runAt = line => parts.get(Math.floor(lines[line] / part))?.[lines[line] % part];

// stateOf is what a line shows: it is made anew when that changes.
function stateOf(i) {
  if (lines[i] >= 0) return JSON.stringify(runAt(i)) + isShown(runAt(i), lines[i]) + view.pin + drawn?.colours;
  const g = groups[-1 - lines[i]];
  return JSON.stringify([view.group, g.value, g.ids.length, g.cells, folded(g), g.ids.filter(id => selected.has(id)).length]);
}

function row(i) {
  const run = runAt(i);
  const r = lines[i] < 0 ? groupRow(i) : el("tr", { "aria-rowindex": i + 2 });
  r.dataset.i = i;
  if (lines[i] < 0) { r.dataset.key = stateOf(i); return r; }
  if (!run) { r.append(el("td", { colspan: columns().length + 1, class: "soft" }, "…")); need(Math.floor(lines[i] / part)); return r; }
  r.dataset.key = stateOf(i);
  r.dataset.run = run.id;
  const tick = el("input", { type: "checkbox", "aria-label": `select run ${run.id} ${clean(run.name)}`, onchange: e => {
    if (e.target.checked) selected.add(run.id); else selected.delete(run.id);
    r.classList.toggle("chosen", e.target.checked);
    choice();
  } });
  tick.checked = selected.has(run.id);
  r.classList.toggle("chosen", tick.checked);
  const shown = isShown(run, lines[i]), eye = inCharts() ? el("button", { type: "button", class: "eye", "aria-pressed": String(shown), "aria-label": `curves of run ${run.id} ${clean(run.name)}`, title: shown ? "hide its curves" : "show its curves", onclick: () => toggleShown(run.id) }) : "";
  if (eye && shown) eye.style.setProperty("--own", colourVar(drawn?.settings.groups ? drawn.settings.groups.ofRun(run.id) : run.id));
  r.classList.toggle("unseen", !shown);
  if (inCharts()) { r.addEventListener("pointerenter", () => drawn?.settings.point(run.id)); r.addEventListener("pointerleave", () => drawn?.settings.point(null)); }
  r.append(el("td", null, tick, " ", eye), ...columns().map(h => h === "name" ? el("th", { scope: "row", title: run.name }, el("a", { href: "run.html?id=" + run.id }, shorten(run.name)), inCharts() ? el("button", { type: "button", class: "plain pin", "aria-pressed": String(view.pin === String(run.id)), "aria-label": `baseline: run ${run.id} ${clean(run.name)}`, title: "baseline: it stays shown, with a thicker curve", onclick: () => pin(run.id) }, "★") : "")
    : el("td", { class: numeric.has(h) || isNumeric(run[h]) ? "n bar-cell" : null, title: typeof run[h] === "string" ? clean(run[h]) : null }, sparkOf(run, h), numeric.has(h) ? el("span", null, cell(h, run[h])) : cell(h, run[h]))));
  columns().forEach((h, i) => { const part = meter(h, run[h]); if (part !== null) r.cells[i + 1].style.setProperty("--part", `${part}%`); });
  return r;
}

const asked = new Set();
async function need(n) {
  if (asked.has(n)) return;
  asked.add(n);
  const mine = turn;
  try {
    const answer = await fetchPart(n);
    if (mine === turn) { parts.set(n, answer.runs); rows(); }
  } catch (e) {
    $("fault").textContent = why(e);
  } finally {
    asked.delete(n);
  }
}

// rows puts those that can be seen into the page, and leaves alone those that are there already, with the focus.
function rows() {
  const [first, last] = seen();
  const there = new Map([...$("rows").children].map(r => [Number(r.dataset.i), r]));
  const now = [], shape = `${view.view} ${columns().length} ${columns().map((h, k) => numeric.has(h) ? k : "").join(" ")}`;
  for (let i = first; i < last; i++) {
    const old = there.get(i), state = stateOf(i);
    if (old && state !== undefined && old.dataset.key === state && old.dataset.shape === shape) { now.push(old); continue; }
    const made = row(i);
    made.dataset.shape = shape;
    if (old?.contains(document.activeElement)) {
      const tag = document.activeElement.tagName;
      requestAnimationFrame(() => made.querySelector(tag)?.focus({ preventScroll: true }));
    }
    now.push(made);
  }
  const keep = new Set(now);
  for (const r of there.values()) if (!keep.has(r)) r.remove();
  let before = null;
  for (const r of now) {
    const place = before ? before.nextSibling : $("rows").firstChild;
    if (place !== r) $("rows").insertBefore(r, place);
    before = r;
  }
  gap($("above"), first);
  gap($("below"), lines.length - last);
  $("runs").setAttribute("aria-rowcount", lines.length + 1);
  spark();
}
function gap(body, n) {
  if (!body.firstChild) body.append(el("tr", null, el("td")));
  body.firstChild.style.height = n * rowHeight + "px";
  body.hidden = n === 0;
}

// The points of runs that are selected are read ahead, so that their charts are there at once.
let ahead;
function choice() {
  clearTimeout(ahead);
  if (selected.size && !window.exported) ahead = setTimeout(() => {
    api("curves", { run: [...selected].slice(0, 100), metric: names.recent_metrics[0] ?? "loss", points: 4 }).catch(() => {});
  }, 200);
  $("compare").disabled = selected.size < 1 || selected.size > mostCompared;
  $("none").disabled = selected.size < 1;
  showActs();
  $("compare").textContent = selected.size > mostCompared ? `${selected.size} selected, at most ${mostCompared} to compare` : selected.size ? `Compare ${selected.size} selected` : "Compare";
  for (const r of $("rows").children) {
    if (lines[r.dataset.i] >= 0) {
      const run = runAt(r.dataset.i), tick = r.querySelector("input");
      if (!run || !tick) continue;
      tick.checked = selected.has(run.id);
      r.classList.toggle("chosen", tick.checked);
    }
  }
  if (groups.length) rows();
}

// show keeps the view in the address and loads it.
function show() {
  remember();
  return load(true);
}
function remember() { history.replaceState(null, "", path(location.pathname, view)); }

// arrange shows the charts or the table.
function arrange() {
  document.body.classList.toggle("charts", inCharts());
  $("as-charts").setAttribute("aria-pressed", inCharts());
  $("as-table").setAttribute("aria-pressed", !inCharts());
}
for (const [id, to] of [["as-charts", ""], ["as-table", "table"]]) $(id).addEventListener("click", () => {
  view.view = to;
  arrange();
  remember();
  head();
  rows();
  drawCharts();
});

$("choose").addEventListener("submit", e => {
  e.preventDefault();
  view.where = $("where").value;
  view.columns = $("columns").value === usual() ? "" : $("columns").value;
  if (view.group !== $("group").value.trim()) turned.clear();
  view.group = $("group").value.trim();
  show();
});
$("fold").addEventListener("click", () => {
  view.fold = view.fold ? "" : "1";
  turned.clear();
  show();
});
$("all").addEventListener("click", async () => {
  try {
    const answer = await api("runs", { where: expression(), sort: view.sort, group: view.group, columns: "id", offset: 0, limit: mostCompared });
    for (const r of answer.runs) selected.add(r.id);
    if (answer.total > mostCompared) { $("fault").className = "note"; $("fault").textContent = `the first ${mostCompared} of ${answer.total} runs are selected: more cannot be compared at once`; }
  } catch (e) { $("fault").textContent = why(e); }
  choice();
});
$("reset").addEventListener("click", () => {
  Object.assign(view, { where: "", columns: "", group: "", fold: "", sort: "", hide: "", show: "", pin: "" });
  hiddenRuns = new Set();
  shownRuns = new Set();
  turned.clear();
  $("where").value = $("group").value = "";
  $("columns").value = usual();
  show();
});
$("compare").addEventListener("click", () => { location.href = path("compare.html", { run: [...selected], group: view.group }); });
$("none").addEventListener("click", () => {
  selected.clear();
  choice();
});
$("scroll").addEventListener("scroll", () => requestAnimationFrame(rows), { passive: true });
window.addEventListener("resize", rows);
// As a spreadsheet reads it: a text that it would take for a formula gets an apostrophe before it, as drun export has it.
$("csv").addEventListener("click", async () => {
  const field = v => v === null || v === undefined ? "" : isNumeric(v) ? String(v) : `"${(Array.isArray(v) ? v.join(" ") : String(v)).replace(/^[=+@\t\r-]/, "'$&").replaceAll('"', '""')}"`;
  try {
    const { runs } = await api("runs", { where: expression(), sort: view.sort, group: view.group, columns: wanted(), offset: 0, limit: 100_000 });
    saveFile("runs.csv", new Blob([[heads.map(field), ...runs.map(r => heads.map(h => field(r[h])))].join("\r\n"), "\r\n"], { type: "text/csv" }));
  } catch (e) { $("fault").textContent = why(e); }
});
$("rows").addEventListener("keydown", e => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[e.key], line = e.target.closest("tr");
  if (!step || !line) return;
  e.preventDefault();
  const to = $("rows").querySelector(`tr[data-i="${Number(line.dataset.i) + step}"]`);
  to?.querySelector(e.target.tagName)?.focus();
});

async function begin() {
  arrange();
  try {
    names = await api("names", { recent: 1 });
  } catch (e) {
    $("fault").textContent = e.text;
    names = { fields: [], params: [], metrics: [], metric: [], recent_params: [], recent_metrics: [], objective: "" };
  }
  $("where").value = view.where;
  $("columns").value = view.columns || usual();
  const all = () => [...names.fields, ...names.params.map(n => reference("params", n)),
    ...names.metrics.flatMap(n => names.metric.map(m => reference("metrics", n) + "." + m))];
  complete($("where"), all);
  complete($("columns"), all);
  complete($("group"), all);
  $("group").value = view.group;
  choice();
  showViews(new URLSearchParams(location.search).get("named") ?? "");
  if (window.exported) { $("columns").disabled = true; $("offline").hidden = false; }
  await load(true);
  const learn = async () => { const all = await api("names"); names.params = all.params; names.metrics = all.metrics;
    if (document.activeElement.value) document.activeElement.dispatchEvent(new Event("learned")); // what was typed meanwhile
  };
  $("where").addEventListener("focus", learn, { once: true });
  for (const id of ["columns", "group"]) $(id).addEventListener("focus", learn, { once: true });
  live(async () => {
    if (!total) {
      const typed = $("columns").value !== usual();
      names = await api("names");
      if (!typed) $("columns").value = usual();
    }
    await load(false);
  }, 2000, () => [...parts.values()].flat().some(goesOn));
}
begin();
