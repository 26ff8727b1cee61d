// dom.js - elements from text. Nothing here reads HTML: what a client has sent is only ever text.

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes] an on... function is a listener, a class may be a list
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else e.setAttribute(key, value === true ? "" : String(value));
  }
  append(e, children);
  return e;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 */
export function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) e.setAttribute(key, String(value));
  }
  append(e, children);
  return e;
}

/** @param {Element} e @param {Child[]} children */
function append(e, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(e, child);
    else e.append(child instanceof Node ? child : String(child));
  }
}

/** @param {Element} e @param {...Child} children */
export function fill(e, ...children) {
  e.replaceChildren();
  append(e, children);
}

// What would change how the text around it is read, or cannot be seen: controls, marks of direction,
// spaces of no or unusual width or at an end, what is no character.
const UNSEEN = /^ | $|[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u115f\u1160\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\u{e0000}-\u{e0fff}]/gu;

/** @param {string} text */
export function escaped(text) {
  return text.replace(UNSEEN, (c) => c === "\ufffd" ? "\ufffd" : `\\u${c.codePointAt(0)?.toString(16).padStart(4, "0")}`);
}

/**
 * A name or any other bytes of a client, in one line: what cannot be seen is shown as its number.
 * @param {string} text
 * @param {string} [kind] a class
 */
export function bytes(text, kind = "name") {
  const e = h("span", { class: kind, dir: "ltr", title: escaped(text) });
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    e.append(text.slice(from, match.index), h("span", { class: "unseen" }, escaped(match[0])));
    from = match.index + match[0].length;
  }
  e.append(text.slice(from));
  if (text === "") e.append(h("span", { class: "unseen" }, "empty"));
  return e;
}

/**
 * @param {string} label
 * @param {() => void} action
 * @param {string} [kind]
 */
export function button(label, action, kind = "") {
  return h("button", { type: "button", class: kind, onclick: action }, label);
}

/**
 * A labelled field.
 * @param {string} label
 * @param {HTMLElement} input
 */
export function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

/**
 * @param {string[]} options
 * @param {string} value
 * @param {Record<string, any>} [attributes]
 */
export function select(options, value, attributes = {}) {
  return h("select", attributes, options.map((o) => h("option", { value: o, selected: o === value }, o || "any")));
}

/**
 * A table whose cells are given row by row; `empty` is said when there are none.
 * @param {string} caption
 * @param {string[]} heads
 * @param {Child[][]} rows
 * @param {string} [empty]
 */
export function table(caption, heads, rows, empty = "None.") {
  if (rows.length === 0) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))));
}

/**
 * Asks before something happens: the word must be typed, as it is shown. Resolves with the fields, or null.
 * @param {{title: string, what: Child, word?: string, action: string, fields?: Record<string, HTMLInputElement>}} question
 * @returns {Promise<Record<string, string> | null>}
 */
export function confirm(question) {
  return new Promise((resolve) => {
    const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const go = h("button", { type: "submit", class: "danger", disabled: question.word !== undefined }, question.action);
    typed.addEventListener("input", () => { go.disabled = typed.value !== escaped(question.word ?? ""); });
    const before = document.activeElement;
    const fields = question.fields ?? {};
    const done = (/** @type {Record<string, string> | null} */ value) => {
      dialog.close();
      dialog.remove();
      if (before instanceof HTMLElement) before.focus();
      resolve(value);
    };
    const dialog = h("dialog", { "aria-label": question.title, oncancel: (/** @type {Event} */ e) => { e.preventDefault(); done(null); } },
      h("form", {
        onsubmit: (/** @type {Event} */ e) => {
          e.preventDefault();
          done(Object.fromEntries(Object.entries(fields).map(([k, input]) => [k, input.value])));
        },
      },
        h("h2", {}, question.title), h("div", {}, question.what),
        Object.entries(fields).map(([name, input]) => field(name, input)),
        question.word !== undefined && field(`Type ${escaped(question.word)} to go on`, typed),
        h("div", { class: "row" }, button("Cancel", () => done(null)), go)));
    document.body.append(dialog);
    dialog.showModal();
  });
}
