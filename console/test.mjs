// test.mjs - the console in Debian's Chromium, for tests/e2e/test_console, which starts the servers.
//   node test.mjs SCENARIO URL    prints TAP lines; a line "ask WHAT" wants a line of JSON on stdin
// One violation of the content security policy, one error in the browser's console fails the test.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [, , scenario, base] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = process.env.BELAY_SCREENSHOTS;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(what, value = null) {
  console.log(`ask ${JSON.stringify([what, value])}`);
  return JSON.parse((await lines.next()).value);
}

const profile = mkdtempSync(`${tmpdir()}/belay-console-`);
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, viewport: { width: 1280, height: 900 }, locale: "en-GB", bypassCSP: false,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const page = context.pages()[0];
page.setDefaultTimeout(15000);
const wrong = [];
let expected = []; // texts of errors that a step brings about
page.on("console", (m) => {
  if (["error", "warning"].includes(m.type()) && !expected.some((e) => m.text().includes(e))) wrong.push(m.text());
});
page.on("pageerror", (e) => wrong.push(String(e.stack)));
page.on("dialog", (d) => { wrong.push(`a dialog: ${d.message()}`); void d.dismiss(); });
page.on("request", (r) => { if (!r.url().startsWith(base) && !r.url().startsWith("data:")) wrong.push(`a request to ${r.url()}`); });

const open = async (path) => {
  await page.goto("about:blank");
  await page.goto(`${base}/${path}`);
};
const text = (t, options = {}) => page.getByText(t, options).first();
const seen = (t) => text(t).waitFor();

// Serious findings of axe, in the page as it is. Evaluated from outside, where the policy does not count.
async function accessible(what) {
  const found = await page.evaluate(`${axe}; axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.id + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join("; ")))`);
  assert.deepEqual(found, [], what);
}

const PAGES = {
  overview: ["", "Longest lines"], locks: ["#/locks", "invoices"], lock: ["#/locks?ns=default&name=invoices", "In line"], waiting: ["#/waiting", "Longest chains"],
  sessions: ["#/sessions", "worker-7"], session: ["#/sessions?id=worker-7", "Holds"], events: ["#/events", "newest first"], cluster: ["#/cluster", "Groups"],
  namespaces: ["#/namespaces", "billing"], accounts: ["#/accounts", "default"], account: ["#/accounts?id=default", "Tokens"], transactions: ["#/transactions?table=MDS", "Run a transaction"],
};

const PICTURES = ["overview", "lock", "waiting"]; // of the documentation

const scenarios = {
  async "every page, light and dark"() {
    if (shots) mkdirSync(shots, { recursive: true });
    for (const [name, [path, word]] of Object.entries(PAGES)) {
      await open(path);
      await page.locator("main").getByText(word, { exact: false }).first().waitFor();
      for (const scheme of /** @type {const} */ (["light", "dark"])) {
        await page.emulateMedia({ colorScheme: scheme });
        await accessible(`${name}, ${scheme}`);
        if (shots && PICTURES.includes(name)) await page.screenshot({ path: `${shots}/${name}-${scheme}.png` });
      }
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name} is as wide as the window`);
    }
  },
  async "a phone, and the keyboard"() {
    await page.setViewportSize({ width: 360, height: 740 });
    for (const [name, [path, word]] of Object.entries(PAGES)) {
      await open(path);
      await page.locator("main").getByText(word).first().waitFor();
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name} is as wide as a phone`);
    }
    await page.setViewportSize({ width: 1280, height: 900 });
    await open("");
    await seen("Longest lines");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to the page");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
    await page.getByRole("link", { name: "Locks", exact: true }).focus();
    await page.keyboard.press("Enter");
    await page.locator(".list .line").first().focus();
    await page.keyboard.press("Enter");
    await seen("History");
  },
  async "locks: filters, live rows, detail"() {
    await open("#/locks");
    await page.locator(".line", { hasText: "invoices" }).waitFor();
    await page.getByLabel("Owner").fill("alice");
    await page.waitForFunction(() => document.querySelectorAll(".list .line").length === 1);
    assert.ok(page.url().includes("owner=alice"));
    await ask("acquire", ["alice-too", "alice"]);
    await page.locator(".line", { hasText: "alice-too" }).waitFor(); // by itself
    await ask("release", ["alice-too", "alice"]);
    await page.waitForFunction(() => document.querySelectorAll(".list .line").length === 1);
    await page.locator(".line").first().click();
    await seen("worker-7");
    await page.locator("pre", { hasText: "<script>alert(1)</script>" }).waitFor();
    await ask("wait", ["invoices", "carol"]);
    await page.locator("td", { hasText: "carol" }).waitFor();
    await page.locator(".timeline li.queued", { hasText: "carol" }).waitFor();
  },
  async "a lock is broken only as it was seen"() {
    await ask("acquire", ["fragile", "ann"]);
    await open("#/locks?ns=default&name=fragile");
    await page.locator("td", { hasText: "ann" }).waitFor();
    await page.getByRole("button", { name: "Break" }).click();
    const go = page.getByRole("button", { name: "Break it" });
    assert.ok(await go.isDisabled());
    await page.getByLabel("Type fragile").fill("fragil");
    assert.ok(await go.isDisabled());
    await page.getByLabel("Type fragile").fill("fragile");
    await ask("release", ["fragile", "ann"]); // meanwhile another one has it
    await ask("acquire", ["fragile", "ben"]);
    await go.click();
    await seen("Others hold it by now");
    assert.equal((await ask("holders", "fragile")).join(), "ben");
    await page.locator("td", { hasText: "ben" }).waitFor();
    await page.getByRole("button", { name: "Break" }).click();
    await page.getByLabel("Reason").fill("ben is gone");
    await page.getByLabel("Type fragile").fill("fragile");
    await go.click();
    await seen("Broken: 1 lost it");
    assert.deepEqual(await ask("holders", "fragile"), []);
    await page.locator(".timeline li.broken", { hasText: "ben is gone" }).waitFor();
    await page.keyboard.press("Escape");
  },
  async "waiting: chains lead to locks"() {
    await open("#/waiting");
    await page.locator(".chain", { hasText: "step-5" }).waitFor();
    assert.equal(await page.locator(".graph .node").count(), 7);
    assert.equal(await page.locator(".graph .edge").count(), 5);
    await seen("None since this page was opened");
    await ask("deadlock");
    await page.locator("li.deadlock", { hasText: "would have closed a circle" }).waitFor();
    await page.locator(".graph .node", { hasText: "step-3" }).click();
    await page.locator("h2", { hasText: "step-3" }).waitFor();
  },
  async "sessions: what one has, and ending it"() {
    await ask("session", "doomed");
    await open("#/sessions");
    await page.locator(".line", { hasText: "doomed" }).click();
    await page.locator("td", { hasText: "doomed-lock" }).waitFor();
    await page.getByRole("button", { name: "End this session" }).click();
    await page.getByLabel("Type doomed").fill("doomed");
    await page.getByRole("button", { name: "End it" }).click();
    await seen("Ended: 1");
    await page.waitForFunction(() => ![...document.querySelectorAll(".line")].some((l) => l.textContent?.includes("doomed")));
  },
  async "events: live, filtered, paused"() {
    await open("#/events?prefix=tail");
    await seen("newest first");
    await ask("acquire", ["tail-1", "o"]);
    await page.locator("li.granted", { hasText: "tail-1" }).waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await ask("acquire", ["tail-2", "o"]);
    await seen("Paused. 1 have come since");
    assert.equal(await page.locator("li", { hasText: "tail-2" }).count(), 0);
    await page.getByRole("button", { name: "Go on" }).click();
    await ask("acquire", ["tail-3", "o"]);
    await page.locator("li.granted", { hasText: "tail-3" }).locator("a").first().click();
    await page.locator("h2", { hasText: "tail-3" }).waitFor();
  },
  async "transactions: the failed statement"() {
    await open("#/transactions?table=MDS");
    await page.locator("td", { hasText: "k1" }).waitFor();
    await page.getByLabel("Session").fill("worker-7");
    await page.getByLabel("Statements").fill('[{"assert": {"exists": {"table": "MDS", "key": "none"}}}]');
    expected = ["404", "409", "412"];
    await page.getByRole("button", { name: "Run" }).click();
    await seen("failed:");
    await page.getByLabel("Statements").fill("{");
    await page.getByRole("button", { name: "Run" }).click();
    await seen("are no JSON");
    expected = [];
  },
  async "namespaces, accounts and tokens are made and go"() {
    await open("#/namespaces");
    await page.getByRole("button", { name: "Make a namespace" }).click();
    await page.getByLabel("Name", { exact: true }).fill("fresh");
    await page.getByRole("button", { name: "Make it" }).click();
    const row = page.locator("tr", { hasText: "fresh" });
    await row.waitFor();
    await row.getByRole("button", { name: "Delete" }).click();
    await page.getByLabel("Type fresh").fill("fresh");
    await page.getByRole("button", { name: "Delete it" }).click();
    await row.waitFor({ state: "detached" });
    await open("#/accounts?id=default");
    await page.getByRole("button", { name: "Make a token" }).click();
    await page.getByLabel("Rules").fill("read a;lock b*");
    await page.getByRole("button", { name: "Make it" }).click();
    await seen("The token, shown this once: blt_");
    await page.locator("tr", { hasText: "read a" }).getByRole("button", { name: "Rotate" }).click();
    await page.getByRole("button", { name: "Rotate it" }).click();
    await seen("The token, shown this once: blt_");
    const id = await page.locator("tr", { hasText: "read a" }).locator("td").first().textContent();
    await page.locator("tr", { hasText: "read a" }).getByRole("button", { name: "Revoke" }).click();
    await page.getByLabel("Type").fill(id ?? "");
    await page.getByRole("button", { name: "Revoke it" }).click();
    await page.locator("tr", { hasText: "read a" }).waitFor({ state: "detached" });
  },
  async "hostile names are text"() {
    for (const name of await ask("hostile")) {
      await open(`#/locks?${new URLSearchParams({ prefix: name })}`);
      const row = page.locator(".line").first();
      await row.waitFor();
      assert.equal(await page.locator("main script, main img, main iframe").count(), 0);
      const shown = await row.locator("span[role=cell]").nth(1).textContent();
      assert.ok(!/[\u0000-\u001f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/u.test(shown ?? ""), JSON.stringify(shown));
      assert.equal((await row.boundingBox())?.height, 36);
      await row.click();
      await page.locator("h2 .name").waitFor();
      await page.locator("td", { hasText: "holder" }).waitFor();
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    }
    assert.equal(await page.evaluate("window.hacked"), undefined);
  },
  async "many locks: few rows in the document"() {
    await open("#/locks?prefix=many");
    const list = page.locator(".list");
    await list.locator(".line").first().waitFor();
    for (let until = Date.now() + 20000; ;) {
      await list.evaluate((e) => { e.scrollTop = e.scrollHeight; });
      if (await text("3,000 shown", { exact: true }).count()) break;
      assert.ok(Date.now() < until, await page.locator("main").innerText());
      await page.waitForTimeout(20);
    }
    assert.ok((await list.locator(".line").count()) < 60);
    await list.locator(".line", { hasText: "many-2999" }).waitFor();
    const top = await list.evaluate((e) => { e.scrollTop = 36000; return e.scrollTop; });
    await list.locator(".line", { hasText: "many-1000" }).waitFor();
    await ask("acquire", ["many-0000a", "o"]); // before what is seen: nothing jumps
    await ask("acquire", ["many-1000a", "o"]);
    await list.locator(".line", { hasText: "many-1000a" }).waitFor();
    assert.equal(await list.evaluate((e) => e.scrollTop), top);
  },
  async "a token: rights hide and refuse, and its end is noticed"() {
    const tokens = await ask("tokens");
    expected = ["401"];
    await open("");
    await page.getByLabel("Token").fill("blt_nonsense");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.locator(".bad", { hasText: "log in" }).waitFor();
    await page.getByLabel("Token").fill(tokens.reader);
    await page.getByRole("button", { name: "Log in" }).click();
    await seen("Longest lines");
    assert.equal(await page.getByRole("link", { name: "Cluster" }).count(), 0);
    assert.equal(await page.getByRole("link", { name: "Accounts" }).count(), 0);
    await page.getByRole("link", { name: "Locks", exact: true }).click();
    await page.locator(".line", { hasText: "team-lock" }).waitFor();
    assert.equal(await page.locator(".line").count(), 1); // that of the other namespace is not shown
    await page.locator(".line").first().click();
    await page.locator("td", { hasText: "boss" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Break" }).count(), 0);
    assert.deepEqual(await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]), [0, 0, ""]);
    await ask("revoke");
    await seen("not valid any more");
    await page.getByLabel("Token").fill(tokens.admin);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("link", { name: "Accounts" }).waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByLabel("Token").waitFor();
    expected = [];
  },
  async "a server that goes and comes back"() {
    await open("#/locks");
    await page.locator(".line", { hasText: "before" }).waitFor();
    expected = ["net::ERR", "Failed to load"];
    await ask("stop");
    await page.locator(".offline", { hasText: "cannot be reached" }).waitFor();
    await ask("start");
    await page.locator(".offline").waitFor({ state: "hidden" });
    await page.locator(".line", { hasText: "after" }).waitFor();
    expected = [];
  },
  async "a node that dies is seen, and its lead goes on"() {
    await open("#/cluster");
    await page.waitForFunction(() => [...document.querySelectorAll("table")][0]?.querySelectorAll("tbody .good").length === 3);
    const name = await ask("kill");
    await page.locator("tr", { hasText: name }).locator(".bad", { hasText: "down" }).waitFor();
    await page.waitForFunction((n) => !document.querySelector("main p")?.textContent?.includes(`led by ${n}`) && document.querySelector("main p")?.textContent?.includes("led by"), name);
    await page.getByRole("link", { name: "Locks", exact: true }).click();
    await page.locator(".line", { hasText: "kept" }).waitFor();
  },
};

const groups = {
  demo: ["every page, light and dark", "a phone, and the keyboard", "locks: filters, live rows, detail", "a lock is broken only as it was seen", "waiting: chains lead to locks",
    "sessions: what one has, and ending it", "events: live, filtered, paused", "transactions: the failed statement", "namespaces, accounts and tokens are made and go",
    "hostile names are text", "many locks: few rows in the document"],
  token: ["a token: rights hide and refuse, and its end is noticed"], restart: ["a server that goes and comes back"], cluster: ["a node that dies is seen, and its lead goes on"],
};

let failed = 0;
for (const name of groups[scenario]) {
  const from = Date.now();
  wrong.length = 0;
  try {
    await scenarios[name]();
    assert.deepEqual(wrong, []);
    console.log(`ok - ${name} # ${((Date.now() - from) / 1000).toFixed(1)} s`);
  } catch (e) {
    failed = 1;
    console.log(`not ok - ${name}\n#   ${String(e.stack).replaceAll("\n", "\n#   ")}\n#   ${wrong.join("\n#   ")}`);
    if (process.env.BELAY_SHOT) await page.screenshot({ path: process.env.BELAY_SHOT });
  }
}
await context.close();
rmSync(profile, { recursive: true, force: true });
process.exit(failed);
