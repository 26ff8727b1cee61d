import { ErrorReply, Push, text, type Reply } from './resp.js';

/** A reply as JavaScript has it: text is a string, a map is an object. */
export function plain(reply: Reply, nameOf: (key: string) => string = (key) => key): unknown {
  if (Buffer.isBuffer(reply)) return text(reply);
  if (Array.isArray(reply)) return reply.map((item) => plain(item, nameOf));
  if (reply instanceof Map) {
    const members = [...reply].map(([key, value]) => [nameOf(key), memberOf(key, value, nameOf)] as const);
    return Object.fromEntries(members);
  }
  return reply instanceof ErrorReply || reply instanceof Push ? String(reply) : reply;
}

function memberOf(key: string, value: Reply, nameOf: (key: string) => string): unknown {
  return value === null && nameOf(key) === 'expiresIn' ? Infinity : plain(value, nameOf);
}

/** "expires_in_ms" is expiresIn here: all durations are ms. */
export function camel(key: string): string {
  return key.replace(/_ms$/, '').replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
