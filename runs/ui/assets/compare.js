// Several runs beside each other.
"use strict";

const refs = new URLSearchParams(location.search).getAll("run");
let drawn = null, latest = null;

// recent are the metrics that the comparison names.
function metricsOf(c) {
  const names = new Set();
  for (const d of [...c.differences, ...c.same]) if (d.kind === "metric" && d.name.endsWith(".last")) names.add(d.name.slice(0, -".last".length));
  return [...names].sort();
}

function table() {
  const rows = $("all").checked ? [...latest.differences, ...latest.same] : latest.differences;
  const cells = (kind, v, row) => v === null && row.some(isNumeric) ? el("div", { class: "missing" }, "-") : isNumeric(v) || v === null ? v : ["recipe", "data", "artifact"].includes(kind) && /^[0-9a-f]{64}/.test(v) ? el("span", { title: v }, v.slice(0, 12)) : v;
  list($("table"), ["what", "name", ...latest.runs.map(r => `${r.id} ${r.name}`)], rows.map(d => [d.kind, d.name, ...d.values.map(v => cells(d.kind, v, d.values))]), latest.runs.length > 1 ? "nothing differs" : "one run alone: select several in the table of runs");
}

// The address keeps the view.
const given = new URLSearchParams(location.search);
const view = Object.fromEntries(["group", "as", "x", "y"].map(k => [k, given.get(k) ?? ""]));
view.axes = given.getAll("axes");
function keep() { history.replaceState(null, "", path(location.pathname, { run: refs, ...view })); }

// groupNames are what the runs can be grouped by: the parameters that differ, and some of what else there is.
function groupNames() {
  const names = latest.differences.filter(d => d.kind === "parameter").map(d => reference("params", d.name));
  if (latest.differences.some(d => d.kind === "run" && d.name === "seed")) names.push("seed");
  if (latest.differences.some(d => d.kind === "run" && d.name === "ranks")) names.push("world_size");
  names.push("recipe", "status");
  if (view.group && !names.includes(view.group)) names.push(view.group);
  return names;
}

const link = r => runLink(r.id, `${r.id} ${r.name}`);
let groups = null;
async function group() {
  try {
    groups = await grouped(view.group, latest.runs);
    $("groupfault").textContent = (groups?.notes ?? []).map(clean).join("\n");
  } catch (e) {
    groups = null;
    $("groupfault").textContent = why(e);
  }
  drawn.group(groups, view.as === "mean");
  $("aslabel").hidden = !groups;
  const key = JSON.stringify([groups?.by, groups?.ids, view.as]);
  if (group.key === key) return;
  group.key = key;
  $("which").replaceChildren(...(groups ? groups.labels.map((label, i) => el("details", { class: "runs" }, el("summary", null, swatch(i, !view.as), label, el("span", { class: "soft" }, ` ${groups.ids[i].length} run${groups.ids[i].length === 1 ? "" : "s"}`)),
    el("ul", null, latest.runs.filter(r => groups.ofRun(r.id) === i).map(r => el("li", null, link(r))))))
    : [el("ul", { class: "runs", "aria-label": "Runs compared" }, latest.runs.map((r, i) => el("li", null, swatch(i), link(r))))]));
}

// firstDifference tells the first point at which two runs differ.
async function firstDifference(c) {
  const d = await api(`runs/${c.runs[0].id}/first`, { with: c.runs[1].id }).catch(() => null);
  $("firstdiff").hidden = false;
  $("firstdiff").textContent = d?.metric ? clean(`The first point that differs: ${d.metric} at step ${d.step}${d.rank ? ` of rank ${d.rank}` : ""}, ${number(d.a)} and ${number(d.b)}. The operation that began it: drun diff ${c.runs[0].id} ${c.runs[1].id} --trace`) : "Of the metrics that both have, all points are the same.";
}

// images shows the images that several of the runs kept under one name beside each other, at the same step.
async function images(runs) {
  const lists = await Promise.all(runs.map(r => api(`runs/${r.id}/artifacts`).then(list => list.filter(a => a.kind === "image")).catch(() => [])));
  const names = [...new Set(lists.flat().map(a => a.name))].filter(n => lists.filter(l => l.some(a => a.name === n)).length > 1);
  $("beside").hidden = !names.length;
  if (!differs($("beside"), lists)) return;
  $("images").replaceChildren(...names.slice(0, 50).map(name => {
    const steps = [...new Set(lists.flat().filter(a => a.name === name).map(a => a.step ?? 0))].sort((a, b) => a - b), note = el("small"), row = el("div", { class: "pair" });
    const show = () => {
      const step = steps[slider.value];
      note.textContent = steps.length > 1 ? `step ${step}` : "";
      slider.setAttribute("aria-valuetext", `step ${step}`);
      row.replaceChildren(...runs.map((r, i) => {
        const a = lists[i].filter(a => a.name === name && (a.step ?? 0) <= step).at(-1);
        return el("div", { class: "kept" }, el("small", null, link(r), a && (a.step ?? 0) !== step ? `, step ${a.step}` : ""), a ? el("img", { src: window.exported ? exportedImage(`files/${a.file}`) : `/api/v1/runs/${r.id}/artifacts/${a.sha256}`, alt: clean(`${name} of run ${r.id}`) }) : el("p", { class: "soft" }, "none"));
      }));
    };
    const slider = el("input", { type: "range", min: 0, max: steps.length - 1, "aria-label": `step of ${clean(name)}`, oninput: show });
    slider.value = steps.length - 1;
    show();
    return el("figure", null, el("figcaption", null, el("span", null, name), note), steps.length > 1 ? slider : "", row);
  }));
}

async function refresh() {
  const c = await api("compare", { run: refs }), text = JSON.stringify(c), fresh = refresh.text !== text;
  refresh.text = text;
  latest = c;
  if (!drawn) {
    document.title = "Compare " + c.runs.map(r => clean(r.name)).join(", ") + " · drun";
    $("group").replaceChildren(el("option", { value: "" }, "nothing"), ...groupNames().map(n => el("option", { value: n }, n)));
    $("group").value = view.group;
    if (window.exported) { view.as = ""; $("as").disabled = true; $("as").title = "the mean of groups needs drun ui"; }
    $("as").value = view.as;
    drawn = charts($("charts"), c.runs);
  }
  if (fresh) await group();
  const curves = Promise.all([drawn.refresh(), drawn.metrics(metricsOf(c))]); // what takes longest begins first
  if (fresh) {
    // Of two runs one asks why they differ; of more, which is better.
    if (c.runs.length !== 2) $("parts").prepend($("curves"), $("sweep"));
    else if (!window.exported) firstDifference(c);
    table();
    $("sweep").hidden = c.runs.length < 3;
    $("sweep").hidden = !sweep.update(c);
    $("recipes").hidden = c.runs.length !== 2 || c.recipe_diff === null;
    if (!$("recipes").hidden) diffLines($("diff"), c.recipe_diff);
  }
  await curves;
  if (fresh) images(c.runs.slice(0, 8));
}

for (const id of ["group", "as"]) $(id).addEventListener("change", async () => {
  view[id] = $(id).value;
  keep();
  await group();
  if (!$("sweep").hidden) sweep.draw();
  drawn.refresh();
});
const sweep = new Sweep($("sweep"), view, keep, run => groups ? colourVar(groups.ofRun(run)) : null);

$("all").addEventListener("change", table);
(async () => {
  if (!refs.length && document.documentElement.dataset.alone === undefined) { nothing("no runs are chosen: select some in the table of runs"); return; }
  try { await refresh(); } catch (e) { nothing(e); return; }
  // Runs that have ended are not asked again.
  const going = () => latest.runs.some(goesOn);
  if (!window.exported && !going()) { alive("ended"); return; }
  live(async () => {
    if (!going()) return;
    try { await refresh(); $("fault").textContent = ""; } catch (e) { $("fault").textContent = why(e); }
  }, 600, going);
})();
