import { take, type Taken, type Want } from './asking.js';
import { stamp } from './clock.js';
import { disposable } from './disposable.js';
import { Election } from './election.js';
import type { Holder } from './errors.js';
import { Held } from './held.js';
import { News, type BelayEvent } from './news.js';
import { duration, sessionOptions, wait, type ClientOptions, type LockOptions } from './options.js';
import { camel, plain } from './plain.js';
import { integer, type ReplyMap, type Word } from './resp.js';
import { Session, type SessionOptions } from './session.js';
import { transact, type TransactionOptions, type TransactionResult } from './transaction.js';
import type { Statement } from './txn.js';
import { Watch, type WatchOptions } from './watch.js';

/** A lock, for people who look. Durations are ms. */
export interface LockInfo {
  name: string;
  state: 'unlocked' | 'shared' | 'exclusive' | 'semaphore' | 'closed';
  body: Buffer;
  /** At most 100, as of `waiters`; `holdersTotal` and `waitersTotal` are there when there are more. */
  holders: (Holder & { session: string | null; held: number; overdue: boolean; permits?: number })[];
  waiters: {
    owner: string;
    mode: Holder['mode'];
    ticket: number;
    position: number;
    session: string | null;
    waited: number;
    expiresIn: number;
    permits?: number;
  }[];
  holdersTotal?: number;
  waitersTotal?: number;
  /** Of a semaphore. */
  of?: number;
  /** How much longer it is closed. */
  closed?: number;
}

type Work<T> = (held: Held) => T | Promise<T>;

/**
 * One connection, and from its first lock on one session, to a Belay server or cluster. To make one
 * connects to nothing.
 */
export class Client {
  readonly #options: SessionOptions;
  readonly #session: Session;
  readonly #streams = new Set<News>();
  #owners = 0;

  /** Where the runtime or a polyfill has Symbol.asyncDispose: close() for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  constructor(options: ClientOptions = {}) {
    this.#options = sessionOptions(options);
    this.#session = new Session(this.#options);
    disposable(this, () => this.close());
  }

  /** The node that it is connected to. */
  get address(): string | undefined {
    return this.#session.link.address;
  }

  /** The id of its session. */
  get session(): string | undefined {
    return this.#session.id || undefined;
  }

  /** Waits in line for the lock; of several names, for all of them or none. */
  async lock(names: string | readonly string[], options: LockOptions = {}): Promise<Held> {
    const wants = this.#wantsOf(names, options);
    const taken: Taken[] = [];
    try {
      for (const want of wants) taken.push(await this.#take(want));
    } catch (error) {
      for (const { lease } of taken) if (lease.end()) void this.#session.giveBack(lease);
      throw error;
    }
    const leases = taken.map(({ lease }) => lease);
    return new Held(this.#session, leases, taken[0]!.body, this.#options.timeout, options.onLost);
  }

  /** Runs `work` with the lock, and gives it back. Throws `Lost` if it was lost in the meantime. */
  withLock<T>(names: string | readonly string[], work: Work<T>): Promise<T>;
  withLock<T>(names: string | readonly string[], options: LockOptions, work: Work<T>): Promise<T>;
  async withLock<T>(names: string | readonly string[], ...rest: [Work<T>] | [LockOptions, Work<T>]): Promise<T> {
    const [options, work] = rest.length === 1 ? [{}, rest[0]] : rest;
    const held = await this.lock(names, options);
    try {
      const result = await work(held);
      held.signal.throwIfAborted();
      return result;
    } finally {
      await held.release().catch(() => false); // the server is told nevertheless
    }
  }

  async show(name: string): Promise<LockInfo> {
    const lock = (await this.#session.link.request(['SHOW', name], { again: true })) as ReplyMap;
    const info = plain(lock, camel) as LockInfo;
    const holders = info.holders.map((holder) => ({ ...holder, overdue: Boolean(holder.overdue) }));
    return { ...info, holders, body: Buffer.from(lock.get('body') as Buffer) };
  }

  /** Takes it away from its holders; answers how many. The reason is for them and for the audit log. */
  async break(name: string, reason?: string): Promise<number> {
    const words = ['BREAK', name, ...(reason ? ['REASON', reason] : []), 'REQUEST', this.#session.requestId()];
    return integer(await this.#session.link.request(words, { again: true }));
  }

  /**
   * Any command of docs/PROTOCOL.md, sent once. Not for commands of the connection, nor for those that
   * wait.
   */
  async call(...words: Word[]): Promise<unknown> {
    return plain(await this.#session.link.request(words, { again: false }));
  }

  /** What happens to locks whose names begin with `prefix`; nothing is missed from when it resolves. */
  async watch(prefix = '', options: WatchOptions = {}): Promise<Watch<BelayEvent>> {
    const news = await this.#newsOf(prefix, options);
    return new Watch(news, news);
  }

  election(name: string): Election {
    return new Election(this, name, (options) => this.#newsOf(name, options));
  }

  /** All of it happens, or nothing: docs/TRANSACTIONS.md. */
  transaction(statements: readonly Statement[], options: TransactionOptions = {}): Promise<TransactionResult> {
    return transact(this.#session, this.#options, statements, options);
  }

  /** Releases its locks, ends its calls with `Closed`, and frees everything. */
  async close(): Promise<void> {
    const streams = [...this.#streams];
    await Promise.all([this.#session.close(), ...streams.map((news) => news.close())]);
  }

  #wantsOf(names: string | readonly string[], options: LockOptions): Want[] {
    const { shared = false, permits = 1, of, ttl, early } = options;
    const all = [...new Set(typeof names === 'string' ? [names] : names)];
    if (all.length === 0 || all.includes('')) throw new TypeError('a lock needs a name');
    if (shared && of !== undefined) throw new TypeError('a semaphore is neither shared nor exclusive');
    if (permits !== 1 && of === undefined) throw new TypeError('permits need a semaphore: give `of`');
    const longest = wait(options.wait);
    const terms = {
      owner: options.owner ?? `${this.#options.owner}#${++this.#owners}`,
      ttl: ttl === undefined ? 0 : duration('ttl', ttl, 1),
      until: longest === 0 ? -Infinity : stamp() + longest,
      shared,
      permits,
      of,
      body: options.body,
      grace: duration('grace', options.grace ?? 0),
      delay: duration('delay', options.delay ?? 0),
      early: early === undefined ? undefined : duration('early', early),
      onPlace: options.onPlace,
      signal: options.signal,
    };
    // one order for all clients: no two of them wait for each other
    return all.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))).map((name) => ({ name, ...terms }));
  }

  async #take(want: Want): Promise<Taken> {
    this.#session.reserve(want.name, want.owner);
    try {
      return await take(this.#session, want, this.#options.timeout);
    } catch (error) {
      this.#session.free(want.name, want.owner);
      throw error;
    }
  }

  async #newsOf(prefix: string, { signal }: WatchOptions): Promise<News> {
    const news: News = new News(this.#options, prefix, signal, () => this.#streams.delete(news));
    this.#streams.add(news);
    await news.start();
    return news;
  }
}
