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
  const cells = (kind, v) => isNumeric(v) || v === null ? v : (kind === "recipe" || kind === "data") && /^[0-9a-f]{64}/.test(v) ? el("span", { title: v }, v.slice(0, 12)) : v;
  if (!fill($("table"), ["what", "name", ...latest.runs.map(r => `${r.id} ${r.name}`)], rows.map(d => [d.kind, d.name, ...d.values.map(v => cells(d.kind, v))])))
    $("table").replaceChildren(el("caption", null, "nothing differs"));
}

async function refresh() {
  const c = await api("compare", { run: refs });
  const text = JSON.stringify(c);
  if (refresh.text !== text) {
    refresh.text = text;
    latest = c;
    table();
    if (!drawn) {
      document.title = "Compare " + c.runs.map(r => clean(r.name)).join(", ") + " · drun";
      $("which").replaceChildren(...c.runs.map((r, i) => {
        const swatch = el("span", { class: "swatch" });
        swatch.style.borderTopColor = colourOf(i);
        swatch.style.borderTopStyle = dashOf(i).length ? "dashed" : "solid";
        return el("li", null, swatch, el("a", { href: "run.html?id=" + r.id }, `${r.id} ${r.name}`));
      }));
      drawn = charts($("charts"), c.runs);
    }
    $("recipes").hidden = c.runs.length !== 2 || c.recipe_diff === null;
    if (!$("recipes").hidden) diffLines($("diff"), c.recipe_diff);
  }
  drawn.metrics(metricsOf(c));
  await drawn.refresh();
}

$("all").addEventListener("change", table);
(async () => {
  if (!refs.length) { $("fault").textContent = "no runs are chosen: select some in the table of runs"; return; }
  try { await refresh(); } catch (e) { $("fault").textContent = e.text ?? String(e); return; }
  live(async () => {
    try { await refresh(); $("fault").textContent = ""; } catch (e) { $("fault").textContent = e.text ?? String(e); }
  }, 600);
})();
