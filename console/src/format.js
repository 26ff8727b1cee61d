// format.js - numbers and times as people read them; the exact value is in the title.
import { h } from "./dom.js";

const whole = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** @param {number} n */
export const number = (n) => whole.format(n);
/** @param {number} n */
export const short = (n) => (Math.abs(n) < 10000 ? whole.format(n) : compact.format(n));

/** @param {number} ms */
export function spell(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

/** @param {number} us */
export const micros = (us) => (us === 0 ? "none" : us < 1000 ? `${us} µs` : `${(us / 1000).toPrecision(3)} ms`);

/** @param {number | null} ms @param {string} [none] */
export function duration(ms, none = "no end") {
  return ms === null ? h("span", { class: "quiet" }, none) : h("span", { title: `${whole.format(ms)} ms` }, spell(ms));
}

/** @param {number} ms Unix time */
export function time(ms) {
  const date = new Date(ms);
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, clock.format(date));
}

/** @param {number} n */
export function size(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < units.length - 1; at++) n /= 1024;
  return `${n.toFixed(at ? 1 : 0)} ${units[at]}`;
}
