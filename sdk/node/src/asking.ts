/** How a lock is had: asked for, waited for, proven, and left alone when nobody wants it any more. */
import { offAbort, onAbort } from './abort.js';
import { stamp } from './clock.js';
import { Refused, TimedOut, Unreachable } from './errors.js';
import { Lease } from './lease.js';
import type { Asker, Call } from './link.js';
import { grantOf, type Grant } from './outcome.js';
import { ErrorReply, integer, text, type Reply, type ReplyMap, type Word } from './resp.js';
import type { Pending, Session } from './session.js';

/** The longest wait of one request. */
export const WAIT_MAX_MS = 7 * 24 * 3600 * 1000;
/** The wait of a request that only ends an earlier one. */
export const END_MS = 1;
const PLACE_MS = 1000;

/** One lock, and on which terms. Durations are ms; `ttl` 0: none. */
export interface Want {
  name: string;
  owner: string;
  ttl: number;
  /** When the wait is over; -Infinity: it does not wait. */
  until: number;
  shared: boolean;
  permits: number;
  of: number | undefined;
  body: string | Uint8Array | undefined;
  grace: number;
  delay: number;
  early: number | undefined;
  onPlace: ((position: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

export interface Taken {
  lease: Lease;
  body: Buffer;
}

/** Rejects with NotAcquired, ServerError, Unreachable, Closed, or the reason of the signal. */
export function take(session: Session, want: Want, timeout: number): Promise<Taken> {
  return new Promise((resolve, reject) => new Asking(session, want, timeout, { resolve, reject }).start());
}

interface Outcome {
  resolve(taken: Taken): void;
  reject(error: unknown): void;
}

class Asking implements Asker, Pending {
  readonly #session: Session;
  readonly #want: Want;
  readonly #outcome: Outcome;
  readonly #giveUpAt: number;
  #call!: Call;
  /** It was granted, and is being confirmed. */
  #fence = 0;
  #position = 0;
  #looking: NodeJS.Timeout | undefined;

  constructor(session: Session, want: Want, timeout: number, outcome: Outcome) {
    this.#session = session;
    this.#want = want;
    this.#outcome = outcome;
    this.#giveUpAt = Math.max(want.until, stamp()) + timeout;
  }

  start(): void {
    const { signal } = this.#want;
    if (signal?.aborted) return this.#outcome.reject(signal.reason);
    onAbort(signal, this.#cancel);
    this.#ask();
  }

  #ask(): void {
    const { name, until } = this.#want;
    const left = Math.min(until - stamp(), WAIT_MAX_MS);
    if (left <= 0 && until !== -Infinity) return this.#fail(new TimedOut(name));
    this.#fence = 0;
    this.#position = 0;
    const words = acquireWords(this.#session, this.#want, Math.max(Math.ceil(left), 0));
    this.#session.watch(this);
    this.#call = this.#session.link.send(words, this, { again: true, until: this.#giveUpAt });
  }

  /** What was granted, or might have been, is over. */
  #askAgain(): void {
    if (stamp() < this.#giveUpAt) this.#ask();
    else this.#fail(new Unreachable(`${this.#want.name}: what was granted was over when the answer came`));
  }

  sessionOver(): void {
    this.#session.link.drop(this.#call);
    this.#askAgain();
  }

  // ---- answers

  answered(reply: Reply, call: Call, pushed: boolean): void {
    const { name, until } = this.#want;
    const code = reply instanceof ErrorReply ? reply.code : '';
    let grant: Grant;
    try {
      grant = grantOf(name, reply);
    } catch (error) {
      const isOver = code === 'NOSESSION' || (error instanceof Refused && error.reason === 'session');
      if (isOver) this.#session.over('session'); // and we ask again
      else if (code === 'STALE' || (error instanceof TimedOut && until === Infinity)) this.#askAgain();
      else this.#fail(error);
      return;
    }
    this.#granted(grant, call, pushed);
  }

  failed(error: Error, call: Call): void {
    if (call.wasSent && error instanceof Unreachable) this.#leaveLine();
    this.#fail(error);
  }

  queued(position: number): void {
    this.#tell(position);
    if (this.#want.onPlace) this.#looking ??= setInterval(() => void this.#lookAtPlace(), PLACE_MS);
  }

  #granted(grant: Grant, call: Call, pushed: boolean): void {
    const at = stamp();
    const { ttl } = this.#want;
    if (at >= this.#session.provenUntil) this.#session.look(); // it is over, and we ask again
    else if (ttl && (pushed || at >= call.firstSent + ttl / 3)) this.#confirm(grant);
    else this.#hold(grant, call.firstSent);
  }

  /** When it was granted is not known: a renewal proves how long it lasts. */
  #confirm(grant: Grant): void {
    const { name, ttl } = this.#want;
    const answered = (reply: Reply, call: Call) => {
      if (!(reply instanceof ErrorReply) && stamp() < call.lastSent + ttl) this.#hold(grant, call.lastSent);
      else this.#askAgain();
    };
    const failed = (error: Error) => {
      this.#giveBack(grant.fence);
      this.#fail(error);
    };
    this.#fence = grant.fence;
    const words = ['RENEW', name, grant.fence, 'TTL', ttl];
    this.#call = this.#session.link.send(words, { answered, failed }, { again: true });
  }

  #hold({ fence, body }: Grant, sentAt: number): void {
    const { name, owner, ttl, early } = this.#want;
    this.#end();
    this.#outcome.resolve({ lease: new Lease(this.#session, name, owner, fence, ttl, early, sentAt), body });
  }

  // ---- the place in the line

  #tell(position: number): void {
    if (position === this.#position || !this.#want.onPlace) return;
    this.#position = position;
    process.nextTick(this.#want.onPlace, position);
  }

  async #lookAtPlace(): Promise<void> {
    const { name, owner } = this.#want;
    try {
      const lock = (await this.#session.link.request(['SHOW', name], { again: true })) as ReplyMap;
      const { id } = this.#session;
      const isMine = (row: ReplyMap) => text(row.get('owner')) === owner && text(row.get('session')) === id;
      const row = (lock.get('waiters') as ReplyMap[]).find(isMine);
      if (row && this.#looking) this.#tell(integer(row.get('position')));
    } catch {
      clearInterval(this.#looking);
    }
  }

  // ---- the end

  readonly #cancel = (): void => {
    const call = this.#call;
    this.#session.link.drop(call);
    if (this.#fence) this.#giveBack(this.#fence);
    else if (call.wasSent) this.#leaveLine();
    this.#fail(this.#want.signal?.reason);
  };

  #fail(error: unknown): void {
    this.#end();
    this.#outcome.reject(error);
  }

  #end(): void {
    clearInterval(this.#looking);
    this.#looking = undefined;
    offAbort(this.#want.signal, this.#cancel);
    this.#session.unwatch(this);
  }

  /** The same owner takes the place over, and it ends; if the lock is granted nevertheless, it goes back. */
  #leaveLine(): void {
    const session = this.#session;
    const words = acquireWords(session, { ...this.#want, body: undefined }, END_MS);
    const granted = (reply: Reply | undefined) => {
      if (reply !== undefined) this.#giveBack(grantOf(this.#want.name, reply).fence);
    };
    session.inSession(words, { until: Infinity, patience: Infinity, parks: true }).then(granted).catch(() => undefined);
  }

  #giveBack(fence: number): void {
    const { name, ttl } = this.#want;
    void this.#session.giveBack({ name, fence, ttl });
  }
}

function acquireWords(session: Session, want: Want, wait: number): Word[] {
  const words: Word[] = ['ACQUIRE', want.name, want.owner];
  if (want.of !== undefined) words.push('PERMITS', want.permits, 'OF', want.of);
  else if (want.shared) words.push('MODE', 'shared');
  words.push('TTL', want.ttl, 'SESSION', session.need());
  if (wait > 0) words.push('WAIT', wait, 'NOBLOCK');
  if (want.grace) words.push('GRACE', want.grace);
  if (want.delay) words.push('DELAY', want.delay);
  if (want.body !== undefined) words.push('BODY', want.body);
  words.push('REQUEST', session.requestId());
  return words;
}
