// Small curves and bars in the cells of the table.
"use strict";

// meter is how long the bar under a number is: how large the number is among the column's, from the smallest to the largest that were fetched, in percent.
function meter(h, v) {
  if (inCharts() || typeof v !== "number" || h === "id") return null;
  let span = spans.get(h);
  if (!span) {
    const all = [...parts.values()].flat().map(r => r[h]).filter(v => typeof v === "number");
    spans.set(h, span = [Math.min(...all), Math.max(...all)]);
  }
  return span[1] > span[0] ? 100 * (v - span[0]) / (span[1] - span[0]) : null;
}
const spans = new Map(); // by column

// Small curves of the rows that can be seen, a column at a time when nothing else is asked.
const sparks = new Map(); // by column and run: the points of a path
const metricOf = h => {
  const at = h.startsWith("metrics") && h.endsWith(".last") ? h.slice(0, -".last".length) : "";
  try { return at.startsWith("metrics.") ? at.slice(8) : at.startsWith("metrics[") ? JSON.parse(at.slice(8, -1)) : ""; } catch { return ""; } // 'quoted' otherwise
};
function sparkOf(run, h) {
  if (inCharts() || window.exported || !metricOf(h) || run[h] === null) return "";
  return svg("svg", { class: "spark", viewBox: "0 0 64 18", "aria-hidden": "true", "data-spark": h }, sparks.has(h + "\n" + run.id) ? svg("path", { d: sparks.get(h + "\n" + run.id) }) : null);
}
let sparking = false, sparkLater;
function spark() {
  clearTimeout(sparkLater);
  if (!inCharts() && !window.exported) sparkLater = setTimeout(async () => {
    if (sparking) return spark();
    sparking = true;
    try {
      for (const h of heads.filter(metricOf)) {
        const missing = [...$("rows").children].map(r => runAt(r.dataset.i)).filter(r => r && r[h] !== null && r[h] !== undefined && (!sparks.has(h + "\n" + r.id) || r.status === "running")).slice(0, 60);
        if (!missing.length) continue;
        for (const r of missing) sparks.set(h + "\n" + r.id, sparks.get(h + "\n" + r.id) ?? "");
        for (const c of await api("curves", { run: missing.map(r => r.id), metric: metricOf(h), points: 32 })) {
          const ys = c.y.filter(y => y !== null), low = Math.min(...ys), high = Math.max(...ys), x0 = c.x[0], wide = c.x.at(-1) - x0 || 1;
          sparks.set(h + "\n" + c.run, ys.length < 2 ? "" : c.x.map((x, i) => [x, c.y[i]]).filter(p => p[1] !== null).map(([x, y], i) => `${i ? "L" : "M"}${(1 + 62 * (x - x0) / wide).toFixed(1)} ${(16 - 14 * (y - low) / (high - low || 1)).toFixed(1)}`).join(""));
        }
        for (const place of $("rows").querySelectorAll(`[data-spark="${CSS.escape(h)}"]`)) {
          const d = sparks.get(h + "\n" + place.closest("tr").dataset.run);
          if (d) place.replaceChildren(svg("path", { d }));
        }
      }
    } catch { /* the rows say what is wrong with the history */ }
    sparking = false;
  }, 150);
}
