/**
 * The way to the servers: one connection at a time, to one of a list of nodes, and the calls on it.
 *
 *     queued --the greeting is answered--> sent --answer--> answered()
 *       ^                                   | `--[queued, ticket, ..]--> parked --push--> answered()
 *       `------------ left: again ----------+-------------------------------'
 *
 * A node that is left is left by a reset, and what may be sent again goes to the next one.
 */
import type { Address } from './address.js';
import { Alarm, now, stamp } from './clock.js';
import { Closed, ServerError, Unreachable } from './errors.js';
import type { Log } from './log.js';
import { encode, ErrorReply, integer, Push, text, type Reply, type Word } from './resp.js';
import { Wire, type TlsFiles } from './wire.js';

const CONNECT_MS = 3000;
const SILENCE_MS = 4000;
const SILENCE_LEAST_MS = 50;
const PING_MS = 3000;
const PAUSE_LEAST_MS = 50;
const PAUSE_MOST_MS = 1000;
const FAREWELL_MS = 1000;

export interface LinkOptions {
  readonly addresses: readonly Address[];
  readonly tls: TlsFiles;
  readonly token: string | undefined;
  readonly namespace: string | undefined;
  /** How long a call looks for a connection. */
  readonly timeout: number;
  readonly log: Log;
}

/** Part of a greeting. `answered` throws what makes the connection useless. */
export interface Opening {
  readonly words: readonly Word[];
  answered(reply: Reply, sentAt: number): void;
}

/** What a connection is for. */
export interface LinkOwner {
  /** What else the greeting has to say now; nothing: it is complete. */
  opening(): Opening[];
  /** Is a connection wanted when no call wants one? */
  wantsLink(): boolean;
  /** Does it wait for pushes? */
  awaitsNews(): boolean;
  /** The shortest TTL that depends on this link; Infinity: none does. */
  shortestTtl(): number;
  /** A push that is not the outcome of a call. */
  pushed(items: Reply[]): void;
  /** The connection is gone. */
  left(): void;
  /** A node does not let us in, and others will not, either. */
  refused(error: Error): void;
}

/** Who made a call. Exactly one of `answered` and `failed` is called, unless the call was dropped. */
export interface Asker {
  /** Also for an error of the server. `pushed`: it was the outcome of a place in a line. */
  answered(reply: Reply, call: Call, pushed: boolean): void;
  /** Unreachable or Closed. */
  failed(error: Error, call: Call): void;
  /** It has a place in a line; only with NOBLOCK. */
  queued?(position: number): void;
}

export interface CallOptions {
  /** It may be sent again. */
  again: boolean;
  /** When it is given up, at the latest; by default `timeout` from now. */
  until?: number;
  /** How long it waits for a connection; by default `timeout`. */
  patience?: number;
  /** Its answer may take long, and says nothing of the node. */
  waits?: boolean;
}

type CallState = 'queued' | 'sent' | 'parked' | 'done';

export class Call {
  state: CallState = 'queued';
  next: Call | undefined;
  ticket = 0;
  /** NaN: it was never sent. */
  firstSent = NaN;
  lastSent = NaN;
  readonly madeAt = stamp();

  constructor(
    readonly text: string,
    readonly asker: Asker,
    readonly again: boolean,
    readonly until: number,
    readonly patience: number,
    readonly kind: 'call' | 'greeting' | 'waits' = 'call',
  ) {}

  get wasSent(): boolean {
    return !Number.isNaN(this.firstSent);
  }
}

/** Calls whose answers are awaited, in that order. */
class Queue {
  first: Call | undefined;
  #last: Call | undefined;

  push(call: Call): void {
    call.next = undefined;
    if (this.#last) this.#last.next = call;
    else this.first = call;
    this.#last = call;
  }

  shift(): Call | undefined {
    const call = this.first;
    this.first = call?.next;
    if (!this.first) this.#last = undefined;
    return call;
  }

  *[Symbol.iterator](): Generator<Call> {
    for (let call = this.first; call; call = call.next) yield call;
  }
}

export class Link {
  readonly #options: LinkOptions;
  readonly #owner: LinkOwner;
  readonly #alarm = new Alarm(() => this.#look());
  #wire: Wire | undefined;
  #up = false; // it was greeted
  #closed = false;
  #queued: Call[] = [];
  #sent = new Queue();
  #parked = new Map<number, Call>();
  #unanswered = 0; // parts of a greeting
  #limit = SILENCE_MS;
  #at: number; // the address in use, or to be tried next
  #failures = 0; // nodes in a row
  #pause = 0;
  #why = 'no node was tried';
  #downSince = stamp();
  #heardAt = 0;
  #greetUntil = 0;
  #retryAt = 0;

  /** `at`: which of the addresses is tried first. */
  constructor(options: LinkOptions, owner: LinkOwner, at = 0) {
    this.#options = options;
    this.#owner = owner;
    this.#at = at;
  }

  get at(): number {
    return this.#at;
  }

  /** The node that it is connected to. */
  get address(): string | undefined {
    return this.#up ? this.#address.text : undefined;
  }

  send(words: readonly Word[], asker: Asker, options: CallOptions): Call {
    const { timeout } = this.#options;
    const until = options.until ?? stamp() + timeout;
    const { again, patience = timeout, waits } = options;
    const call = new Call(encode(words), asker, again, until, patience, waits ? 'waits' : 'call');
    if (this.#closed) {
      call.state = 'done';
      process.nextTick(() => asker.failed(new Closed(), call));
    } else if (this.#ready) {
      this.#transmit(call);
    } else {
      this.#queued.push(call);
      this.#alarm.by(this.#dueOf(call));
      this.connect();
    }
    return call;
  }

  /** send() for what has one answer; an error of the server is thrown. */
  request(words: readonly Word[], options: CallOptions): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const answered = (reply: Reply) => {
        if (reply instanceof ErrorReply) reject(new ServerError(reply.code, reply.message));
        else resolve(reply);
      };
      this.send(words, { answered, failed: reject }, options);
    });
  }

  /** Nobody wants its answer any more. */
  drop(call: Call): void {
    if (call.state === 'parked') this.#parked.delete(call.ticket);
    call.state = 'done';
  }

  /** The owner has more to say in the greeting, or wants a connection. */
  connect(): void {
    if (this.#ready) this.#greet([]);
    else if (!this.#wire && this.#isWanted()) this.#dial();
  }

  /** A TTL from now on depends on this link. */
  shorten(ttl: number): void {
    this.#limit = Math.min(this.#limit, this.#limitFor(ttl));
  }

  /** Goes to another node, if it is connected. */
  leave(why: string): void {
    if (this.#wire) this.#lost(why);
  }

  pause(): void {
    this.#wire?.pause();
    this.#alarm.off();
  }
  resume(): void {
    this.#wire?.resume();
    this.#heardAt = stamp();
    this.#arm();
  }

  /** Every call fails with Closed. The server gets `farewell`, and the end of the connection. */
  async close(farewell?: readonly Word[]): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const call of [...this.#calls()]) this.#fail(call, new Closed());
    if (this.#up && farewell) await this.#say(farewell);
    const wire = this.#wire;
    const wasUp = this.#up;
    this.#wire = undefined;
    this.#up = false;
    this.#alarm.off();
    if (wasUp) await wire?.end();
    else wire?.leave();
  }

  #say(words: readonly Word[]): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(done, FAREWELL_MS);
      this.#transmit(new Call(encode(words), { answered: done, failed: done }, false, Infinity, Infinity));
    });
  }

  // ---- connecting

  get #address(): Address {
    return this.#options.addresses[this.#at]!;
  }

  /** Calls may leave. */
  get #ready(): boolean {
    return this.#up && this.#unanswered === 0;
  }

  #isWanted(): boolean {
    return !this.#closed && (this.#owner.wantsLink() || this.#queued.some((call) => call.state === 'queued'));
  }

  #limitFor(ttl: number): number {
    if (this.#options.addresses.length === 1 || ttl === Infinity) return SILENCE_MS;
    // so that two other nodes can be tried before a lease that is renewed at a third counts as lost
    return Math.min(Math.max((ttl * (1 - 1 / 3 - 1 / 10)) / 3, SILENCE_LEAST_MS), SILENCE_MS);
  }

  #dial(): void {
    if (stamp() < this.#retryAt) return this.#alarm.by(this.#retryAt);
    this.#limit = this.#limitFor(this.#owner.shortestTtl());
    this.#greetUntil = stamp() + Math.min(CONNECT_MS, this.#limit);
    this.#alarm.by(this.#greetUntil);
    const { tls, token, namespace } = this.#options;
    const greeting: Opening[] = [{ words: ['HELLO', 3], answered: check }];
    if (token) greeting.push({ words: ['AUTH', token], answered: check });
    if (namespace) greeting.push({ words: ['USE', namespace], answered: check });
    try {
      this.#wire = new Wire(this.#address, tls, {
        open: () => this.#greet(greeting),
        reply: (reply) => this.#hear(reply),
        gone: (why) => this.#lost(why),
      });
    } catch (error) {
      this.#lost((error as Error).message);
    }
  }

  /** Says `greeting`, and whatever the owner has to say now; ready when all of it was answered. */
  #greet(greeting: Opening[]): void {
    const openings = [...greeting, ...this.#owner.opening()];
    if (openings.length === 0) return this.#greeted();
    this.#greetUntil = stamp() + Math.min(CONNECT_MS, this.#limit);
    this.#unanswered += openings.length;
    for (const opening of openings) {
      const answered = (reply: Reply, call: Call) => this.#isGreeted(opening, reply, call.lastSent);
      this.#transmit(new Call(encode(opening.words), { answered, failed() {} }, false, Infinity, Infinity, 'greeting'));
    }
  }

  #isGreeted(opening: Opening, reply: Reply, sentAt: number): void {
    const wire = this.#wire;
    try {
      opening.answered(reply, sentAt);
    } catch (error) {
      return this.#refused(error as Error);
    }
    if (this.#wire !== wire || this.#closed) return; // it was left for what the answer says
    if (--this.#unanswered === 0) this.#greet([]);
  }

  /** This node does not let us in: whoever waits for that is told. */
  #refused(error: Error): void {
    const calls = this.#queued;
    this.#queued = [];
    this.#lost(error.message);
    for (const call of calls) this.#fail(call, error);
    this.#owner.refused(error);
  }

  #greeted(): void {
    const calls = this.#queued;
    this.#queued = [];
    if (!this.#up) this.#options.log.info(`connected to ${this.#address.text}`);
    this.#up = true;
    for (const call of calls) if (call.state === 'queued') this.#transmit(call);
    this.#arm();
  }

  #lost(why: string): void {
    const was = this.#address.text;
    this.#why = this.#up ? `left ${was}: ${why}` : `cannot reach ${was}: ${why}`;
    this.#options.log[this.#up ? 'warn' : 'debug'](this.#why);
    if (this.#up) this.#downSince = stamp();
    this.#wire?.leave();
    this.#wire = undefined;
    this.#up = false;
    this.#unanswered = 0;
    this.#nextAddress();
    const failed: Call[] = [];
    for (const call of this.#takeAll()) (call.again ? this.#queued : failed).push(call);
    for (const call of this.#queued) call.state = 'queued';
    this.#owner.left();
    for (const call of failed) this.#fail(call, this.#unreachable(call));
    this.connect();
    this.#arm();
  }

  #nextAddress(): void {
    const count = this.#options.addresses.length;
    this.#at = (this.#at + 1) % count;
    this.#failures++;
    if (this.#failures < count) return;
    this.#failures = 0;
    this.#pause = Math.min(Math.max(this.#pause * 2, PAUSE_LEAST_MS), PAUSE_MOST_MS);
    this.#retryAt = stamp() + this.#pause * (1 - Math.random() / 2);
  }

  // ---- calls

  #transmit(call: Call): void {
    call.state = 'sent';
    call.lastSent = stamp();
    if (!call.wasSent) call.firstSent = call.lastSent;
    this.#sent.push(call);
    this.#wire!.write(call.text);
    this.#alarm.by(Math.min(call.until, call.lastSent + Math.min(this.#limit, PING_MS)));
  }

  /** All that are not done, as they were made. */
  #takeAll(): Call[] {
    const calls = [...this.#parked.values(), ...this.#sent, ...this.#queued].filter((call) => call.state !== 'done');
    this.#parked.clear();
    this.#sent = new Queue();
    this.#queued = [];
    return calls;
  }

  #fail(call: Call, error: Error): void {
    if (call.state === 'done') return;
    this.drop(call);
    call.asker.failed(error, call);
  }

  #unreachable(call: Call): Unreachable {
    return new Unreachable(`${this.#why}${call.wasSent ? '; it may have been carried out' : ''}`);
  }

  #hear(reply: Reply): void {
    this.#heardAt = stamp();
    if (reply instanceof Push) return this.#hearPush(reply.items);
    const call = this.#sent.shift();
    if (!call) return this.#lost('an answer without a request');
    if (isElsewhere(call, reply)) return this.#tryElsewhere(call, reply);
    if (call.kind !== 'greeting') this.#isGood();
    if (call.state === 'done') return;
    if (call.asker.queued && isQueued(reply)) this.#park(call, integer(reply[1]), integer(reply[2]));
    else this.#answer(call, reply, false);
  }

  #hearPush(items: Reply[]): void {
    this.#isGood();
    if (items.length !== 6) return this.#owner.pushed(items);
    const [word, , fence, ticket, expires, last] = items;
    const call = this.#parked.get(integer(ticket));
    if (!call || integer(ticket) === 0) return this.#owner.pushed(items);
    const failed = text(word) === 'failed' ? new ErrorReply('UNAVAILABLE', text(last)) : undefined;
    if (failed) return this.#tryElsewhere(call, failed);
    this.#parked.delete(call.ticket);
    const granted = text(word) === 'granted';
    this.#answer(call, granted ? [word!, fence!, expires!, last!] : [word!, last!], true);
  }

  #isGood(): void {
    this.#failures = 0;
    this.#pause = 0;
  }

  #answer(call: Call, reply: Reply, pushed: boolean): void {
    call.state = 'done';
    call.asker.answered(reply, call, pushed);
  }

  #park(call: Call, ticket: number, position: number): void {
    call.state = 'parked';
    call.ticket = ticket;
    this.#parked.set(ticket, call);
    this.#alarm.by(Math.min(call.until, this.#heardAt + PING_MS));
    call.asker.queued?.(position);
  }

  /** "Not here, not now." */
  #tryElsewhere(call: Call, reply: ErrorReply): void {
    if (call.state === 'sent' && call.again) this.#queued.unshift(call);
    this.#lost(reply.message);
  }

  // ---- time

  #look(): void {
    if (this.#closed) return;
    const at = now();
    this.#limit = this.#limitFor(this.#owner.shortestTtl());
    if (this.#wire && !this.#ready && at >= this.#greetUntil) this.#lost('no answer in time');
    else if (at >= this.#silentAt()) this.#lost(`no answer for ${Math.round(this.#limit)} ms`);
    else if (at >= this.#pingAt()) this.#transmit(new Call(PING, nobody, false, Infinity, Infinity));
    this.#giveUp(at);
    this.connect();
    this.#arm();
  }

  #arm(): void {
    if (this.#closed) return;
    if (this.#wire && !this.#ready) this.#alarm.by(this.#greetUntil);
    if (!this.#wire && this.#isWanted()) this.#alarm.by(this.#retryAt);
    let due = Math.min(this.#silentAt(), this.#pingAt());
    for (const call of this.#calls()) due = Math.min(due, this.#dueOf(call));
    this.#alarm.by(due);
  }

  #silentAt(): number {
    const first = this.#sent.first;
    if (!this.#ready || !first || first.kind === 'waits') return Infinity;
    return Math.max(this.#heardAt, first.lastSent) + this.#limit;
  }

  #pingAt(): number {
    const idle = this.#ready && !this.#sent.first && (this.#parked.size > 0 || this.#owner.awaitsNews());
    return idle ? this.#heardAt + PING_MS : Infinity;
  }

  #dueOf(call: Call): number {
    if (this.#up) return call.until;
    return Math.min(call.until, Math.max(call.madeAt, this.#downSince) + call.patience);
  }

  *#calls(): Generator<Call> {
    yield* this.#queued;
    yield* this.#sent;
    yield* this.#parked.values();
  }

  #giveUp(at: number): void {
    const over = [...this.#calls()].filter((call) => call.state !== 'done' && at >= this.#dueOf(call));
    for (const call of over) this.#fail(call, this.#unreachable(call));
    this.#queued = this.#queued.filter((call) => call.state === 'queued');
  }
}

const PING = encode(['PING']);
const nobody: Asker = { answered() {}, failed() {} };

function check(reply: Reply): void {
  if (reply instanceof ErrorReply) throw new ServerError(reply.code, reply.message);
}

function isElsewhere(call: Call, reply: Reply): reply is ErrorReply {
  return reply instanceof ErrorReply && reply.code === 'UNAVAILABLE' && (call.again || call.kind === 'greeting');
}

function isQueued(reply: Reply): reply is Reply[] {
  return Array.isArray(reply) && text(reply[0]) === 'queued';
}
