// live.js - doing something again and again while a page is open.

/**
 * Now, and then every `ms` after the last time has ended; not while the page is hidden.
 * @param {() => Promise<void>} step
 * @param {number} ms
 * @param {AbortSignal} signal
 */
export async function repeat(step, ms, signal) {
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await step();
      } catch {
        // the frame says that the server is away, or wants a token
      }
    }
    await pause(ms, signal);
  }
}

/** @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return new Promise((go) => {
    const timer = setTimeout(go, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); go(undefined); }, { once: true });
  });
}
