const listeners = new WeakMap<AbortSignal, Set<() => void>>();

/** Node warns of more than ten listeners on a signal: there is one, however many wait for it. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): void {
  if (!signal) return;
  let callbacks = listeners.get(signal);
  if (!callbacks) {
    const all = (callbacks = new Set());
    listeners.set(signal, all);
    signal.addEventListener('abort', () => [...all].forEach((each) => each()), { once: true });
  }
  callbacks.add(callback);
}

export function offAbort(signal: AbortSignal | undefined, callback: () => void): void {
  if (signal) listeners.get(signal)?.delete(callback);
}
