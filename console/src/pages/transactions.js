// transactions.js - tables and variables; and a form that runs a transaction.
import { ApiError, change, get, part } from "../api.js";
import { bytes, escaped, field, fill, h, table } from "../dom.js";
import { duration, number } from "../format.js";
import { sessionLink } from "../links.js";

const EXAMPLE = `[
  {"assert": {"exists": {"table": "t", "key": "k"}}}
]`;

/** @param {import("../main.js").Page} page */
export async function transactions({ root, query, signal }) {
  const ns = query.get("ns") ?? "default", wanted = query.get("table");
  const where = (/** @type {Record<string, string>} */ more) => `#/transactions?${new URLSearchParams({ ns, ...more })}`;
  const input = h("input", { type: "search", name: "ns", value: ns, autocomplete: "off" });
  const session = h("input", { type: "text", name: "session", required: true, autocomplete: "off", spellcheck: "false" });
  const statements = h("textarea", { name: "statements", rows: 8, spellcheck: "false" }, EXAMPLE);
  const outcome = h("div", { role: "status" });
  const tables = h("div", {}), variables = h("div", {});
  const parked = h("p", { class: "quiet" });
  fill(root, h("form", { class: "filters", role: "search", onsubmit: (/** @type {Event} */ e) => { e.preventDefault(); location.hash = `#/transactions?${new URLSearchParams({ ns: input.value })}`; } }, field("Namespace", input), h("button", { type: "submit" }, "Show")), parked,
    h("section", { class: "card" }, h("h2", {}, "Tables"), tables), wanted !== null && h("section", { class: "card" }, h("h2", { class: "long" }, bytes(wanted)), variables),
    h("section", { class: "card" }, h("h2", {}, "Run a transaction"), h("form", {
      onsubmit: async (/** @type {Event} */ e) => {
        e.preventDefault();
        await run();
      },
    }, field("Session", session), field("Statements, as JSON", statements), h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Run")), outcome)));

  /** @param {import("../answers").TransactionDone} done */
  function tell(done) {
    fill(outcome, h("p", { class: done.status === "ok" ? "good" : "bad" }, done.status, done.failed !== null && [", failed: ", h("code", {}, escaped(done.failed))], done.cause !== null && ` (${done.cause})`),
      table("Selected", ["Name", "Value"], done.data.map((d) => [bytes(d.name), h("code", {}, escaped(JSON.stringify(d.value)))]), "Nothing was selected."));
  }

  async function run() {
    let parsed;
    try {
      parsed = JSON.parse(statements.value);
    } catch (e) {
      return fill(outcome, h("p", { class: "bad" }, `The statements are no JSON: ${e instanceof Error ? e.message : ""}`));
    }
    try {
      tell(await change("POST", `/v1/namespaces/${part(ns)}/transactions`, { session: session.value, statements: parsed }));
      await show();
    } catch (e) {
      const value = e instanceof ApiError ? /** @type {any} */ (e).value : undefined;
      if (value?.data) tell(value);
      else fill(outcome, h("p", { class: "bad" }, e instanceof Error ? e.message : String(e)));
    }
  }

  async function show() {
    const space = /** @type {import("../answers").Namespace} */ (await get(`/v1/namespaces/${part(ns)}`, {}, signal));
    fill(parked, `${number(space.variables)} variables in ${number(space.tables)} tables; ${number(space.waiting_transactions)} transactions wait for their condition.`);
    const found = /** @type {import("../answers").Tables} */ (await get(`/v1/namespaces/${part(ns)}/tables`, { limit: 1000 }, signal));
    fill(tables, table("Tables", ["Table", "Keys", "Records"], found.tables.map((t) => [h("a", { href: where({ table: t.name }) }, bytes(t.name)), number(t.keys), number(t.records)])));
    if (wanted === null) return;
    const rows = /** @type {import("../answers").Variables} */ (await get(`/v1/namespaces/${part(ns)}/tables/${part(wanted)}`, { limit: 1000 }, signal));
    fill(variables, table("Variables", ["Key", "Value", "Session", "Set", "Ends in"], rows.variables.map((v) => [
      bytes(v.key), h("code", {}, escaped(JSON.stringify(v.value))), sessionLink(v.session), h("span", {}, duration(v.set_ms_ago), " ago"), duration(v.expires_in_ms, "with the session")])),
      rows.next !== null && h("p", { class: "quiet" }, "The first 1,000."));
  }
  await show();
}
