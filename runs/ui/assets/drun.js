// What all pages share. Texts of runs are shown as text nodes alone, never as HTML.
"use strict";

// hidden are the characters that would reorder or overwrite other text; they are shown as escapes.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
function clean(text) {
  return String(text).replace(hidden, c => {
    const n = c.charCodeAt(0);
    return n < 0x80 ? "\\x" + n.toString(16).padStart(2, "0") : "\\u" + n.toString(16).padStart(4, "0");
  });
}

// put sets attributes, of which those that begin with "on" are listeners, and appends children, which are nodes or texts.
function put(e, attributes, children) {
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (v !== false && v !== null && v !== undefined) e.setAttribute(k, v === true ? "" : /^(title|label|aria-.*)$/.test(k) ? clean(v) : v);
  }
  e.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined).map(c => c instanceof Node ? c : clean(c)));
  return e;
}
const el = (name, attributes, ...children) => put(document.createElement(name), attributes, children); // an element
const svg = (name, attributes, ...children) => put(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children); // one of SVG

const $ = id => document.getElementById(id);

// The theme is that of the system, until the user chooses one. A cookie keeps it: other storage is lost with the port.
const themes = ["system", "light", "dark"];
const chosenTheme = () => document.documentElement.dataset.theme ?? /(?:^|; )drun-theme=(light|dark)/.exec(document.cookie)?.[1] ?? "system";
function setTheme(theme) {
  document.cookie = `drun-theme=${theme}; path=/; max-age=31536000; SameSite=Strict`;
  document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("theme"));
}
document.documentElement.dataset.theme = chosenTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
const onTheme = fn => addEventListener("theme", fn);

// themed is a colour by its name, in the theme that the page has now, for what is drawn on a canvas.
const probe = document.createElement("i");
function themed(name) {
  if (!probe.isConnected) { probe.hidden = true; document.body.append(probe); }
  probe.style.color = `var(${name})`;
  return "#" + getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(n => Number(n).toString(16).padStart(2, "0")).join("");
}

// keys are what the keyboard does on a page: key, what it does, and the function; help lists them.
const keys = [["?", "shows these keys", () => help()], ["/", "goes to the search", () => ($("where") ?? $("grep"))?.focus()], ["t", "changes the theme", () => $("theme").click()]];
function help() {
  dialog("Keys", el("table", null, el("tbody", null, keys.filter(k => k[1]).map(([key, does]) => el("tr", null, el("td", null, el("kbd", null, key)), el("td", null, does))))),
    el("p", { class: "soft" }, "On a chart: the arrows move the crosshair, Shift with them the chart, + and - zoom, 0 shows all."),
    el("form", { method: "dialog" }, el("button", null, "Close")));
}
// dialog shows a box above the page, and gives what its form is closed with.
function dialog(title, ...content) {
  return new Promise(resolve => {
    const box = el("dialog", { "aria-label": title, onclose: () => { box.remove(); resolve(box.returnValue); } }, el("h2", null, title), content);
    document.body.append(box);
    box.showModal();
  });
}
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.altKey || e.metaKey || e.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (e.target.matches("input:not([type=checkbox], [type=range]), select, textarea")) { if (e.key === "Escape") e.target.blur(); return; }
  const found = keys.find(k => k[0].split(" ").includes(e.key));
  if (!found) return;
  e.preventDefault();
  found[2](e.key);
});
document.querySelector("header .end")?.append(
  el("button", { type: "button", class: "plain", id: "theme", onclick: e => {
    setTheme(themes[(themes.indexOf(chosenTheme()) + 1) % themes.length]);
    $("theme").textContent = `Theme: ${chosenTheme()}`;
  } }, `Theme: ${chosenTheme()}`),
  el("button", { type: "button", class: "plain", "aria-label": "Keys", title: "Keys (?)", onclick: () => help() }, "?"));

// alive says whether the page is told what is new.
function alive(text) {
  $("live").textContent = text;
  $("live").className = text === "live" ? "on" : "";
}

class Fault extends Error {
  constructor(message, hint) { super(message); this.hint = hint; }
  get text() { return clean(this.message) + (this.hint ? "\nhint: " + clean(this.hint) : ""); }
}
// why is what an error says.
const why = e => e.text ?? String(e);

// path names a request; lists in the parameters are repeated.
function path(what, parameters) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(parameters || {}))
    for (const one of Array.isArray(v) ? v : [v]) if (one !== "" && one !== null && one !== undefined) q.append(k, one);
  const text = q.toString();
  return text ? what + "?" + text : what;
}

// nothing tells why a page has nothing to show, and leaves out its empty sections.
function nothing(e) {
  $("fault").textContent = why(e);
  for (const part of document.querySelectorAll("main > :not(#fault)")) part.hidden = true;
}

// api asks the server; an exported page asks its files instead.
async function api(what, parameters, signal) {
  if (window.exported) return window.exported(what, parameters || {});
  let answer;
  try {
    answer = await fetch("/api/v1/" + path(what, parameters), { signal, credentials: "same-origin" });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Fault("the server does not answer", "is drun ui still running?");
  }
  const value = await answer.json().catch(() => null);
  if (!answer.ok) throw new Fault(value?.error ?? `the server answered ${answer.status}`, value?.hint);
  return value;
}

// may says what the pages may do; change changes something, and ask asks for a text.
const may = { write: false };
async function change(what, body) {
  const answer = await fetch("/api/v1/" + what, { method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }).catch(() => null);
  const value = await answer?.json().catch(() => null);
  if (!answer?.ok) throw new Fault(value?.error ?? "the server does not answer", value?.hint);
  return value;
}
async function ask(title, label, was) {
  const input = el("input", { value: was, autocomplete: "off", maxlength: 200, size: 32 });
  return await dialog(title, el("form", { method: "dialog", class: "edit" }, el("label", null, label, " ", input), el("button", { class: "main", value: "ok" }, "Save"), el("button", { value: "", formnovalidate: true }, "Cancel"))) === "ok" ? input.value.trim() : "";
}

// sure asks whether to go on.
const sure = async (title, what) => await dialog(title, el("p", null, what), el("form", { method: "dialog", class: "edit" }, el("button", { class: "main", value: "ok" }, "Yes"), el("button", { value: "" }, "No"))) === "ok";

const inTrash = "It goes to the trash, from which drun rm --undo takes it back, until drun gc.";

// saveFile hands a file to the browser, to save it.
function saveFile(name, blob) {
  const file = el("a", { href: URL.createObjectURL(blob), download: clean(name).replace(/[^\w.-]+/g, "_") });
  file.click();
  URL.revokeObjectURL(file.href);
}

// givenTo are the parameters that a command gives.
function givenTo(command) {
  const given = [];
  for (let i = 0; i < command.length; i++) {
    const [, flag, rest] = /^(--params?(?==|$)|-p)=?(.*)$/s.exec(command[i]) ?? [];
    if (!flag) continue;
    const value = rest || (command[++i] ?? ""), at = value.indexOf("=");
    if (flag === "--params") given.push(["--params", value]);
    else if (at > 0) given.push([value.slice(0, at), value.slice(at + 1)]);
  }
  return given;
}

// live calls refresh after changes of the history, one call at a time; while going() says so, also now and then without one. A call that took long is followed by a longer
// pause of at most so many milliseconds, so that watching slows no run down.
function live(refresh, atMost, going) {
  if (window.exported) { alive("exported"); return; }
  let source = null, busy = false, again = false;
  const run = async () => {
    if (busy) { again = true; return; }
    busy = true;
    const start = performance.now();
    try { await refresh(); } catch (e) { if (e.name !== "AbortError") console.error(e); }
    const took = performance.now() - start;
    setTimeout(() => { busy = false; if (again) { again = false; run(); } }, Math.min(atMost, Math.max(450, 20 * took)));
  };
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource("/api/v1/events");
    source.addEventListener("open", () => alive("live"));
    source.addEventListener("error", () => alive("not connected"));
    source.addEventListener("change", e => { if (JSON.parse(e.data).written || going()) run(); });
  };
  // A browser opens few connections to one server, so pages that are not seen give theirs back.
  const close = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
  window.addEventListener("pagehide", close);
  open();
}

// number shows a value to six digits.
function number(v) {
  if (v === null || v === undefined) return "-";
  if (typeof v !== "number") return clean(v);
  return Number.isInteger(v) && Math.abs(v) < 1e15 ? String(v) : String(Number(v.toPrecision(6)));
}
// duration shows seconds as internal/elapsed does.
function duration(s) {
  if (s === null || s === undefined) return "-";
  const whole = Math.round(s), m = Math.floor(whole / 60), two = n => String(n).padStart(2, "0");
  if (whole >= 60) return m < 60 ? `${m}m${two(whole % 60)}s` : `${Math.floor(m / 60)}h${two(m % 60)}m`;
  const [n, unit] = s > 0 && s < 0.000995 ? [s * 1e6, "µs"] : s > 0 && s < 0.995 ? [s * 1e3, "ms"] : [s, "s"];
  return `${n >= 99.5 ? Math.round(n / 10) * 10 : n >= 9.95 || n === 0 ? Math.round(n) : (Math.round(n * 10) / 10).toFixed(1)} ${unit}`;
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i ? n.toFixed(1) : n) + " " + units[i];
}
const when = t => new Date(t).toLocaleString();
// ago shows how long ago a time was, with the time itself on hover.
function ago(t) {
  const s = Math.max(0, (Date.now() - Date.parse(t)) / 1000), [n, unit] = s < 60 ? [0, ""] : s < 3600 ? [s / 60, "min"] : s < 86400 ? [s / 3600, "h"] : [s / 86400, "d"];
  return el("time", { datetime: t, title: when(t) }, s > 30 * 86400 ? new Date(t).toLocaleDateString() : unit ? `${Math.floor(n)} ${unit} ago` : "just now");
}
// runLink leads to a run; a report of one file has no other pages.
const runLink = (id, name) => document.documentElement.dataset.alone !== undefined ? el("span", null, name) : el("a", { href: "run.html?id=" + id }, name);
// goesOn tells whether more may come of a run; one that is pending has not begun.
const goesOn = r => r.status === "running" || r.status === "pending";
const status = s => el("span", { class: "s-" + String(s).replace(/\W/g, "") }, s);
const isNumeric = v => typeof v === "number" || typeof v === "bigint" || v === "NaN" || v === "Infinity" || v === "-Infinity";

// text shows any JSON value.
function text(v) {
  if (v === null || v === undefined) return "-";
  if (typeof v === "number") return number(v);
  if (Array.isArray(v)) return v.map(text).join(", ");
  return typeof v === "object" ? JSON.stringify(v) : String(v);
}

// differs reports whether a place shows something else than a value, and notes that it shows that now.
function differs(place, value) {
  const text = JSON.stringify(value);
  if (place.shows === text) return false;
  place.shows = text;
  return true;
}

// say changes a text if it is another.
function say(node, text) {
  const shown = clean(text);
  if (node.data !== shown) node.data = shown;
}

// fill makes a table of heads and rows; cells are texts, numbers or nodes. Numbers stand at the right, and so does what is missing among them.
// Of a table with as many, only what differs is changed.
function fill(table, heads, rows) {
  const blank = v => v === null || v === undefined || v === "-", right = heads.map((_, k) => k > 0 && rows.some(r => isNumeric(r[k])) && rows.every(r => isNumeric(r[k]) || blank(r[k])));
  if (!differs(table, [heads, right, rows.map(r => r.map(v => [v instanceof Node, isNumeric(v)]))])) {
    table.tFoot?.remove();
    rows.forEach((r, i) => r.forEach((v, k) => {
      const cell = table.tBodies[0].rows[i].cells[k];
      if (v instanceof Node) cell.replaceChildren(v);
      else say(cell.firstChild, text(v));
      if (k && typeof v === "number") if (number(v) !== String(v)) cell.title = v; else cell.removeAttribute("title");
    }));
    return rows.length > 0;
  }
  const cell = (v, i) => i === 0 ? el("th", { scope: "row" }, v instanceof Node ? v : text(v))
    : el("td", { class: right[i] || isNumeric(v) ? "n" : null, title: typeof v === "number" && number(v) !== String(v) ? v : null }, v instanceof Node ? v : text(v));
  table.replaceChildren(el("thead", null, el("tr", null, heads.map((h, i) => el("th", { scope: "col", class: right[i] ? "n" : null }, h)))),
    el("tbody", null, rows.map(r => el("tr", null, r.map(cell)))));
  return rows.length > 0;
}

// shorten shows a name so that of a long one, where there is no room for it, the middle is left out: names of runs that belong together differ
// at their ends.
function shorten(name) {
  const all = [...clean(name)], end = 24;
  return all.length <= 1.5 * end ? clean(name) : el("span", { class: "mid" }, el("span", null, all.slice(0, -end).join("")), el("span", null, all.slice(-end).join("")));
}

// cut leaves out the middle of a long name where only text can stand.
function cut(name) {
  const all = [...clean(name)];
  return all.length <= 44 ? all.join("") : all.slice(0, 19).join("") + "…" + all.slice(-24).join("");
}

// list makes a table as fill does, or says what there is instead.
function list(table, heads, rows, none) {
  if (!fill(table, heads, rows) && !table.caption) table.replaceChildren(el("caption", null, none));
}

// before orders cells: numbers, then texts, then NaN and missing values.
function before(a, b) {
  const rank = v => v === null || v === undefined || v === "NaN" ? 2 : isNumeric(v) ? 0 : 1, i = rank(a), j = rank(b);
  if (i !== j || i === 2) return i - j;
  const value = v => i ? text(v) : typeof v === "string" ? Number(v) : v;
  return value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0;
}

// sortable makes a table that is sorted by a click on a head, and keeps that order when it is made anew. Of many rows it shows
// the first, and the next on demand. show makes a node of a cell, or null.
function sortable(table, heads, rows, show) {
  const state = table.sorting ?? { column: -1, down: false, most: 500 };
  table.sorting = state;
  const order = rows.map((_, i) => i);
  if (state.column >= 0) {
    const last = v => v === null || v === undefined || v === "NaN"; // in either direction
    order.sort((a, b) => { const x = rows[a][state.column], y = rows[b][state.column], c = before(x, y); return state.down && !last(x) && !last(y) ? -c : c; });
  }
  fill(table, heads, order.slice(0, state.most).map(i => rows[i].map((v, k) => show?.(v, k, rows[i]) ?? v)));
  [...table.tHead.rows[0].cells].forEach((cell, k) => {
    const sorted = state.column === k;
    if (sorted) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    cell.replaceChildren(el("button", { type: "button", class: "head", onclick: () => {
      Object.assign(state, sorted ? { down: !state.down } : { column: k, down: false });
      sortable(table, heads, rows, show);
      table.tHead.rows[0].cells[k].firstChild.focus();
    } }, cell.textContent + (sorted ? state.down ? " ▼" : " ▲" : "")));
  });
  if (rows.length > state.most) table.append(el("tfoot", null, el("tr", null, el("td", { colspan: heads.length }, `${state.most} of ${rows.length} rows `,
    el("button", { type: "button", onclick: () => { state.most += 500; sortable(table, heads, rows, show); } }, "Show more")))));
}

// diffLines shows a unified diff.
function diffLines(pre, diff) {
  pre.replaceChildren(...(diff ? diff.replace(/\n$/, "").split("\n") : ["the files are the same"]).map(line =>
    el("div", { class: /^(\+\+\+|---)/.test(line) ? "soft" : line[0] === "+" ? "add" : line[0] === "-" ? "del" : line[0] === "@" ? "soft" : null }, line || " ")));
}

// reference writes the name of a parameter or metric as an expression has it.
function reference(kind, name) { return /^[A-Za-z_]\w*$/.test(name) ? `${kind}.${name}` : `${kind}[${JSON.stringify(name)}]`; }
