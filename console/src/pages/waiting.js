// waiting.js - who waits for whom: the graph, the longest chains, and refused deadlocks.
import { follow, get } from "../api.js";
import { bytes, escaped, field, fill, h, svg, table } from "../dom.js";
import { number, time } from "../format.js";
import { lockLink, lockPath, sessionLink } from "../links.js";
import { repeat } from "../live.js";

/** @typedef {import("../answers").WaitGraph} WaitGraph @typedef {import("../answers").Lock} Lock */

const DRAWN = 60, WIDTH = 190, HEIGHT = 44, GAP_X = 80, GAP_Y = 14;

/** @param {string} text */
function cut(text) {
  const plain = escaped(text);
  return plain.length > 22 ? `${plain.slice(0, 21)}…` : plain;
}

/**
 * Boxes are locks, each right of those that its holders wait for; a line is one who holds the one
 * lock and waits for the other.
 * @param {Lock[]} locks
 */
function draw(locks) {
  const key = (/** @type {string | undefined} */ ns, /** @type {string} */ owner, /** @type {string | null} */ session) => JSON.stringify([ns, owner, session]);
  /** @type {Map<string, number[]>} */
  const waits = new Map();
  locks.forEach((l, i) => l.waiters.forEach((w) => {
    const k = key(l.namespace, w.owner, w.session);
    waits.set(k, [...(waits.get(k) ?? []), i]);
  }));
  /** @type {{from: number, to: number, owner: string}[]} */
  const edges = [];
  locks.forEach((l, i) => l.holders.forEach((one) => (waits.get(key(l.namespace, one.owner, one.session)) ?? []).forEach((to) => {
    if (to !== i && edges.length < 1000) edges.push({ from: i, to, owner: one.owner });
  })));
  const depth = locks.map(() => 0);
  for (let round = 0, moved = true; moved && round < locks.length; round++) {
    moved = false;
    for (const e of edges) if (depth[e.from] < depth[e.to] + 1 && depth[e.to] + 1 < locks.length) { depth[e.from] = depth[e.to] + 1; moved = true; }
  }
  const connected = new Set(edges.flatMap((e) => [e.from, e.to]));
  const shown = locks.map((_, i) => i).sort((a, b) => Number(connected.has(b)) - Number(connected.has(a))).slice(0, DRAWN);
  /** @type {number[]} */
  const used = [];
  /** @type {Map<number, {x: number, y: number}>} */
  const places = new Map();
  for (const i of shown.sort((a, b) => depth[a] - depth[b] || a - b)) {
    const row = used[depth[i]] ?? 0;
    used[depth[i]] = row + 1;
    places.set(i, { x: 4 + depth[i] * (WIDTH + GAP_X), y: 4 + row * (HEIGHT + GAP_Y) });
  }
  const width = 8 + Math.max(0, ...[...places.values()].map((p) => p.x + WIDTH)), height = 8 + Math.max(0, ...[...places.values()].map((p) => p.y + HEIGHT));
  return h("div", { class: "graph", tabindex: 0, role: "region", "aria-label": "Wait graph" },
    svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` },
      edges.map((e) => {
        const a = places.get(e.from), b = places.get(e.to);
        if (!a || !b) return null;
        const x1 = a.x, y1 = a.y + HEIGHT / 2, x2 = b.x + WIDTH, y2 = b.y + HEIGHT / 2, bend = Math.max(30, Math.abs(x1 - x2) / 2);
        return svg("path", { class: "edge", d: `M${x1} ${y1} C${x1 - bend} ${y1} ${x2 + bend} ${y2} ${x2} ${y2}` }, svg("title", {}, `${escaped(e.owner)} holds ${escaped(locks[e.from].name)} and waits for ${escaped(locks[e.to].name)}`));
      }),
      [...places].map(([i, p]) => svg("a", { href: lockPath(locks[i].namespace ?? "", locks[i].name), class: "node" },
        svg("title", {}, `${escaped(locks[i].namespace ?? "")} / ${escaped(locks[i].name)}`),
        svg("rect", { x: p.x, y: p.y, width: WIDTH, height: HEIGHT, rx: 6, class: depth[i] === 0 ? "root" : "" }),
        svg("text", { x: p.x + 10, y: p.y + 18, class: "title" }, cut(locks[i].name)),
        svg("text", { x: p.x + 10, y: p.y + 35 }, `${cut(locks[i].holders[0]?.owner ?? "free")} · ${number(locks[i].waiters_total ?? locks[i].waiters.length)} waiting`)))));
}

/** @param {import("../main.js").Page} page */
export async function waiting({ root, query, signal }) {
  const ns = h("input", { type: "search", name: "ns", value: query.get("ns") ?? "", autocomplete: "off" });
  const picture = h("div", {}), chains = h("div", {}), roots = h("div", {}), deadlocks = h("ol", { class: "timeline" }, h("li", { class: "quiet" }, "Connecting…"));
  const note = h("p", { class: "quiet", role: "status" });
  let drawn = "";
  const section = (/** @type {string} */ title, /** @type {Element} */ e) => h("section", { class: "card" }, h("h2", {}, title), e);
  fill(root, h("form", { class: "filters", role: "search", onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); void refresh(); } }, field("Namespace", ns)), note,
    section("Longest chains", chains), section("Most wait in the end for", roots), section("Graph", picture), section("Deadlocks that were refused", deadlocks));

  async function refresh() {
    const g = /** @type {WaitGraph} */ (await get("/v1/wait-graph", { ns: ns.value }, signal));
    fill(note, g.locks.length === 0 ? "Nobody waits." : `${number(g.locks.length)} locks with a line${g.cut ? "; not all of them are here" : ""}.`);
    fill(chains, g.chains.length === 0 && h("p", { class: "quiet" }, "None."), g.chains.map((c) => h("p", { class: "chain" }, h("b", {}, `${number(c.length)} `),
      c.steps.map((step, i) => h("span", { class: "step" }, i > 0 && " → ", bytes(step.owner), step.session !== null && [" (", sessionLink(step.session), ")"], " waits for ", lockLink(c.namespace, step.waits_for, false))),
      c.length > c.steps.length && " …", c.held_by.length > 0 && [" held by ", c.held_by.slice(0, 3).map((w, i) => [i > 0 && ", ", bytes(w.owner)]).flat(), c.held_by.length > 3 && " and others"])));
    fill(roots, table("Roots", ["Lock", "Waiting in the end", "In the lines of"], g.roots.map((r) => [lockLink(r.namespace, r.name), number(r.waiting), `${number(r.locks)} ${r.locks === 1 ? "lock" : "locks"}`])));
    const shape = JSON.stringify(g.locks.map((l) => [l.namespace, l.name, l.holders.map((w) => [w.owner, w.session]), l.waiters.map((w) => [w.owner, w.session])]));
    if (shape === drawn) return; // a picture that has not changed keeps its place and its focus
    drawn = shape;
    fill(picture, g.locks.length === 0 ? h("p", { class: "quiet" }, "None.") : draw(g.locks));
  }
  await refresh();
  void repeat(refresh, 2000, signal);
  let any = false;
  void follow({ ns: "", kinds: "deadlock" }, (e) => {
    if (e === null) {
      if (!any) fill(deadlocks, h("li", { class: "quiet" }, "None since this page was opened."));
      return;
    }
    if (!any) fill(deadlocks);
    any = true;
    deadlocks.prepend(h("li", { class: "deadlock" }, e.time_ms !== undefined && time(e.time_ms), bytes(e.owner ?? ""), " wanted ", lockLink(e.namespace, e.name ?? ""), ", which would have closed a circle"));
  }, signal);
}
