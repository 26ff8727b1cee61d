// overview.js - is it well, and what is it busy with?
import { get } from "../api.js";
import { chart } from "../chart.js";
import { bytes, fill, h, table } from "../dom.js";
import { duration, micros, number, short, size, spell } from "../format.js";
import { lockLink } from "../links.js";
import { repeat } from "../live.js";

/** @typedef {import("../answers").Locks} Locks @typedef {import("../answers").Stats} Stats */

const SECONDS = 300;

/** @param {Locks} page @param {string} what */
function lines(page, what) {
  return table(what, ["Lock", "State", "Waiting", "First has waited", "Held by"], page.locks.map((l) => [
    lockLink(l.namespace ?? "", l.name), l.state, number(l.waiters_total ?? l.waiters.length), duration(l.waiters[0]?.waited_ms ?? null, ""),
    l.holders[0] ? bytes(l.holders[0].owner) : "",
  ]), "Nobody waits.");
}

/** @param {import("../main.js").Page} page */
export async function overview({ root, signal, can }) {
  const tiles = h("div", { class: "tiles" });
  const charts = {
    locks: chart("Locks", short), events: chart("Events per second", short), requests: chart("Requests per second", short), times: chart("Times", micros),
  };
  const busiest = h("div", {}), longest = h("div", {}), nodes = h("div", {});
  fill(root, tiles, h("div", { class: "grid charts" }, Object.values(charts).map((c) => c.element)),
    h("div", { class: "grid" }, h("section", { class: "card" }, h("h2", {}, "Longest lines"), busiest),
      h("section", { class: "card" }, h("h2", {}, "Longest waits"), longest)),
    can("cluster") && can("node") && h("section", { class: "card" }, h("h2", {}, "Nodes"), nodes));
  /** @type {Record<string, number[]>} */
  const samples = {};
  let limit = SECONDS;

  void repeat(async () => {
    const stats = /** @type {Stats} */ (await get("/v1/stats", { limit }, signal));
    const last = samples.time_ms?.at(-1) ?? 0;
    const fresh = stats.samples.time_ms.findIndex((t) => t > last);
    for (const [key, values] of Object.entries(stats.samples))
      samples[key] = [...(samples[key] ?? []), ...(fresh < 0 ? [] : values.slice(fresh))].slice(-SECONDS);
    limit = 10;
    const now = (/** @type {string} */ key) => samples[key]?.at(-1) ?? 0;
    const tile = (/** @type {string} */ name, /** @type {string} */ value, kind = "") => h("div", { class: `tile ${kind}` }, h("b", {}, value), h("span", {}, name));
    fill(tiles, tile("held", short(now("held"))), tile("waiting", short(now("waiting"))), tile("sessions", short(now("sessions"))),
      tile("connections", short(now("connections"))), tile("up", spell(stats.uptime_s * 1000)),
      tile("memory", `${size(stats.memory_bytes)} of ${size(stats.memory_max_bytes)}`),
      stats.disk_free_bytes !== null && tile("disk free", size(stats.disk_free_bytes)),
      tile(stats.problem || `${stats.node ?? "in memory"}, ${stats.version}`, stats.ready ? "ready" : "not ready", stats.ready ? "good" : "bad"));
    const line = (/** @type {string} */ name, /** @type {string} */ key) => ({ name, values: samples[key] ?? [] });
    charts.locks.draw([line("held", "held"), line("waiting", "waiting")]);
    charts.events.draw([line("granted", "granted"), line("timed out", "timeouts"), line("expired", "expired")]);
    charts.requests.draw([line("ok", "ok"), line("refused", "refused"), line("errors", "errors")]);
    charts.times.draw([line("request p99", "request_p99_us"), line("hand-over p99", "handover_p99_us")]);
  }, 1000, signal);

  void repeat(async () => {
    fill(busiest, lines(await get("/v1/locks", { sort: "waiters", limit: 8, min_waiters: 1 }, signal), "Longest lines"));
    fill(longest, lines(await get("/v1/locks", { sort: "waited", limit: 8, min_waiters: 1 }, signal), "Longest waits"));
  }, 2000, signal);

  if (can("cluster") && can("node"))
    void repeat(async () => {
      const cluster = /** @type {import("../answers").Cluster} */ (await get("/v1/cluster", {}, signal));
      fill(nodes, table("Nodes", ["Node", "Role", "State", "Leads", "Applied"], cluster.nodes.map((n) => [
        bytes(n.name), n.role, h("span", { class: n.up && n.ready ? "good" : "bad" }, n.problem || (n.up ? "up" : "down")), number(n.leads), number(n.applied)])));
    }, 2000, signal);
}
