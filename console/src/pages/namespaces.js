// namespaces.js - namespaces and what is in them.
import { change, get, part } from "../api.js";
import { button, bytes, confirm, fill, h, table } from "../dom.js";
import { duration, number } from "../format.js";
import { repeat } from "../live.js";

/** @param {import("../main.js").Page} page */
export async function namespaces({ root, signal, can, say }) {
  const list = h("div", {});

  /** @param {Promise<any>} step @param {string} done */
  async function tell(step, done) {
    try {
      await step;
      say(done);
      await refresh();
    } catch (e) {
      say(e instanceof Error ? e.message : String(e), true);
    }
  }

  async function make() {
    const name = h("input", { type: "text", required: true, maxlength: 128 }), description = h("input", { type: "text", maxlength: 1024 });
    const answer = await confirm({ title: "Make a namespace", action: "Make it", what: [], fields: { Name: name, Description: description } });
    if (answer) await tell(change("POST", "/v1/namespaces", { name: answer.Name, description: answer.Description }), "Made.");
  }

  /** @param {string} name @param {number} used */
  async function remove(name, used) {
    const answer = await confirm({ title: "Delete a namespace", action: "Delete it", word: name,
      what: h("p", {}, used ? `${number(used)} locks and variables in it are lost by those who hold them.` : "It is empty.") });
    if (answer) await tell(change("DELETE", `/v1/namespaces/${part(name)}?force=true`), "Deleted.");
  }

  async function refresh() {
    const page = /** @type {import("../answers").Namespaces} */ (await get("/v1/namespaces", { limit: 1000 }, signal));
    fill(list, table("Namespaces", ["Name", "Description", "Locks", "Held", "Waiting", "Variables", "Waiting transactions", "Shard", "Made", ""], page.namespaces.map((n) => [
      h("a", { href: `#/locks?${new URLSearchParams({ ns: n.name })}` }, bytes(n.name, "ns")), n.description ? bytes(n.description) : "", number(n.locks), number(n.held), number(n.waiting), number(n.variables),
      number(n.waiting_transactions), number(n.shard), h("span", {}, duration(n.created_ms_ago), " ago"),
      can("admin") ? button("Delete", () => remove(n.name, n.locks + n.variables), "small danger") : ""])),
      page.next !== null && h("p", { class: "quiet" }, "The first 1,000."));
  }
  fill(root, can("admin") && h("div", { class: "row" }, button("Make a namespace…", make)), list);
  await refresh();
  void repeat(refresh, 3000, signal);
}
