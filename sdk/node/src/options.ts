import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { parseAddresses } from './address.js';
import type { Lost } from './errors.js';
import { nodeLog, type Logger } from './log.js';
import type { SessionOptions } from './session.js';
import type { TlsFiles } from './wire.js';

/** Durations are ms. */
export interface ClientOptions {
  /**
   * "host:port,tls://host:port,unix:///path", or a list of them. By default $BELAY_ADDR, or
   * 127.0.0.1:7117.
   */
  addresses?: string | readonly string[] | undefined;
  /** Of everything that the client does; by default the server's "default". */
  namespace?: string | undefined;
  /** By default $BELAY_TOKEN, or the first line of the file $BELAY_TOKEN_FILE. "": none. */
  token?: string | undefined;
  /** By default the files $BELAY_TLS_CA, $BELAY_TLS_CERT and $BELAY_TLS_KEY. */
  tls?: TlsFiles | undefined;
  /** Who this client is, for people who look; by default "host:pid". */
  owner?: string | undefined;
  /** How long the server waits for a sign of life; by default 30 s. */
  sessionTtl?: number | undefined;
  /** How long a call looks for an answer, beyond its own `wait`; by default 10 s. */
  timeout?: number | undefined;
  /** `console`, pino, winston, ...; by default Node's own: NODE_DEBUG=belay. */
  logger?: Logger | undefined;
}

/** Durations are ms. */
export interface LockOptions {
  /** None by default: it lives as long as the session of the client. Else it has a lease of its own. */
  ttl?: number | undefined;
  /** How long to wait in line; without end by default. 0: do not wait. */
  wait?: number | undefined;
  /** Together with other shared holders. */
  shared?: boolean | undefined;
  /** Of a semaphore: so many (1) out of `of`. */
  permits?: number | undefined;
  of?: number | undefined;
  /** Stored with the lock when it is granted. */
  body?: string | Uint8Array | undefined;
  /** After its TTL it is overdue, and stays held for so long. */
  grace?: number | undefined;
  /** After it was lost nobody gets it for so long. */
  delay?: number | undefined;
  /** By default another one for each call. Locks of one owner are those of one party. */
  owner?: string | undefined;
  /** How long before its lease ends unproven it counts as lost; by default a tenth of the lease. */
  early?: number | undefined;
  /** Is called with the place in the line (1 is next), at once and whenever it has changed. */
  onPlace?: ((position: number) => void) | undefined;
  /** Is called when the lock is lost, as `held.signal` is aborted. */
  onLost?: ((lost: Lost) => void) | undefined;
  /** Ends the wait. */
  signal?: AbortSignal | undefined;
}

const OWNER_MAX = 100;

/** With defaults; throws TypeError. */
export function sessionOptions(given: ClientOptions): SessionOptions {
  const { env } = process;
  const owner = given.owner ?? `${hostname()}:${process.pid}`;
  const bytes = Buffer.byteLength(owner);
  if (bytes < 1 || bytes > OWNER_MAX) throw new TypeError(`an owner has 1 to ${OWNER_MAX} bytes`);
  return {
    addresses: parseAddresses(given.addresses ?? (env['BELAY_ADDR'] || '127.0.0.1:7117')),
    namespace: given.namespace,
    token: given.token ?? tokenOf(env),
    tls: given.tls ?? {
      ...(env['BELAY_TLS_CA'] && { ca: env['BELAY_TLS_CA'] }),
      ...(env['BELAY_TLS_CERT'] && { cert: env['BELAY_TLS_CERT'] }),
      ...(env['BELAY_TLS_KEY'] && { key: env['BELAY_TLS_KEY'] }),
    },
    owner,
    sessionTtl: duration('sessionTtl', given.sessionTtl ?? 30_000, 1),
    timeout: duration('timeout', given.timeout ?? 10_000, 1),
    log: given.logger ?? nodeLog(),
  };
}

function tokenOf(env: NodeJS.ProcessEnv): string | undefined {
  if (env['BELAY_TOKEN']) return env['BELAY_TOKEN'];
  const file = env['BELAY_TOKEN_FILE'];
  return file ? readFileSync(file, 'utf8').split('\n')[0]!.trim() : undefined;
}

/** Whole milliseconds; throws TypeError. */
export function duration(what: string, value: number, least = 0): number {
  if (!Number.isFinite(value) || value < least) throw new TypeError(`${what}: ${value} is no duration in ms`);
  return Math.ceil(value);
}

/** The same, and Infinity. */
export function wait(value: number = Infinity): number {
  return value === Infinity ? value : duration('wait', value);
}
