// What each rank of a run does: now, while the run goes on; otherwise when the history was last told.
"use strict";

const askEvery = 1000, longWait = 10; // milliseconds; seconds

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
  if (r instanceof Error) { $("silent").textContent = r.text ?? String(r); return; }
  const s = r.snapshot, going = run.status === "running";
  $("ranks").hidden = !s && !going;
  $("h-ranks").textContent = r.live ? "What each rank is doing" : "What each rank was doing";
  $("silent").textContent = r.problem ? clean(r.problem) + (r.hint ? "; " + clean(r.hint) : "") : "";
  $("when").textContent = s ? (r.live && !window.exported ? `Now, at ${clock(s.time)}.` : clean(`At ${when(s.time)} (${s.reason}).`)) : going ? "The ranks have not started yet." : "";
  const list = s?.ranks ?? [], dash = v => v === "" || v === 0 ? "-" : v;
  fill($("doing"), ["rank", "state", "since", "call", "number", "group", "position"], list.map(k => [k.rank, k.state, duration(k.seconds), k.call && k.state !== "waiting" ? "(last) " + k.call : dash(k.call), dash(k.number), dash(k.group), dash(place(k.position))]));
  list.forEach((k, i) => { if (k.state === "waiting" && k.seconds >= longWait) $("doing").tBodies[0].rows[i].className = "long"; });
  const calls = list.flatMap(k => k.recent.map(c => [k.rank, c.call, dash(c.number), dash(c.group), place(c.position), `${duration(c.ago)} before`, c.seconds === null ? (c.async ? "not waited for" : "not ended") : duration(c.seconds)]));
  $("before").hidden = !calls.length;
  if ($("before").open) fill($("calls"), ["rank", "call", "number", "group", "position", "started", "took"], calls);
  marks(list);
}
const clock = t => new Date(t).toLocaleTimeString();

// marks shows the lines of the recipe at which ranks are.
function marks(list) {
  const at = new Map(); // by file, the ranks by line
  for (const k of list) {
    const [file, line] = located(k.position);
    if (!file) continue;
    if (!at.has(file)) at.set(file, []);
    (at.get(file)[line - 1] ??= []).push(k.rank);
  }
  const shown = JSON.stringify([...at].map(([f, who]) => [f.path, who]));
  if (marks.shown === shown) return; // whoever reads there has scrolled
  marks.shown = shown;
  $("marked").replaceChildren(...[...at].flatMap(([f, who]) => {
    const near = i => Array.from({ length: 9 }, (_, n) => who[i - 4 + n]).some(w => w);
    return [el("h3", null, f.path), el("pre", { tabindex: 0, "aria-label": "lines of " + clean(f.path) }, numbered(f.content.replace(/\n$/, "").split("\n"), near, who))];
  }));
}

// watchRanks asks again and again while the run goes on and the page is seen; once more when it has ended.
async function watchRanks() {
  await ranks();
  if (window.exported) return;
  for (;;) {
    await new Promise(done => setTimeout(done, askEvery));
    if (run.status === "running" && !document.hidden) await ranks();
  }
}
