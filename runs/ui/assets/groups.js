// Groups of runs: those that share the value of an expression.
"use strict";

// grouped divides runs by the value of an expression; null: there is none.
async function grouped(by, runs) {
  if (!by) return null;
  const answer = await api("runs", { where: `id in [${runs.map(r => r.id).join(", ")}]`, group: by, columns: "id", sort: "id", offset: 0, limit: 1000 });
  const groups = answer.groups, values = groups.map(g => JSON.stringify(g.value)), ofRun = new Map(groups.flatMap((g, i) => g.ids.map(id => [id, i])));
  return { by, labels: groups.map(g => `${by} = ${g.value === null ? "none" : text(g.value)}`), ids: groups.map(g => g.ids), notes: answer.notes,
    ofRun: id => ofRun.get(id) ?? groups.length, ofValue: v => Math.max(0, values.indexOf(JSON.stringify(v))) };
}
