// links.js - ways from one page to another.
import { bytes, h } from "./dom.js";

/** @param {string} ns @param {string} name */
export const lockPath = (ns, name) => `#/locks?${new URLSearchParams({ ns, name })}`;

/** @param {string} ns @param {string} name @param {boolean} [withNamespace] */
export function lockLink(ns, name, withNamespace = true) {
  return h("a", { href: lockPath(ns, name) }, withNamespace && [bytes(ns, "ns"), h("span", { class: "quiet" }, " / ")], bytes(name));
}

/** @param {string | null | undefined} id */
export function sessionLink(id) {
  return id ? h("a", { href: `#/sessions?${new URLSearchParams({ id })}` }, bytes(id, "id")) : h("span", { class: "quiet" }, "none");
}
