// Answers what the pages ask from files beside them, in pages that drun ui --export has written.
"use strict";

const exportedFiles = new Map(); // by name
window.exportedData = (name, json) => exportedFiles.get(name).resolve(JSON.parse(json));
function exportedFile(name) {
  if (!exportedFiles.has(name)) {
    const file = {};
    exportedFiles.set(name, file);
    file.promise = new Promise((resolve, reject) => {
      file.resolve = resolve;
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onerror = () => reject(new Fault("this run was not exported"));
      document.head.append(script);
    });
  }
  return exportedFiles.get(name).promise;
}

window.exported = async (what, ask) => {
  const index = await exportedFile("index");
  const find = ref => ref === "last" ? index.newest : index.runs.find(r => String(r.id) === String(ref) || r.name === ref)?.id ?? ref;
  if (what === "names") return index.names;
  if (what === "runs") {
    const head = ask.sort.replace(/^-/, ""), sign = ask.sort.startsWith("-") ? -1 : 1, last = v => v === null || v === undefined || v === "NaN";
    const runs = !head ? index.runs : [...index.runs].sort((a, b) => {
      const x = a[head], y = b[head];
      return last(x) || last(y) ? last(x) - last(y) : sign * (x < y ? -1 : x > y ? 1 : 0);
    });
    return { runs: runs.slice(ask.offset, ask.offset + ask.limit), total: runs.length, notes: [] };
  }
  if (what === "compare") {
    const all = index.compare, at = ask.run.map(ref => all.runs.findIndex(r => r.id === find(ref)));
    if (at.includes(-1)) throw new Fault("a run was not exported");
    const rows = [...all.differences, ...all.same].map(d => ({ ...d, values: at.map(i => d.values[i]) })).filter(d => d.values.some(v => v !== null));
    const same = d => d.values.every(v => JSON.stringify(v) === JSON.stringify(d.values[0]));
    return { runs: at.map(i => all.runs[i]), differences: rows.filter(d => !same(d)), same: rows.filter(same), recipe_diff: null };
  }
  if (what === "curves") {
    const runs = await Promise.all(ask.run.map(ref => exportedFile("run-" + find(ref))));
    return runs.map(r => r.curves[ask.x]?.[ask.metric]).filter(c => c);
  }
  const [, ref, part] = /^runs\/([^/]+)(?:\/(.*))?$/.exec(what);
  const run = await exportedFile("run-" + find(decodeURIComponent(ref)));
  if (part === "logs") {
    let pattern;
    try { pattern = new RegExp(ask.grep); } catch (e) { throw new Fault(e.message); }
    return { ...run.logs, lines: ask.after ? [] : run.logs.lines.filter(l => (ask.rank === "" || l.rank === Number(ask.rank)) && pattern.test(l.text)) };
  }
  if (part === "sources/diff") throw new Fault("exported pages have no differences of files");
  return run[part ?? "show"];
};
