// Runs by their parameters and results: parallel coordinates and a scatter plot, which share the ranges that select runs.
"use strict";

// ramp is a colour for a place from 0 to 1: blue, teal, green, yellow, orange, as the page's theme has them.
const rampStops = [0, 5, 2, 4, 1];
function ramp(at) {
  const x = Math.max(0, Math.min(1, at)) * (rampStops.length - 1), i = Math.min(Math.floor(x), rampStops.length - 2);
  return `color-mix(in srgb, ${colourVar(rampStops[i + 1])} ${Math.round((x - i) * 100)}%, ${colourVar(rampStops[i])})`;
}

const without = -0.09; // where a run stands that has no value, or none that is finite
const short = (label, most) => label.length > most ? label.slice(0, Math.max(1, most - 1)) + "…" : label;

// scaleOf lays values along an axis from 0 to 1: numbers, on a logarithmic scale where they span two decades or more, or categories.
function scaleOf(name, values) {
  const numbers = values.filter(v => typeof v === "number"), special = v => v === null || v === undefined || v === "NaN" || v === "Infinity" || v === "-Infinity";
  const kinds = values.filter(v => !special(v));
  const s = { name, values, kind: "category" };
  if (numbers.length && numbers.length === kinds.length) {
    const low = Math.min(...numbers), high = Math.max(...numbers);
    s.kind = low > 0 && high / low >= 100 ? "log" : "linear";
    const by = s.kind === "log" ? Math.log10 : v => v, a = by(low), b = by(high);
    s.at = v => typeof v !== "number" ? without : a === b ? 0.5 : Math.max(0, Math.min(1, (by(v) - a) / (b - a)));
    const own = [...new Set(numbers)].sort((x, y) => x - y), clear = own.every((v, i) => !i || s.at(v) - s.at(own[i - 1]) > 0.06);
    s.ticks = (clear ? own : ticksOf(s.kind, low, high)).map(v => [number(v), s.at(v)]);
  } else {
    const texts = [...new Set(kinds.map(text))].sort((x, y) => x < y ? -1 : x > y ? 1 : 0);
    s.at = v => special(v) ? without : texts.length < 2 ? 0.5 : texts.indexOf(text(v)) / (texts.length - 1);
    const every = Math.ceil(texts.length / 24);
    s.ticks = texts.map((t, i) => [t, s.at(t)]).filter((_, i) => i % every === 0);
  }
  s.places = values.map(v => s.at(v));
  if (s.places.includes(without)) s.ticks.push(["none", without]);
  const labels = new Map();
  s.places.forEach((p, i) => { if (!labels.has(p)) labels.set(p, p === without ? "none" : text(values[i])); });
  s.stops = [...labels].sort((x, y) => x[0] - y[0]).map(([at, label]) => ({ at, label }));
  return s;
}

function ticksOf(kind, low, high) {
  if (low === high) return [low];
  const found = [];
  if (kind === "log") {
    const each = Math.ceil((Math.log10(high) - Math.log10(low)) / 8);
    for (let e = Math.ceil(Math.log10(low)); 10 ** e <= high; e += each) found.push(Number(`1e${e}`));
    return found;
  }
  const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(f => f * unit).find(f => f >= raw) ?? unit * 10;
  if (!Number.isFinite(step)) return [low, high];
  for (let k = Math.ceil(low / step); k * step <= high && found.length < 12; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// together is how steadily the places on two axes change together, from 0 to 1: the size of their correlation.
function together(p, q) {
  const pairs = p.map((x, i) => [x, q[i]]).filter(pair => !pair.includes(without)), mean = k => pairs.reduce((s, v) => s + v[k], 0) / pairs.length, a = mean(0), b = mean(1);
  const sum = f => pairs.reduce((s, [x, y]) => s + f(x - a, y - b), 0), spread = sum(x => x * x) * sum((_, y) => y * y);
  return spread ? Math.abs(sum((x, y) => x * y)) / Math.sqrt(spread) : 0;
}

// A Sweep is both plots, in a place. view is what the address keeps of it: axes, x and y; keep is called when it changes. colour gives
// the colour of a run's group, or null.
class Sweep {
  constructor(place, view, keep, colour) {
    Object.assign(this, { place, view, keep, colour, ranges: new Map(), marked: -1, sort: null });
    this.add = el("select", { onchange: e => { if (e.target.value) this.choose([...this.shown, e.target.value]); } });
    this.chips = el("ul", { class: "chips", "aria-label": "Axes" });
    this.parallel = el("div", { class: "sweep", role: "group", "aria-label": "Parallel coordinates: a line for each run" });
    this.scatter = el("div", { class: "sweep", role: "img", tabindex: 0, onkeydown: e => this.key(e), onblur: () => this.mark(-1) });
    this.told = el("p", { class: "told", role: "status" });
    this.count = el("span", { role: "status" });
    this.only = el("button", { type: "button", onclick: () => { location.href = path("compare.html", { ...this.address(), run: this.chosen().map(i => this.runs[i].id) }); } }, "Compare only these");
    this.clear = el("button", { type: "button", onclick: () => { this.ranges.clear(); this.draw(); } }, "Clear");
    this.axis = Object.fromEntries(["x", "y"].map(k => [k, el("select", { onchange: e => { this.view[k] = e.target.value; this.keep(); this.draw(); } })]));
    this.table = el("table");
    place.append(el("div", { class: "controls" }, el("label", null, "Add an axis ", this.add), this.chips), this.parallel,
      el("div", { class: "controls" }, el("label", null, "Across ", this.axis.x), el("label", null, "Up ", this.axis.y), this.count, this.only, this.clear), this.scatter, this.told,
      el("details", { ontoggle: () => this.list() }, el("summary", null, "The values of the selected runs as a table"), el("div", { class: "across", tabindex: 0, role: "region", "aria-label": "Values of the selected runs" }, this.table)));
    let later;
    new ResizeObserver(() => { clearTimeout(later); later = setTimeout(() => { if (this.runs && !this.place.hidden) this.draw(); }, 50); }).observe(this.parallel);
  }

  // update takes a comparison; it returns whether there is anything to show.
  update(c) {
    this.runs = c.runs;
    this.all = new Map();
    const rows = [...c.differences, ...c.same];
    for (const d of rows) {
      if (d.kind === "parameter") this.all.set(reference("params", d.name), d.values);
      else if (d.kind === "run" && (d.name === "seed" || d.name === "ranks")) this.all.set(d.name, d.values.map(v => v === null ? null : Number(v)));
      else if (d.kind === "metric") {
        const at = d.name.lastIndexOf(".");
        if (d.name.slice(at) !== ".count") this.all.set(reference("metrics", d.name.slice(0, at)) + d.name.slice(at), d.values);
      }
    }
    this.differing = c.differences.filter(d => d.kind === "parameter").map(d => reference("params", d.name));
    this.results = [...this.all.keys()].filter(n => n.startsWith("metrics") && n.endsWith(".last"));
    if (c.runs.length < 3 || !this.differing.length) return false;
    this.draw();
    return true;
  }

  // shown are the axes: those of the address, or the parameters that differ and a result. The parameter by which the runs are grouped comes first,
  // then those that most runs have, and that have most values; those that few have are left out. The result is one that differs and that all runs have, if there is one.
  get shown() {
    const given = this.view.axes.filter(n => this.all.has(n));
    if (given.length) return given;
    const have = n => this.all.get(n).filter(v => v !== null).length, kinds = n => new Set(this.all.get(n).map(text)).size;
    const often = this.differing.filter(n => 2 * have(n) >= this.runs.length || n === this.view.group);
    const parameters = [...often.length ? often : this.differing].sort((a, b) => (b === this.view.group) - (a === this.view.group) || have(b) - have(a) || kinds(b) - kinds(a));
    return [...parameters.slice(0, 7), ...[...this.results].sort((a, b) => (kinds(b) > 1) - (kinds(a) > 1) || have(b) - have(a)).slice(0, 1)];
  }
  choose(axes) {
    this.view.axes = [...new Set(axes)];
    for (const name of this.ranges.keys()) if (!axes.includes(name)) this.ranges.delete(name);
    this.keep();
    this.draw();
  }
  address() { return { group: this.view.group, axes: this.view.axes, x: this.view.x, y: this.view.y }; }
  chosen() { return this.runs.map((_, i) => i).filter(i => [...this.ranges].every(([name, [a, b]]) => { const p = this.scales.get(name)?.places[i]; return p === undefined || p >= a && p <= b; })); }

  draw() {
    const focus = document.activeElement?.dataset?.key, names = this.shown;
    this.scales = new Map(names.map(n => [n, scaleOf(n, this.all.get(n))]));
    const scales = [...this.scales.values()], option = n => el("option", { value: n }, n);
    this.add.replaceChildren(el("option", { value: "" }, "…"), ...[...this.all.keys()].filter(n => !names.includes(n)).map(option));
    this.chips.replaceChildren(...names.map(n => el("li", null, el("span", { title: n }, n), names.length > 1 ? el("button", { type: "button", "aria-label": `remove the axis ${clean(n)}`, onclick: () => this.choose(names.filter(o => o !== n)) }, "×") : "")));
    const last = names.at(-1);
    // Across is the parameter of the groups, or else the one with which the result changes most steadily.
    const places = n => this.scales.get(n).places, able = names.filter(n => n !== last && this.scales.get(n).kind !== "category");
    const best = able.includes(this.view.group) ? this.view.group : able.sort((a, b) => together(places(b), places(last)) - together(places(a), places(last)))[0] ?? names[0];
    this.xy = { x: names.includes(this.view.x) ? this.view.x : best, y: names.includes(this.view.y) ? this.view.y : last };
    for (const k of ["x", "y"]) { this.axis[k].replaceChildren(...names.map(option)); this.axis[k].value = this.xy[k]; }
    const chosen = new Set(this.chosen()), result = this.scales.get(this.xy.y);
    const paint = i => this.colour(this.runs[i].id) ?? (result.places[i] === without ? "var(--soft)" : ramp(result.places[i]));
    this.count.textContent = this.ranges.size ? `${chosen.size} of ${this.runs.length} runs` : `${this.runs.length} runs`;
    this.only.disabled = !this.ranges.size || !chosen.size;
    this.clear.disabled = !this.ranges.size;
    this.lines(scales, chosen, paint);
    this.dots(chosen, paint);
    this.list();
    if (focus) this.place.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    this.mark(this.marked);
  }

  // lines draws the parallel coordinates.
  lines(scales, chosen, paint) {
    const width = Math.max(this.parallel.clientWidth, 300), height = 300, top = 34, bottom = 26, left = 60, right = 70;
    const tall = height - top - bottom, y = p => top + (1 - p) * tall * 0.92;
    const gap = scales.length > 1 ? (width - left - right) / (scales.length - 1) : 0, x = k => left + k * gap, room = Math.max(4, Math.floor((gap || 300) / 7.2));
    const line = i => svg("path", { d: scales.map((s, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(s.places[i]).toFixed(1)}`).join(""), class: chosen.has(i) ? "line" : "line out", stroke: chosen.has(i) ? paint(i) : "var(--line)",
      "data-run": i, onpointerenter: () => this.mark(i), onpointerleave: () => this.mark(-1) }, svg("title", {}, this.about(i)));
    const order = this.runs.map((_, i) => i).sort((a, b) => chosen.has(a) - chosen.has(b));
    const place = svg("svg", { width, height }, order.map(line), scales.map((s, k) => this.stand(s, x(k), y, gap || 200, room, k === 0 ? ["start", 4] : k === scales.length - 1 ? ["end", width - 4] : ["middle", x(k)])));
    this.parallel.replaceChildren(place);
  }

  // stand is one axis with the two ends of its range.
  stand(s, x, y, gap, room, [anchor, name]) {
    const range = this.ranges.get(s.name), stops = s.stops, low = stops[0].at, high = stops.at(-1).at;
    const [a, b] = range ?? [low, high], first = Math.max(0, stops.findIndex(t => t.at >= a)), last = stops.findLastIndex(t => t.at <= b);
    const set = (from, to) => {
      if (from <= low && to >= high) this.ranges.delete(s.name); else this.ranges.set(s.name, [from, to]);
      this.draw();
    };
    // A drag along the axis makes a range, one of an end moves it, and a click takes the range away.
    const span = y(0) - y(1), at = e => { const box = e.currentTarget.ownerSVGElement.getBoundingClientRect(); return 1 - (e.clientY - box.top - y(1)) / span; };
    const drag = other => {
      let from = null, begun = 0, sketch = null;
      return {
        onpointerdown: e => { begun = e.clientY; from = other ?? at(e); e.currentTarget.setPointerCapture(e.pointerId); sketch = svg("rect", { x: x - 8, width: 16, class: "range" }); e.currentTarget.parentNode.prepend(sketch); },
        onpointermove: e => {
          if (from === null) return;
          const to = at(e);
          sketch.setAttribute("y", y(Math.max(from, to)));
          sketch.setAttribute("height", Math.abs(from - to) * span);
        },
        onpointerup: e => {
          if (from === null) return;
          const to = at(e), p = Math.min(from, to), q = Math.max(from, to);
          from = null;
          if (Math.abs(e.clientY - begun) >= 4) set(p, q);
          else if (other === undefined) { this.ranges.delete(s.name); this.draw(); }
          else sketch.remove();
        },
      };
    };
    const grip = svg("rect", { x: x - 16, y: y(1) - 8, width: 32, height: y(without) - y(1) + 16, class: "grip", ...drag() });
    const end = (which, i) => svg("path", { role: "slider", tabindex: 0, class: "end", "data-key": `${which} ${s.name}`, "aria-label": `${which} end of ${clean(s.name)}`, "aria-orientation": "vertical",
      "aria-valuemin": 0, "aria-valuemax": stops.length - 1, "aria-valuenow": i, "aria-valuetext": clean(stops[i]?.label ?? "nothing"),
      d: which === "lower" ? `M${x - 7} ${y(a) + 9}L${x} ${y(a) + 1}L${x + 7} ${y(a) + 9}Z` : `M${x - 7} ${y(b) - 9}L${x} ${y(b) - 1}L${x + 7} ${y(b) - 9}Z`,
      ...drag(which === "lower" ? b : a), onkeydown: e => {
        const n = stops.length - 1, to = { ArrowUp: i + 1, ArrowRight: i + 1, ArrowDown: i - 1, ArrowLeft: i - 1, PageUp: i + 5, PageDown: i - 5, Home: 0, End: n }[e.key];
        if (e.key === "Escape") { this.ranges.delete(s.name); this.draw(); e.preventDefault(); return; }
        if (to === undefined) return;
        e.preventDefault();
        if (which === "lower") set(stops[Math.max(0, Math.min(to, last))].at, range ? b : high);
        else set(range ? a : low, stops[Math.min(n, Math.max(to, first))].at);
      } });
    return svg("g", {}, svg("line", { x1: x, x2: x, y1: y(1), y2: y(s.stops[0].at === without ? without : 0), class: "axis" }),
      range ? svg("rect", { x: x - 8, y: y(b), width: 16, height: Math.max(2, y(a) - y(b)), class: "range" }) : null,
      svg("text", { x: name, y: 14, "text-anchor": anchor, class: "name" }, short(clean(s.name), room), svg("title", {}, s.name + (s.kind === "log" ? ", logarithmic" : ""))),
      s.ticks.map(([label, p]) => svg("text", { x: x + 11, y: y(p) + 4, class: "tick" }, short(clean(label), Math.max(4, Math.floor((gap - 16) / 7))), svg("title", {}, label))),
      grip, end("lower", first), end("upper", last));
  }

  // dots draws the scatter plot; a rectangle selects runs.
  dots(chosen, paint) {
    const sx = this.scales.get(this.xy.x), sy = this.scales.get(this.xy.y);
    const width = Math.max(Math.min(this.scatter.clientWidth, 900), 300), height = 320, left = 92, right = 24, top = 14, bottom = 46;
    const x = p => left + (p + 0.1) / 1.1 * (width - left - right), y = p => top + (1 - p) / 1.1 * (height - top - bottom);
    const order = this.runs.map((_, i) => i).sort((a, b) => chosen.has(a) - chosen.has(b));
    this.order = this.runs.map((_, i) => i).sort((a, b) => sx.places[a] - sx.places[b] || sy.places[a] - sy.places[b]);
    const ranges = [this.ranges.get(sx.name), this.ranges.get(sy.name)];
    const box = ranges[0] || ranges[1] ? (([a, b], [c, d]) => svg("rect", { x: x(a), width: Math.max(2, x(b) - x(a)), y: y(d), height: Math.max(2, y(c) - y(d)), class: "range" }))(ranges[0] ?? [-0.1, 1], ranges[1] ?? [-0.1, 1]) : null;
    let from = null, sketch = null;
    const at = e => { const r = plot.getBoundingClientRect(); return [(e.clientX - r.left - left) / (width - left - right) * 1.1 - 0.1, 1 - (e.clientY - r.top - top) / (height - top - bottom) * 1.1]; };
    const plot = svg("svg", { width, height,
      onpointerdown: e => { from = at(e); plot.setPointerCapture(e.pointerId); sketch = svg("rect", { class: "range" }); plot.append(sketch); },
      onpointermove: e => {
        if (!from) return;
        const to = at(e);
        for (const [k, v] of Object.entries({ x: x(Math.min(from[0], to[0])), y: y(Math.max(from[1], to[1])), width: Math.abs(x(from[0]) - x(to[0])), height: Math.abs(y(from[1]) - y(to[1])) })) sketch.setAttribute(k, v);
      },
      onpointerup: e => {
        if (!from) return;
        const to = at(e), far = Math.hypot(x(from[0]) - x(to[0]), y(from[1]) - y(to[1])) > 4;
        if (far) [sx, sy].forEach((s, k) => this.ranges.set(s.name, [Math.min(from[k], to[k]), Math.max(from[k], to[k])]));
        else for (const s of [sx, sy]) this.ranges.delete(s.name);
        from = null;
        this.draw();
      } },
      sx.ticks.map(([label, p]) => [svg("line", { x1: x(p), x2: x(p), y1: top, y2: height - bottom, class: "grid" }), svg("text", { x: x(p), y: height - bottom + 16, "text-anchor": "middle", class: "tick" }, short(clean(label), Math.max(4, Math.floor(600 / sx.ticks.length / 7))), svg("title", {}, label))]),
      sy.ticks.map(([label, p]) => [svg("line", { x1: left, x2: width - right, y1: y(p), y2: y(p), class: "grid" }), svg("text", { x: left - 8, y: y(p) + 4, "text-anchor": "end", class: "tick" }, short(clean(label), 11), svg("title", {}, label))]),
      svg("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle", class: "name" }, short(clean(sx.name), 60)),
      svg("text", { transform: `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle", class: "name" }, short(clean(sy.name), 34)),
      box, order.map(i => svg("circle", { cx: x(sx.places[i]), cy: y(sy.places[i]), r: 5, class: chosen.has(i) ? "dot" : "dot out", fill: chosen.has(i) ? paint(i) : "var(--line)", "data-run": i, onpointerenter: () => this.mark(i), onpointerleave: () => this.mark(-1) },
        svg("title", {}, this.about(i)))));
    this.scatter.replaceChildren(plot);
    this.scatter.setAttribute("aria-label", clean(`Scatter plot of ${sy.name} over ${sx.name}: ${this.runs.length} runs. The arrows go from run to run, Enter opens one.`));
  }

  about(i) { return `run ${this.runs[i].id} ${this.runs[i].name}: ` + [...this.scales.values()].map(s => `${s.name} ${text(s.values[i])}`).join(", "); }

  // mark shows which run is meant in both plots, and says its values.
  mark(i) {
    this.marked = i;
    for (const e of this.place.querySelectorAll("[data-run]")) e.classList.toggle("marked", Number(e.dataset.run) === i);
    this.told.textContent = i < 0 ? "" : clean(this.about(i));
  }
  key(e) {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key], now = this.order.indexOf(this.marked), n = this.order.length;
    if (move) this.mark(this.order[now < 0 ? (move > 0 ? 0 : n - 1) : Math.max(0, Math.min(n - 1, now + move))]);
    else if (e.key === "Enter" && now >= 0) location.href = "run.html?id=" + this.runs[this.marked].id;
    else return;
    e.preventDefault();
  }

  list() {
    if (!this.table.closest("details").open || !this.runs) return;
    const scales = [...this.scales.values()];
    sortable(this.table, ["run", ...scales.map(s => s.name)], this.chosen().map(i => [this.runs[i].id, ...scales.map(s => s.values[i])]),
      (v, k, row) => k ? null : el("a", { href: "run.html?id=" + v }, `${v} ${this.runs.find(r => r.id === row[0]).name}`));
  }
}
