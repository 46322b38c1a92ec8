// What each rank of a run does: now, while the run goes on; otherwise when the history was last told.
"use strict";

const longWait = 10; // seconds

// located finds the captured file and the line that a position is at: positions name files as the run's command did, perhaps
// from another folder. place names it as the run's sources do.
function located(position) {
  const m = /^(.*?):(\d+)(:\d+)?$/.exec(position);
  const file = m && (files ?? []).filter(f => m[1] === f.path || m[1].endsWith("/" + f.path)).sort((a, b) => b.path.length - a.path.length)[0];
  return file ? [file, Number(m[2]), file.path + position.slice(m[1].length)] : [];
}
const place = position => located(position)[2] ?? position;

let asked = 0;
async function ranks() {
  const mine = ++asked;
  let r;
  try {
    r = await api(of("ranks"));
  } catch (e) {
    r = e;
  }
  if (mine !== asked) return; // a later answer has come, or will
  if (r instanceof Error) $("silent").textContent = why(r);
  else showRanks(r);
}

function showRanks(r) {
  asked++;
  const s = r.snapshot, going = run.status === "running";
  $("ranks").hidden = !s && !going;
  showTab();
  $("h-ranks").textContent = r.live ? "What each rank is doing" : "What each rank was doing";
  $("silent").textContent = r.problem ? clean(r.problem) + (r.hint ? "; " + clean(r.hint) : "") : "";
  $("when").textContent = s ? (r.live && !window.exported ? `Now, at ${clock(s.time)}.` : clean(`At ${when(s.time)} (${s.reason}).`)) : going ? "The ranks have not started yet." : "";
  const list = s?.ranks ?? [], dash = v => v === "" || v === 0 ? "-" : v;
  fill($("doing"), ["rank", "state", "since", "call", "number", "group", "position"], list.map(k => [k.rank, k.state, duration(k.seconds), k.call && k.state !== "waiting" ? "(last) " + k.call : dash(k.call), dash(k.number), dash(k.group), dash(place(k.position))]));
  list.forEach((k, i) => { $("doing").tBodies[0].rows[i].className = k.state === "waiting" && k.seconds >= longWait ? "long" : ""; });
  widest($("doing"));
  if (list.length && !list.some(k => k.recent)) { $("before").hidden = false; marks(list); return; } // what they called before was not asked for
  const calls = list.flatMap(k => k.recent.map(c => [k.rank, c.call, dash(c.number), dash(c.group), place(c.position), `${duration(c.ago)} before`, c.seconds === null ? (c.async ? "not waited for" : "not ended") : duration(c.seconds)]));
  $("before").hidden = !calls.length;
  if ($("before").open) fill($("calls"), ["rank", "call", "number", "group", "position", "started", "took"], calls);
  marks(list);
}
// widest keeps a table as wide as it was once: what is beside it would move to and fro.
function widest(table) {
  const now = table.offsetWidth;
  if (now > (table.widest ?? 0)) table.style.minWidth = `${table.widest = now}px`;
}
const clock = t => new Date(t).toLocaleTimeString();

// marks shows the lines of the recipe at which ranks are, and those at which they have been: so that nothing moves where they go to
// and fro.
const visited = new Map(); // by file, lines
function marks(list) {
  const at = new Map(); // by file, the ranks by line
  let grown = false;
  for (const k of list) {
    const [file, line] = located(k.position);
    if (!file) continue;
    if (!at.has(file)) at.set(file, []);
    (at.get(file)[line - 1] ??= []).push(k.rank);
    if (!visited.has(file)) visited.set(file, new Set());
    grown ||= !visited.get(file).has(line - 1);
    visited.get(file).add(line - 1);
  }
  if (grown) $("marked").replaceChildren(...[...visited].flatMap(([f, been]) => {
    const near = i => Array.from({ length: 9 }, (_, n) => been.has(i - 4 + n)).some(b => b);
    return [el("h3", null, f.path), Object.assign(el("pre", { tabindex: 0, "aria-label": "lines of " + clean(f.path) }, numbered(linesOf(f), near)), { file: f })];
  }));
  for (const pre of $("marked").querySelectorAll("pre")) for (const been of visited.get(pre.file)) {
    const line = pre.querySelector(`[data-line="${been}"]`), who = at.get(pre.file)?.[been];
    if (!line || !differs(line, who ?? [])) continue;
    line.classList.toggle("at", Boolean(who));
    line.querySelector(".who")?.remove();
    if (who) line.append(el("span", { class: "who" }, `  ◂ ${ranksIn(who)}`));
  }
}
