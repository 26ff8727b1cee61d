import { readFileSync } from 'node:fs';
import { connect, isIP, type Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import type { Address } from './address.js';
import { now } from './clock.js';
import { Decoder, type Reply } from './resp.js';

/** Files in PEM. Without `ca`, the CAs that Node knows; `cert` and `key` say who this program is. */
export interface TlsFiles {
  ca?: string;
  cert?: string;
  key?: string;
}

export interface WireEvents {
  open(): void;
  reply(reply: Reply): void;
  /** It ended by itself; `why` is for people. Not called after leave() and end(). */
  gone(why: string): void;
}

/** How long end() waits for the server to have read everything. */
const END_MS = 1000;

/** One connection to one server. */
export class Wire {
  readonly #raw: Socket;
  readonly #events: WireEvents;
  readonly #decoder = new Decoder();
  #socket: Socket; // the same, or TLS on it
  #why = 'the connection was closed';
  #out = '';
  #over = false;

  /** Throws when a file of `tls` cannot be read. */
  constructor(address: Address, tls: TlsFiles, events: WireEvents) {
    const { host, port, path } = address;
    const identity = address.tls ? identityOf(host, tls) : undefined;
    this.#events = events;
    this.#raw = this.#socket = path === undefined ? connect({ host, port, noDelay: true }) : connect({ path });
    this.#raw.once('connect', () => (identity ? this.#seal(identity) : this.#open()));
    this.#attend();
  }

  #seal(identity: ConnectionOptions): void {
    this.#socket = connectTls({ ...identity, socket: this.#raw });
    this.#socket.once('secureConnect', () => this.#open());
    this.#attend();
  }

  #attend(): void {
    this.#socket.on('error', (error) => (this.#why = error.message));
    this.#socket.once('end', () => this.#gone(this.#why));
    this.#socket.once('close', () => this.#gone(this.#why));
  }

  #open(): void {
    if (this.#over) return;
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.#events.open();
  }

  /** What is written in one turn of the event loop leaves as one. */
  write(text: string): void {
    if (this.#out === '') process.nextTick(() => this.#flush());
    this.#out += text;
  }

  /** Stops and goes on reading. */
  pause(): void {
    this.#socket.pause();
  }
  resume(): void {
    this.#socket.resume();
  }

  /** Resets the connection: the server sees no close, and frees nothing before its time. */
  leave(): void {
    this.#over = true;
    if (this.#raw.remoteFamily === undefined) this.#raw.destroy();
    else this.#raw.resetAndDestroy();
    this.#socket.destroy();
  }

  /** Closes the connection: the server has read what was sent, and frees what the session holds. */
  async end(): Promise<void> {
    this.#flush();
    this.#over = true;
    const timer = setTimeout(() => this.#socket.destroy(), END_MS);
    await new Promise<void>((resolve) => {
      this.#socket.once('close', () => resolve());
      if (this.#socket.destroyed) resolve();
      else this.#socket.resume().end();
    });
    clearTimeout(timer);
  }

  #flush(): void {
    if (!this.#over && this.#out !== '') this.#socket.write(this.#out, 'latin1');
    this.#out = '';
  }

  #read(chunk: Buffer): void {
    now(); // has the machine slept? whoever judges by these bytes must know
    try {
      for (const reply of this.#decoder.feed(chunk)) {
        if (this.#over) return;
        this.#events.reply(reply);
      }
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.#gone(`it does not speak RESP: ${error.message}`);
    }
  }

  #gone(why: string): void {
    if (this.#over) return;
    this.leave();
    this.#events.gone(why);
  }
}

/** Whom we expect there, and who we are. The files are read anew: certificates are renewed. */
function identityOf(host: string, files: TlsFiles): ConnectionOptions {
  const read = (file: string | undefined) => (file ? readFileSync(file) : undefined);
  const name = isIP(host) ? {} : { servername: host };
  return { host, ...name, ca: read(files.ca), cert: read(files.cert), key: read(files.key) };
}
