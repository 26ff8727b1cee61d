/** Limits that hold for all processes together. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@belay/client';

/** At most `atOnce` calls of `work` run at the same time, wherever they run. */
export function throttled<T>(client: Client, name: string, atOnce: number, work: () => Promise<T>): Promise<T> {
  return client.withLock(`limit/${name}`, { of: atOnce }, work);
}

/** At most `calls` calls of `work` begin in any `per` ms: each keeps its permit for that long. */
export async function paced<T>(
  client: Client,
  name: string,
  { calls, per }: { calls: number; per: number },
  work: () => Promise<T>,
): Promise<T> {
  const held = await client.lock(`limit/${name}`, { of: calls });
  const window = sleep(per);
  try {
    return await work();
  } finally {
    void window.then(() => held.release());
  }
}
