import { randomBytes } from 'node:crypto';
import { Alarm, now, stamp } from './clock.js';
import { ServerError } from './errors.js';
import { AGAIN_MS, type Lease } from './lease.js';
import { Link, type LinkOptions, type LinkOwner, type Opening } from './link.js';
import { ErrorReply, integer, text, type Reply, type Word } from './resp.js';

export interface InSession {
  until?: number;
  patience?: number;
  /** It may get a place in a line first. */
  parks?: boolean;
}

/** Something that is void when the session is over, and may be asked for again in the next one. */
export interface Pending {
  sessionOver(): void;
}

export interface SessionOptions extends LinkOptions {
  readonly owner: string;
  readonly sessionTtl: number;
}

/**
 * The session of a client, on its connection, and what is held in it. It is opened when the first lock
 * needs it, attached to each connection after that, and kept; when it is over, all is lost.
 */
export class Session implements LinkOwner {
  readonly link: Link;
  readonly ttl: number;
  readonly #options: SessionOptions;
  readonly #alarm = new Alarm(() => this.look());
  readonly #requests = randomBytes(12).toString('hex');
  #requestCount = 0;
  #id = '';
  #opening: string[] = [];
  #isOpen = false;
  #isAttached = false;
  #isKeeping = false;
  #proven = Infinity;
  #keepAt = Infinity;
  readonly #leases = new Set<Lease>();
  readonly #pending = new Set<Pending>();
  readonly #parties = new Set<string>();
  /** Waiting transactions, whose connections are not looked after by themselves. */
  readonly #beside = new Set<Link>();
  #brokenBy: { fence: number; by: string; why: string } | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.ttl = options.sessionTtl;
    this.link = new Link(options, this);
  }

  /** "": none is open. */
  get id(): string {
    return this.#isOpen ? this.#id : '';
  }

  get provenUntil(): number {
    return this.#proven;
  }

  /** By this id, a request that is sent again takes effect once. */
  requestId(): string {
    return `${this.#requests}-${++this.#requestCount}`;
  }

  /** The id of the session, for a request: it leaves when the session is open. */
  need(): string {
    if (stamp() >= this.#proven) this.look(); // it is over
    if (this.#id === '') {
      this.#id = randomBytes(16).toString('hex');
      const { owner } = this.#options;
      const words = ['SESSION', 'OPEN', 'TTL', `${this.ttl}`, 'DESCRIPTION', owner, 'ID', this.#id];
      this.#opening = [...words, 'REQUEST', this.requestId()];
      this.link.shorten(this.ttl);
      this.link.connect();
    }
    return this.#id;
  }

  /** `pending` is told when the session is over, until it is removed. */
  watch(pending: Pending): void {
    this.#pending.add(pending);
  }
  unwatch(pending: Pending): void {
    this.#pending.delete(pending);
  }

  /** Only one lock or wait on a name for an owner: two would be the same to the server. */
  reserve(name: string, owner: string): void {
    const party = `${owner}\0${name}`;
    if (this.#parties.has(party)) throw new TypeError(`${owner} has ${name} already, or waits for it`);
    this.#parties.add(party);
  }
  free(name: string, owner: string): void {
    this.#parties.delete(`${owner}\0${name}`);
  }

  /** What waits on `link` depends on the node that this session is at. */
  addBeside(link: Link): void {
    this.#beside.add(link);
    this.link.connect();
  }
  removeBeside(link: Link): void {
    this.#beside.delete(link);
  }

  add(lease: Lease): void {
    this.#leases.add(lease);
    this.link.shorten(lease.ttl || this.ttl);
    this.#alarm.by(this.#proven - lease.early);
  }
  remove(lease: Lease): void {
    this.#leases.delete(lease);
    this.free(lease.name, lease.owner);
  }

  /** Tells the server, until it has heard it, the lease is over, or the session. False: it was not held. */
  async giveBack({ name, fence, ttl }: Pick<Lease, 'name' | 'fence' | 'ttl'>): Promise<boolean> {
    if (this.#id === '') return false; // it went with its session
    const words = ['RELEASE', name, fence, 'REQUEST', this.requestId()];
    const until = ttl ? stamp() + ttl : Infinity;
    return this.inSession(words, { until, patience: Infinity }).then(
      (reply) => integer(reply) > 0,
      () => false,
    );
  }

  /** The answer to what belongs to this session; undefined: the session was over before it came. */
  inSession(words: readonly Word[], options: InSession = {}): Promise<Reply | undefined> {
    return new Promise((resolve, reject) => {
      const pending = {
        sessionOver: () => {
          this.link.drop(call);
          resolve(undefined);
        },
      };
      const answered = (reply: Reply) => {
        this.unwatch(pending);
        if (reply instanceof ErrorReply) reject(new ServerError(reply.code, reply.message));
        else resolve(reply);
      };
      const failed = (error: Error) => {
        this.unwatch(pending);
        reject(error);
      };
      const asker = options.parks ? { answered, failed, queued() {} } : { answered, failed };
      const call = this.link.send(words, asker, { again: true, ...options });
      this.watch(pending);
    });
  }

  /** What the clock says. */
  look(): void {
    const at = now();
    if (at >= this.#proven) return this.#silence();
    for (const lease of this.#leases) lease.expire(at);
    if (this.#isAttached && !this.#isKeeping && at >= this.#keepAt) this.#keep();
    this.#arm();
  }

  async close(): Promise<void> {
    const farewell = this.#isOpen ? ['SESSION', 'CLOSE', this.#id, 'REQUEST', this.requestId()] : undefined;
    this.#id = '';
    this.#pending.clear();
    this.#alarm.off();
    for (const lease of this.#leases) lease.end();
    await Promise.all([this.link.close(farewell), ...[...this.#beside].map((link) => link.close())]);
  }

  // ---- as the owner of its link

  opening(): Opening[] {
    const id = this.#id;
    if (id === '' || this.#isAttached) return [];
    const open = { words: this.#opening, answered: (reply: Reply) => this.#opened(id, reply) };
    const attach = {
      words: ['SESSION', 'ATTACH', id],
      answered: (reply: Reply, sentAt: number) => this.#attached(id, reply, sentAt),
    };
    return this.#isOpen ? [attach] : [open, attach];
  }

  wantsLink(): boolean {
    return this.#leases.size > 0 || this.#pending.size > 0 || this.#beside.size > 0;
  }

  awaitsNews(): boolean {
    return this.#beside.size > 0;
  }

  shortestTtl(): number {
    let shortest = this.#id === '' ? Infinity : this.ttl;
    for (const { ttl } of this.#leases) if (ttl) shortest = Math.min(shortest, ttl);
    return shortest;
  }

  left(): void {
    this.#isAttached = false;
    this.#isKeeping = false;
    for (const link of this.#beside) link.leave('the node was left');
  }

  refused(error: Error): void {
    this.#options.log.error(error.message);
  }

  pushed(items: Reply[]): void {
    const [word, what, number] = items;
    const fence = integer(number);
    switch (text(word)) {
      case 'broken-by':
        this.#brokenBy = { fence, by: text(items[3]), why: text(items[4]) };
        break;
      case 'broken':
      case 'expired':
        this.#gone(text(what), fence, text(items[5]));
        break;
      case 'session-ended':
        if (text(what) === this.#id) this.over('session');
    }
  }

  #gone(name: string, fence: number, reason: string): void {
    const { by, why } = this.#brokenBy?.fence === fence ? this.#brokenBy : { by: '', why: '' };
    for (const lease of this.#leases)
      if (lease.fence === fence && lease.name === name) lease.lose(reason, by || undefined, why || undefined);
  }

  // ---- its life

  #opened(id: string, reply: Reply): void {
    if (reply instanceof ErrorReply) {
      if (id === this.#id) this.#id = '';
      throw new ServerError(reply.code, reply.message);
    }
    this.#isOpen ||= id === this.#id;
  }

  #attached(id: string, reply: Reply, sentAt: number): void {
    if (id !== this.#id) return;
    if (reply instanceof ErrorReply) {
      if (reply.code === 'NOSESSION') return this.over('session');
      throw new ServerError(reply.code, reply.message);
    }
    this.#isAttached = true;
    this.#kept(sentAt);
  }

  #kept(sentAt: number): void {
    this.#proven = sentAt + this.ttl;
    this.#keepAt = sentAt + this.ttl / 3;
    this.#arm();
  }

  #arm(): void {
    let due = this.#proven;
    for (const lease of this.#leases) due = Math.min(due, this.#proven - lease.early);
    if (this.#isAttached && !this.#isKeeping) due = Math.min(due, this.#keepAt);
    this.#alarm.by(due);
  }

  #keep(): void {
    const id = this.#id;
    const sentAt = stamp();
    this.#isKeeping = true;
    const answered = (reply: Reply) => {
      if (id !== this.#id) return;
      this.#isKeeping = false;
      if (reply instanceof ErrorReply && reply.code !== 'NOSESSION') {
        this.#keepAt = stamp() + AGAIN_MS;
        this.#arm();
      } else if (integer(reply) > 0) {
        this.#kept(sentAt);
      } else {
        this.over('session');
      }
    };
    const failed = () => {}; // with the connection: left()
    this.link.send(['SESSION', 'KEEPALIVE', id], { answered, failed }, { again: false, until: Infinity });
  }

  /** The server says that it is over, or the clock. */
  over(reason: string): void {
    const leases = [...this.#leases];
    const pending = [...this.#pending];
    this.#options.log[leases.length ? 'warn' : 'debug'](`session ${this.#id} is over: ${reason}`);
    this.#id = '';
    this.#isOpen = this.#isAttached = this.#isKeeping = false;
    this.#proven = this.#keepAt = Infinity;
    this.#pending.clear();
    this.#alarm.off();
    for (const lease of leases) lease.lose(reason);
    for (const each of pending) each.sessionOver();
  }

  /** It was not confirmed in time: a server that comes back must not keep it for us. */
  #silence(): void {
    this.link.leave('the session was not confirmed in time');
    this.over('silence');
  }
}
