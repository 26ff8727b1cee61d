// locks.js - every lock: a list with filters, and one lock in detail.
import { ApiError, change, follow, get, part, url } from "../api.js";
import { button, bytes, confirm, escaped, field, fill, h, select, table } from "../dom.js";
import { duration, number, time } from "../format.js";
import { lockPath, sessionLink } from "../links.js";
import { repeat } from "../live.js";
import { longList } from "../rows.js";

/** @typedef {import("../answers").Lock} Lock @typedef {import("../answers").Event} Event_ @typedef {import("../main.js").Page} Page */

const FILTERS = /** @type {const} */ (["ns", "prefix", "owner", "session", "state", "min_waiters", "min_age_ms", "sort"]);
const SORTS = ["name", "age", "waiters", "waited", "expires"];
const STATES = ["", "exclusive", "shared", "semaphore", "closed", "unlocked"];
const PAGE = 200;

/** @param {Page} page */
export async function locks(page) {
  const ns = page.query.get("ns"), name = page.query.get("name");
  if (ns !== null && name !== null) await detail(page, ns, name);
  else await list(page);
}

/** @param {Page} page */
async function list({ root, query, signal }) {
  const text = (/** @type {string} */ key, /** @type {string} */ type = "search") =>
    h("input", { type, name: key, value: query.get(key) ?? "", autocomplete: "off", spellcheck: "false", min: type === "number" ? 0 : null });
  /** @type {Record<string, HTMLInputElement | HTMLSelectElement>} */
  const inputs = {
    ns: text("ns"), prefix: text("prefix"), owner: text("owner"), session: text("session"), min_waiters: text("min_waiters", "number"),
    min_age_ms: text("min_age_ms", "number"), state: select(STATES, query.get("state") ?? "", { name: "state" }), sort: select(SORTS, query.get("sort") ?? "name", { name: "sort" }),
  };
  const labels = { ns: "Namespace", prefix: "Name begins with", owner: "Owner", session: "Session", min_waiters: "Waiters, at least", min_age_ms: "Held for ms, at least", state: "State", sort: "First" };
  const problem = h("p", { class: "bad", role: "alert" });
  const wanted = () => Object.fromEntries(FILTERS.map((key) => [key, inputs[key].value]));
  const rows = longList({
    label: "Locks",
    heads: ["Namespace", "Name", "State", "Holder", "Held for", "Ends in", "Waiting"],
    empty: "No such lock.",
    href: (/** @type {Lock} */ l) => lockPath(l.namespace ?? "", l.name),
    cells: (l) => {
      const first = l.holders[0];
      const more = (l.holders_total ?? l.holders.length) - 1;
      return [bytes(l.namespace ?? "", "ns"), bytes(l.name), h("span", { class: `state ${l.state}` }, l.state),
        h("span", {}, first ? bytes(first.owner) : "", more > 0 ? ` +${number(more)}` : ""), first ? duration(first.held_ms) : "",
        first ? duration(first.expires_in_ms) : "", number(l.waiters_total ?? l.waiters.length)];
    },
    load: async (after) => {
      const answer = /** @type {import("../answers").Locks} */ (await get("/v1/locks", { ...wanted(), after, limit: PAGE }, signal));
      return { rows: answer.locks, next: answer.next };
    },
  });
  const apply = async () => {
    history.replaceState(null, "", `#${url("/locks", wanted())}`);
    try {
      await rows.reset();
      fill(problem);
    } catch (e) {
      if (!signal.aborted) fill(problem, e instanceof ApiError ? e.message : String(e));
    }
  };
  let timer = 0;
  const form = h("form", { class: "filters", role: "search", oninput: () => { clearTimeout(timer); timer = window.setTimeout(apply, 250); }, onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); void apply(); } },
    FILTERS.map((key) => field(labels[key], inputs[key])));
  fill(root, form, problem, rows.element);
  await apply();
  void repeat(() => rows.refresh(), 2000, signal);
}

/** @param {Page} page @param {string} ns @param {string} name */
async function detail({ root, signal, can, say }, ns, name) {
  const path = `/v1/namespaces/${part(ns)}/locks/${part(name)}`;
  const facts = h("div", {}), holders = h("div", {}), line = h("div", {}), body = h("div", {}), past = h("div", {});
  /** @type {Lock | undefined} */
  let seen;
  let after = 0;
  const breakIt = button("Break…", async () => {
    const fences = seen?.holders.map((one) => one.fence).join() ?? "";
    const reason = h("input", { type: "text", maxlength: 256 });
    const answer = await confirm({
      title: "Break this lock", action: "Break it", word: name, fields: { Reason: reason },
      what: [h("p", {}, "Its holders lose it, and the next of the line gets it. They are told, but they may be in the middle of their work."),
        h("ul", {}, (seen?.holders ?? []).map((one) => h("li", {}, bytes(one.owner), ` fence ${one.fence}`)))],
    });
    if (!answer) return;
    const now = /** @type {Lock} */ (await get(path));
    if (now.holders.map((one) => one.fence).join() !== fences) {
      say("Others hold it by now. Nothing was done: look again.", true);
      return show(now);
    }
    try {
      const done = await change("DELETE", url(path, { reason: answer.Reason }));
      say(`Broken: ${done.broken} lost it.`);
    } catch (e) {
      say(e instanceof Error ? e.message : String(e), true);
    }
  }, "danger");
  fill(root, h("p", {}, h("a", { href: "#/locks" }, "All locks")),
    h("section", { class: "card" }, h("h2", { class: "long" }, bytes(name)), facts, can("break") && h("div", { class: "row" }, breakIt)),
    h("section", { class: "card" }, h("h2", {}, "Holders"), holders), h("section", { class: "card" }, h("h2", {}, "Line"), line),
    h("section", { class: "card" }, h("h2", {}, "Body"), body), h("section", { class: "card" }, h("h2", {}, "History"), past));

  /** @param {Lock} lock */
  function show(lock) {
    seen = lock;
    breakIt.disabled = lock.holders.length === 0;
    fill(facts, h("dl", { class: "facts" }, h("dt", {}, "Namespace"), h("dd", {}, bytes(ns, "ns")), h("dt", {}, "State"), h("dd", {}, h("span", { class: `state ${lock.state}` }, lock.state)),
      lock.of !== undefined && [h("dt", {}, "Permits"), h("dd", {}, number(lock.of))],
      lock.closed_ms !== undefined && [h("dt", {}, "Opens in"), h("dd", {}, duration(lock.closed_ms))]));
    fill(holders, table("Holders", ["Owner", "Mode", "Fence", "Session", "Held for", "Ends in"], lock.holders.map((one) => [
      bytes(one.owner), one.permits === undefined ? one.mode : `${number(one.permits)} permits`, String(one.fence), sessionLink(one.session), duration(one.held_ms),
      one.overdue ? h("span", { class: "bad" }, "overdue") : duration(one.expires_in_ms)]), "Nobody holds it."),
      (lock.holders_total ?? 0) > 0 && h("p", { class: "quiet" }, `the first of ${number(lock.holders_total ?? 0)}`));
    fill(body, lock.body === "" ? h("p", { class: "quiet" }, "Empty.") : [h("p", { class: "quiet" }, `${number(lock.body.length)} characters`), h("pre", { tabindex: 0 }, escaped(lock.body).replaceAll("\\u000a", "\n"))]);
  }

  async function showLine() {
    const w = /** @type {import("../answers").Waiters} */ (await get(`${path}/waiters`, { after, limit: 50 }, signal));
    fill(line, table("Line", ["Place", "Owner", "Mode", "Session", "Has waited", "Gives up in"], w.waiters.map((one) => [
      number(one.position), bytes(one.owner), one.permits === undefined ? one.mode : `${number(one.permits)} permits`, sessionLink(one.session),
      duration(one.waited_ms), duration(one.expires_in_ms)]), "Nobody waits."),
      h("div", { class: "row" }, h("span", { class: "quiet" }, `${number(w.total)} in line`), after > 0 && button("First", () => { after = 0; void showLine(); }),
        w.next !== null && button("Next 50", () => { after = w.next ?? 0; void showLine(); })));
  }

  async function showPast() {
    const found = /** @type {import("../answers").History} */ (await get("/v1/history", { ns, name, limit: 200 }, signal));
    fill(past, found.events.length === 0 && h("p", { class: "quiet" }, "This node has heard nothing of it lately."),
      h("ol", { class: "timeline" }, found.events.toReversed().map((e) => h("li", { class: e.event }, e.time_ms !== undefined && time(e.time_ms), h("b", {}, e.event), eventText(e)))),
      found.since_time_ms !== null && h("p", { class: "quiet" }, "This node knows what has happened since ", time(found.since_time_ms), "."));
  }

  const refresh = async () => {
    show(await get(path, {}, signal));
    await showLine();
  };
  await refresh();
  void repeat(refresh, 1000, signal);
  void follow({ ns, prefix: name }, (e) => { if (e === null || e.name === name) void showPast().catch(() => {}); }, signal);
}

/** What an event says beside its kind. @param {Event_} e */
export function eventText(e) {
  return [e.owner !== undefined && [" ", bytes(e.owner)], e.fence !== undefined && ` fence ${e.fence}`, e.position !== undefined && ` place ${e.position}`,
    e.waited_ms !== undefined && [" waited ", duration(e.waited_ms)], e.reason !== undefined && ` (${e.reason})`, e.why !== undefined && [" because ", bytes(e.why)],
    e.by !== undefined && [" by token ", bytes(e.by, "id")]].flat();
}
