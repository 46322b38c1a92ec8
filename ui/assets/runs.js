// The table of runs. Only the rows that can be seen are in the page; their values are fetched in parts.
"use strict";

const rowHeight = 28, part = 100, spare = 10;
const address = new URLSearchParams(location.search);
const view = { where: address.get("where") ?? "", columns: address.get("columns") ?? "", sort: address.get("sort") ?? "" };
let total = 0, heads = [], parts = new Map(), turn = 0, names = null;
const selected = new Map(); // id to name
const fixed = ["id", "name", "status"];

// usual are the columns until the user names others: what a run is, and some of what the newest runs have.
function usual() {
  return ["recipe", "world_size", "started", "seconds", "tags",
    ...names.recent_params.slice(0, 3).map(n => reference("params", n)), ...names.recent_metrics.slice(0, 4).map(n => reference("metrics", n) + ".last")].join(", ");
}
const wanted = () => [fixed.join(", "), view.columns || usual()].join(", ");

function fetchPart(n) {
  return api("runs", { where: view.where, sort: view.sort, columns: wanted(), offset: n * part, limit: part });
}

// load gets what can be seen anew; fresh forgets what was there before.
async function load(fresh) {
  const mine = ++turn;
  const [first, last] = seen();
  const numbers = [];
  for (let n = Math.floor((fresh ? 0 : first) / part); n <= Math.floor((fresh ? part - 1 : Math.max(last - 1, 0)) / part); n++) numbers.push(n);
  let answers;
  try {
    answers = await Promise.all(numbers.map(fetchPart));
  } catch (e) {
    if (mine !== turn) return;
    $("fault").className = "";
    $("fault").textContent = e.text ?? String(e);
    $("where").setAttribute("aria-invalid", "true");
    return;
  }
  if (mine !== turn) return;
  $("where").removeAttribute("aria-invalid");
  $("fault").className = "note";
  $("fault").textContent = answers[0].notes.map(clean).join("\n");
  parts = new Map();
  total = answers[0].total;
  numbers.forEach((n, i) => parts.set(n, answers[i].runs));
  if (answers[0].runs.length) heads = Object.keys(answers[0].runs[0]);
  else heads = fixed;
  if (fresh) $("scroll").scrollTop = 0;
  head();
  rows();
  $("count").textContent = total === 1 ? "1 run" : `${total} runs`;
  if (document.documentElement.dataset.ready === undefined) performance.mark("ready");
  document.documentElement.dataset.ready = "";
}

// seen are the first row that can be seen and the one after the last.
function seen() {
  const top = Math.max(0, Math.floor($("scroll").scrollTop / rowHeight) - spare);
  return [Math.min(top, total), Math.min(total, top + Math.ceil($("scroll").clientHeight / rowHeight) + 2 * spare)];
}

function head() {
  const key = heads.join("\n") + "\n" + view.sort;
  if ($("heads").dataset.key === key) return;
  $("heads").dataset.key = key;
  $("heads").replaceChildren(el("th", { scope: "col" }, el("span", { class: "soft" }, "✓")), ...heads.map(h => {
    const sorted = view.sort === h ? "ascending" : view.sort === "-" + h ? "descending" : null;
    return el("th", { scope: "col", "aria-sort": sorted }, el("button", { type: "button", title: h, onclick: () => {
      // The largest first is what one looks for in a metric, and the first letter in a name.
      const down = h.startsWith("metrics");
      view.sort = sorted === null ? (down ? "-" + h : h) : sorted === (down ? "descending" : "ascending") ? (down ? h : "-" + h) : "";
      show();
    } }, h + (sorted ? sorted === "ascending" ? " ▲" : " ▼" : "")));
  }));
}

function cell(h, v) {
  if (h === "name" || h === "status") return h === "status" ? status(v) : null;
  if (v === null) return "-";
  if (h === "started") return when(v);
  if (h === "seconds") return duration(v);
  return text(v);
}

function row(i) {
  const run = parts.get(Math.floor(i / part))?.[i % part];
  const r = el("tr", { "aria-rowindex": i + 2 });
  r.dataset.i = i;
  if (!run) { r.append(el("td", { colspan: heads.length + 1, class: "soft" }, "…")); need(Math.floor(i / part)); return r; }
  r.dataset.key = JSON.stringify(run);
  const tick = el("input", { type: "checkbox", "aria-label": `select run ${run.id} ${clean(run.name)}`, onchange: e => {
    if (e.target.checked) selected.set(run.id, run.name); else selected.delete(run.id);
    r.classList.toggle("chosen", e.target.checked);
    choice();
  } });
  tick.checked = selected.has(run.id);
  r.classList.toggle("chosen", tick.checked);
  r.append(el("td", null, tick), ...heads.map(h => h === "name" ? el("th", { scope: "row" }, el("a", { href: "run.html?id=" + run.id }, run.name))
    : el("td", { class: isNumeric(run[h]) ? "n" : null, title: typeof run[h] === "string" ? clean(run[h]) : null }, cell(h, run[h]))));
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
    $("fault").textContent = e.text ?? String(e);
  } finally {
    asked.delete(n);
  }
}

// rows puts those that can be seen into the page, and leaves alone those that are there already, with the focus.
function rows() {
  const [first, last] = seen();
  const there = new Map([...$("rows").children].map(r => [Number(r.dataset.i), r]));
  const now = [];
  for (let i = first; i < last; i++) {
    const old = there.get(i), run = parts.get(Math.floor(i / part))?.[i % part];
    if (old && (run ? old.dataset.key === JSON.stringify(run) && Number(old.dataset.width) === heads.length : false)) { now.push(old); continue; }
    const made = row(i);
    made.dataset.width = heads.length;
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
  gap($("below"), total - last);
  $("runs").setAttribute("aria-rowcount", total + 1);
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
    api("curves", { run: [...selected.keys()].slice(0, 100), metric: names.recent_metrics[0] ?? "loss", points: 4 }).catch(() => {});
  }, 200);
  $("compare").disabled = selected.size < 1;
  $("none").disabled = selected.size < 1;
  $("compare").textContent = selected.size ? `Compare ${selected.size} selected` : "Compare";
}

// show keeps the view in the address and loads it.
function show() {
  history.replaceState(null, "", path(location.pathname, view));
  return load(true);
}

$("choose").addEventListener("submit", e => {
  e.preventDefault();
  view.where = $("where").value;
  view.columns = $("columns").value === usual() ? "" : $("columns").value;
  show();
});
$("reset").addEventListener("click", () => {
  Object.assign(view, { where: "", columns: "", sort: "" });
  $("where").value = "";
  $("columns").value = usual();
  show();
});
$("compare").addEventListener("click", () => { location.href = path("compare.html", { run: [...selected.keys()] }); });
$("none").addEventListener("click", () => {
  selected.clear();
  for (const t of $("rows").querySelectorAll("input")) { t.checked = false; t.closest("tr").classList.remove("chosen"); }
  choice();
});
$("scroll").addEventListener("scroll", () => requestAnimationFrame(rows), { passive: true });
window.addEventListener("resize", rows);
$("rows").addEventListener("keydown", e => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[e.key], line = e.target.closest("tr");
  if (!step || !line) return;
  e.preventDefault();
  const to = $("rows").querySelector(`tr[data-i="${Number(line.dataset.i) + step}"]`);
  to?.querySelector(e.target.tagName)?.focus();
});

async function begin() {
  try {
    names = await api("names", { recent: 1 });
  } catch (e) {
    $("fault").textContent = e.text;
    names = { fields: [], params: [], metrics: [], metric: [], recent_params: [], recent_metrics: [] };
  }
  $("where").value = view.where;
  $("columns").value = view.columns || usual();
  const all = () => [...names.fields, ...names.params.map(n => reference("params", n)),
    ...names.metrics.flatMap(n => names.metric.map(m => reference("metrics", n) + "." + m))];
  complete($("where"), all);
  complete($("columns"), all);
  choice();
  if (window.exported) for (const id of ["where", "columns"]) { $(id).disabled = true; $(id).placeholder = "only where drun ui serves the pages"; }
  await load(true);
  const learn = async () => { const all = await api("names"); names.params = all.params; names.metrics = all.metrics;
    if (document.activeElement.value) document.activeElement.dispatchEvent(new Event("input")); // what was typed meanwhile
  };
  $("where").addEventListener("focus", learn, { once: true });
  $("columns").addEventListener("focus", learn, { once: true });
  live(async () => {
    if (!total) {
      const typed = $("columns").value !== usual();
      names = await api("names");
      if (!typed) $("columns").value = usual();
    }
    await load(false);
  }, 5000);
}
begin();
