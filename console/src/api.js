// api.js - the server, as its OpenAPI description says. The token stays in this module's memory.

/** @typedef {import("./answers").Code} Code */

let token = "";
/** @type {Set<() => void>} */
const strangers = new Set();
/** @type {Set<(connected: boolean) => void>} */
const watchers = new Set();
let connected = true;

export class ApiError extends Error {
  /** @param {number} status @param {Code} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** @param {string} text */
export function logIn(text) { token = text.trim(); }
export const isLoggedIn = () => token !== "";
/** Called when the server wants a token. @param {() => void} f */
export function onStranger(f) { strangers.add(f); }
/** Called when the server is gone, or is there again. @param {(connected: boolean) => void} f */
export function onConnection(f) { watchers.add(f); }

/** @param {boolean} now */
function tell(now) {
  if (now === connected) return;
  connected = now;
  watchers.forEach((f) => f(now));
}

/** @param {string} part */
export const part = encodeURIComponent;

/** @param {string} path @param {Record<string, string | number | null | undefined>} [query] */
export function url(path, query = {}) {
  const given = Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== "");
  return given.length ? `${path}?${new URLSearchParams(given.map(([k, v]) => [k, String(v)]))}` : path;
}

/** @param {string} path @param {RequestInit} [options] */
async function send(path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { ...(/** @type {Record<string, string>} */ (options.headers)) };
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
  } catch (e) {
    if (!options.signal?.aborted) tell(false);
    throw new ApiError(0, "UNAVAILABLE", "the server cannot be reached");
  }
  tell(true);
  if (answer.ok) return answer;
  const value = await answer.json().catch(() => ({}));
  if (answer.status === 401) strangers.forEach((f) => f());
  if (value.error) throw new ApiError(answer.status, value.error.code, value.error.message);
  throw Object.assign(new ApiError(answer.status, value.status ?? "", value.reason ?? value.status ?? answer.statusText), { value });
}

/**
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query = {}, signal = undefined) {
  return (await send(url(path, query), { signal })).json();
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>}
 */
export async function change(method, path, body = undefined) {
  const options = body === undefined ? { method } : { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return (await send(path, options)).json();
}

/**
 * Events as they come, until the signal: goes on behind the last one after a break. When events are
 * missing, `each` is called with null: read the state anew.
 * @param {Record<string, string>} query
 * @param {(event: import("./answers").Event | null) => void} each
 * @param {AbortSignal} signal
 */
export async function follow(query, each, signal) {
  let last = "";
  while (!signal.aborted) {
    try {
      /** @type {Record<string, string>} */
      const headers = last ? { "Last-Event-ID": last } : {};
      const answer = await send(url("/v1/events", query), { headers, signal });
      if (!last) each(null);
      last = await read(answer, each, last);
    } catch (e) {
      if (signal.aborted) return;
      if (e instanceof ApiError && e.code === "GONE") last = "";
      else if (e instanceof ApiError && e.status >= 400 && e.status < 500) return;
    }
    await new Promise((go) => setTimeout(go, 1000));
  }
}

/** @param {Response} answer @param {(event: import("./answers").Event) => void} each @param {string} last */
async function read(answer, each, last) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
    if (done) return last;
    text += decoder.decode(value, { stream: true });
    const blocks = text.split("\n\n");
    text = /** @type {string} */ (blocks.pop());
    for (const block of blocks) {
      const lines = block.split("\n");
      const data = lines.filter((l) => l.startsWith("data: ")).map((l) => l.slice(6)).join("\n");
      const id = lines.find((l) => l.startsWith("id: "));
      if (lines.includes("event: gone")) return "";
      if (id) last = id.slice(4);
      if (data) each(JSON.parse(data));
    }
  }
}
