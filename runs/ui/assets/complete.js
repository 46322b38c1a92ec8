// Completion of the names in an expression: a list below the box, by the arrows and Enter or Tab.
"use strict";

function complete(input, names) {
  const list = el("ul", { role: "listbox", id: input.id + "-names", hidden: true, "aria-label": "Names" });
  const box = el("div", { class: "complete" });
  input.replaceWith(box);
  box.append(input, list);
  for (const [k, v] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id })) input.setAttribute(k, v);
  let shown = [], at = -1;
  const part = () => /[A-Za-z_][\w.]*(\["[^"]*"?\]?[\w.]*)?$/.exec(input.value.slice(0, input.selectionStart))?.[0] ?? "";
  const close = () => { list.hidden = true; shown = []; at = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
  const mark = i => {
    at = i;
    [...list.children].forEach((li, k) => li.setAttribute("aria-selected", k === i));
    if (i < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[i].id);
    list.children[i].scrollIntoView({ block: "nearest" });
  };
  const take = i => {
    const typed = part(), caret = input.selectionStart, before = input.value.slice(0, caret - typed.length) + shown[i];
    input.value = before + input.value.slice(caret);
    input.setSelectionRange(before.length, before.length);
    close();
    input.focus();
  };
  const open = event => {
    const typed = part().toLowerCase(), marked = event?.type === "learned" ? shown[at] : undefined;
    shown = [];
    if (typed) for (const from of [n => n.startsWith(typed), n => n.includes(typed)])
      for (const n of names()) {
        if (shown.length >= 50) break;
        const low = n.toLowerCase();
        if (low !== typed && from(low) && !shown.includes(n)) shown.push(n);
      }
    if (!shown.length) return close();
    list.replaceChildren(...shown.map((n, i) => el("li", { role: "option", id: `${list.id}-${i}`, "aria-selected": "false",
      onmousedown: e => { e.preventDefault(); take(i); } }, n)));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(marked === undefined ? -1 : shown.indexOf(marked));
  };
  for (const event of ["input", "learned"]) input.addEventListener(event, open); // learned: there are more names
  input.addEventListener("blur", close);
  input.addEventListener("keydown", e => {
    if (list.hidden) { if (e.key === "ArrowDown") { open(); e.preventDefault(); } return; }
    if (e.key === "ArrowDown") mark((at + 1) % shown.length);
    else if (e.key === "ArrowUp") mark(at <= 0 ? shown.length - 1 : at - 1);
    else if (e.key === "Escape") close();
    else if ((e.key === "Enter" || e.key === "Tab") && at >= 0) take(at);
    else return;
    e.preventDefault();
  });
}
