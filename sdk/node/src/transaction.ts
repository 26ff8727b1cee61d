import { offAbort, onAbort } from './abort.js';
import { stamp } from './clock.js';
import { ServerError } from './errors.js';
import { Link, type LinkOwner } from './link.js';
import { duration } from './options.js';
import { text, type Reply, type Word } from './resp.js';
import type { Session, SessionOptions } from './session.js';
import type { Json, Statement } from './txn.js';

/** Durations are ms. */
export interface TransactionOptions {
  /** How long an assert that fails is waited for; by default it is not. */
  wait?: number | undefined;
  description?: string | undefined;
  /** The node must have been up for so long. */
  minUptime?: number | undefined;
  /** 0 to 1. */
  minTrust?: number | undefined;
  /** Ends the wait. */
  signal?: AbortSignal | undefined;
}

export interface TransactionResult {
  /** "error": nothing was done; "timeout": the same, after the wait. */
  status: 'ok' | 'error' | 'timeout';
  /** Of an error. */
  cause?: 'statement' | 'session' | 'requirements';
  /** The statement that failed: "1:/AssertOp/". */
  failed?: string;
  /** What was selected, by the name it was selected into. */
  data: { [name: string]: Json };
}

/** In the session of the client. One that waits holds back all answers behind it: it has its own connection. */
export async function transact(
  session: Session,
  options: SessionOptions,
  statements: readonly Statement[],
  terms: TransactionOptions,
): Promise<TransactionResult> {
  const { signal } = terms;
  const wait = duration('wait', terms.wait ?? 0);
  signal?.throwIfAborted();
  const id = wait ? await opened(session) : session.need();
  const json = JSON.stringify(documentOf(id, statements, terms, wait));
  const words = ['TXN', json, 'REQUEST', session.requestId()];
  const reply = wait ? await aside(session, options, words, wait, signal) : await session.inSession(words);
  if (reply === undefined) throw new ServerError('NOSESSION', 'the session of this client is over');
  return resultOf(reply);
}

/** The session, when the server knows it: other connections may name it. */
async function opened(session: Session): Promise<string> {
  for (;;) {
    const id = session.need();
    if ((await session.inSession(['PING'])) !== undefined) return id;
  }
}

function documentOf(id: string, statements: readonly Statement[], terms: TransactionOptions, wait: number): unknown {
  return {
    session: id,
    statements,
    wait_ms: wait,
    description: terms.description,
    min_uptime_s: terms.minUptime === undefined ? undefined : Math.ceil(duration('minUptime', terms.minUptime) / 1000),
    min_trust: terms.minTrust,
  };
}

function resultOf(reply: Reply): TransactionResult {
  const [status, failed, cause, , , , data] = reply as Reply[];
  return {
    status: text(status) as TransactionResult['status'],
    ...(cause && { cause: text(cause) as NonNullable<TransactionResult['cause']> }),
    ...(failed && { failed: text(failed) }),
    data: Object.fromEntries((data as Reply[][]).map(([name, json]) => [text(name), JSON.parse(text(json)) as Json])),
  };
}

/** The node is the client's: whether it is there is asked on the client's connection. */
async function aside(
  session: Session,
  options: SessionOptions,
  words: readonly Word[],
  wait: number,
  signal: AbortSignal | undefined,
): Promise<Reply> {
  const link = new Link(options, nothingMore, session.link.at);
  session.addBeside(link);
  const abort = () => void link.close();
  onAbort(signal, abort);
  try {
    return await link.request(words, { again: true, waits: true, until: stamp() + wait + options.timeout });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  } finally {
    offAbort(signal, abort);
    session.removeBeside(link);
    await link.close();
  }
}

const nothingMore: LinkOwner = {
  opening: () => [],
  wantsLink: () => false,
  awaitsNews: () => false,
  shortestTtl: () => Infinity,
  pushed() {},
  left() {},
  refused() {},
};
