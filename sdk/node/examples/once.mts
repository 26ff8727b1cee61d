/**
 * A scheduled job that runs once, although every replica has the schedule. With node-cron:
 *
 *     cron.schedule('0 3 * * *', (now) => once(client, 'nightly-report', now, report));
 */
import { Refused, type Client } from '@belay/client';

/**
 * Runs `job` for this tick, unless another replica does, or has done so. Answers whether it ran here.
 * A replica that fails in the middle has run it: it is not repeated.
 */
export async function once(
  client: Client,
  name: string,
  tick: Date,
  job: (signal: AbortSignal) => Promise<void>,
): Promise<boolean> {
  try {
    return await client.withLock(`once/${name}`, { wait: 0 }, async (held) => {
      const slot = tick.toISOString();
      if (held.body.toString() >= slot) return false; // clocks differ: it was quick, and is done
      await held.setBody(slot);
      await job(held.signal);
      return true;
    });
  } catch (error) {
    if (error instanceof Refused) return false; // it runs elsewhere
    throw error;
  }
}
