/** Nodes that say what a test wants. */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import type { TestContext } from 'node:test';

/** What a node says to each command, by its name; it says the rest to everything else. */
export type Answers = { [command: string]: string };

const COMMAND = /^\*\d+\r\n\$\d+\r\n(.*)\r\n(?:\$\d+\r\n(.*)\r\n)?/gm; // its first two words
export const GRANTED = '*4\r\n+granted\r\n:1\r\n:-1\r\n+\r\n';
export const FAILED = '*3\r\n+queued\r\n:7\r\n:1\r\n>6\r\n+failed\r\n+\r\n:0\r\n:7\r\n:0\r\n+not now\r\n';
export const GREETING: Answers = { HELLO: '%0\r\n', OPEN: '+id\r\n', ATTACH: '+OK\r\n' };

export interface Node {
  address: string;
  /** Commands, in their order. */
  heard: string[];
  /** How its connections ended, in their order: "end" or an error. */
  ended: string[];
  /** Ends all connections. */
  cut(): void;
}

/** A node that is not as it should be. */
export async function node(t: TestContext, answers: Answers, rest: string): Promise<Node> {
  const heard: string[] = [];
  const ended: string[] = [];
  const sockets = new Set<Socket>();
  const listener = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', (error: NodeJS.ErrnoException) => ended.push(error.code!));
    socket.on('end', () => ended.push('end'));
    socket.on('data', (bytes) => {
      for (const [, first, second] of bytes.toString().matchAll(COMMAND)) {
        const command = first === 'SESSION' ? second! : first!;
        heard.push(command);
        socket.write(answers[command] ?? rest);
      }
    });
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const cut = () => sockets.forEach((socket) => socket.destroy());
  t.after(() => {
    listener.close();
    cut();
  });
  return { address: `127.0.0.1:${(listener.address() as AddressInfo).port}`, heard, ended, cut };
}
