import { debuglog } from 'node:util';

/** As `console` is, and pino, winston and the like. */
export interface Logger {
  debug(text: string): void;
  info(text: string): void;
  warn(text: string): void;
  error(text: string): void;
}

export type Log = Logger;

/** Node's own way: it is seen with NODE_DEBUG=belay. */
export function nodeLog(): Log {
  const write = debuglog('belay');
  const line = (text: string) => write('%s', text);
  return { debug: line, info: line, warn: line, error: line };
}
