import { offAbort, onAbort } from './abort.js';
import { END_MS, WAIT_MAX_MS } from './asking.js';
import { stamp } from './clock.js';
import { Refused, ServerError, TimedOut, Unreachable } from './errors.js';
import type { Lease } from './lease.js';
import type { Asker, Call } from './link.js';
import { grantOf } from './outcome.js';
import type { Reply, Word } from './resp.js';
import type { Pending, Session } from './session.js';

export interface ConvertOptions {
  /** Together with other shared holders, or alone. */
  shared: boolean;
  /** How long to wait for the other holders to leave, in ms; without end by default. 0: do not wait. */
  wait?: number | undefined;
  signal?: AbortSignal | undefined;
}

interface Outcome {
  resolve(): void;
  reject(error: unknown): void;
}

/** Changes the mode of a held lock, and with it the fence. */
export function convert(session: Session, lease: Lease, options: ConvertOptions, timeout: number): Promise<void> {
  return new Promise((resolve, reject) => new Conversion(session, lease, options, { resolve, reject }).start(timeout));
}

class Conversion implements Asker, Pending {
  readonly #session: Session;
  readonly #lease: Lease;
  readonly #fence: number;
  readonly #options: ConvertOptions;
  readonly #outcome: Outcome;
  readonly #wait: number;
  #giveUpAt = Infinity;
  /** Requests without an answer. */
  #asked = 0;
  /** Nobody waits for it any more. */
  #isEnding = false;

  constructor(session: Session, lease: Lease, options: ConvertOptions, outcome: Outcome) {
    this.#session = session;
    this.#lease = lease;
    this.#fence = lease.fence;
    this.#options = options;
    this.#outcome = outcome;
    this.#wait = options.wait ?? Infinity;
  }

  start(timeout: number): void {
    const { signal } = this.#options;
    if (signal?.aborted) return this.#outcome.reject(signal.reason);
    onAbort(signal, this.#cancel);
    this.#session.watch(this);
    this.#giveUpAt = stamp() + this.#wait + timeout;
    this.#ask(Math.min(this.#wait, WAIT_MAX_MS));
  }

  #ask(wait: number): void {
    const mode = this.#options.shared ? 'shared' : 'exclusive';
    const words: Word[] = ['CONVERT', this.#lease.name, this.#fence, 'MODE', mode];
    if (wait > 0) words.push('WAIT', Math.ceil(wait), 'NOBLOCK');
    words.push('REQUEST', this.#session.requestId());
    this.#asked++;
    this.#lease.converting = true;
    const limits = this.#isEnding ? { until: Infinity, patience: Infinity } : { until: this.#giveUpAt };
    this.#session.link.send(words, this, { again: true, ...limits });
  }

  queued(): void {}

  answered(reply: Reply, call: Call): void {
    const isLast = this.#isAnswered();
    try {
      const { fence } = grantOf(this.#lease.name, reply);
      this.#lease.converted(fence, call.firstSent);
      this.#outcome.resolve();
    } catch (error) {
      if (error instanceof TimedOut && this.#wait === Infinity && !this.#isEnding) return this.start(0);
      if (isLast && isGone(error) && this.#fence === this.#lease.fence) this.#lease.lose('stale');
      this.#outcome.reject(this.#lease.lost ?? error);
    }
  }

  failed(error: Error, call: Call): void {
    this.#isAnswered();
    this.#outcome.reject(error);
    if (call.wasSent && error instanceof Unreachable) this.#end();
  }

  sessionOver(): void {
    this.#asked = 1;
    this.#isAnswered();
    this.#outcome.reject(this.#lease.lost);
  }

  #isAnswered(): boolean {
    if (--this.#asked > 0) return false;
    this.#lease.converting = false;
    this.#session.unwatch(this);
    offAbort(this.#options.signal, this.#cancel);
    return true;
  }

  readonly #cancel = (): void => {
    this.#outcome.reject(this.#options.signal?.reason);
    this.#end();
  };

  /** The same request, for a moment only, takes the place over and ends it. What is granted is taken. */
  #end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.#session.watch(this);
    this.#ask(END_MS);
  }
}

function isGone(error: unknown): boolean {
  return error instanceof ServerError ? error.code === 'STALE' : error instanceof Refused && error.reason === 'lost';
}
