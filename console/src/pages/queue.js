// queue.js - requests of a queue in PostgreSQL (belay serve --postgres), and what an operator does.
import { ApiError, change, get, part } from "../api.js";
import { button, bytes, confirm, escaped, field, fill, h, select, table } from "../dom.js";

/** @param {import("../main.js").Page} page */
export async function queue({ root, query, signal, can, say }) {
  const name = query.get("queue") ?? "";
  const input = h("input", { type: "search", name: "queue", value: name, required: true, autocomplete: "off" });
  const status = select(["", "new", "in-progress", "complete", "error"], query.get("status") ?? "", { name: "status" });
  const rows = h("div", {});
  const path = `/v1/queues/${part(name)}`;

  /** @param {string} action @param {string} what */
  const act = (action, what) => button(what, async () => {
    const answer = await confirm({ title: `${what}: ${escaped(name)}`, action: what, what: h("p", {}, {
      pause: "Workers take no more requests of this queue.", resume: "Workers take requests again.",
      retry: "Up to 1,000 requests that have failed are open again.", cancel: "Up to 1,000 requests that wait are cancelled.",
    }[action] ?? ""), ...(action === "cancel" ? { word: name } : {}) });
    if (!answer) return;
    try {
      await change("POST", `${path}/${action}`, {});
      say("Done.");
      await show();
    } catch (e) {
      say(e instanceof Error ? e.message : String(e), true);
    }
  }, action === "cancel" ? "danger" : "");

  async function show() {
    if (name === "") return fill(rows, h("p", { class: "quiet" }, "Which queue?"));
    try {
      const found = await get(`${path}/requests`, { status: status.value, limit: 200 }, signal);
      const list = /** @type {Record<string, unknown>[]} */ (Array.isArray(found) ? found : found.requests ?? []);
      const keys = [...new Set(list.flatMap((r) => Object.keys(r)))].slice(0, 12);
      fill(rows, table("Requests", keys, list.map((r) => keys.map((k) => bytes(typeof r[k] === "string" ? /** @type {string} */ (r[k]) : JSON.stringify(r[k]) ?? "")))));
    } catch (e) {
      fill(rows, h("p", { class: e instanceof ApiError && e.status === 503 ? "quiet" : "bad" }, e instanceof Error ? e.message : String(e)));
    }
  }
  fill(root, h("form", { class: "filters", role: "search", onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); location.hash = `#/queue?${new URLSearchParams({ queue: input.value, status: status.value })}`; } },
    field("Queue", input), field("Status", status), h("button", { type: "submit" }, "Show")),
    name !== "" && can("admin") && h("div", { class: "row" }, act("pause", "Pause"), act("resume", "Resume"), act("retry", "Retry errors"), act("cancel", "Cancel")), rows);
  await show();
}
