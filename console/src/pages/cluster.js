// cluster.js - nodes and shards; and changing who is in and who leads, with what will happen said first.
import { change, get, part } from "../api.js";
import { button, bytes, confirm, escaped, fill, h, table } from "../dom.js";
import { number } from "../format.js";
import { repeat } from "../live.js";

/** @typedef {import("../answers").Cluster} Cluster */

/** @param {import("../main.js").Page} page */
export async function cluster({ root, signal, say }) {
  const nodes = h("div", {}), shards = h("div", {}), state = h("p", {});
  fill(root, state, h("section", { class: "card" }, h("h2", {}, "Nodes"), nodes, h("div", { class: "row" }, button("Add a node…", add))), h("section", { class: "card" }, h("h2", {}, "Groups"), shards));

  /** @param {Promise<any>} step @param {string} done */
  async function tell(step, done) {
    try {
      const answer = await step;
      say(answer.join ? `${done} Start it with: --join ${answer.join}` : done, Boolean(answer.join));
      await refresh();
    } catch (e) {
      say(e instanceof Error ? e.message : String(e), true);
    }
  }

  async function add() {
    const name = h("input", { type: "text", required: true }), peer = h("input", { type: "text", required: true, placeholder: "10.0.0.4:7201" });
    const answer = await confirm({ title: "Add a node", action: "Add it", fields: { Name: name, "Address for other nodes": peer },
      what: h("p", {}, "The node learns first, and votes when it has everything. The answer has the text for --join, with a secret: it is shown once.") });
    if (answer) await tell(change("POST", "/v1/cluster/members", { name: answer.Name, peer: answer["Address for other nodes"] }), "Added.");
  }

  /** @param {string} name @param {boolean} up */
  async function remove(name, up) {
    const answer = await confirm({ title: "Remove a node", action: "Remove it", word: name,
      what: h("p", {}, `${escaped(name)} stops counting towards the majority, for good. ${up ? "It stops serving; its clients go to other nodes." : "It is down: the others no longer wait for it."} To bring it back, its directory must be emptied and the node added anew.`) });
    if (answer) await tell(change("DELETE", `/v1/cluster/members/${part(name)}`), "It is being removed.");
  }

  /** @param {string} name */
  async function lead(name) {
    const answer = await confirm({ title: "Transfer the lead", action: "Transfer it",
      what: h("p", {}, `${escaped(name)} becomes the leader of group 0 as soon as it has all entries. Requests wait for some ms; nothing is lost.`) });
    if (answer) await tell(change("POST", "/v1/cluster/transfer", { name }), "Transferred.");
  }

  /** @param {string} name @param {number} now */
  async function rank(name, now) {
    const input = h("input", { type: "number", min: 0, max: 15, value: now });
    const answer = await confirm({ title: "Change the priority", action: "Change it", fields: { Priority: input },
      what: h("p", {}, "0 leads first, 15 never leads. The lead may move soon afterwards.") });
    if (answer) await tell(change("PATCH", `/v1/cluster/members/${part(name)}`, { priority: Number(answer.Priority) }), "Changed.");
  }

  async function refresh() {
    const c = /** @type {Cluster} */ (await get("/v1/cluster", {}, signal));
    const most = Math.max(...c.nodes.map((n) => n.applied));
    fill(state, "Asked at ", h("b", {}, bytes(c.node)), c.leader === null ? h("span", { class: "bad" }, ": no leader is known") : [", led by ", h("b", {}, bytes(c.leader))]);
    fill(nodes, table("Nodes", ["Node", "Role", "State", "Priority", "Leads", "Behind", "Clients", "Nodes", "Change"], c.nodes.map((n) => [
      bytes(n.name), n.role, h("span", { class: n.up && n.ready ? "good" : "bad" }, n.up ? n.ready ? "up" : "not ready" : "down", n.problem && [": ", bytes(n.problem)]), number(n.priority), number(n.leads),
      number(most - n.applied), bytes(n.listen), n.peer ? bytes(n.peer) : "",
      h("span", { class: "row" }, n.role === "follower" && button("Lead", () => lead(n.name), "small"), button("Priority", () => rank(n.name, n.priority), "small"), c.nodes.length > 1 && button("Remove", () => remove(n.name, n.up), "small danger"))])));
    fill(shards, table("Groups", ["Group", "Leader", "Term", "Committed", "Applied here", "Level"], c.shards.map((s) => [
      number(s.shard), s.leader === null ? h("span", { class: "bad" }, "none") : bytes(s.leader), number(s.term), number(s.committed), number(s.applied), number(s.level)])));
  }
  await refresh();
  void repeat(refresh, 1000, signal);
}
