// accounts.js - accounts with their quotas, and their tokens: make, rotate, revoke.
import { change, get, part } from "../api.js";
import { button, bytes, confirm, fill, h, table } from "../dom.js";
import { number, time } from "../format.js";

/** @typedef {import("../answers").Account} Account */

/** @param {import("../main.js").Page} page */
export async function accounts(page) {
  const id = page.query.get("id");
  if (id !== null) await detail(page, id);
  else await list(page);
}

/** @param {Account} a */
const quotas = (a) => Object.entries(a.used).filter(([k, used]) => used || a.limits[k] !== null).map(([k, used]) => h("span", { class: a.limits[k] !== null && (used ?? 0) >= (a.limits[k] ?? 0) ? "quota bad" : "quota" },
  `${k} ${number(used ?? 0)}${a.limits[k] === null ? "" : ` of ${number(a.limits[k] ?? 0)}`} `));

/** @param {import("../main.js").Page} page */
async function list({ root, signal, say }) {
  const rows = h("div", {});
  const make = button("Make an account…", async () => {
    const email = h("input", { type: "email", required: true }), name = h("input", { type: "text", required: true }), limits = h("input", { type: "text", placeholder: "locks=1000,sessions=10" });
    const answer = await confirm({ title: "Make an account", action: "Make it", what: [], fields: { Email: email, Name: name, Limits: limits } });
    if (!answer) return;
    try {
      await change("POST", "/v1/accounts", { email: answer.Email, name: answer.Name, ...(answer.Limits ? { limits: answer.Limits } : {}) });
      say("Made.");
      await refresh();
    } catch (e) {
      say(e instanceof Error ? e.message : String(e), true);
    }
  });
  async function refresh() {
    const found = /** @type {import("../answers").Accounts} */ (await get("/v1/accounts", { limit: 1000 }, signal));
    fill(rows, table("Accounts", ["Account", "Email", "Name", "Tokens", "Uses"], found.accounts.map((a) => [
      h("a", { href: `#/accounts?${new URLSearchParams({ id: a.id })}` }, bytes(a.id, "id")), bytes(a.email), bytes(a.name), number(a.tokens), quotas(a)])));
  }
  fill(root, h("div", { class: "row" }, make), rows);
  await refresh();
}

/** @param {import("../main.js").Page} page @param {string} id */
async function detail({ root, signal, say }, id) {
  const facts = h("div", {}), tokens = h("div", {});

  /** @param {Promise<any>} step @param {string} done */
  async function tell(step, done) {
    try {
      const answer = await step;
      say(answer.token ? `The token, shown this once: ${answer.token}` : done, Boolean(answer.token));
      await refresh();
    } catch (e) {
      say(e instanceof Error ? e.message : String(e), true);
    }
  }

  async function make() {
    const rules = h("input", { type: "text", value: "read,lock *", required: true }), description = h("input", { type: "text" });
    const answer = await confirm({ title: "Make a token", action: "Make it", fields: { Rules: rules, Description: description }, what: h("p", {}, "Rules are separated by ';': read,lock team/db*;read pub") });
    if (answer) await tell(change("POST", `/v1/accounts/${part(id)}/tokens`, { rules: answer.Rules, description: answer.Description }), "Made.");
  }

  /** @param {string} token */
  async function rotate(token) {
    const overlap = h("input", { type: "number", min: 0, value: 0 });
    const answer = await confirm({ title: "Rotate a token", action: "Rotate it", fields: { "The old secret counts for so many ms": overlap }, what: h("p", {}, "It gets a new secret, shown once.") });
    if (answer) await tell(change("POST", `/v1/tokens/${part(token)}/rotate`, { overlap_ms: Number(Object.values(answer)[0]) }), "Rotated.");
  }

  /** @param {string} token */
  async function revoke(token) {
    const answer = await confirm({ title: "Revoke a token", action: "Revoke it", word: token, what: h("p", {}, "Nothing is done for it any more, at any node. What it holds stays until its leases end.") });
    if (answer) await tell(change("DELETE", `/v1/tokens/${part(token)}`), "Revoked.");
  }

  async function refresh() {
    const a = /** @type {Account} */ (await get(`/v1/accounts/${part(id)}`, {}, signal));
    const found = /** @type {import("../answers").Tokens} */ (await get(`/v1/accounts/${part(id)}/tokens`, { limit: 1000 }, signal));
    fill(facts, h("dl", { class: "facts" }, h("dt", {}, "Email"), h("dd", {}, bytes(a.email)), h("dt", {}, "Name"), h("dd", {}, bytes(a.name)), h("dt", {}, "Uses"), h("dd", {}, quotas(a))));
    const when = (/** @type {number | null} */ ms) => (ms === null ? "" : time(ms));
    fill(tokens, table("Tokens", ["Id", "Description", "Rules", "Made", "Used", "Ends", ""], found.tokens.map((t) => [
      bytes(t.id, "id"), t.description ? bytes(t.description) : "", t.rules.map((r) => h("div", {}, bytes(r, "rule"))), when(t.created_at_ms), when(t.used_at_ms), when(t.expires_at_ms),
      h("span", { class: "row" }, button("Rotate", () => rotate(t.id), "small"), button("Revoke", () => revoke(t.id), "small danger"))])));
  }
  fill(root, h("p", {}, h("a", { href: "#/accounts" }, "All accounts")), h("section", { class: "card" }, h("h2", { class: "long" }, bytes(id, "id")), facts),
    h("section", { class: "card" }, h("h2", {}, "Tokens"), tokens, h("div", { class: "row" }, button("Make a token…", make))));
  await refresh();
}
