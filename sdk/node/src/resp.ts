/**
 * The bytes on the wire: commands out, replies in.
 *
 * Commands are kept as "binary" strings, one character a byte: they are short, and strings are what
 * Node joins and writes fastest.
 */

/** A word of a command. Text is sent as UTF-8. */
export type Word = string | number | Uint8Array;

/** What the server says. Text of any kind is a Buffer, because names and bodies are any bytes. */
export type Reply = null | number | Buffer | ErrorReply | Push | ReplyMap | Reply[];
export type ReplyMap = Map<string, Reply>;

export class ErrorReply {
  constructor(readonly code: string, readonly message: string) {}
}

/** Something that the server says without being asked. */
export class Push {
  constructor(readonly items: Reply[]) {}
}

export function encode(words: readonly Word[]): string {
  let out = `*${words.length}\r\n`;
  for (const word of words) {
    const bytes = typeof word === 'string' ? utf8(word) : typeof word === 'number' ? String(word) : binary(word);
    out += `$${bytes.length}\r\n${bytes}\r\n`;
  }
  return out;
}

function utf8(text: string): string {
  return Buffer.byteLength(text) === text.length ? text : binary(Buffer.from(text));
}

function binary(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}

const LINE_MAX = 64 * 1024;
const TEXT_MAX = 64 * 1024 * 1024;
const VALUES_MAX = 1024 * 1024;
const DEPTH_MAX = 8;

/** A list, map or push that has begun. */
interface Open {
  kind: string;
  size: number;
  items: Reply[];
}

const MORE = Symbol('more bytes are needed');

/** Replies out of a stream of bytes. */
export class Decoder {
  #bytes: Buffer = Buffer.alloc(0);
  #at = 0;
  #open: Open[] = [];

  /** The replies that are complete with `chunk`. Throws a SyntaxError for what is no RESP3. */
  *feed(chunk: Buffer): Generator<Reply, void, undefined> {
    this.#bytes = this.#at === this.#bytes.length ? chunk : Buffer.concat([this.#bytes.subarray(this.#at), chunk]);
    this.#at = 0;
    for (let reply = this.#next(); reply !== MORE; reply = this.#next()) yield reply;
  }

  #next(): Reply | typeof MORE {
    for (;;) {
      const value = this.#value();
      if (value === MORE) return MORE;
      const reply = value === undefined ? undefined : this.#place(value);
      if (reply !== undefined) return reply;
    }
  }

  /** The next value; undefined: a list has begun. */
  #value(): Reply | undefined | typeof MORE {
    const end = this.#bytes.indexOf(13, this.#at);
    if (end < 0 || end + 1 >= this.#bytes.length) {
      if (this.#bytes.length - this.#at > LINE_MAX) throw new SyntaxError('a line without end');
      return MORE;
    }
    const kind = String.fromCharCode(this.#bytes[this.#at]!);
    const line = this.#bytes.toString('latin1', this.#at + 1, end);
    if (kind === '$') return this.#text(number(line), end + 2);
    this.#at = end + 2;
    switch (kind) {
      case '*':
      case '%':
      case '>':
        return this.#begin(kind, number(line));
      case ':':
        return number(line);
      case ',':
        return Number(line);
      case '#':
        return line === 't' ? 1 : 0;
      case '_':
        return null;
      case '+':
        return Buffer.from(line, 'latin1');
      case '-': {
        const space = line.indexOf(' ');
        const message = Buffer.from(line.slice(space + 1), 'latin1').toString();
        return new ErrorReply(space < 0 ? line : line.slice(0, space), message);
      }
      default:
        throw new SyntaxError(`a reply that begins with ${JSON.stringify(kind)}`);
    }
  }

  #text(length: number, start: number): Buffer | null | typeof MORE {
    if (length > TEXT_MAX) throw new SyntaxError(`a text of ${length} bytes`);
    if (length >= 0 && this.#bytes.length < start + length + 2) return MORE;
    this.#at = length < 0 ? start : start + length + 2;
    return length < 0 ? null : this.#bytes.subarray(start, start + length);
  }

  #begin(kind: string, count: number): Reply | undefined {
    if (count < 0) return null;
    if (count > VALUES_MAX || this.#open.length === DEPTH_MAX) throw new SyntaxError('a list that is too large');
    const open = { kind, size: kind === '%' ? 2 * count : count, items: [] };
    if (count === 0) return ended(open);
    this.#open.push(open);
    return undefined;
  }

  /** Puts a value where it belongs; the reply, if that completes one. */
  #place(value: Reply): Reply | undefined {
    for (;;) {
      const open = this.#open[this.#open.length - 1];
      if (!open) return value;
      open.items.push(value);
      if (open.items.length < open.size) return undefined;
      this.#open.pop();
      value = ended(open);
    }
  }
}

function ended(open: Open): Reply {
  if (open.kind === '>') return new Push(open.items);
  if (open.kind === '*') return open.items;
  const map: ReplyMap = new Map();
  for (let i = 0; i < open.items.length; i += 2) map.set(text(open.items[i]), open.items[i + 1]!);
  return map;
}

function number(line: string): number {
  const value = Number(line);
  if (line === '' || !Number.isSafeInteger(value)) throw new SyntaxError(`${JSON.stringify(line)} is not a number`);
  return value;
}

/** A reply as text; "" for what is none. */
export function text(reply: Reply | undefined): string {
  return Buffer.isBuffer(reply) ? reply.toString() : '';
}

/** A reply as a number; `otherwise` for what is none. */
export function integer(reply: Reply | undefined, otherwise = 0): number {
  return typeof reply === 'number' ? reply : otherwise;
}
