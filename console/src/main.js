// main.js - the frame around the pages: navigation, login, whether the server is there.
import { ApiError, get, isLoggedIn, logIn, onConnection, onStranger } from "./api.js";
import { button, escaped, field, fill, h } from "./dom.js";
import { accounts } from "./pages/accounts.js";
import { cluster } from "./pages/cluster.js";
import { events } from "./pages/events.js";
import { locks } from "./pages/locks.js";
import { namespaces } from "./pages/namespaces.js";
import { overview } from "./pages/overview.js";
import { queue } from "./pages/queue.js";
import { sessions } from "./pages/sessions.js";
import { transactions } from "./pages/transactions.js";
import { waiting } from "./pages/waiting.js";

/**
 * What a page gets. Everything that it starts ends with the signal.
 * @typedef {{root: HTMLElement, query: URLSearchParams, signal: AbortSignal, can: (verb: string) => boolean, say: (text: string, bad?: boolean) => void}} Page
 * @typedef {{path: string, title: string, open: (page: Page) => void | Promise<void>, verb?: string, needs?: string}} Entry
 */

/** @type {Entry[]} */
const pages = [
  { path: "", title: "Overview", open: overview },
  { path: "locks", title: "Locks", open: locks },
  { path: "waiting", title: "Waiting", open: waiting },
  { path: "sessions", title: "Sessions", open: sessions },
  { path: "events", title: "Events", open: events },
  { path: "cluster", title: "Cluster", open: cluster, verb: "cluster", needs: "node" },
  { path: "namespaces", title: "Namespaces", open: namespaces },
  { path: "accounts", title: "Accounts", open: accounts, verb: "accounts" },
  { path: "transactions", title: "Transactions", open: transactions },
  { path: "queue", title: "Queue", open: queue, needs: "queue" },
];

/** @type {Set<string>} what the token may do, and what this server has */
const verbs = new Set();
const nav = h("nav", { "aria-label": "Pages" });
const main = h("main", { id: "main", tabindex: -1 });
const notice = h("div", { class: "notice", role: "status", "aria-live": "polite" });
const offline = h("div", { class: "offline", role: "alert", hidden: true }, "The server cannot be reached. Trying again…");
const who = h("div", { class: "who" });
/** @type {AbortController | undefined} */
let running;
let noticeTimer = 0;
/** Pages are shown: the server has told who this is. */
let inside = false;

/** @param {string} text @param {boolean} [bad] */
function say(text, bad = false) {
  clearTimeout(noticeTimer);
  notice.className = bad ? "notice bad" : "notice";
  fill(notice, escaped(text), button("Close", () => fill(notice)));
  if (!bad) noticeTimer = window.setTimeout(() => fill(notice), 6000);
}

function drawNav(/** @type {string} */ path) {
  fill(nav, pages.filter((p) => (!p.verb || verbs.has(p.verb)) && (!p.needs || verbs.has(p.needs))).map((p) =>
    h("a", { href: `#/${p.path}`, "aria-current": p.path === path ? "page" : null }, p.title)));
}

async function open() {
  if (!inside) return;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const page = pages.find((p) => p.path === path) ?? pages[0];
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  document.title = `${page.title} - Belay`;
  drawNav(page.path);
  const root = h("div", { class: `page ${page.title.toLowerCase()}` });
  fill(main, h("h1", {}, page.title), root);
  try {
    await page.open({ root, query: new URLSearchParams(query), signal, can: (verb) => verbs.has(verb), say });
  } catch (e) {
    if (!signal.aborted) fill(root, h("p", { class: "bad", role: "alert" }, e instanceof Error ? e.message : String(e)));
  }
}

/** What this token may do, and who it is. */
async function learn() {
  const me = await get("/v1/auth/whoami");
  inside = true;
  const stats = /** @type {import("./answers").Stats} */ (await get("/v1/stats", { limit: 1 }));
  verbs.clear();
  if (stats.node !== null) verbs.add("node");
  if (stats.queue) verbs.add("queue");
  for (const verb of ["cluster", "accounts"]) if ((await get("/v1/auth/can", { verb })).can) verbs.add(verb);
  if (me.id === null && !isLoggedIn()) ["break", "admin", "lock"].forEach((v) => verbs.add(v));
  for (const rule of /** @type {string[]} */ (me.rules))
    rule.split(" ")[0].split(",").forEach((v) => verbs.add(v));
  fill(who, me.id === null ? "open server" : `${me.account} / ${me.id}`,
    isLoggedIn() && button("Log out", () => { logIn(""); location.reload(); }, "small"));
}

/** @param {string} [why] */
function askToken(why = "") {
  inside = false;
  logIn("");
  running?.abort();
  document.title = "Log in - Belay";
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, name: "token" });
  const bad = h("p", { class: "bad", role: "alert" }, why);
  fill(nav);
  fill(who);
  fill(main, h("h1", {}, "Log in"), h("form", {
    class: "login",
    onsubmit: async (/** @type {Event} */ e) => {
      e.preventDefault();
      logIn(input.value);
      try {
        await learn();
        await open();
      } catch (error) {
        inside = false;
        logIn("");
        fill(bad, error instanceof Error ? error.message : "");
      }
    },
  }, h("p", {}, "This server wants a token. It stays in the memory of this page."), field("Token", input),
    h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Log in")), bad));
  input.focus();
}

async function start() {
  document.body.append(
    h("a", { class: "skip", href: "#main", onclick: (/** @type {Event} */ e) => { e.preventDefault(); main.focus(); } }, "Skip to the page"),
    h("header", {}, h("a", { class: "brand", href: "#/" }, "Belay"), nav, who), offline, notice, main);
  onConnection((connected) => {
    offline.hidden = connected;
    if (connected) say("The server is there again.");
  });
  onStranger(() => {
    if (inside) askToken("The token is not valid any more. Log in again.");
  });
  window.addEventListener("hashchange", open);
  await enter();
}

/** The first page; or first a token; or first of all a server. */
async function enter() {
  try {
    await learn();
  } catch (e) {
    if (e instanceof ApiError && (e.status === 401 || e.status === 403)) return askToken();
    offline.hidden = false;
    setTimeout(enter, 1000);
    return;
  }
  await open();
}

void start();
