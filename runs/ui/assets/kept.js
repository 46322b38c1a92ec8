// What a recipe kept: images, histograms and tables by step, texts and tensors.
"use strict";

const mostKept = 200; // views in a page
const at = step => step === null || step === undefined ? "" : `step ${step}`;

// A kept thing has all that was kept of one kind under one name. It is loaded when it can be seen.
class Kept {
  constructor(kind, name) {
    Object.assign(this, { kind, name, list: [], i: 0, seen: false, turn: 0 });
    this.note = el("small");
    this.body = el("div", { class: "kept-body" });
    this.fault = el("p", { role: "alert" });
    this.slider = el("input", { type: "range", min: 0, "aria-label": `step of ${clean(name)}`, oninput: () => this.go(Number(this.slider.value)) });
    this.steps = el("label", { class: "steps", hidden: true }, this.slider);
    this.figure = el("figure", { class: "kept " + kind }, el("figcaption", null, el("span", null, name), this.note, el("span", { class: "kind" }, kind)), this.steps, this.body, this.fault);
    this.figure.kept = this;
  }
  update(list) {
    const text = JSON.stringify(list);
    if (this.text === text) return;
    const newest = this.i >= this.list.length - 1; // stay with the newest, if that is shown
    Object.assign(this, { text, list });
    this.steps.hidden = list.length < 2;
    this.slider.max = list.length - 1;
    this.i = newest ? list.length - 1 : Math.min(this.i, list.length - 1);
    if (this.seen) this.load();
  }
  load() { this.go(this.i); }
  async go(i) {
    this.i = i;
    this.slider.value = i;
    const a = this.list[i], mine = ++this.turn;
    this.slider.setAttribute("aria-valuetext", at(a.step));
    this.note.textContent = [at(a.step), this.list.length > 1 ? `${i + 1} of ${this.list.length}` : "", bytes(a.bytes)].filter(t => t).join(", ");
    try {
      await this.show(a, () => mine === this.turn);
      if (mine === this.turn) this.fault.textContent = "";
    } catch (e) {
      if (mine === this.turn) this.fault.textContent = why(e);
    }
  }
}

class KeptImage extends Kept {
  async show(a) {
    this.img ??= this.body.appendChild(el("img", { alt: "" }));
    this.img.alt = clean(`${a.name} ${at(a.step)}`);
    const next = this.list[this.i + 1];
    if (next) new Image().src = fileOf(next);
    if (this.img.getAttribute("src") !== fileOf(a)) this.img.src = fileOf(a);
  }
}

class KeptText extends Kept {
  async show(a, current) {
    const most = 200_000, content = new TextDecoder().decode(await contentOf(a));
    if (current()) this.body.replaceChildren(el("pre", { tabindex: 0, "aria-label": a.name }, content.slice(0, most)), content.length > most ? el("p", { class: "soft" }, `the first ${most} of ${content.length} characters`) : "");
  }
}

// parseExactly keeps whole numbers that a float cannot hold.
function parseExactly(json) {
  return JSON.parse(json, (_, v, context) => typeof v !== "number" || !Number.isInteger(v) || Number.isSafeInteger(v) ? v
    : !context ? `≈${v}` : /^-?\d+$/.test(context.source) ? BigInt(context.source) : v);
}

class KeptTable extends Kept {
  async show(a, current) {
    const { columns, rows } = parseExactly(new TextDecoder().decode(await contentOf(a)));
    if (!current()) return;
    const table = el("table"), filter = el("input", { type: "search", spellcheck: "false", oninput: () => draw() }), count = el("span", { role: "status", class: "soft" });
    const draw = () => {
      const wanted = filter.value.toLowerCase(), found = wanted ? rows.filter(r => r.some(v => text(v).toLowerCase().includes(wanted))) : rows;
      count.textContent = found.length === rows.length ? `${rows.length} rows` : `${found.length} of ${rows.length} rows`;
      sortable(table, columns, found);
    };
    this.body.replaceChildren(el("div", { class: "controls" }, el("label", null, "Rows with ", filter), count), el("div", { class: "across tall", tabindex: 0, role: "region", "aria-label": a.name }, table));
    draw();
  }
}

// Tensors are safetensors files with one entry. Each type has a size and a reader of all values of a buffer.
const half = b => { const s = b & 0x8000 ? -1 : 1, e = b >> 10 & 31, f = b & 1023; return s * (e === 31 ? (f ? NaN : Infinity) : e ? 2 ** (e - 15) * (1 + f / 1024) : f * 2 ** -24); };
const tensorTypes = {
  F64: b => new Float64Array(b), F32: b => new Float32Array(b), I64: b => new BigInt64Array(b), I32: b => new Int32Array(b), I8: b => new Int8Array(b), U8: b => new Uint8Array(b),
  BOOL: b => Array.from(new Uint8Array(b), v => v !== 0), F16: b => Float64Array.from(new Uint16Array(b), half),
  BF16: b => new Float32Array(Uint32Array.from(new Uint16Array(b), v => v << 16).buffer),
  C64: b => { const f = new Float32Array(b); return Array.from({ length: f.length / 2 }, (_, i) => `${number(f[2 * i])}${f[2 * i + 1] < 0 || Object.is(f[2 * i + 1], -0) ? "-" : "+"}${number(Math.abs(f[2 * i + 1]))}i`); },
};

class KeptTensor extends Kept {
  async show(a, current) {
    const raw = await contentOf(a);
    if (!current()) return;
    const size = Number(new DataView(raw).getBigUint64(0, true)), entry = JSON.parse(new TextDecoder().decode(raw.slice(8, 8 + size))).tensor;
    const read = tensorTypes[entry.dtype];
    if (!read) { this.body.replaceChildren(el("p", null, `${entry.dtype} of shape (${entry.shape.join(", ")})`)); return; }
    const values = read(raw.slice(8 + size + entry.data_offsets[0], 8 + size + entry.data_offsets[1])), shape = entry.shape;
    const facts = [["shape", `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`], ["type", entry.dtype]];
    if (entry.dtype !== "C64") {
      let low = null, high = null, sum = 0, finite = 0, nan = 0, inf = 0;
      for (const v of values) {
        const f = Number(v);
        if (f !== f) nan++;
        else if (!Number.isFinite(f)) inf++;
        else { if (low === null || v < low) low = v; if (high === null || v > high) high = v; sum += f; finite++; }
      }
      const show = v => typeof v === "number" ? number(v) : String(v);
      if (finite) facts.push(["smallest", show(low)], ["largest", show(high)], ["mean", number(sum / finite)]);
      if (nan) facts.push(["NaN", String(nan)]);
      if (inf) facts.push(["infinite", String(inf)]);
    }
    const across = shape.length > 1 ? shape.at(-1) : 1, down = across ? values.length / across : 0, mostRows = 100, mostColumns = 20;
    const label = r => { const at = []; for (let k = shape.length - 2; k >= 0; k--) { at.unshift(r % shape[k]); r = Math.floor(r / shape[k]); } return shape.length > 1 ? at.join(", ") : shape.length ? String(r) : ""; };
    const cell = v => typeof v === "number" && !Number.isFinite(v) ? String(v) : v;
    const rows = Array.from({ length: Math.min(down, mostRows) }, (_, r) => [label(r), ...Array.from({ length: Math.min(across, mostColumns) }, (_, c) => cell(values[r * across + c]))]);
    const table = el("table");
    fill(table, ["", ...Array.from({ length: Math.min(across, mostColumns) }, (_, c) => shape.length > 1 ? String(c) : "value")], rows);
    this.body.replaceChildren(el("dl", null, facts.flatMap(([k, v]) => [el("dt", null, k), el("dd", null, v)])),
      el("div", { class: "across tall", tabindex: 0, role: "region", "aria-label": `values of ${clean(a.name)}` }, table),
      down > mostRows || across > mostColumns ? el("p", { class: "soft" }, `the first ${rows.length} of ${down} rows` + (across > mostColumns ? ` and ${mostColumns} of ${across} columns` : "")) : "");
  }
}

// KeptHistogram shows the histograms of all steps as a heat map, and that of one step as bars, with its numbers.
class KeptHistogram extends Kept {
  async load() {
    const mine = ++this.turn;
    try {
      this.answer = await api(of("histograms"), { name: this.name });
    } catch (e) { this.fault.textContent = why(e); return; }
    if (mine !== this.turn) return;
    const all = this.answer.histograms, newest = this.i >= Number(this.slider.max) || !this.drawn;
    this.drawn = true;
    this.slider.max = all.length - 1;
    this.steps.hidden = all.length < 2;
    const finite = all.filter(h => h.edges.length);
    this.range = finite.length ? [Math.min(...finite.map(h => h.edges[0])), Math.max(...finite.map(h => h.edges.at(-1)))] : null;
    this.canvas ??= el("canvas", { class: "heat", width: 560, height: 180, role: "img", onclick: e => {
      const box = this.canvas.getBoundingClientRect(), x = (e.clientX - box.left) / box.width;
      this.go(Math.max(0, this.columns.findIndex(([, end]) => x <= end)));
    } });
    this.bars ??= el("div", { class: "bars", role: "img" });
    this.numbers ??= el("table");
    this.details ??= el("details", { ontoggle: () => this.list_() }, el("summary", null, "Numbers"), el("div", { class: "across tall", tabindex: 0, role: "region", "aria-label": `numbers of ${clean(this.name)}` }, this.numbers));
    this.scale ??= el("div", { class: "heat-scale soft" });
    this.body.replaceChildren(...(all.length > 1 && this.range ? [this.canvas, this.scale] : []), this.bars, this.details);
    this.go(newest ? all.length - 1 : Math.min(this.i, all.length - 1));
  }
  async go(i) {
    if (!this.answer) return; // on its way
    const all = this.answer.histograms, h = all[i];
    this.i = i;
    this.slider.value = i;
    this.slider.setAttribute("aria-valuetext", at(h.step));
    const total = h.counts.reduce((a, b) => a + b, 0), odd = [h.nan ? `${h.nan} NaN` : "", h.inf ? `${h.inf} infinite` : ""].filter(t => t).join(", ");
    this.note.textContent = [at(h.step), `${total} values`, odd, this.answer.kept > all.length ? `${all.length} of ${this.answer.kept} steps` : ""].filter(t => t).join(", ");
    if (all.length > 1 && this.range) this.heat();
    const width = 560, height = 130, bottom = 18, most = Math.max(1, ...h.counts), n = h.counts.length;
    const described = n ? `from ${number(h.edges[0])} to ${number(h.edges[n])}, at most ${most} values in one of ${n} bins` : "no finite values";
    this.bars.setAttribute("aria-label", clean(`${this.name} ${at(h.step)}: ${total} values ${described}`));
    this.bars.replaceChildren(n ? svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "histogram" },
      h.counts.map((c, k) => svg("rect", { x: (k * width / n).toFixed(2), width: Math.max(1, width / n - 1).toFixed(2), y: ((1 - c / most) * (height - bottom)).toFixed(2), height: (c / most * (height - bottom)).toFixed(2) }, svg("title", {}, `${c} from ${number(h.edges[k])} to ${number(h.edges[k + 1])}`))),
      svg("text", { x: 0, y: height - 4 }, number(h.edges[0])), svg("text", { x: width / 2, y: height - 4, "text-anchor": "middle" }, number(h.edges[n >> 1])), svg("text", { x: width, y: height - 4, "text-anchor": "end" }, number(h.edges[n])))
      : el("p", { class: "soft" }, "no finite values"));
    this.list_();
  }
  list_() {
    if (!this.details.open) return;
    const h = this.answer.histograms[this.i];
    fill(this.numbers, ["from", "to", "values"], h.counts.map((c, k) => [number(h.edges[k]), number(h.edges[k + 1]), c]));
  }
  // heat draws a column for each step: the darker a place, the more of that step's values are there.
  heat() {
    const all = this.answer.histograms, [low, high] = this.range, rows = 90, canvas = this.canvas, g = canvas.getContext("2d"), ratio = devicePixelRatio;
    const wide = canvas.clientWidth || 560, tall = 180;
    canvas.width = wide * ratio;
    canvas.height = tall * ratio;
    const place = v => low === high ? 0.5 : (v / 2 - low / 2) / (high / 2 - low / 2); // halves: the distance may be too large for a float
    // The columns are as wide as the steps are apart.
    const steps = all.map((h, i) => h.step ?? i), first = steps[0], last = steps.at(-1);
    const edge = i => i === 0 ? first - (steps[1] - first) / 2 : i === steps.length ? last + (last - steps.at(-2)) / 2 : (steps[i - 1] + steps[i]) / 2;
    const begin = edge(0), span = edge(steps.length) - begin;
    this.columns = all.map((_, i) => [(edge(i) - begin) / span, (edge(i + 1) - begin) / span]);
    const shares = all.map(h => {
      const own = new Float64Array(rows), total = h.counts.reduce((a, b) => a + b, 0) || 1;
      h.counts.forEach((c, k) => {
        if (!c) return;
        const a = place(h.edges[k]) * rows, b = place(h.edges[k + 1]) * rows;
        if (b - a < 1e-9) { own[Math.min(rows - 1, Math.floor(a))] += c / total; return; }
        for (let r = Math.max(0, Math.floor(a)); r < Math.min(rows, Math.ceil(b)); r++) own[r] += c / total * (Math.min(b, r + 1) - Math.max(a, r)) / (b - a);
      });
      return own;
    });
    const most = Math.max(...shares.map(s => Math.max(...s)));
    g.fillStyle = themed("--accent");
    shares.forEach((own, i) => {
      const [x0, x1] = this.columns[i].map(x => Math.round(x * canvas.width));
      own.forEach((share, r) => {
        if (!share) return;
        g.globalAlpha = Math.max(0.06, Math.sqrt(share / most));
        const y0 = Math.round((1 - (r + 1) / rows) * canvas.height), y1 = Math.round((1 - r / rows) * canvas.height);
        g.fillRect(x0, y0, Math.max(1, x1 - x0), y1 - y0);
      });
    });
    g.globalAlpha = 1;
    g.strokeStyle = themed("--fore");
    g.lineWidth = ratio;
    const [x0, x1] = this.columns[this.i].map(x => x * canvas.width);
    g.strokeRect(x0 + ratio / 2, ratio / 2, Math.max(ratio, x1 - x0 - ratio), canvas.height - ratio);
    canvas.setAttribute("aria-label", clean(`${this.name}: histograms of ${all.length} steps, from ${at(first)} to ${at(last)}, values from ${number(low)} to ${number(high)}`));
    this.scale.replaceChildren(el("span", null, at(first)), el("span", null, `values from ${number(low)} to ${number(high)} upwards`), el("span", null, at(last)));
  }
}

const keptKinds = { image: KeptImage, histogram: KeptHistogram, table: KeptTable, text: KeptText, tensor: KeptTensor };
const keptAll = new Map();
const keptWatcher = new IntersectionObserver(entries => {
  for (const e of entries) {
    const k = e.target.kept;
    if (e.isIntersecting && !k.seen) { k.seen = true; k.load(); }
  }
}, { rootMargin: "200px" });
onTheme(() => { for (const k of keptAll.values()) if (k.canvas && k.range && k.answer.histograms.length > 1) k.heat(); });

// fileOf is where the content of an artifact lies.
const fileOf = a => window.exported ? exportedImage(`files/${a.file}`) : `/api/v1/${of("artifacts")}/${a.sha256}`;

async function contentOf(a) {
  if (window.exported) return window.exported("content", a);
  const answer = await fetch(fileOf(a), { credentials: "same-origin" }).catch(() => null);
  if (!answer?.ok) throw new Fault("the content cannot be fetched", "is drun ui still running?");
  return answer.arrayBuffer();
}

// artifacts shows what the recipe kept.
async function artifacts() {
  showArtifacts(await api(of("artifacts")));
}
function showArtifacts(list) {
  $("kept").hidden = !list.length;
  counted.kept = new Set(list.map(a => a.kind + "\n" + a.name)).size;
  showTab();
  if (!differs($("kept"), list)) return;
  sortable($("artifacts"), ["name", "step", "kind", "size", "kept"], list.map(a => Object.assign([a.name, a.step, a.kind, a.bytes, a.time], { of: a })),
    (v, k, row) => k === 0 ? el("a", { href: fileOf(row.of), download: "" }, v) : k === 3 ? bytes(v) : k === 4 ? when(v) : null);
  const byName = new Map();
  for (const a of list) {
    if (!keptKinds[a.kind]) continue;
    const key = JSON.stringify([a.kind, a.name]);
    byName.set(key, [...(byName.get(key) ?? []), a]);
  }
  for (const [key, of] of [...byName].slice(0, mostKept)) {
    if (!keptAll.has(key)) {
      const k = new keptKinds[of[0].kind](of[0].kind, of[0].name);
      keptAll.set(key, k);
      $("views").append(k.figure);
      keptWatcher.observe(k.figure);
    }
    keptAll.get(key).update(of);
  }
  $("keptnote").textContent = byName.size > mostKept ? `${mostKept} of ${byName.size} are shown; all are in the list` : "";
}
