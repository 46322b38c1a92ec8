// Answers what the pages ask from files beside them, in pages that drun ui --export has written.
"use strict";

const exportedFiles = new Map(); // by name
window.exportedData = (name, json) => {
  const value = JSON.parse(json);
  if (exportedFiles.has(name)) exportedFiles.get(name).resolve(value);
  else exportedFiles.set(name, { promise: Promise.resolve(value) }); // in a report, which has it within
};
// In a report of one file there are no other pages; images lie within it, by their files' names.
let exportedImages = null;
window.exportedAlone = images => { exportedImages = images; };
const exportedImage = file => exportedImages?.[file] ?? file;
function exportedFile(name) {
  if (!exportedFiles.has(name)) {
    if (exportedImages) return Promise.reject(new Fault("this is not in the report"));
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

// Curves are smoothed by these weights of the past; ui/export.go has the same.
window.exportedSmoothing = [0.75, 0.91, 0.96, 0.99];

const sayWhy = "exported pages know comparisons of the table's columns with numbers and texts, joined by and; drun ui takes the whole language";
const typeOf = v => v === null ? "none" : typeof v === "boolean" ? "bool" : Array.isArray(v) ? "list" : typeof v === "number" ? "number" : "string";
const compared = { "==": (a, b) => a === b, "!=": (a, b) => a !== b, "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b };

// condition reads the part of the language of --where that needs no server, and refuses all else: it returns a test of a run.
function condition(where, runs) {
  const literal = /^(?:(-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|("(?:[^"\\]|\\["\\])*"|'(?:[^'\\]|\\['\\])*')|(True|False))(?![\w.])/;
  const columns = runs.length ? Object.keys(runs[0]).sort((a, b) => b.length - a.length) : [];
  let rest = where.trim();
  const refuse = () => { throw new Fault(`where: at "${rest.slice(0, 40)}": ${sayWhy}`); };
  const take = pattern => { const m = pattern.exec(rest); if (!m) refuse(); rest = rest.slice(m[0].length).trimStart(); return m; };
  const value = () => { const [, n, t, b] = take(literal); return n !== undefined ? Number(n) : t !== undefined ? t.slice(1, -1).replace(/\\(.)/g, "$1") : b === "True"; };
  const column = () => {
    const name = columns.find(c => rest.startsWith(c) && !/^[\w.[(]/.test(rest.slice(c.length)));
    if (!name) refuse();
    rest = rest.slice(name.length).trimStart();
    return name;
  };
  // Numbers that JSON lacks are texts in a column of numbers.
  const numeric = new Map(columns.map(c => [c, c.startsWith("metrics") || runs.some(r => typeof r[c] === "number")]));
  const of = (run, c) => { const v = run[c] ?? null; return numeric.get(c) && isNumeric(v) ? Number(v) : v; };
  const tests = [];
  for (;;) {
    if (/^["']/.test(rest)) {
      const wanted = value();
      take(/^in(?![\w.])/);
      const name = column();
      tests.push(r => { const v = of(r, name); if (!Array.isArray(v)) refuse(); return v.includes(wanted); });
    } else {
      const name = column(), several = /^in\s*\[/.test(rest);
      if (several) {
        take(/^in\s*\[/);
        const list = [];
        while (!rest.startsWith("]")) { list.push(value()); if (!rest.startsWith("]")) take(/^,/); }
        take(/^\]/);
        tests.push(r => list.includes(of(r, name)));
      } else {
        const op = take(/^(==|!=|<=|>=|<|>)/)[1], wanted = value();
        if (op === "!=" && runs.some(r => of(r, name) === null)) throw new Fault(`where: some runs have no ${name}, or None: ${sayWhy}`);
        tests.push(r => {
          const v = of(r, name), kind = typeOf(v);
          if (kind === "none") return false;
          if (op !== "==" && op !== "!=" && (kind !== typeOf(wanted) || kind === "list")) throw new Fault(`where: ${name} is a ${kind} in run ${r.id}, and cannot be compared with a ${typeOf(wanted)} (${op})`);
          return compared[op](v, wanted);
        });
      }
    }
    if (!rest) return r => tests.every(t => t(r));
    take(/^and(?![\w.])/);
  }
}

// summed sums up a column of a group, as ui/groups.go does.
function summed(all) {
  const values = all.filter(v => v !== null);
  if (values.every(v => JSON.stringify(v) === JSON.stringify(values[0]))) return { same: values[0] };
  if (values.some(v => !isNumeric(v))) return {};
  const numbers = values.filter(v => v !== "NaN").map(Number);
  return numbers.length ? { mean: numbers.reduce((a, b) => a + b, 0) / numbers.length, min: Math.min(...numbers), max: Math.max(...numbers) } : {};
}

function groupsOf(index, runs, by, columns) {
  const row = [...index.compare.differences, ...index.compare.same].find(d => d.kind === "parameter" && reference("params", d.name) === by);
  if (!row && runs.length && !(by in runs[0])) throw new Fault(`group: exported pages group by the columns of the table and by parameters: "${by}" needs drun ui`);
  const value = r => (by in r ? r[by] : row.values[index.compare.runs.findIndex(o => o.id === r.id)]) ?? null;
  const all = new Map();
  for (const r of runs) { const key = JSON.stringify(value(r)); all.set(key, [...(all.get(key) ?? []), r]); }
  return [...all.values()].map(of => ({ value: value(of[0]), ids: of.map(r => r.id), cells: columns.map(c => summed(of.map(r => r[c] ?? null))), runs: of })).sort((a, b) => before(a.value, b.value));
}

// unified is the unified diff of two texts, with three lines of context, by the shortest list of edits.
function unified(names, texts) {
  const [a, b] = texts.map(t => t === "" ? [] : t.replace(/\n$/, "").split("\n"));
  const n = a.length, m = b.length, trail = [];
  let v = new Map([[1, 0]]), edits = [];
  search: for (let d = 0; d <= n + m; d++) {
    trail.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || k !== d && v.get(k - 1) < v.get(k + 1) ? v.get(k + 1) : v.get(k - 1) + 1;
      while (x < n && x - k < m && a[x] === b[x - k]) x++;
      v.set(k, x);
      if (x >= n && x - k >= m) break search;
    }
  }
  for (let d = trail.length - 1, x = n, y = m; d >= 0; d--) {
    const w = trail[d], k = x - y, up = k === -d || k !== d && w.get(k - 1) < w.get(k + 1), fromX = d ? w.get(up ? k + 1 : k - 1) : 0, fromY = d ? fromX - (up ? k + 1 : k - 1) : 0;
    while (x > fromX && y > fromY && a[x - 1] === b[y - 1]) edits.push([" ", a[x - 1], --x, --y]);
    if (d) edits.push(up ? ["+", b[fromY], x, fromY] : ["-", a[fromX], fromX, y]);
    [x, y] = [fromX, fromY];
  }
  edits = edits.reverse();
  const near = edits.map((_, i) => edits.slice(Math.max(0, i - 3), i + 4).some(e => e[0] !== " ")), out = [];
  for (let i = 0; i < edits.length; i++) {
    if (!near[i]) continue;
    const hunk = [];
    const first = edits[i];
    for (; i < edits.length && near[i]; i++) hunk.push(edits[i]);
    const count = sign => hunk.filter(e => e[0] !== sign).length, at = (start, count) => `${count ? start + 1 : start},${count}`;
    out.push(`@@ -${at(first[2], count("+"))} +${at(first[3], count("-"))} @@`, ...hunk.map(e => e[0] + e[1]));
  }
  return out.length ? [`--- ${names[0]}`, `+++ ${names[1]}`, ...out, ""].join("\n") : "";
}

// sourceDiff compares the captured files of two runs; recipes are taken for the same file, whatever their paths.
function sourceDiff(runs, ids) {
  const sides = runs.map(r => new Map(r.sources.map(f => [f.role === "recipe" ? "recipe" : f.path, f])));
  return [...new Set([...sides[0].keys(), ...sides[1].keys()])].map(k => unified(sides.map((s, i) => s.has(k) ? `run ${ids[i]}: ${s.get(k).path}` : "/dev/null"), sides.map(s => s.get(k)?.content ?? ""))).join("");
}

window.exported = async (what, ask) => {
  if (what === "content") return Uint8Array.from(atob((await exportedFile("content-" + ask.sha256)).base64), c => c.charCodeAt(0)).buffer;
  const index = await exportedFile("index");
  const find = ref => ref === "last" ? index.newest : index.runs.find(r => String(r.id) === String(ref) || r.name === ref)?.id ?? ref;
  const ofRun = ref => exportedFile("run-" + find(ref));
  if (what === "names") return ask.run ? { metrics: [...new Set(index.compare.runs.flatMap((r, i) => ask.run.map(String).includes(String(r.id)) ? [...index.compare.differences, ...index.compare.same].filter(d => d.kind === "metric" && d.name.endsWith(".last") && d.values[i] !== null).map(d => d.name.slice(0, -".last".length)) : []))] } : index.names;
  if (what === "sweeps") return index.sweeps;
  if (what === "runs") {
    const head = ask.sort.replace(/^-/, ""), sign = ask.sort.startsWith("-") ? -1 : 1, last = v => v === null || v === undefined || v === "NaN";
    let runs = ask.where.trim() ? index.runs.filter(condition(ask.where, index.runs)) : [...index.runs];
    if (head) runs.sort((a, b) => last(a[head]) || last(b[head]) ? last(a[head]) - last(b[head]) : sign * before(a[head], b[head]));
    const groups = ask.group ? groupsOf(index, runs, ask.group, runs.length ? Object.keys(runs[0]) : []) : undefined;
    if (groups) runs = groups.flatMap(g => g.runs);
    return { runs: runs.slice(ask.offset, ask.offset + ask.limit), total: runs.length, notes: [], groups };
  }
  if (what === "compare") {
    const all = index.compare, at = (ask.run.length ? ask.run : all.runs.map(r => r.id)).map(ref => all.runs.findIndex(r => r.id === find(ref)));
    if (at.includes(-1)) throw new Fault("a run was not exported");
    const rows = [...all.differences, ...all.same].map(d => ({ ...d, values: at.map(i => d.values[i]) })).filter(d => d.values.some(v => v !== null));
    const same = d => d.values.every(v => JSON.stringify(v) === JSON.stringify(d.values[0])), runs = at.map(i => all.runs[i]);
    return { runs, differences: rows.filter(d => !same(d)), same: rows.filter(same), recipe_diff: runs.length === 2 ? sourceDiff(await Promise.all(runs.map(r => ofRun(r.id))), runs.map(r => r.id)) : "" };
  }
  if (what === "curves") {
    if (ask.group) throw new Fault("the mean of groups is not in exported pages", "drun ui shows it");
    const runs = await Promise.all(ask.run.map(ofRun));
    return runs.map(r => r.curves[ask.x]?.[ask.metric]).filter(c => c).map(c => ({ ...c, smooth: ask.smooth ? c.smooths[window.exportedSmoothing.indexOf(ask.smooth)] : null }));
  }
  const [, ref, part] = /^runs\/([^/]+)(?:\/(.*))?$/.exec(what);
  const run = await ofRun(decodeURIComponent(ref));
  if (part === "logs") {
    let pattern;
    try { pattern = new RegExp(ask.grep); } catch (e) { throw new Fault(e.message); }
    return { ...run.logs, lines: ask.after ? [] : run.logs.lines.filter(l => (ask.rank === "" || l.rank === Number(ask.rank)) && pattern.test(l.text)) };
  }
  if (part === "histograms") return run.histograms[ask.name];
  if (part === "sources/diff") return { diff: sourceDiff([run, await ofRun(ask.with)], [find(decodeURIComponent(ref)), find(ask.with)]) };
  return run[part ?? "show"];
};
