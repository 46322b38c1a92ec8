// Sweeps: a list of them, and one with its best cells, the parameters that mattered, and the command that goes on with it.
"use strict";

const given = new URLSearchParams(location.search);
const view = Object.fromEntries(["name", "metric", "goal", "group", "x", "y"].map(k => [k, given.get(k) ?? ""]));
view.axes = given.getAll("axes");
function keep() { history.replaceState(null, "", path(location.pathname, view)); }

const ended = s => s.runs.filter(r => !goesOn(r)).length;

function listAll(all) {
  $("list").hidden = false;
  $("one").hidden = true;
  if (!all.length) { $("list").replaceChildren(el("p", { class: "empty" }, "There are no sweeps yet. Start one with ", el("code", null, "drun sweep RECIPE.star -p lr=0.1,0.01"), "; it appears here.")); return; }
  const many = (s, kind) => s.runs.filter(r => r.status === kind).length || "-";
  fill($("sweeps"), ["sweep", "recipe", "parameters", "cells", "failed", "stopped early", "objective", "latest run"], all.map(s => [el("a", { href: path("sweep.html", { name: s.name }) }, s.name), s.recipe.split("/").at(-1), givenTo(s.command).map(p => p[0]).join(", "), `${ended(s)} of ${s.cells}`, many(s, "failed"), many(s, "stopped early"), s.objective ? `${s.objective}, ${s.largest ? "largest" : "smallest"}` : "-", ago(s.started)]));
}

// explained is how much of the variance of results is explained by dividing them by the values of a parameter: epsilon squared, the correlation
// ratio adjusted for the number of groups, so that a parameter with many values gains nothing by chance. Numbers with many values are divided at their quartiles.
function explained(values, results) {
  const pairs = values.map((v, i) => [v, results[i]]).filter(([v, y]) => v !== null && v !== undefined && typeof y === "number" && Number.isFinite(y));
  const n = pairs.length, kinds = new Set(pairs.map(p => text(p[0])));
  if (n < 4 || kinds.size < 2) return null;
  let keyOf = text;
  if (kinds.size > 8 && pairs.every(p => typeof p[0] === "number")) {
    const order = pairs.map(p => p[0]).sort((a, b) => a - b), cuts = [1, 2, 3].map(q => order[Math.floor(q * n / 4)]);
    keyOf = v => String(cuts.filter(c => v >= c).length);
  }
  const groups = new Map();
  for (const [v, y] of pairs) groups.set(keyOf(v), [...groups.get(keyOf(v)) ?? [], y]);
  const mean = list => list.reduce((a, b) => a + b, 0) / list.length, all = mean(pairs.map(p => p[1])), k = groups.size;
  const total = pairs.reduce((s, [, y]) => s + (y - all) ** 2, 0), within = [...groups.values()].reduce((s, g) => { const m = mean(g); return s + g.reduce((t, y) => t + (y - m) ** 2, 0); }, 0);
  if (!(total > 0) || n <= k) return null;
  return Math.max(0, 1 - within / total * (n - 1) / (n - k));
}
// rising is Spearman's correlation of two lists of numbers: their ranks' correlation, from -1 to 1.
function rising(values, results) {
  const pairs = values.map((v, i) => [v, results[i]]).filter(p => p.every(v => typeof v === "number" && Number.isFinite(v)));
  if (pairs.length < 4) return null;
  const ranks = k => { const order = pairs.map(p => p[k]).sort((a, b) => a - b); return pairs.map(p => (order.indexOf(p[k]) + order.lastIndexOf(p[k])) / 2); };
  const [a, b] = [ranks(0), ranks(1)], middle = (pairs.length - 1) / 2, sum = f => a.reduce((s, _, i) => s + f(a[i] - middle, b[i] - middle), 0), spread = sum(x => x * x) * sum((_, y) => y * y);
  return spread ? sum((x, y) => x * y) / Math.sqrt(spread) : null;
}

let sweep = null, latest = null;
async function showOne(all) {
  const s = all.find(s => s.name === view.name);
  if (!s) { nothing(`there is no sweep ${clean(view.name)}`); return; }
  const fresh = differs($("one"), s);
  $("one").hidden = false;
  $("title").textContent = clean(s.name);
  document.title = `${clean(s.name)} · drun`;
  $("crumb").hidden = false;
  $("crumb").textContent = clean(s.name);
  const tile = (label, value) => el("div", null, el("small", null, label), el("strong", null, value)), count = kind => s.runs.filter(r => r.status === kind).length;
  $("tiles").replaceChildren(tile("cells", `${ended(s)} of ${s.cells}`), ...["pending", "running", "failed", "stopped early"].filter(count).map(kind => tile(kind, String(count(kind)))), tile("recipe", s.recipe.split("/").at(-1)));
  $("command").textContent = clean(s.command.map(w => /^[\w@%+=:,.\/-]+$/.test(w) ? w : `'${w.replaceAll("'", "'\\''")}'`).join(" "));
  if (!fresh && !s.runs.some(goesOn)) return;
  latest = await api("compare", { run: s.runs.slice(-500).map(r => r.id) });
  const metrics = [...new Set([...latest.differences, ...latest.same].filter(d => d.kind === "metric" && d.name.endsWith(".last")).map(d => d.name.slice(0, -".last".length)))].sort();
  view.metric = metrics.includes(view.metric) ? view.metric : metrics.includes(s.objective) ? s.objective : metrics.find(m => /loss|err/.test(m)) ?? metrics[0] ?? "";
  view.goal ||= view.metric === s.objective ? s.largest ? "max" : "min" : /acc|score|f1|auc|reward/.test(view.metric) ? "max" : "min";
  $("metric").replaceChildren(...metrics.map(m => el("option", { value: m }, m)));
  $("metric").value = view.metric;
  $("goal").value = view.goal;
  sweep ??= new Sweep($("sweep"), view, keep, () => null);
  judge(s);
}

function judge(s) {
  const last = reference("metrics", view.metric) + ".last", state = new Map(s.runs.map(r => [r.id, r.status]));
  const rows = [...latest.differences, ...latest.same], results = rows.find(d => d.kind === "metric" && d.name === view.metric + ".last")?.values ?? latest.runs.map(() => null);
  const parameters = latest.differences.filter(d => d.kind === "parameter"), sign = view.goal === "max" ? -1 : 1;
  const usable = i => typeof results[i] === "number" && state.get(latest.runs[i].id) !== "stopped early";
  // A run that was ended early is never the best, as for drun sweep.
  const order = latest.runs.map((_, i) => i).sort((a, b) => usable(b) - usable(a) || (usable(a) ? sign * (results[a] - results[b]) : 0));
  fill($("best"), ["run", view.metric, ...parameters.map(p => p.name), "status"], order.map(i => [runLink(latest.runs[i].id, latest.runs[i].name), results[i], ...parameters.map(p => p.values[i]), status(state.get(latest.runs[i].id))]));
  const used = results.map((y, i) => usable(i) ? y : null), importance = parameters.map(p => [p.name, explained(p.values, used), rising(p.values, used)]).sort((a, b) => (b[1] ?? -1) - (a[1] ?? -1));
  fill($("importance"), ["parameter", "variance explained", "direction"], importance.map(([name, part, rho]) => {
    const bar = el("span", { class: "meter", "aria-hidden": "true" }, el("i"));
    bar.firstChild.style.width = `${100 * (part ?? 0)}%`;
    return [name, part === null ? "-" : el("span", { class: "n" }, `${Math.round(100 * part)} %`, bar), rho === null ? "-" : Math.abs(rho) < 0.2 ? "neither" : `${(rho > 0) === (view.goal === "max") ? "large" : "small"} values are better`];
  }));
  $("method").textContent = parameters.length ? "The part of the variance of the objective that a parameter explains alone, over the finished cells: epsilon squared (one-way analysis of variance, adjusted for the number of values). The direction is Spearman's rank correlation, where it is at least 0.2." : "No parameter differs.";
  $("curves").href = path("index.html", { where: `id in [${latest.runs.map(r => r.id).join(", ")}]`, sort: (view.goal === "max" ? "-" : "") + last });
  view.axes = view.axes.length ? view.axes : [...parameters.slice(0, 7).map(p => reference("params", p.name)), last];
  $("sweep").hidden = !sweep.update(latest);
}

async function refresh() {
  const all = await api("sweeps");
  if (view.name) await showOne(all); else listAll(all);
  refresh.going = all.some(s => s.runs.some(goesOn));
  $("fault").textContent = "";
  document.documentElement.dataset.ready = "";
}
for (const id of ["metric", "goal"]) $(id).addEventListener("change", () => {
  const was = reference("metrics", view.metric) + ".last";
  view[id] = $(id).value;
  if (id === "metric") view.axes = view.axes.map(a => a === was ? reference("metrics", view.metric) + ".last" : a);
  view.y = "";
  keep();
  $("one").shows = "";
  refresh();
});
$("copy").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText($("command").textContent); $("copy").textContent = "Copied"; } catch { getSelection().selectAllChildren($("command")); }
});
live(async () => { try { await refresh(); } catch (e) { $("fault").textContent = why(e); } }, 5000, () => refresh.going);
refresh().catch(e => { $("fault").textContent = why(e); });
