// Curves: one chart a metric, each with the runs that have it.
"use strict";

const colours = 10; // --c0 to --c9 of drun.css
const dashes = [[], [6, 4], [2, 3], [10, 4, 2, 4]];
const colourVar = i => `var(--c${i % colours})`;
const dashOf = i => dashes[Math.floor(i / colours) % dashes.length];
const faint = colour => colour + "48", pale = colour => colour + "90"; // of bands, and of lines beside the one that counts
const colourOf = i => themed(`--c${i % colours}`); // of the theme that the page has now
const mostNamed = 10; // curves that the legend of a chart names
const mostSmoothed = 0.9999;

function swatch(i, solid) {
  const e = el("span", { class: "swatch" });
  e.style.borderTopColor = colourVar(i);
  e.style.borderTopStyle = !solid && dashOf(i).length ? "dashed" : "solid";
  return e;
}

// A Chart shows a metric of some runs; settings are common to all charts of a page.
class Chart {
  constructor(metric, settings) {
    Object.assign(this, { metric, settings, plot: null, shape: "", zoom: null, loaded: false, visible: false, pending: null, curves: [], marks: [], span: null });
    const button = (label, title, onclick, more) => el("button", { type: "button", class: "plain", "aria-label": `${title}: ${clean(metric)}`, title, onclick, ...more }, label);
    this.note = el("small");
    this.place = el("div", { class: "plot", tabindex: 0, role: "img", "aria-label": metric, onkeydown: e => this.key(e) });
    this.legend = el("div", { class: "legend" });
    this.whole = button("⟲", "show all", () => this.reset(), { hidden: true });
    this.figure = el("figure", null, el("figcaption", null, el("span", null, metric), this.note, el("span", { class: "tools" }, this.whole,
      button("↓", "save as a picture", () => this.save()), button("⤢", "enlarge", () => { this.figure.classList.toggle("big"); this.place.style.height = ""; }),
      button("⠿", "move, by dragging or by the arrows", null, { class: "plain handle", draggable: "true", ondragstart: e => { Chart.moved = this; e.dataTransfer.setData("text/plain", ""); e.dataTransfer.setDragImage(this.figure, 20, 20); },
        onkeydown: e => { const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[e.key]; if (by) { e.preventDefault(); settings.move(this, by); } } }))), this.place, this.legend);
    for (const [event, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) this.figure.addEventListener(event, e => {
      if (!Chart.moved || Chart.moved === this) return;
      e.preventDefault();
      this.figure.classList.toggle("over", over);
      if (event === "drop") settings.move(Chart.moved, this);
    });
  }

  // load gets the curves and draws them. While an answer to the same question is on its way, it asks once more after that.
  load() {
    const s = this.settings, points = this.points();
    if (!s.runs.length) { this.pending = null; this.loaded = true; this.curves = []; this.draw(); return Promise.resolve(); }
    const ask = { run: s.runs.map(r => r.id), metric: this.metric, x: s.axis, smooth: s.smooth || "", points };
    if (this.zoom) Object.assign(ask, { from: this.zoom[0], to: this.zoom[1] });
    s.before?.(this.metric);
    if (s.groups && s.mean) ask.group = s.groups.by;
    const key = JSON.stringify(ask);
    if (this.pending?.key === key) this.pending.again = true;
    else (this.pending = { key }).done = this.get(ask, this.pending);
    return this.pending.done;
  }
  async get(ask, mine) {
    for (;;) {
      mine.again = false;
      let curves;
      try {
        curves = await api("curves", ask);
      } catch (e) {
        if (mine === this.pending) this.note.textContent = why(e);
        break;
      }
      if (mine !== this.pending) return;
      this.loaded = true;
      this.curves = curves;
      this.draw();
      if (!mine.again) break;
      await new Promise(resolve => setTimeout(resolve, 100)); // the page is painted first
    }
    if (mine === this.pending) this.pending = null;
    this.settings.after?.();
  }

  // Of each four points, which are the first, last, smallest and largest of a stretch, many runs get four pixels, a few less.
  points() { return Math.max(200, Math.min(2000, Math.round(this.place.clientWidth * (this.settings.runs.length > 5 ? 1 : 1.5)) || 800)); }

  // add adds what is new of the one curve: its points from since on, or all of them.
  add(curve) {
    const old = this.curves[0];
    if (curve.since === undefined) this.curves = [curve];
    else if (old?.seen !== curve.after) { this.load(); return; }
    else {
      let keep = old.x.length;
      while (keep && old.x[keep - 1] >= curve.since) keep--;
      for (const k of ["x", "y", "low", "high", "smooth"]) {
        if (!old[k]) continue;
        old[k].length = Math.min(old[k].length, keep);
        for (const v of curve[k] ?? []) old[k].push(v);
      }
      Object.assign(old, { points: curve.points, not_finite: curve.not_finite, seen: curve.seen });
    }
    this.draw(curve.since);
  }

  // draw draws the curves; from is where they begin to differ from what is drawn, if that is known.
  draw(from) {
    const curves = this.curves, { log, logx, axis, groups, off } = this.settings, narrow = logx && axis !== "time";
    let notFinite = 0, notAbove = 0;
    const shown = ys => log ? ys.map(y => y !== null && y <= 0 ? (notAbove++, null) : y) : ys;
    const series = [{ value: (u, v) => v === null ? "" : axis === "time" ? new Date(v * 1000).toLocaleString() : number(v) }];
    const bands = [], tables = [];
    this.marks = [];
    for (const c of curves) {
      const i = !groups ? this.settings.colour(c.run) : c.runs ? groups.ofValue(c.group) : groups.ofRun(c.run), key = c.run ?? JSON.stringify(c.group), show = !off.has(key);
      const colour = colourOf(i), dash = dashOf(groups && !c.runs ? 0 : i);
      const label = c.runs ? clean(`${groups.labels[i]} (${c.runs.length} runs)`) : `${c.run} ${cut(c.name)}`;
      notFinite += c.not_finite;
      const first = narrow ? c.x.findIndex(x => x > 0) : 0, part = first > 0 ? list => list.slice(first) : list => list;
      const table = [part(c.x), part(shown(c.y))];
      const smooth = c.smooth && c.smooth.length > 0;
      series.push({ label: smooth ? label + " raw" : label, stroke: smooth ? pale(colour) : colour, width: (smooth ? 1 : 1.5) * (c.run === this.settings.thick ? 2 : 1), dash, show, points: { show: c.x.length < 60 } });
      const line = series.length - 1;
      if (c.low && c.low.length) {
        table.push(part(shown(c.high)), part(shown(c.low)));
        bands.push({ series: [series.length, series.length + 1], fill: faint(colour) });
        for (const end of ["max", "min"]) series.push({ label: `${label} ${end}`, stroke: pale(colour), width: 0.5, show, points: { show: false } });
      }
      if (smooth) {
        table.push(part(shown(c.smooth)));
        series.push({ label, stroke: colour, width: 2, dash, show, points: { show: false } });
      }
      this.marks.push({ key, label, i: groups && !c.runs ? i % colours : i, run: c.run, from: line, to: series.length - 1, at: smooth ? series.length - 1 : line });
      tables.push(table);
    }
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0] ?? [[]];
    const notes = [];
    if (notFinite) notes.push(`${notFinite} not finite`);
    if (notAbove) notes.push(`${notAbove} not above 0 are left out`);
    this.note.textContent = notes.join(", ");
    this.whole.hidden = !this.zoom;
    this.place.setAttribute("aria-label", clean(`${this.metric}: ` + curves.map(c => {
      const ys = c.y.filter(y => y !== null);
      return `${c.runs ? `${c.runs.length} runs with ${groups.labels[groups.ofValue(c.group)]}, mean` : `run ${c.run} ${c.name}`}: ${c.points} points, last ${number(ys.at(-1))}, from ${number(ys.reduce((a, b) => Math.min(a, b), Infinity))} to ${number(ys.reduce((a, b) => Math.max(a, b), -Infinity))}`;
    }).join("; ")));
    const shape = JSON.stringify([series.map(s => s.label), series.map(s => s.stroke), this.settings.thick, log, narrow, axis, series.map(s => s.points?.show)]);
    if (this.plot && this.shape === shape) this.paint(data, from);
    else this.build(series, bands, data, shape, narrow);
    this.name();
    if (!Chart.drawn) requestAnimationFrame(() => performance.mark("drawn"));
    Chart.drawn = true;
  }

  // name writes the legend: where the crosshair is and the values there. Of many curves it names those nearest to the pointer, from top to bottom.
  name() {
    const u = this.plot, at = u?.cursor.idx ?? null, value = m => at === null ? null : u.data[m.at]?.[at] ?? null;
    let named = this.marks;
    if (named.length > mostNamed) {
      const y = u.cursor.top >= 0 && at !== null ? u.posToVal(u.cursor.top, "y") : null;
      if (y !== null) named = named.filter(m => value(m) !== null && u.series[m.at].show).sort((a, b) => Math.abs(value(a) - y) - Math.abs(value(b) - y));
      named = named.slice(0, mostNamed);
      if (y !== null) named.sort((a, b) => value(b) - value(a));
    }
    const axis = this.settings.axis, where = at === null ? (axis === "step" ? "step" : axis === "time" ? "time" : axis === "relative" ? "seconds" : axis.slice("metric:".length)) : u.series[0].value(u, u.data[0][at]);
    this.legend.replaceChildren(el("span", { class: "at" }, where), ...named.map(m => el("button", { type: "button", "aria-pressed": String(!this.settings.off.has(m.key)), title: m.label + ": a click hides or shows it",
      onclick: () => this.settings.toggle(m.key), onpointerenter: () => this.settings.point(m.run), onpointerleave: () => this.settings.point(null) }, swatch(m.i), m.label, el("span", { class: "value" }, at === null ? "" : number(value(m))))),
      this.marks.length > named.length ? el("span", null, `and ${this.marks.length - named.length} more`) : "");
  }

  // save makes a picture of the chart, with its name and its legend, and hands it to the browser as a file.
  save() {
    if (!this.plot) return;
    const from = this.plot.ctx.canvas, r = devicePixelRatio, line = 18 * r, to = el("canvas", { width: from.width, height: from.height + line * (this.legend.childElementCount + 1) }), g = to.getContext("2d");
    g.fillStyle = themed("--back");
    g.fillRect(0, 0, to.width, to.height);
    g.drawImage(from, 0, 1.5 * line);
    g.fillStyle = themed("--fore");
    g.font = `600 ${13 * r}px system-ui, sans-serif`;
    g.fillText(clean(this.metric), 8 * r, line);
    g.font = `${12 * r}px system-ui, sans-serif`;
    [...this.legend.querySelectorAll("button")].forEach((b, i) => {
      const y = from.height + (2.2 + i) * line;
      g.fillStyle = getComputedStyle(b.querySelector(".swatch")).borderTopColor;
      g.fillRect(8 * r, y - 5 * r, 14 * r, 3 * r);
      g.fillStyle = themed("--fore");
      g.fillText(b.innerText, 30 * r, y);
    });
    to.toBlob(blob => saveFile(this.metric + ".png", blob));
  }

  // point stands a run out from the others; null: none.
  point(run) {
    const m = run === null ? null : this.marks.find(m => m.run === run);
    this.plot?.setSeries(m ? m.at : null, { focus: true }, false);
  }

  // across is the part of the x axis that is shown: a curve that grows has some room to grow into, so that not all of it moves
  // with each point, and a single point has some room on both sides; null: all points.
  across(data) {
    if (this.zoom) return { min: this.zoom[0], max: this.zoom[1] };
    const first = data[0][0], last = data[0].at(-1), long = last - first;
    if (long === 0 && !this.settings.logx) return { min: first - 1, max: last + 1 };
    if (!this.settings.growing || !(long > 0)) return null;
    if (this.span?.min !== first || last > this.span.max || long < (this.span.max - first) / 2) this.span = { min: first, max: last + long / 8 };
    return this.span;
  }

  // paint shows other points. Where only the end of the curves differs and nothing moves, only that strip is painted.
  paint(data, from) {
    const u = this.plot, pen = u.ctx, across = this.across(data);
    const put = () => { u.setData(data); if (across) u.setScale("x", across); };
    if (from === undefined || u.cursor.left >= 0) { u.batch(put); return; }
    const place = () => JSON.stringify([u.scales.x.min, u.scales.x.max, u.scales.y.min, u.scales.y.max]), was = place();
    let i = data[0].length - 1;
    while (i > 0 && data[0][i] >= from) i--;
    const left = Math.max(0, Math.floor(u.valToPos(data[0][i], "x", true) - 4 * devicePixelRatio));
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, pen.canvas.width, pen.canvas.height);
    pen.clip();
    u.batch(put);
    pen.restore();
    if (place() !== was) u.redraw();
  }

  build(series, bands, data, shape, narrow) {
    this.plot?.destroy();
    this.shape = shape;
    const axis = { stroke: themed("--soft"), grid: { stroke: themed("--line"), width: 1 }, ticks: { stroke: themed("--line") }, font: "11px system-ui, sans-serif" };
    const chart = this, { settings } = this;
    this.plot = new uPlot({
      width: Math.max(this.place.clientWidth, 200), height: Math.max(this.place.clientHeight, 120), series, bands,
      scales: { x: { time: settings.axis === "time", distr: narrow ? 3 : 1 }, y: settings.log ? { distr: 3 } : {} },
      axes: [{ ...axis, ...settings.axis === "time" ? { size: 44, space: 60 } : { size: 30 } }, { ...axis, size: 56, values: (u, ticks) => ticks.map(v => v === null ? null : Number(v.toPrecision(5)).toString()) }],
      cursor: { focus: { prox: 24 }, drag: { x: true, y: false, setScale: false }, sync: { key: settings.sync, setSeries: false }, bind: { dblclick: () => () => { chart.reset(); } } },
      focus: { alpha: 0.25 },
      legend: { show: false },
      hooks: {
        setSelect: [u => {
          if (u.select.width < 4) return;
          chart.zoom = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          chart.show();
        }],
        setCursor: [() => { chart.naming ??= requestAnimationFrame(() => { chart.naming = null; chart.name(); }); }],
        setSeries: [(u, i, how) => { if (how.focus !== undefined && u === chart.plot) settings.pointed(chart.marks.find(m => i >= m.from && i <= m.to)?.run ?? null); }],
      },
    }, data, this.place);
    const across = this.across(data);
    if (across) this.plot.setScale("x", across);
  }

  // show shows the zoomed part at once, and then with the points that it leaves room for.
  show() {
    if (this.zoom) this.plot?.setScale("x", { min: this.zoom[0], max: this.zoom[1] });
    this.load();
  }
  bounds() {
    const x = this.plot?.scales.x;
    return x && x.min !== null ? [x.min, x.max] : null;
  }
  scale(by) {
    const b = this.bounds();
    if (!b) return;
    const middle = (b[0] + b[1]) / 2, half = (b[1] - b[0]) / 2 * by;
    this.zoom = [middle - half, middle + half];
    this.show();
  }
  pan(by) {
    const b = this.bounds();
    if (!b) return;
    const move = (b[1] - b[0]) * by;
    this.zoom = [b[0] + move, b[1] + move];
    this.show();
  }
  reset() { this.zoom = null; this.load(); }

  // key moves the crosshair with the arrows, and the chart with Shift, + and -.
  key(e) {
    if (!this.plot || e.ctrlKey || e.altKey || e.metaKey) return;
    const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (move && e.shiftKey) this.pan(0.25 * move);
    else if (move) {
      const last = this.plot.data[0].length - 1, now = this.plot.cursor.idx;
      const i = now === null || now === undefined ? (move > 0 ? 0 : last) : Math.max(0, Math.min(last, now + move));
      const x = this.plot.data[0][i]; // uPlot itself moves the crosshairs of the other charts only with the pointer
      for (const u of uPlot.sync(this.settings.sync).plots) u.setCursor({ left: u.valToPos(x, "x"), top: u.bbox.height / devicePixelRatio / 2 });
    } else if (e.key === "+" || e.key === "=") this.scale(0.5);
    else if (e.key === "-") this.scale(2);
    else if (e.key === "0") this.reset();
    else return;
    e.preventDefault();
  }
}

// charts fills a place with controls and the charts of metrics of runs, which have an id each. Charts that cannot be seen are not loaded.
// look is how they are shown, of which keep is told when it changes: x, log, logx, smooth, order, and wide for the charts' width. toggle hides or shows a run;
// pointed is told of the run at the crosshair; none says what there is without charts. Where what is new is told as it comes (add), before is called before a chart asks by itself, and after thereafter.
function charts(place, runs, { before, after, look = {}, keep = () => {}, colour, toggle, pointed = () => {}, none = "no metrics were logged" } = {}) {
  const all = new Map(), sections = new Map(), bare = el("p", { class: "empty", hidden: true }, none), body = el("div");
  const settings = { runs, axis: look.x || "step", log: Boolean(look.log), logx: Boolean(look.logx), smooth: Number(look.smooth) || 0, sync: place.id, groups: null, mean: false, growing: false, off: new Set(), before, after, pointed };
  settings.colour = colour ?? (id => settings.runs.findIndex(r => r.id === id));
  settings.toggle = toggle ?? (key => { if (!settings.off.delete(key)) settings.off.add(key); for (const c of all.values()) { c.shape = ""; if (c.loaded) c.draw(); } });
  settings.point = run => { for (const c of all.values()) if (c.visible) c.point(run); };
  let order = (look.order ?? "").split(",").filter(n => n).map(decodeURIComponent);
  const told = () => keep({ x: settings.axis === "step" ? "" : settings.axis, log: settings.log ? "1" : "", logx: settings.logx ? "1" : "", smooth: settings.smooth || "", order: order.map(encodeURIComponent).join(","), wide: wide.value === "26rem" ? "" : wide.value });
  const rank = name => { const i = order.indexOf(name); return i < 0 ? Infinity : i; };
  // A section has the metrics with a common prefix; train/loss is in train.
  const sectionOf = name => /^[^/]+(?=\/)/.exec(name)?.[0] ?? "";
  const inOrder = names => [...names].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0));
  settings.move = (chart, to) => {
    const names = inOrder([...all.keys()].filter(n => sectionOf(n) === sectionOf(chart.metric))), i = names.indexOf(chart.metric);
    const k = typeof to === "number" ? i + to : names.indexOf(to.metric);
    if (k < 0 || k >= names.length) return;
    names.splice(k, 0, ...names.splice(i, 1));
    order = [...order.filter(n => !names.includes(n)), ...names];
    layOut();
    chart.figure.querySelector(".handle").focus();
    told();
  };
  const watcher = new IntersectionObserver(entries => {
    for (const e of entries) {
      const chart = e.target.chart;
      chart.visible = e.isIntersecting;
      if (chart.visible && !chart.pending && (!chart.loaded || chart.stale)) { chart.stale = false; chart.load(); }
    }
  }, { rootMargin: "200px" });
  const there = new IntersectionObserver(entries => {
    for (const e of entries) e.target.chart.there = e.isIntersecting;
    after?.();
  });
  const every = () => {
    for (const c of all.values()) if (c.visible) c.load(); else c.stale = true;
  };
  const anew = () => { told(); every(); };
  const axes = [["step", "step"], ["relative", "time since the start"], ["time", "time of day"]];
  const axis = el("select", { onchange: e => { settings.axis = e.target.value; for (const c of all.values()) c.zoom = null; anew(); } }, ...axes.map(([v, t]) => el("option", { value: v }, t)));
  const box = (name, label) => el("label", null, Object.assign(el("input", { type: "checkbox", onchange: e => { settings[name] = e.target.checked; anew(); } }), { checked: settings[name] }), label);
  const amount = el("output", null, settings.smooth ? settings.smooth.toFixed(4) : "0");
  // Exported pages have the curves smoothed in some ways.
  const steps = window.exportedSmoothing ? [0, ...window.exportedSmoothing] : null;
  const smooth = el("input", { type: "range", min: 0, max: steps ? steps.length - 1 : 99, value: steps ? Math.max(0, steps.indexOf(settings.smooth)) : 100 * (1 - Math.sqrt(1 - Math.min(settings.smooth, mostSmoothed))), oninput: e => {
    const part = Number(e.target.value) / 100;
    settings.smooth = steps ? steps[e.target.value] : part && 1 - (1 - part) ** 2;
    amount.textContent = settings.smooth ? settings.smooth.toFixed(4) : "0";
    clearTimeout(smooth.later);
    smooth.later = setTimeout(anew, 60);
  } });
  const filter = el("input", { type: "search", size: 12, spellcheck: "false", placeholder: "a metric", oninput: () => choose() });
  const choose = () => {
    for (const [name, c] of all) c.figure.hidden = !name.toLowerCase().includes(filter.value.toLowerCase());
    for (const s of sections.values()) s.hidden = ![...s.querySelectorAll("figure")].some(f => !f.hidden);
  };
  const size = () => place.style.setProperty("--panel-width", wide.value);
  const wide = el("select", { onchange: () => { size(); told(); } }, ...[["18rem", "small"], ["26rem", "medium"], ["42rem", "large"]].map(([v, t]) => el("option", { value: v }, t)));
  wide.value = look.wide || "26rem";
  if (wide.selectedIndex < 0) wide.value = "26rem";
  size();
  const controls = el("div", { class: "controls" }, el("label", null, "Metrics with ", filter), el("label", null, "Over ", axis), box("log", "log y"), box("logx", "log x"),
    el("label", null, "Smoothing ", smooth, " ", amount), el("label", null, "Panels ", wide));
  place.append(controls, bare, body);
  let resizing;
  const sizes = new ResizeObserver(() => {
    clearTimeout(resizing);
    resizing = setTimeout(() => { for (const c of all.values()) if (c.place.clientWidth) c.plot?.setSize({ width: c.place.clientWidth, height: c.place.clientHeight }); }, 50);
  });
  onTheme(() => { for (const c of all.values()) c.shape = ""; every(); });
  // layOut puts the charts into their sections, of which those without a prefix come first; one section alone has no heading.
  function layOut() {
    const names = new Map();
    for (const n of inOrder(all.keys())) names.set(sectionOf(n), [...names.get(sectionOf(n)) ?? [], n]);
    for (const [prefix, list] of [...names].sort((a, b) => (a[0] !== "") - (b[0] !== "") || (a[0] < b[0] ? -1 : 1))) {
      if (!sections.has(prefix)) sections.set(prefix, el("details", { class: "section", open: true }, el("summary", null, prefix || "Metrics", el("small")), el("div", { class: "chartset" })));
      const s = sections.get(prefix);
      s.querySelector("small").textContent = list.length;
      s.querySelector("summary").hidden = names.size < 2;
      if (s.parentNode !== body || names.size > 1) body.append(s);
      const figures = list.map(n => all.get(n).figure), set = s.querySelector(".chartset");
      if (figures.some((f, i) => set.children[i] !== f) || set.children.length !== figures.length) set.replaceChildren(...figures);
    }
    for (const [prefix, s] of sections) if (!names.has(prefix)) { s.remove(); sections.delete(prefix); }
  }
  return {
    settings,
    // What the charts that can be seen ask for, and what they have of a metric. Those that are zoomed ask by themselves.
    idle: () => ![...all.values()].some(c => c.pending),
    asked() {
      const metric = [...all.values()].filter(c => c.there && !c.zoom && c.loaded && !c.figure.hidden).map(c => c.metric);
      return { metric, points: metric.length ? Math.max(...metric.map(m => all.get(m).points())) : "", x: settings.axis, smooth: settings.smooth || "" };
    },
    seen: metric => all.get(metric).curves[0]?.seen ?? "-",
    add: (metric, curve) => all.get(metric).add(curve),
    growing(yes) { settings.growing = yes; },
    // metrics makes charts for names that have none yet, and with only takes away the others; of those that are zoomed it loads the ones with more points than were known.
    metrics(names, known, only) {
      for (const c of all.values()) if (known && c.zoom && c.visible && !c.pending && c.curves[0] && known[c.metric]?.count !== c.curves[0].points && !(c.curves[0].x.at(-1) > c.zoom[1])) c.load();
      const was = [...all.keys()].join("\n");
      for (const name of names) {
        if (all.has(name)) continue;
        const c = new Chart(name, settings);
        all.set(name, c);
        c.figure.chart = c;
      }
      if (only) for (const [name, c] of all) if (!names.includes(name)) { c.plot?.destroy(); all.delete(name); }
      if (was !== [...all.keys()].join("\n")) {
        layOut();
        for (const c of all.values()) for (const [o, e] of [[watcher, c.figure], [there, c.figure], [sizes, c.place]]) o.observe(e);
        const by = window.exported ? [] : inOrder(all.keys()).map(n => ["metric:" + n, n]);
        axis.replaceChildren(...[...axes, ...by].map(([v, t]) => el("option", { value: v }, t)));
        axis.value = settings.axis;
      }
      bare.hidden = all.size > 0;
      controls.hidden = !all.size;
      choose();
      // Those that are seen at once do not wait for the watcher, which comes after the next frame.
      if (!place.checkVisibility()) return;
      const loads = [];
      for (const c of inOrder(all.keys()).map(n => all.get(n))) {
        if (c.loaded || c.pending || c.figure.hidden) continue;
        if (c.figure.getBoundingClientRect().top > innerHeight + 200) break;
        c.visible = true;
        loads.push(c.load());
      }
      return Promise.all(loads);
    },
    // group gives the runs of a group one colour, or shows their mean, from the next refresh on.
    group: (groups, mean) => Object.assign(settings, { groups, mean }),
    refresh: () => Promise.all([...all.values()].map(c => c.visible ? c.load() : (c.stale = true))),
  };
}
