// One run in full.
"use strict";

// An address that names no run in either way is asked for as it is: the answer says that there is no such run.
const address = new URLSearchParams(location.search);
const id = address.get("id") ?? address.get("run") ?? (location.search.slice(1) || "last");
let run = null, drawn = null, files = null, last = 0, lines = 0;
const of = what => `runs/${encodeURIComponent(run?.id ?? id)}` + (what ? "/" + what : "");
const most = 2000; // lines of the log in the page

// The tabs: each has an address, and All has everything on one page.
const tabs = { overview: "Overview", charts: "Charts", log: "Log", ranks: "Ranks", kept: "Kept", checkpoints: "Checkpoints", code: "Code", lineage: "Lineage", all: "All" };
let tab = address.get("tab") ?? "";
const panels = [...document.querySelectorAll("[data-tab]")];
// current is the tab that is shown: without one in the address, the curves if there are any.
const current = () => tab in tabs ? tab : run && !Object.keys(run.metrics).length && !goesOn(run) ? "overview" : "charts";
const counted = {}; // by tab, how much there is
function showTab() {
  const now = current();
  for (const p of panels) p.hidden = now !== "all" && p.dataset.tab !== now;
  if (differs($("tabs"), [now, counted, id])) $("tabs").replaceChildren(...Object.entries(tabs).map(([key, label]) => el("a", { href: path(location.pathname, { id: address.get("id") ?? "", run: address.get("run") ?? "", tab: key }), "aria-current": key === now ? "page" : null, onclick: e => {
    if (e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    e.preventDefault();
    goTab(key);
  } }, label, counted[key] ? el("small", null, String(counted[key])) : "")));
  const blank = { ranks: "What ranks do is shown while a run goes on, and what they did where it failed.", kept: "The recipe has kept nothing: run.image, run.table, run.histogram and run.artifact do.", checkpoints: "The recipe has saved no checkpoint: checkpoint.save does." }[now];
  const bare = blank && run && ![...document.querySelectorAll(`[data-tab=${now}] > section`)].some(s => !s.hidden);
  $("blank").hidden = !bare;
  if (bare) $("blank").textContent = blank;
  listen();
}
function goTab(key, replaced) {
  tab = key;
  if (!replaced) history.pushState(null, "", path(location.pathname, { id: address.get("id") ?? "", run: address.get("run") ?? "", tab }));
  showTab();
  drawn?.metrics(Object.keys(run.metrics).sort());
  if (current() === "log" && $("tail").checked) $("log").scrollTop = $("log").scrollHeight;
}
addEventListener("popstate", () => goTab(new URLSearchParams(location.search).get("tab") ?? "", true));
const besideTab = by => { const list = Object.keys(tabs); goTab(list[(list.indexOf(current()) + by + list.length) % list.length]); };
keys.push(["]", "goes to the next tab", () => besideTab(1)], ["[", "goes to the one before", () => besideTab(-1)]);

function about() {
  if (differs($("title"), [run.id, run.name, run.status, run.error])) {
    $("title").replaceChildren(el("span", { class: "soft" }, `${run.id} `), clean(run.name));
    $("crumb").textContent = clean(run.name);
    $("state").replaceChildren(status(run.status));
    document.title = `${clean(run.name)} · drun`;
    $("error").hidden = !run.error;
    $("error").textContent = clean(run.error);
  }
  if (differs($("facts"), [run.status, run.started, run.seconds === null ? null : Math.round(run.seconds), run.recipe, run.parent, run.tags, run.sweep])) $("facts").replaceChildren(...[el("span", null, "started ", ago(run.started)), el("span", null, `${run.status === "running" ? "running for" : "took"} ${duration(run.seconds)}`), el("span", { title: run.recipe }, run.recipe.split("/").at(-1)),
    el("span", null, `${run.world_size} rank${run.world_size === 1 ? "" : "s"}`), run.parent ? el("span", null, "resumed from ", runLink(run.parent.id, `${run.parent.id} ${run.parent.name}`)) : "", run.sweep && !window.exported ? el("span", null, "of the sweep ", el("a", { href: path("sweep.html", { name: run.sweep.name }) }, run.sweep.name)) : "",
    run.tags.length ? el("span", null, run.tags.flatMap(t => [el("span", { class: "tag" }, t), " "])) : ""].filter(n => n));
  const ranks = `${run.world_size}, backend ${run.backend}, ${run.threads} thread${run.threads === 1 ? "" : "s"} each` + (run.deterministic ? ", deterministic" : "");
  const lost = run.status === "lost" ? "the process that led it has ended without recording how: it was killed, or its machine stopped" : "";
  const rows = [["lost", lost], ["recipe", run.recipe], ["command", run.command.join(" ")], ["ranks", ranks], ["seed", run.seed], ["started", when(run.started)],
    ["took", duration(run.seconds)], ["tags", run.tags.join(", ")], ["notes", run.notes.map(n => n.text).join("\n")], ["machine", run.host],
    ["drun", run.version], ["git", run.git ? run.git.commit + (run.git.dirty ? " and changes" : "") : ""], ["plugins", run.plugins.map(p => `${p.name} ${p.version}`).join(", ")],
    ["data files", run.data_files.map(f => f.path).join(", ")]];
  const facts = rows.filter(r => r[1] !== "" && r[1] !== null);
  if (differs($("about"), facts.map(r => r[0]))) $("about").replaceChildren(...facts.flatMap(([k]) => [el("dt", null, k), el("dd", null, "")]));
  facts.forEach(([, v], i) => say($("about").children[2 * i + 1].firstChild, v));
  const best = Object.entries(run.metrics).slice(0, 6);
  if (differs($("tiles"), best.map(m => m[0]))) $("tiles").replaceChildren(...best.map(([k]) => el("div", null, el("small", null, k), el("strong", null, ""))));
  best.forEach(([, m], i) => say($("tiles").children[i].querySelector("strong").firstChild, number(m.last)));
  const declared = Object.entries(run.params).map(([k, v]) => [k, v === null ? "None" : v]), given = declared.length || goesOn(run) ? [] : givenTo(run.command);
  part($("params"), ["name", "value"], declared.length ? declared : given);
  $("paramsnote").textContent = given.length ? "As the command gave them: the run ended before run.params had declared its parameters." : "";
  part($("metrics"), ["name", "last", "min", "max", "first", "points"], Object.entries(run.metrics).map(([k, m]) => [k, m.last, m.min, m.max, m.first, m.count]));
  $("metricsnote").textContent = run.world_size > 1 ? "Where several ranks logged a metric, the points of all of them count: first and last are those that were recorded first and last, of whichever rank." : "";
  if (differs($("lineage"), [run.attempts, run.parent, run.sweep, run.replays, children])) {
    fill($("attempts"), ["attempt", "status", "started", "took", "from step", "error"], run.attempts.map(a => [a.attempt, status(a.status), when(a.started), duration(a.seconds), a.from_step, a.error]));
    part($("replays"), ["replayed", "machine", "drun", "the same bits", "result"], run.replays.map(r => [when(r.time), r.host, r.version, r.same === null ? "" : r.same ? "yes" : "no", r.result]));
    $("lineage").replaceChildren(...(run.parent ? ["resumed from ", runLink(run.parent.id, `run ${run.parent.id} ${run.parent.name}`), ` at step ${run.parent.step}`] : ["not resumed from another run"]),
      ...(run.sweep && !window.exported ? ["; a cell of the sweep ", el("a", { href: path("sweep.html", { name: run.sweep.name }) }, run.sweep.name)] : []), ...(children.length ? ["; resumed as ", ...children.flatMap((r, i) => [i ? ", " : "", runLink(r.id, `${r.id} ${r.name}`)])] : []));
  }
  part($("usage"), ["rank", "CPU", "peak of memory", "in collectives", "of it waiting"], run.usage.map(u => [u.rank, duration(u.cpu), bytes(u.peak), duration(u.collectives), duration(u.waiting)]));
  counted.ranks = run.world_size > 1 ? run.world_size : 0;
  showTab();
  acts();
}

// acts are what the page may do with the run, if drun ui was started with --write.
function acts() {
  if (!may.write || !differs($("acts"), [run.name, run.status])) return;
  const act = (label, fn) => el("button", { type: "button", onclick: async () => {
    try {
      const body = await fn();
      if (body) { await change(of(), body); if (body.trash) { location.href = "index.html"; return; } if (body.name && address.get("id")) address.set("id", run.id); await refresh(); }
      $("actfault").textContent = "";
    } catch (e) { $("actfault").textContent = why(e); } // not in fault, which the next news of the run empties
  } }, label);
  const asks = (title, label, was, to) => async () => { const text = await ask(title, label, was); return text && text !== was ? to(text) : null; };
  $("acts").replaceChildren(act("Rename", asks("Rename this run", "Name", run.name, name => ({ name }))), act("Tag", asks("Add a tag, or remove one", "Tag", "", tag => run.tags.includes(tag) ? { untag: [tag] } : { tag: [tag] })),
    act("Note", asks("Add a note", "Note", "", note => ({ note }))), run.status === "running" ? act("Stop", async () => await sure("Stop this run?", "It ends as with drun stop; what it has saved stays.") ? { stop: true } : null) : "",
    goesOn(run) ? "" : act("Remove", async () => await sure("Remove this run?", inTrash) ? { trash: true } : null));
}
let children = [];

// part shows a table, and its section only where there is something in it.
function part(table, heads, rows) { table.closest("section").hidden = !fill(table, heads, rows); }

// ranksIn names ranks, of which there may be hundreds: "ranks 0-3, 7".
function ranksIn(list) {
  const spans = [];
  for (const r of list) r === spans.at(-1)?.[1] + 1 ? spans.at(-1)[1] = r : spans.push([r, r]);
  return (list.length > 1 ? "ranks " : "rank ") + spans.map(([a, b]) => a === b ? a : `${a}-${b}`).join(", ");
}

// inColour are the lines of a recipe, with comments, strings, words of the language, numbers and calls in colour.
const words = /("""[^]*?"""|'''[^]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(#[^\n]*)|\b(def|for|in|if|elif|else|return|load|not|and|or|while|break|continue|pass|lambda|None|True|False)\b|(\b\d[\w.]*)|(\b[A-Za-z_]\w*)(?=\()/g;
function inColour(text) {
  const lines = [[]], put = (part, kind) => part.split("\n").forEach((line, i) => {
    if (i) lines.push([]);
    if (line) lines.at(-1).push(kind ? el("span", { class: kind }, line) : clean(line));
  });
  let at = 0;
  for (const m of text.matchAll(words)) {
    put(text.slice(at, m.index));
    put(m[0], "t-" + "scknf"[m.slice(1).findIndex(g => g !== undefined)]);
    at = m.index + m[0].length;
  }
  put(text.slice(at));
  return lines;
}
const mostColoured = 200_000; // characters
const linesOf = f => { const text = f.content.replace(/\n$/, ""); return /\.(star|py|bzl)$/.test(f.path) && text.length < mostColoured ? inColour(text) : text.split("\n"); };

// numbered are lines with their numbers.
function numbered(lines, shown) {
  const grid = el("span", { class: "src" });
  let gap = false;
  lines.forEach((line, i) => {
    if (!shown(i)) { gap = true; return; }
    if (gap && grid.firstChild) grid.append(el("span", { class: "no" }, "…"), el("span"));
    gap = false;
    grid.append(el("span", { class: "no" }, String(i + 1)), el("span", { "data-line": i }, line));
  });
  return grid;
}

async function checkpoints() { showCheckpoints(await api(of("checkpoints"))); }
function showCheckpoints(kept) {
  if (!differs(showCheckpoints, [kept, $("ofrank").value])) return;
  const several = run.world_size > 1, rank = Number($("ofrank").value), link = c => path(`/api/v1/${of("checkpoints")}/${c.step}/safetensors`, { rank: several ? rank : "" });
  if (!$("ofrank").options.length) $("ofrank").append(...Array.from({ length: Math.min(run.world_size, 1024) }, (_, r) => el("option", { value: r }, String(r))));
  counted.checkpoints = kept.length;
  showTab();
  $("ofrank").parentNode.hidden = !several || !kept.length || Boolean(window.exported);
  part($("checkpoints"), ["step", "size", "score", "saved", "best", "file"], kept.map(c => [c.step, bytes(c.bytes), c.score, when(c.time), c.best ? "best" : "",
    window.exported ? "" : c.missing ? "is there no more" : el("a", { href: link(c), download: "" }, several ? `safetensors of rank ${rank}` : "safetensors")]));
}

async function sources() {
  files = await api(of("sources"));
  $("sources").replaceChildren(...files.flatMap(f => [el("h3", null, f.path), el("pre", { tabindex: 0, "aria-label": f.path }, numbered(linesOf(f), () => true))]));
}

// Log lines are added at the end; older ones leave the page.
let filtered = 0;
async function log(fresh) {
  const mine = fresh ? ++filtered : filtered;
  let answer;
  try {
    answer = await api(of("logs"), { rank: $("rank").value, grep: $("grep").value, after: fresh ? "" : last, limit: most });
  } catch (e) {
    if (mine === filtered) { $("grepfault").textContent = why(e); $("skipped").textContent = ""; }
    return;
  }
  if (mine !== filtered) return;
  $("grepfault").textContent = "";
  if (fresh) { $("log").replaceChildren(); lines = 0; }
  addLines(answer, fresh);
}
function addLines(answer, fresh) {
  last = answer.last;
  lines += answer.lines.length + answer.skipped;
  $("log").append(...answer.lines.map(l => el("div", { class: l.stream === "stderr" ? "e" : null }, el("span", { class: "r" }, l.rank < 0 ? "[drun] " : run.world_size > 1 ? `[${l.rank}] ` : ""), l.text)));
  while ($("log").childElementCount > most) $("log").firstChild.remove();
  const left = lines - $("log").childElementCount;
  const filter = $("grep").value || $("rank").value;
  $("skipped").textContent = left > 0 ? `the newest ${$("log").childElementCount} of ${lines} lines` : lines || filter ? `${lines} line${lines === 1 ? "" : "s"}${filter ? " match" + (lines === 1 ? "es" : "") : ""}` : "nothing was printed";
  if ($("tail").checked && (answer.lines.length || fresh)) $("log").scrollTop = $("log").scrollHeight;
}

// system draws what the ranks used over time.
let system = null;
const sizes = new ResizeObserver(() => { for (const p of system ?? []) if (p.root.parentNode.clientWidth) p.setSize({ width: p.root.parentNode.clientWidth, height: 180 }); });
onTheme(() => {
  if (!system) return;
  for (const p of system) p.destroy();
  $("system").replaceChildren();
  system = showUsage.shows = null;
  usage();
});
async function usage() {
  showUsage(await api(of("usage")));
}
function showUsage(samples) {
  if (!differs(showUsage, samples)) return;
  const all = [...new Set(samples.map(u => u.rank))].sort((a, b) => a - b), ranks = all.slice(0, 16);
  if (!ranks.some(r => samples.filter(u => u.rank === r).length > 1)) return; // no line to draw
  const places = new Map(run.ranks.map(r => [r.rank, r.node]));
  const nodes = all.filter(r => samples.some(u => u.rank === r && u.machine_memory)).slice(0, 16); // each node's first rank
  const tables = (of, value) => uPlot.join(of.map(r => {
    const mine = samples.filter(u => u.rank === r), xs = [], ys = [];
    mine.forEach((u, i) => { const v = value(u, mine[i - 1]); if (v !== null) { xs.push(Date.parse(u.time) / 1000); ys.push(v); } });
    return [xs, ys];
  }));
  const rate = name => (u, before) => {
    if (!before || before.attempt !== u.attempt) return null;
    const took = (Date.parse(u.time) - Date.parse(before.time)) / 1000;
    return took > 0 ? (u[name] - before[name]) / took : null;
  };
  const ofRanks = [["cores in use", rate("cpu")], ["memory in MiB", u => u.resident ? u.resident / 2 ** 20 : null], ["part of the time waiting for other ranks", rate("waiting")]];
  const machine = (name, unit) => (u, before) => u.machine_memory && before && before.machine_memory ? rate(name)(u, before) / unit : null;
  const ofNodes = [["all processes of the machine: cores in use", machine("machine_cpu", 1)], ["memory in use in GiB", u => u.machine_memory ? u.machine_memory / 2 ** 30 : null],
    ["sent in MB/s", machine("machine_sent", 1e6)], ["received in MB/s", machine("machine_received", 1e6)]];
  const plots = [...ofRanks.map(([title, value]) => ({ title, label: "rank ", lines: ranks, data: tables(ranks, value) })),
    ...(nodes.length ? ofNodes : []).map(([title, value]) => ({ title, label: "node ", lines: nodes.map(r => places.get(r) ?? 0), data: tables(nodes, value) }))];
  if (system && system.length === plots.length) { system.forEach((p, i) => p.setData(plots[i].data)); return; }
  if (system) $("system").replaceChildren();
  const set = el("div", { class: "chartset" });
  $("system").append(set);
  const axis = { stroke: themed("--soft"), grid: { stroke: themed("--line"), width: 1 }, ticks: { stroke: themed("--line") } };
  system = plots.map(({ title, label, lines, data }) => {
    const place = el("div", { class: "plot", role: "img", "aria-label": title });
    set.append(el("figure", null, el("figcaption", null, title), place));
    sizes.observe(place);
    return new uPlot({ width: Math.max(place.clientWidth, 200), height: 180, series: [{}, ...lines.map((r, i) => ({ label: label + r, stroke: colourOf(i), dash: dashOf(i), width: 1.5, value: (u, v) => number(v) }))], axes: [{ ...axis, space: 60 }, { ...axis, size: 56 }] }, data, place);
  });
}

// refresh gets all that may have changed; sources never do.
async function refresh() {
  run = await api(of());
  children = window.exported ? [] : (await api("runs", { where: `parent == ${run.id}`, columns: "id, name", limit: 20 })).runs;
  about();
  if (!drawn) {
    const look = Object.fromEntries(["x", "log", "logx", "smooth", "order", "wide"].map(k => [k, address.get(k) ?? ""]));
    drawn = charts($("charts"), [run], { look, keep: now => { for (const [k, v] of Object.entries(now)) if (v) address.set(k, v); else address.delete(k); if (tab) address.set("tab", tab); history.replaceState(null, "", path(location.pathname, Object.fromEntries(address))); }, before: metric => { if (watched.metrics.has(metric)) deaf(); }, after: listen });
    for (let r = -1; r < Math.min(run.world_size, 1024); r++) $("rank").append(el("option", { value: r }, r < 0 ? "drun itself" : String(r)));
  }
  drawn.growing(run.status === "running");
  const parts = [drawn.refresh(), log(!log.begun), checkpoints(), usage(), artifacts(), files && ranks()];
  drawn.metrics(Object.keys(run.metrics).sort());
  await Promise.all(parts);
  log.begun = true;
}

$("savelog").addEventListener("click", async () => {
  try {
    const { lines } = await api(of("logs"), { rank: $("rank").value, grep: $("grep").value, limit: 100_000 });
    saveFile(`${run.name}.log`, new Blob(lines.map(l => `${l.rank < 0 ? "[drun] " : run.world_size > 1 ? `[${l.rank}] ` : ""}${l.text}\n`), { type: "text/plain" }));
  } catch (e) { $("grepfault").textContent = why(e); }
});

let typing;
const relog = async () => { deaf(); await log(true); listen(); };
$("grep").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(relog, 150); });
$("rank").addEventListener("change", relog);
$("ofrank").addEventListener("change", checkpoints);
$("filter").addEventListener("submit", e => { e.preventDefault(); relog(); });
$("log").addEventListener("scroll", () => { if ($("log").scrollTop + $("log").clientHeight < $("log").scrollHeight - 40) $("tail").checked = false; }, { passive: true });
$("tail").addEventListener("change", () => { if ($("tail").checked) $("log").scrollTop = $("log").scrollHeight; });
$("other").addEventListener("focus", async () => {
  const newest = await api("runs", { where: "", sort: "", group: "", columns: "id, name", offset: 0, limit: 100 }).catch(() => ({ runs: [] }));
  $("others").replaceChildren(...newest.runs.filter(r => r.id !== run.id).map(r => el("option", { value: r.id, label: r.name })));
}, { once: true });
$("against").addEventListener("submit", async e => {
  e.preventDefault();
  try {
    diffLines($("diff"), (await api(of("sources/diff"), { with: $("other").value })).diff);
    $("diff").hidden = false;
    $("difffault").textContent = "";
  } catch (fault) {
    $("diff").hidden = true; // it is of another run
    $("difffault").textContent = why(fault);
  }
});

(async () => {
  try {
    if (!window.exported) api("pages").then(p => { may.write = p.write; if (run) acts(); }).catch(() => {});
    await Promise.all([refresh(), sources()]);
    ranks();
  } catch (e) { if (run) $("fault").textContent = why(e); else nothing(e); return; }
  document.documentElement.dataset.ready = "";
  if (window.exported) alive("exported");
  else watchParts({ ranks: $("ranks"), logs: $("h-logs").parentNode, checkpoints: $("h-check").parentNode, artifacts: $("kept"), usage: $("h-sys").parentNode });
})();
