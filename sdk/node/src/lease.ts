import { Alarm, now, stamp } from './clock.js';
import { Lost } from './errors.js';
import { ErrorReply, type Reply } from './resp.js';
import type { Session } from './session.js';

/** A renewal that failed is repeated after so long. */
export const AGAIN_MS = 50;

/** A lock that is held, until it is released or lost.
 *
 *     sent           sent + ttl/3           proven - early        proven = sent + ttl
 *     |--------------|----------------------|---------------------|
 *     | proven       | renewed, again and   | told: lost          | somebody else may have it
 *     |              | again until answered |                     |
 *
 * It is proven from the moment when a request that renewed it was *sent*: whenever the server took
 * it, its end there is later. Without a TTL of its own it is proven as long as its session.
 */
export class Lease {
  readonly early: number;
  lost: Lost | undefined;
  onLost: ((lost: Lost) => void) | undefined;
  /** A conversion is under way: the fence may be an old one. */
  converting = false;
  readonly #session: Session;
  readonly #alarm = new Alarm(() => this.look());
  #proven = Infinity;
  #renewAt = Infinity;
  #isOver = false;

  constructor(
    session: Session,
    readonly name: string,
    readonly owner: string,
    public fence: number,
    /** 0: none. */
    readonly ttl: number,
    early: number | undefined,
    sentAt: number,
  ) {
    const lease = ttl || session.ttl;
    this.early = Math.min(early ?? lease / 10, lease / 2);
    this.#session = session;
    session.add(this);
    this.renewed(sentAt);
  }

  /** Neither released nor lost. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Until then nobody else can have it. */
  get provenUntil(): number {
    return this.#isOver ? -Infinity : Math.min(this.#proven, this.#session.provenUntil);
  }

  /** Is it proven at this very moment? */
  isProven(): boolean {
    return now() < this.provenUntil;
  }

  /** What was sent at `sentAt` has renewed it. */
  renewed(sentAt: number): void {
    if (!this.ttl || this.#isOver) return;
    if (this.#proven === Infinity || sentAt + this.ttl > this.#proven) this.#proven = sentAt + this.ttl;
    this.#renewAt = sentAt + this.ttl / 3;
    this.#arm();
  }

  /** It has a new fence, by what was sent first at `sentAt`. */
  converted(fence: number, sentAt: number): void {
    this.fence = fence;
    if (this.#isOver) void this.#session.giveBack(this); // it was released meanwhile, under the old one
    else this.renewed(sentAt);
  }

  /** It is lost if it is not proven for `early` more. */
  expire(at: number): void {
    if (!this.#isOver && at >= this.provenUntil - this.early) this.lose('silence');
  }

  lose(reason: string, by?: string, why?: string): void {
    if (!this.end()) return;
    // a server that comes back would go on to hold it for us
    if (reason === 'silence') void this.#session.giveBack(this);
    this.lost = new Lost(this.name, this.fence, reason, by, why);
    this.onLost?.(this.lost);
  }

  /** It is released from now on; false: it was over already. */
  end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#alarm.off();
    this.#session.remove(this);
    return true;
  }

  #arm(): void {
    this.#alarm.by(Math.min(this.#renewAt, this.#proven - this.early));
  }

  /** What the clock says. */
  look(): void {
    const at = now();
    this.expire(at);
    if (this.#isOver) return;
    if (at >= this.#renewAt) this.#renew();
    this.#arm();
  }

  #renew(): void {
    const { fence } = this;
    const sentAt = stamp();
    this.#renewAt = Infinity;
    const failed = () => {
      this.#renewAt = stamp() + AGAIN_MS;
      this.#arm();
    };
    const answered = (reply: Reply) => {
      if (this.#isOver) return;
      if (!(reply instanceof ErrorReply)) return this.renewed(sentAt);
      const isAbout = fence === this.fence && !this.converting;
      if (reply.code === 'STALE' && isAbout) this.lose('stale');
      else if (reply.code === 'NONAMESPACE') this.lose('namespace');
      else failed();
    };
    const words = ['RENEW', this.name, fence, 'TTL', this.ttl];
    const forLong = { until: Infinity, patience: Infinity };
    this.#session.link.send(words, { answered, failed }, { again: false, ...forLong });
  }
}
