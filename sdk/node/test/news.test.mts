import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TimedOut, txn, Unreachable } from '@belay/client';
import { server, until } from './server.mjs';

test('a watch brings every event, in order, however slowly they are taken', async (t) => {
  const { client } = await server(t);
  const [a, b] = [client(), client()];
  const watch = await b.watch('w/');
  const fences: number[] = [];
  for (let i = 0; i < 20; i++) {
    const names = Array.from({ length: 100 }, (_, n) => `w/${n}`);
    const held = await Promise.all(names.map((name) => a.lock(name)));
    fences.push(...held.map(({ fence }) => fence));
    await Promise.all(held.map((each) => each.release()));
    await a.lock('other').then((other) => other.release());
  }
  const seen: number[] = [];
  for await (const { event, name, fence, owner } of watch) {
    assert.match(name, /^w\//);
    if (event !== 'granted') continue;
    assert.match(owner!, /#\d+$/);
    seen.push(fence!);
    if (seen.length === fences.length) break;
  }
  assert.deepEqual(seen, fences);
  assert.deepEqual(await watch.next(), { done: true, value: undefined });
});

test('a watch ends with its signal, or when no server is there', async (t) => {
  const { client } = await server(t);
  const controller = new AbortController();
  const watch = await client().watch('', { signal: controller.signal });
  const next = watch.next();
  controller.abort(new Error('enough'));
  await assert.rejects(next, /enough/);
  await assert.rejects(client().watch('', { signal: controller.signal }), /enough/);
  await assert.rejects(client({ addresses: '127.0.0.1:1', timeout: 50 }).watch(), Unreachable);
});

test('an election: one leads, all see who', async (t) => {
  const { client } = await server(t);
  const [a, b] = [client({ owner: 'a' }), client({ owner: 'b' })];
  const leaders = await b.election('e').observe();
  assert.deepEqual(await leaders.next(), { done: false, value: undefined });
  const first = await a.election('e').campaign({ body: 'a.example' });
  const seen = await leaders.next();
  assert.deepEqual(seen.value, { owner: 'a#1', fence: first.fence, body: Buffer.from('a.example') });
  assert.deepEqual(await a.election('e').leader(), seen.value);
  await assert.rejects(b.election('e').campaign({ wait: 20 }), TimedOut);
  await leaders.close();
});

test('a transaction: all of it or nothing', async (t) => {
  const { client, info } = await server(t);
  const [a, b] = [client(), client()];
  const enter = [txn.assert(txn.not(txn.exists('month-end', 'f'))), txn.assert(txn.set('entry', 'f', { by: 'a' }))];
  assert.deepEqual(await a.transaction(enter), { status: 'ok', data: {} });
  const close = [
    txn.select('who', 'entry', 'f'),
    txn.assert(txn.not(txn.exists('entry', 'f'))),
    txn.assert(txn.lock('ledger', { into: 'fence' })),
  ];
  const { status, cause, failed, data } = await b.transaction(close);
  assert.deepEqual([status, cause, failed], ['error', 'statement', '1:/AssertOp/']);
  assert.deepEqual((data['who'] as { value: unknown }).value, { by: 'a' });
  const waiting = b.transaction(close, { wait: 60_000, description: 'month-end' });
  await until(async () => (await info('waiting_transactions')) === 1);
  await a.transaction([txn.assert(txn.delete('entry', 'f'))]);
  const done = await waiting;
  assert.equal(done.status, 'ok');
  assert.equal((await a.show('ledger')).holders[0]!.fence, done.data['fence']);

  const never = [txn.assert(txn.exists('t', 'k', false))];
  assert.equal((await client().transaction(never, { wait: 20 })).status, 'timeout', 'its first session');
  const controller = new AbortController();
  const aborted = b.transaction(never, { wait: 60_000, signal: controller.signal });
  await until(async () => (await info('waiting_transactions')) === 1);
  controller.abort(new Error('enough'));
  await assert.rejects(aborted, /enough/);
  await until(async () => (await info('waiting_transactions')) === 0);
  assert.equal((await b.transaction(never, { minTrust: 1, minUptime: 3_600_000 })).cause, 'requirements');
});
