/**
 * Replicas that start together bring the database up to date once, and all of them go on only then.
 * With Prisma:
 *
 *     await migrate(client, 'shop', version, (signal) => run('npx', ['prisma', 'migrate', 'deploy'], { signal }));
 */
import type { Client } from '@belay/client';

/**
 * Runs `apply` in one replica; the others wait. Answers whether it ran here. If it fails, the next one
 * tries. If the lock is lost, `signal` ends it before the next one begins.
 */
export function migrate(
  client: Client,
  database: string,
  version: string,
  apply: (signal: AbortSignal) => Promise<unknown>,
): Promise<boolean> {
  return client.withLock(`migrate/${database}`, async (held) => {
    if (held.body.toString() === version) return false;
    await apply(held.signal);
    await held.setBody(version);
    return true;
  });
}
