// events.js - the news as they come, with a pause.
import { follow } from "../api.js";
import { button, bytes, field, fill, h } from "../dom.js";
import { number, time } from "../format.js";
import { lockLink, sessionLink } from "../links.js";
import { eventText } from "./locks.js";

const KEPT = 500;
const KINDS = ["granted", "queued", "refused", "timeout", "deadlock", "released", "renewed", "overdue", "expired", "broken", "left", "body", "transaction", "variable-expired", "namespace-created", "namespace-updated", "namespace-deleted"];

/** @param {import("../main.js").Page} page */
export function events({ root, query, signal }) {
  /** @type {import("../answers").Event[]} */
  let news = [];
  let paused = false, missed = 0, listening = false;
  let stop = new AbortController();
  const ns = h("input", { type: "search", name: "ns", value: query.get("ns") ?? "", autocomplete: "off" });
  const prefix = h("input", { type: "search", name: "prefix", value: query.get("prefix") ?? "", autocomplete: "off" });
  const kinds = h("details", { class: "kinds" }, h("summary", {}, "Kinds"), KINDS.map((kind) => h("label", {}, h("input", { type: "checkbox", name: kind, checked: !["renewed", "queued"].includes(kind) }), kind)));
  const list = h("ol", { class: "timeline tail" });
  const state = h("p", { class: "quiet", role: "status" });
  const pause = button("Pause", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) { missed = 0; draw(); }
  });
  pause.setAttribute("aria-pressed", "false");
  let drawing = 0;

  function draw() {
    drawing = 0;
    pause.setAttribute("aria-pressed", String(paused));
    fill(state, !listening ? "Connecting…" : paused ? `Paused. ${number(missed)} have come since.` : `${number(news.length)} shown, the newest first.`);
    if (paused) return;
    fill(list, news.map((e) => h("li", { class: e.event }, e.time_ms !== undefined && time(e.time_ms), h("b", {}, e.event), " ",
      e.name === undefined ? bytes(e.namespace, "ns") : e.event === "transaction" || e.event === "variable-expired" ? bytes(e.name) : lockLink(e.namespace, e.name),
      eventText(e), e.session !== undefined && [" in ", sessionLink(e.session)])));
  }

  function start() {
    stop.abort();
    stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort(), { once: true });
    news = [];
    listening = false;
    draw();
    const chosen = [...kinds.querySelectorAll("input")].filter((i) => i.checked).map((i) => i.name);
    if (chosen.length === 0) return;
    void follow({ ns: ns.value, prefix: prefix.value, kinds: chosen.length === KINDS.length ? "" : chosen.join() }, (e) => {
      if (e === null) listening = true;
      else if (paused) missed++;
      else news = [e, ...news].slice(0, KEPT);
      if (!drawing) drawing = requestAnimationFrame(draw);
    }, stop.signal);
  }

  let timer = 0;
  fill(root, h("form", { class: "filters", role: "search", oninput: () => { clearTimeout(timer); timer = window.setTimeout(start, 250); }, onsubmit: (/** @type {Event} */ e) => e.preventDefault() },
    field("Namespace", ns), field("Name begins with", prefix), kinds, pause), state, list);
  start();
}
