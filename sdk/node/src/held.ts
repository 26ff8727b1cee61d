import { stamp } from './clock.js';
import { convert, type ConvertOptions } from './conversion.js';
import { disposable } from './disposable.js';
import { Lost, ServerError, Unreachable } from './errors.js';
import type { Lease } from './lease.js';
import { integer } from './resp.js';
import type { Session } from './session.js';

/** A lock that is held, or several: `await using` releases it, and so does `release()`. */
export class Held {
  readonly #session: Session;
  readonly #leases: readonly Lease[];
  readonly #timeout: number;
  #lost: Lost | undefined;
  #controller: AbortController | undefined;

  /** What was stored with the lock when it was granted. */
  readonly body: Buffer;

  /** Where the runtime or a polyfill has Symbol.asyncDispose: release() for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  /** @internal */
  constructor(
    session: Session,
    leases: readonly Lease[],
    body: Buffer,
    timeout: number,
    onLost?: (lost: Lost) => void,
  ) {
    this.#session = session;
    this.#leases = leases;
    this.#timeout = timeout;
    this.body = body;
    const lose = (lost: Lost) => {
      if (this.#lost) return;
      this.#lost = lost;
      if (onLost) process.nextTick(onLost, lost);
      this.#controller?.abort(lost);
    };
    for (const lease of leases) {
      lease.onLost = lose;
      if (lease.lost) lose(lease.lost); // while others were waited for
    }
    disposable(this, async () => void (await this.release().catch(() => false)));
  }

  /** Of several: the first one. */
  get name(): string {
    return this.#leases[0]!.name;
  }

  /** Under this name others see who holds it. */
  get owner(): string {
    return this.#leases[0]!.owner;
  }

  /**
   * Give it to what you write to, which refuses a smaller one than it has seen. It only grows. Of
   * several locks: that of the last one.
   */
  get fence(): number {
    return this.#leases[this.#leases.length - 1]!.fence;
  }

  /** By name. */
  get fences(): ReadonlyMap<string, number> {
    return new Map(this.#leases.map(({ name, fence }) => [name, fence]));
  }

  /**
   * Aborted when the lock is lost, with a `Lost` as the reason: before anybody else can have it, unless
   * an operator broke it or this process was stopped. Never aborted after a release.
   */
  get signal(): AbortSignal {
    for (const lease of this.#leases) lease.look();
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#lost) this.#controller.abort(this.#lost);
    }
    return this.#controller.signal;
  }

  /**
   * Do I hold it now? By the clock alone, so it is right directly after a stop of the process, too.
   * Ask directly before a step that must not be done twice.
   */
  held(): boolean {
    return this.#leases.every((lease) => lease.isProven());
  }

  /** Do I hold it now? The server is asked. */
  async check(): Promise<boolean> {
    for (const { name, fence } of this.#leases)
      if (integer(await this.#session.link.request(['CHECK', name, fence], { again: true })) === 0) return false;
    return true;
  }

  /** Stores what the next holder finds. Throws `Lost`. */
  async setBody(body: string | Uint8Array): Promise<void> {
    const lease = this.#only();
    const { name, fence } = lease;
    const sentAt = stamp();
    if (lease.lost) throw lease.lost;
    try {
      const reply = await this.#session.inSession(['BODY', name, fence, body, 'REQUEST', this.#session.requestId()]);
      if (reply !== undefined) lease.renewed(sentAt);
    } catch (error) {
      if (!(error instanceof ServerError && error.code === 'STALE')) throw error;
      if (fence === lease.fence) lease.lose('stale');
    }
    if (lease.lost) throw lease.lost;
  }

  /**
   * Between shared and exclusive; the fence changes. After `Refused`, `TimedOut` and `Deadlock` it is
   * held as before. Throws `Lost` as well.
   */
  async convert(options: ConvertOptions): Promise<void> {
    const lease = this.#only();
    if (lease.lost) throw lease.lost;
    if (lease.isOver || lease.converting) throw new TypeError(`${lease.name} was released, or is being converted`);
    await convert(this.#session, lease, options, this.#timeout);
  }

  /**
   * Gives it back; false: it was not held any more. Throws Unreachable when no node has answered for
   * `timeout`; the server is told nevertheless, as soon as one does.
   */
  async release(): Promise<boolean> {
    const given = this.#leases.map((lease) => (lease.end() ? this.#session.giveBack(lease) : false));
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const give = () => reject(new Unreachable(`${this.name}: its release was not answered yet`));
      timer = setTimeout(give, this.#timeout);
    });
    try {
      return (await Promise.race([Promise.all(given), late])).every((held) => held);
    } finally {
      clearTimeout(timer);
    }
  }

  #only(): Lease {
    if (this.#leases.length > 1) throw new TypeError('not of several locks at once');
    return this.#leases[0]!;
  }
}
