/** What the tests share: a real server on a free port, and clients that are closed at the end. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Client, type ClientOptions } from '@belay/client';

/** The folder of the package. */
export const PACKAGE = fileURLToPath(new URL('../..', import.meta.url));
const BELAY = process.env['BELAY'] ?? resolve(PACKAGE, '../../build/belay');

export interface Stage {
  address: string;
  /** A client of that server. */
  client(options?: ClientOptions): Client;
  /** The number of that name in INFO. */
  info(name: string): Promise<number>;
}

/** A server for one test. It must end well. */
export async function server(t: TestContext): Promise<Stage> {
  const child = spawn(BELAY, ['serve', '--memory', '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  child.stderr.on('data', (text) => (log += text));
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const address = line.replace('listening ', '');
  const clients: Client[] = [];
  t.after(async () => {
    await Promise.all(clients.map((client) => client.close()));
    child.kill('SIGTERM');
    const [code] = await once(child, 'exit');
    assert.equal(code, 0, log);
  });
  const client = (options: ClientOptions = {}) => {
    clients.push(new Client({ addresses: address, ...options }));
    return clients[clients.length - 1]!;
  };
  let asking: Client | undefined;
  const info = async (name: string) => {
    asking ??= client();
    const text = String(await asking.call('INFO'));
    return Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(text)?.[1]);
  };
  return { address, client, info };
}

/** Looks every 5 ms; throws when that is of no use. */
export async function until(is: () => boolean | Promise<boolean>): Promise<void> {
  const end = performance.now() + 30_000;
  while (!(await is())) {
    assert.ok(performance.now() < end, 'it has not happened');
    await sleep(5);
  }
}

/** How many wait for that lock. */
export async function waiting(client: Client, name: string): Promise<number> {
  const { waiters, waitersTotal } = await client.show(name);
  return waitersTotal ?? waiters.length;
}
