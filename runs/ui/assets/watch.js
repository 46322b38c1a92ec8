// Watching a run that goes on: the server tells what is new, and only of what can be seen. It takes the processors from the run.
"use strict";

const watched = { source: null, ask: "", views: new Map(), metrics: new Set(), later: 0 };

// Parts of the page, by the element that shows each; a part that is hidden since there is nothing in it counts as seen with its tab.
const isSeen = place => watched.views.get(place) || place.hidden && !place.closest("[data-tab]").hidden;
function watchParts(places) {
  const seen = new IntersectionObserver(entries => {
    for (const e of entries) watched.views.set(e.target, e.isIntersecting);
    listen();
  });
  watched.parts = Object.entries(places);
  for (const [, place] of watched.parts) seen.observe(place);
  $("before").addEventListener("toggle", listen);
  document.addEventListener("visibilitychange", () => document.hidden ? deaf() : again(0)); // it may have been resumed meanwhile
  window.addEventListener("pagehide", deaf);
  listen();
}

// deaf stops listening: what the page has is about to change in another way.
function deaf() { watched.source?.close(); watched.source = null; }

// listen asks for what is new, soon; what the page has now is part of the question.
function listen() {
  clearTimeout(watched.later);
  watched.later = setTimeout(() => {
    if (window.exported || document.hidden || !run || !watched.parts) return;
    if (run.status === "pending") { deaf(); alive("pending"); again(2000); return; }
    if (run.status !== "running") { deaf(); alive("ended"); return; }
    if (!drawn.idle()) { listen(); return; }
    const ask = { ...drawn.asked(), calls: $("before").open ? 1 : "", show: watched.parts.filter(([, place]) => isSeen(place)).map(([part]) => part), rank: $("rank").value, grep: $("grep").value, limit: most };
    const key = JSON.stringify(ask);
    if (watched.source && watched.ask === key) return;
    deaf();
    watched.ask = key;
    watched.metrics = new Set(ask.metric);
    const source = watched.source = new EventSource("/api/v1/" + path(of("events"), { ...ask, seen: ask.metric.map(m => drawn.seen(m)), after: last }));
    source.addEventListener("open", () => { alive("live"); });
    source.addEventListener("news", e => { if (source === watched.source) told(JSON.parse(e.data)); });
    source.addEventListener("error", () => {
      if (source !== watched.source) return;
      deaf(); // and not the same question again: some of it was answered
      alive("not connected");
      again(2000);
    });
  }, 150);
}

// again asks for everything, and goes on listening.
function again(after) {
  setTimeout(async () => {
    if (document.hidden || watched.source) return;
    try {
      await refresh();
      $("fault").textContent = "";
      listen();
    } catch (e) {
      $("fault").textContent = why(e);
      again(5000);
    }
  }, after);
}

// told shows what is new.
function told(news) {
  $("fault").textContent = "";
  if (news.logs) addLines(news.logs);
  if (news.ranks) showRanks(news.ranks);
  if (news.usage) showUsage(news.usage);
  if (news.artifacts) showArtifacts(news.artifacts);
  if (news.checkpoints) showCheckpoints(news.checkpoints);
  for (const [metric, curve] of Object.entries(news.curves ?? {})) drawn.add(metric, curve);
  if (!news.run) return;
  run = { ...run, ...news.run };
  about();
  if (news.run.metrics) drawn.metrics(Object.keys(run.metrics).sort(), run.metrics);
  if (!goesOn(run)) { deaf(); again(0); } // the last of everything, once
}
