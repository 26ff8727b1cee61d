import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@belay/client';
import { GRANTED, GREETING, node } from './node.mjs';
import { until } from './server.mjs';

test('a lease counts from when the request was sent first', async (t) => {
  const silent = await node(t, { ...GREETING, ACQUIRE: '' }, '');
  const other = await node(t, { ...GREETING, ACQUIRE: GRANTED, RENEW: '-LIMIT not now\r\n' }, ':1\r\n');
  const client = new Client({ addresses: [silent.address, other.address] });
  t.after(() => client.close());
  const asked = performance.now();
  const lock = client.lock('x', { ttl: 6000, wait: 0, early: 3000 });
  await until(() => silent.heard.includes('ACQUIRE'));
  await sleep(1200); // less than a third of the lease
  silent.cut();
  const { signal } = await lock;
  await once(signal, 'abort');
  const after = performance.now() - asked;
  assert.ok(after > 2900 && after < 4150, `lost after ${after} ms: from the second sending on it would be 4200`);
  assert.ok(other.heard.filter((command) => command === 'RENEW').length > 1, 'it was tried');
  await until(() => other.heard.includes('RELEASE'));
});

test('whoever waits asks whether the node is there', async (t) => {
  const answers = { ...GREETING, WATCH: '+OK\r\n', ACQUIRE: '*3\r\n+queued\r\n:7\r\n:1\r\n' };
  const { address, heard } = await node(t, answers, '+PONG\r\n');
  const client = new Client({ addresses: address });
  t.after(() => client.close());
  const watch = await client.watch();
  const pings = () => heard.filter((command) => command === 'PING').length;
  const before = pings();
  const waits = [client.lock('x'), watch.next()].map((wait) => wait.catch(() => {}));
  await until(() => pings() >= before + 2);
  await client.close();
  await Promise.all(waits);
});
