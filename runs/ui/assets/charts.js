// Curves: one chart a metric, each with the runs that have it.
"use strict";

const colours = 10; // --c0 to --c9 of drun.css
const dashes = [[], [6, 4], [2, 3], [10, 4, 2, 4]];
const colourVar = i => `var(--c${i % colours})`;
const dashOf = i => dashes[Math.floor(i / colours) % dashes.length];
const faint = colour => colour + "48", pale = colour => colour + "90"; // of bands, and of lines beside the one that counts
const themed = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = i => themed(`--c${i % colours}`); // of the theme that the page has now

// A Chart shows a metric of some runs; settings are common to all charts of a page.
class Chart {
  constructor(metric, runs, settings) {
    Object.assign(this, { metric, runs, settings, plot: null, shape: "", zoom: null, loaded: false, visible: false, pending: null, curves: [], span: null });
    const button = (label, title, onclick) => el("button", { type: "button", "aria-label": `${title}: ${clean(metric)}`, title, onclick }, label);
    this.note = el("small");
    this.place = el("div", { class: "plot", tabindex: 0, role: "img", "aria-label": clean(metric), onkeydown: e => this.key(e) });
    this.figure = el("figure", null, el("figcaption", null, el("span", null, metric), this.note, el("span", { class: "tools" },
      button("+", "zoom in", () => this.scale(0.5)), button("−", "zoom out", () => this.scale(2)),
      button("◂", "to the left", () => this.pan(-0.25)), button("▸", "to the right", () => this.pan(0.25)), button("⟲", "show all", () => this.reset()))), this.place);
  }

  // load gets the curves and draws them. While an answer to the same question is on its way, it asks once more after that.
  load() {
    // Of each four points, which are the first, last, smallest and largest of a stretch, many runs get four pixels, a few less.
    const s = this.settings, points = this.points();
    const ask = { run: this.runs.map(r => r.id), metric: this.metric, x: s.axis, smooth: s.smooth || "", points };
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
        if (mine === this.pending) this.note.textContent = e.text ?? String(e);
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

  points() { return Math.max(200, Math.min(2000, Math.round(this.place.clientWidth * (this.runs.length > 5 ? 1 : 1.5)) || 800)); }

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
    const curves = this.curves, log = this.settings.log;
    let notFinite = 0, notAbove = 0;
    const shown = ys => log ? ys.map(y => y !== null && y <= 0 ? (notAbove++, null) : y) : ys;
    const series = [{ label: this.settings.axis === "step" ? "step" : this.settings.axis === "time" ? "time" : "seconds", value: (u, v) => v === null ? "" :
      this.settings.axis === "time" ? new Date(v * 1000).toLocaleString() : number(v) }];
    const bands = [], tables = [];
    for (const c of curves) {
      const groups = this.settings.groups, i = !groups ? this.runs.findIndex(r => r.id === c.run) : c.runs ? groups.ofValue(c.group) : groups.ofRun(c.run);
      const colour = colourOf(i), dash = dashOf(groups && !c.runs ? 0 : i);
      const label = c.runs ? clean(`${groups.labels[i]} (${c.runs.length} runs)`) : `${c.run} ${cut(c.name)}`, value = (u, v) => number(v);
      notFinite += c.not_finite;
      const table = [c.x, shown(c.y)];
      const smooth = c.smooth && c.smooth.length > 0;
      series.push({ label: smooth ? label + " raw" : label, stroke: smooth ? pale(colour) : colour, solid: colour, width: smooth ? 1 : 1.5, dash, value, points: { show: c.x.length < 60 } });
      if (c.low && c.low.length) {
        table.push(shown(c.high), shown(c.low));
        bands.push({ series: [series.length, series.length + 1], fill: faint(colour) });
        for (const end of ["max", "min"]) series.push({ label: `${label} ${end}`, stroke: pale(colour), solid: colour, width: 0.5, value, points: { show: false } });
      }
      if (smooth) {
        table.push(shown(c.smooth));
        series.push({ label, stroke: colour, solid: colour, width: 2, dash, value, points: { show: false } });
      }
      tables.push(table);
    }
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0] ?? [[]];
    const notes = [];
    if (notFinite) notes.push(`${notFinite} not finite`);
    if (notAbove) notes.push(`${notAbove} not above 0 are left out`);
    this.note.textContent = notes.join(", ");
    this.place.setAttribute("aria-label", clean(`${this.metric}: ` + curves.map(c => {
      const ys = c.y.filter(y => y !== null);
      return `${c.runs ? `${c.runs.length} runs with ${this.settings.groups.labels[this.settings.groups.ofValue(c.group)]}, mean` : `run ${c.run} ${c.name}`}: ${c.points} points, last ${number(ys.at(-1))}, from ${number(ys.reduce((a, b) => Math.min(a, b), Infinity))} to ${number(ys.reduce((a, b) => Math.max(a, b), -Infinity))}`;
    }).join("; ")));
    const shape = JSON.stringify([series.map(s => s.label), series.map(s => s.stroke), log, this.settings.axis, series.map(s => s.points?.show)]);
    if (this.plot && this.shape === shape) this.paint(data, from);
    else this.build(series, bands, data, shape);
    if (!Chart.drawn) requestAnimationFrame(() => performance.mark("drawn"));
    Chart.drawn = true;
  }

  // across is the part of the x axis that is shown: a curve that grows has some room to grow into, so that not all of it moves
  // with each point; null: all points.
  across(data) {
    if (this.zoom) return { min: this.zoom[0], max: this.zoom[1] };
    const first = data[0][0], last = data[0].at(-1), long = last - first;
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

  build(series, bands, data, shape) {
    this.plot?.destroy();
    this.shape = shape;
    const axis = { stroke: themed("--soft"), grid: { stroke: themed("--line"), width: 1 }, ticks: { stroke: themed("--line") } };
    const chart = this;
    this.plot = new uPlot({
      width: Math.max(this.place.clientWidth, 200), height: 240, series, bands,
      scales: { x: { time: this.settings.axis === "time" }, y: this.settings.log ? { distr: 3 } : {} },
      axes: [axis, { ...axis, size: 64, values: (u, ticks) => ticks.map(v => v === null ? null : Number(v.toPrecision(5)).toString()) }],
      cursor: { focus: { prox: 24 }, drag: { x: true, y: false, setScale: false }, sync: { key: this.settings.sync }, bind: { dblclick: () => () => { chart.reset(); } } },
      focus: { alpha: 0.35 },
      legend: { markers: { stroke: (u, i) => u.series[i].solid } },
      hooks: { setSelect: [u => {
        if (u.select.width < 4) return;
        chart.zoom = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        chart.show();
      }] },
    }, data, this.place);
    const across = this.across(data);
    if (across) this.plot.setScale("x", across);
    // Bands need no switches of their own, and their values follow from the others.
    this.plot.root.querySelectorAll(".u-legend th").forEach(th => th.tabIndex = -1);
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
      this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][i], "x"), top: this.plot.bbox.height / devicePixelRatio / 2 });
    } else if (e.key === "+" || e.key === "=") this.scale(0.5);
    else if (e.key === "-") this.scale(2);
    else if (e.key === "0") this.reset();
    else return;
    e.preventDefault();
  }
}

// charts fills a place with controls and the charts of metrics; runs have an id each. Those that cannot be seen are
// not loaded. Where what is new is told as it comes (add), before is called before a chart asks by itself, and after thereafter.
function charts(place, runs, { before, after } = {}) {
  const settings = { axis: "step", log: false, smooth: 0, sync: place.id, groups: null, mean: false, growing: false, before, after };
  const all = new Map(), grid = el("div", { class: "chartset" }), bare = el("p", { class: "soft" }, "no metrics were logged");
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
  const axis = el("select", { onchange: e => { settings.axis = e.target.value; for (const c of all.values()) c.zoom = null; every(); } },
    ...[["step", "step"], ["relative", "time since the start"], ["time", "time of day"]].map(([v, t]) => el("option", { value: v }, t)));
  const log = el("input", { type: "checkbox", onchange: e => { settings.log = e.target.checked; every(); } });
  const amount = el("output", null, "0");
  // Exported pages have the curves smoothed in some ways.
  const steps = window.exportedSmoothing ? [0, ...window.exportedSmoothing] : null;
  const smooth = el("input", { type: "range", min: 0, max: steps ? steps.length - 1 : 99, value: 0, oninput: e => {
    const part = Number(e.target.value) / 100;
    settings.smooth = steps ? steps[e.target.value] : part && 1 - (1 - part) ** 2;
    amount.textContent = settings.smooth ? settings.smooth.toFixed(4) : "0";
    clearTimeout(smooth.later);
    smooth.later = setTimeout(every, 60);
  } });
  const filter = el("input", { type: "search", size: 16, spellcheck: "false", oninput: () => choose() });
  const choose = () => { for (const [name, c] of all) c.figure.hidden = !name.toLowerCase().includes(filter.value.toLowerCase()); };
  const controls = el("div", { class: "controls" }, el("label", null, "Metrics with ", filter), el("label", null, "Over ", axis), el("label", null, log, " logarithmic"),
    el("label", null, "Smoothing ", smooth, " ", amount));
  place.append(controls, bare, grid);
  let resizing;
  const sizes = new ResizeObserver(() => {
    clearTimeout(resizing);
    resizing = setTimeout(() => { for (const c of all.values()) if (c.place.clientWidth) c.plot?.setSize({ width: c.place.clientWidth, height: 240 }); }, 50);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const c of all.values()) c.shape = ""; every(); });
  return {
    // What the charts that can be seen ask for, and what they have of a metric. Those that are zoomed ask by themselves.
    idle: () => ![...all.values()].some(c => c.pending),
    asked() {
      const metric = [...all.values()].filter(c => c.there && !c.zoom && c.loaded && !c.figure.hidden).map(c => c.metric);
      return { metric, points: metric.length ? Math.max(...metric.map(m => all.get(m).points())) : "", x: settings.axis, smooth: settings.smooth || "" };
    },
    seen: metric => all.get(metric).curves[0]?.seen ?? "-",
    add: (metric, curve) => all.get(metric).add(curve),
    growing(yes) { settings.growing = yes; },
    // metrics makes charts for names that have none yet; of those that are zoomed it loads the ones with more points than were known.
    metrics(names, known) {
      for (const c of all.values()) if (known && c.zoom && c.visible && !c.pending && c.curves[0] && known[c.metric]?.count !== c.curves[0].points && !(c.curves[0].x.at(-1) > c.zoom[1])) c.load();
      for (const name of names) {
        if (all.has(name)) continue;
        const c = new Chart(name, runs, settings);
        all.set(name, c);
        c.figure.chart = c;
        const after = [...all.keys()].filter(n => n > name).sort()[0];
        grid.insertBefore(c.figure, after === undefined ? null : all.get(after).figure);
        watcher.observe(c.figure);
        there.observe(c.figure);
        sizes.observe(c.place);
      }
      bare.hidden = all.size > 0;
      controls.hidden = !all.size;
      choose();
      // Those that are seen at once do not wait for the watcher, which comes after the next frame.
      for (const c of all.values()) {
        if (c.loaded || c.pending || c.figure.hidden) continue;
        if (c.figure.getBoundingClientRect().top > innerHeight + 200) break;
        c.visible = true;
        c.load();
      }
    },
    // group gives the runs of a group one colour, or shows their mean, from the next refresh on.
    group: (groups, mean) => Object.assign(settings, { groups, mean }),
    refresh: () => Promise.all([...all.values()].map(c => c.visible ? c.load() : (c.stale = true))),
  };
}
