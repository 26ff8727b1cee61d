// sessions.js - what each session holds, waits for and has set; and ending one.
import { change, get, part } from "../api.js";
import { button, bytes, confirm, fill, h, table } from "../dom.js";
import { duration, number } from "../format.js";
import { lockLink } from "../links.js";
import { repeat } from "../live.js";
import { longList } from "../rows.js";

/** @typedef {import("../answers").Session} Session @typedef {import("../main.js").Page} Page */

/** @param {Page} page */
export async function sessions(page) {
  const id = page.query.get("id");
  if (id !== null) await detail(page, id);
  else await list(page);
}

/** @param {Page} page */
async function list({ root, signal }) {
  const rows = longList({
    label: "Sessions",
    heads: ["Id", "Description", "Ends in", "Attached", "Holds", "Waits", "Variables"],
    empty: "No session.",
    href: (/** @type {Session} */ s) => `#/sessions?${new URLSearchParams({ id: s.id })}`,
    cells: (s) => [bytes(s.id, "id"), s.description ? bytes(s.description) : "", duration(s.expires_in_ms), s.attached ? "yes" : "", number(s.holds), number(s.waits), number(s.variables)],
    load: async (after) => {
      const answer = /** @type {import("../answers").Sessions} */ (await get("/v1/sessions", { after, limit: 200 }, signal));
      return { rows: answer.sessions, next: answer.next };
    },
  });
  fill(root, rows.element);
  await rows.reset();
  void repeat(() => rows.refresh().catch(() => rows.reset()), 2000, signal);
}

/** @param {Page} page @param {string} id */
async function detail({ root, signal, say }, id) {
  const path = `/v1/sessions/${part(id)}`;
  const facts = h("div", {}), holds = h("div", {}), waits = h("div", {}), variables = h("div", {});
  const end = button("End this session…", async () => {
    const answer = await confirm({ title: "End this session", action: "End it", word: id, what: h("p", {}, "It loses all that it holds, waits for and has set, at once.") });
    if (!answer) return;
    try {
      const done = await change("DELETE", path);
      say(`Ended: ${done.freed} holds and waits are gone.`);
      location.hash = "#/sessions";
    } catch (e) {
      say(e instanceof Error ? e.message : String(e), true);
    }
  }, "danger");
  const section = (/** @type {string} */ title, /** @type {HTMLElement} */ e) => h("section", { class: "card" }, h("h2", {}, title), e);
  fill(root, h("p", {}, h("a", { href: "#/sessions" }, "All sessions")), h("section", { class: "card" }, h("h2", { class: "long" }, bytes(id, "id")), facts, h("div", { class: "row" }, end)),
    section("Holds", holds), section("Waits for", waits), section("Variables", variables));
  const more = (/** @type {string | null} */ next) => next && h("p", { class: "quiet" }, "The first 200.");
  const refresh = async () => {
    const s = /** @type {Session} */ (await get(path, {}, signal));
    fill(facts, h("dl", { class: "facts" }, h("dt", {}, "Description"), h("dd", {}, s.description ? bytes(s.description) : "none"), h("dt", {}, "Ends in"), h("dd", {}, duration(s.expires_in_ms), " of ", duration(s.ttl_ms)),
      h("dt", {}, "Attached to a connection"), h("dd", {}, s.attached ? "yes" : "no"), h("dt", {}, "Lingers"), h("dd", {}, duration(s.linger_ms))));
    const held = /** @type {import("../answers").SessionHolds} */ (await get(`${path}/holds`, { limit: 200 }, signal));
    fill(holds, table("Holds", ["Lock", "Owner", "Mode", "Fence", "Held for", "Ends in"], held.holds.map((one) => [
      lockLink(one.namespace, one.name), bytes(one.owner), one.mode, String(one.fence), duration(one.held_ms), duration(one.expires_in_ms, "with the session")])), more(held.next));
    const waited = /** @type {import("../answers").SessionWaits} */ (await get(`${path}/waits`, { limit: 200 }, signal));
    fill(waits, table("Waits", ["Lock", "Owner", "Mode", "Has waited", "Gives up in"], waited.waits.map((one) => [
      lockLink(one.namespace, one.name), bytes(one.owner), one.mode, duration(one.waited_ms), duration(one.expires_in_ms)])), more(waited.next));
    const set = /** @type {import("../answers").SessionVariables} */ (await get(`${path}/variables`, { limit: 200 }, signal));
    fill(variables, table("Variables", ["Namespace", "Table", "Key", "Set", "Ends in"], set.variables.map((one) => [
      bytes(one.namespace, "ns"), bytes(one.table), bytes(one.key), h("span", {}, duration(one.set_ms_ago), " ago"), duration(one.expires_in_ms, "with the session")])), more(set.next));
  };
  await refresh();
  void repeat(refresh, 2000, signal);
}

