/** A background task that runs in one replica at a time, and moves to another when that one is gone. */
import { hostname } from 'node:os';
import type { Client } from '@belay/client';

/**
 * Runs `task` whenever this replica leads, until `stop`. The task must return soon after its signal is
 * aborted: this replica leads no more, or `stop` has come.
 */
export async function whileLeading(
  client: Client,
  name: string,
  task: (signal: AbortSignal) => Promise<void>,
  stop: AbortSignal,
): Promise<void> {
  const election = client.election(name);
  while (!stop.aborted) {
    const held = await election.campaign({ body: hostname(), signal: stop }).catch((error: unknown) => {
      if (!stop.aborted) throw error;
    });
    if (!held) return;
    const ending = either(held.signal, stop);
    try {
      await task(ending.signal);
    } finally {
      ending.abort(); // and it listens no more
      await held.release();
    }
  }
}

/** As AbortSignal.any(), which came with Node 20.3. */
function either(...signals: AbortSignal[]): AbortController {
  const controller = new AbortController();
  for (const signal of signals) {
    const abort = () => controller.abort(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { signal: controller.signal });
  }
  return controller;
}
