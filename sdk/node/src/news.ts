import { offAbort, onAbort } from './abort.js';
import { ServerError } from './errors.js';
import { Link, type LinkOptions, type LinkOwner, type Opening } from './link.js';
import { camel, plain } from './plain.js';
import { ErrorReply, text, type Reply } from './resp.js';

/** What has happened to a lock: docs/PROTOCOL.md, "News". Durations are ms. */
export interface BelayEvent {
  /** "granted", "queued", "released", "expired", "broken", ... "gone": events may be missing, read the state again. */
  event: string;
  seq: number;
  name: string;
  owner?: string;
  fence?: number;
  mode?: 'exclusive' | 'shared' | 'semaphore';
  session?: string;
  namespace?: string;
  ticket?: number;
  position?: number;
  reason?: string;
  expiresIn?: number;
  waited?: number;
  count?: number;
  by?: string;
  why?: string;
  /** By the server's clock. */
  at?: number;
}

const GONE: BelayEvent = { event: 'gone', seq: 0, name: '' };
/** So many events may wait to be taken; then no more are read. */
const EVENTS_MAX = 1024;

/** Events in their order, on a connection of their own, until it is closed. */
export class News implements AsyncIterator<BelayEvent, undefined>, LinkOwner {
  readonly #link: Link;
  readonly #prefix: string;
  readonly #events: BelayEvent[] = [];
  #seen = 0;
  #isWatching = false; // on this connection
  #hasWatched = false;
  #isPaused = false;
  #isClosed = false;
  #error: unknown;
  #wake = (): void => {};
  readonly #signal: AbortSignal | undefined;
  readonly #abort = (): void => void this.close(this.#signal?.reason);
  readonly #onEnd: () => void;

  /** The reason of `signal` ends it, as an error. */
  constructor(options: LinkOptions, prefix: string, signal: AbortSignal | undefined, onEnd: () => void) {
    this.#prefix = prefix;
    this.#link = new Link(options, this);
    this.#signal = signal;
    this.#onEnd = onEnd;
  }

  /** Resolves when nothing is missed from now on. */
  async start(): Promise<void> {
    this.#signal?.throwIfAborted();
    onAbort(this.#signal, this.#abort);
    try {
      await this.#link.request(['PING'], { again: true });
    } catch (error) {
      await this.close();
      this.#signal?.throwIfAborted();
      throw error;
    }
  }

  async next(): Promise<IteratorResult<BelayEvent, undefined>> {
    while (this.#events.length === 0) {
      if (this.#error !== undefined) throw this.#error;
      if (this.#isClosed) return { done: true, value: undefined };
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const value = this.#events.shift()!;
    if (this.#isPaused && this.#events.length < EVENTS_MAX / 2) {
      this.#isPaused = false;
      this.#link.resume();
    }
    return { done: false, value };
  }

  /** `error`: what next() throws from now on, in place of the end. */
  async close(error?: unknown): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#error = error;
    this.#events.length = 0;
    offAbort(this.#signal, this.#abort);
    this.#onEnd();
    this.#wake();
    await this.#link.close();
  }

  #tell(event: BelayEvent): void {
    if (this.#isClosed) return;
    this.#events.push(event);
    this.#wake();
    if (this.#events.length < EVENTS_MAX || this.#isPaused) return;
    this.#isPaused = true;
    this.#link.pause();
  }

  // ---- as the owner of its link

  opening(): Opening[] {
    if (this.#isWatching) return [];
    const prefix = this.#prefix ? ['PREFIX', this.#prefix] : [];
    const since = this.#seen ? ['SINCE', this.#seen] : [];
    return [{ words: ['WATCH', ...prefix, ...since], answered: (reply) => this.#answered(reply) }];
  }

  #answered(reply: Reply): void {
    if (reply instanceof ErrorReply) {
      if (reply.code !== 'GONE' || !this.#seen) throw new ServerError(reply.code, reply.message);
      this.#seen = 0; // and it is asked again, from now on
      return;
    }
    if (this.#hasWatched && !this.#seen) this.#tell(GONE);
    this.#hasWatched = this.#isWatching = true;
  }

  wantsLink(): boolean {
    return !this.#isClosed;
  }

  awaitsNews(): boolean {
    return !this.#isPaused;
  }

  shortestTtl(): number {
    return Infinity;
  }

  left(): void {
    this.#isWatching = false;
    this.#isPaused = false;
  }

  refused(error: Error): void {
    void this.close(error);
  }

  pushed(items: Reply[]): void {
    if (text(items[0]) !== 'event') return;
    const event = plain(items[3] ?? null, camel) as BelayEvent;
    this.#seen = event.seq;
    this.#tell(event);
  }
}
