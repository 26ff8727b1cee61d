import { Deadlock, Refused, ServerError, TimedOut, Unreachable, type Holder } from './errors.js';
import { ErrorReply, integer, text, type Reply } from './resp.js';

export interface Grant {
  fence: number;
  body: Buffer;
}

/** The answer to ACQUIRE and CONVERT; throws what is no grant. */
export function grantOf(name: string, reply: Reply): Grant {
  if (reply instanceof ErrorReply) throw new ServerError(reply.code, reply.message);
  const [word, second, ...more] = Array.isArray(reply) ? reply : [];
  switch (text(word)) {
    case 'granted':
      // a copy, because the original is a part of everything that came with it
      return { fence: integer(second), body: Buffer.from((more[1] as Buffer | null) ?? []) };
    case 'timeout':
      throw new TimedOut(name);
    case 'deadlock':
      throw new Deadlock(name, [second!, ...more].map(stepOf));
    case 'refused':
      throw new Refused(name, text(second), more.map(holderOf));
    default:
      throw new Unreachable(`${name}: the answer is not one of a Belay server`);
  }
}

function stepOf(row: Reply): { owner: string; waitsFor: string } {
  const [owner, waitsFor] = row as Reply[];
  return { owner: text(owner), waitsFor: text(waitsFor) };
}

function holderOf(row: Reply): Holder {
  const [owner, mode, fence, expires] = row as Reply[];
  return {
    owner: text(owner),
    mode: text(mode) as Holder['mode'],
    fence: integer(fence),
    expiresIn: integer(expires, -1) < 0 ? Infinity : integer(expires),
  };
}
