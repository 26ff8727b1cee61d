/** All errors of this library, except for wrong arguments: those are a TypeError, and nothing was sent. */
export class BelayError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** The lock was not had: Refused, TimedOut or Deadlock. */
export class NotAcquired extends BelayError {}

/** Who holds a lock. */
export interface Holder {
  owner: string;
  mode: 'exclusive' | 'shared' | 'semaphore';
  fence: number;
  /** How much of its lease is left, in ms; Infinity: it has no end of its own. */
  expiresIn: number;
}

/** Somebody else holds it and `wait` is 0, or it is a lock of another kind. */
export class Refused extends NotAcquired {
  constructor(
    lockName: string,
    /** "held", "kind", "closed", "replaced", "lost", "namespace": docs/PROTOCOL.md. */
    readonly reason: string,
    readonly holders: readonly Holder[] = [],
  ) {
    const owners = holders.map((holder) => holder.owner).join(', ');
    super(`${lockName}: refused: ${reason}${owners && ` by ${owners}`}`);
  }
}

/** `wait` is over. */
export class TimedOut extends NotAcquired {
  constructor(lockName: string) {
    super(`${lockName}: the wait is over`);
  }
}

/** To wait would be to wait for ever. */
export class Deadlock extends NotAcquired {
  constructor(
    lockName: string,
    /** Each waits for what the next one holds. */
    readonly cycle: readonly { owner: string; waitsFor: string }[],
  ) {
    super(`${lockName}: deadlock: ${cycle.map((step) => `${step.owner} waits for ${step.waitsFor}`).join(', ')}`);
  }
}

/** A lock that was held is gone, or is about to be: stop what it guards. */
export class Lost extends BelayError {
  constructor(
    readonly lockName: string,
    readonly fence: number,
    /**
     * The server's word ("break", "ttl", "session", "release", "namespace"), "stale" if it did not say
     * more, "silence" if it was not heard in time: then nobody else can have the lock yet.
     */
    readonly reason: string,
    /** Who broke it: the id of a token. */
    readonly by?: string,
    /** Why it was broken, in their words. */
    readonly text?: string,
  ) {
    super(`${lockName}: lost: ${reason}${text ? ` (${text})` : ''}`);
  }
}

/** The server's answer is an error. */
export class ServerError extends BelayError {
  constructor(
    /** "DENIED", "LIMIT", "NONAMESPACE", ...: docs/PROTOCOL.md. */
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** No node has answered in time. The request may have been carried out. */
export class Unreachable extends BelayError {}

/** The client was closed. */
export class Closed extends BelayError {
  constructor() {
    super('the client was closed');
  }
}
