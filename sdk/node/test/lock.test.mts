import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import os from 'node:os';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import * as belay from '@belay/client';
import { Closed, Lost, NotAcquired, Refused, TimedOut, Unreachable } from '@belay/client';
import { PACKAGE, server, until, waiting } from './server.mjs';

test('a lock: the next one gets a larger fence, and the body', async (t) => {
  const { client } = await server(t);
  const [a, b] = [client({ owner: 'a' }), client()];
  const first = await a.lock('x', { body: 'of a' });
  assert.equal(first.owner, 'a#1');
  assert.ok(first.held() && (await first.check()));
  await assert.rejects(b.lock('x', { wait: 0 }), (error: Refused) => {
    assert.ok(error instanceof Refused && error instanceof NotAcquired);
    assert.deepEqual(error.holders, [{ owner: 'a#1', mode: 'exclusive', fence: first.fence, expiresIn: Infinity }]);
    return true;
  });
  await assert.rejects(b.lock('x', { wait: 20 }), TimedOut);
  const next = b.lock('x');
  await until(async () => (await waiting(a, 'x')) === 1);
  assert.equal(await first.release(), true);
  assert.equal(await first.release(), false);
  const second = await next;
  assert.ok(second.fence > first.fence);
  assert.equal(second.body.toString(), 'of a');
  assert.ok(!first.held() && !first.signal.aborted, 'released is not lost');
});

test('await using', async (t) => {
  const { client } = await server(t);
  const a = client();
  {
    await using held = await a.lock('x', { ttl: 30_000, wait: 60_000 });
    assert.ok(held.held());
  }
  assert.equal((await a.show('x')).state, 'unlocked');
  let closed: belay.Client;
  {
    await using b = client();
    closed = b;
    await b.lock('x');
  }
  assert.equal((await a.show('x')).state, 'unlocked');
  await assert.rejects(closed.lock('x'), Closed);
});

test('withLock gives the lock back, and says when it was lost', async (t) => {
  const { client } = await server(t);
  const [a, b] = [client(), client()];
  assert.equal(await a.withLock('x', (held) => held.name), 'x');
  assert.deepEqual(await a.withLock(['z', 'y'], {}, async (held) => [...held.fences.keys()]), ['y', 'z']);
  await assert.rejects(
    a.withLock('x', async () => Promise.reject(new Error('its own'))),
    /its own/,
  );
  const stopped = a.withLock('x', async ({ signal }) => {
    void b.break('x', 'maintenance');
    await once(signal, 'abort');
  });
  await assert.rejects(stopped, (error: Lost) => {
    assert.ok(error instanceof Lost);
    assert.deepEqual([error.lockName, error.reason, error.text], ['x', 'break', 'maintenance']);
    return true;
  });
  assert.equal((await b.show('x')).state, 'unlocked');
});

test('an aborted wait leaves the line, and rejects with the reason', async (t) => {
  const { client } = await server(t);
  const [a, b] = [client(), client()];
  const held = await a.lock('x');
  const controller = new AbortController();
  const wait = b.lock('x', { signal: controller.signal });
  await until(async () => (await waiting(a, 'x')) === 1);
  controller.abort(new Error('enough'));
  await assert.rejects(wait, /enough/);
  await until(async () => (await waiting(a, 'x')) === 0);
  await held.release();
  assert.equal((await a.show('x')).state, 'unlocked');
  await assert.rejects(b.lock('x', { signal: controller.signal }), /enough/);
  await assert.rejects(held.convert({ shared: true, signal: controller.signal }), TypeError);
});

test('one signal may end many waits', async (t) => {
  const { client } = await server(t);
  const warned = t.mock.method(process, 'emitWarning', () => {});
  const a = client();
  const held = await a.lock('x', { shared: true });
  const other = await a.lock('x', { shared: true });
  const stop = new AbortController();
  const { signal } = stop;
  const waits = [
    ...Array.from({ length: 30 }, () => a.lock('x', { signal })),
    held.convert({ shared: false, signal }),
    a.transaction([belay.txn.assert(belay.txn.lock('x'))], { wait: 60_000, signal }),
    (await a.watch('y', { signal })).next(),
  ];
  await until(async () => (await waiting(a, 'x')) === 31);
  stop.abort(new Error('enough'));
  for (const wait of waits) await assert.rejects(wait, /enough/);
  assert.equal(warned.mock.callCount(), 0);
  assert.ok((await held.check()) && (await other.check()), 'the conversion has not happened');
});

test('ten thousand waits on one connection', async (t) => {
  const { client, info } = await server(t);
  const [a, b] = [client(), client()];
  const held = await a.lock('x');
  const before = await info('connected_clients');
  const fences: number[] = [];
  const waits = Array.from({ length: 10_000 }, async () => {
    const mine = await b.lock('x');
    fences.push(mine.fence);
    await mine.release();
  });
  await until(async () => (await waiting(a, 'x')) === 10_000);
  assert.equal((await info('connected_clients')) - before, 1, "b's");
  await held.release();
  await Promise.all(waits);
  assert.equal(fences.length, 10_000);
  assert.deepEqual(fences, [...fences].sort((x, y) => x - y), 'one after the other, in their order');
});

test('right directly after the program was busy for longer than the lease', async (t) => {
  const { client } = await server(t);
  const held = await client().lock('x', { ttl: 300 });
  const { signal } = held;
  assert.ok(held.held() && !signal.aborted);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 350); // the event loop does not turn
  assert.equal(held.held(), false);
  assert.equal(signal.aborted, false, 'nobody could tell it yet');
  assert.equal(held.signal.aborted, true, 'but whoever asks the Held is told');
  assert.equal((signal.reason as Lost).reason, 'silence');
});

test('a machine that has slept has lost its locks', { skip: process.platform !== 'linux' }, async (t) => {
  const { client } = await server(t);
  const a = client();
  const held = await a.lock('x');
  const { uptime } = os;
  t.mock.method(os, 'uptime', () => uptime() + 3600);
  assert.equal(held.held(), false);
  assert.equal((held.signal.reason as Lost).reason, 'silence');
  assert.ok((await a.lock('y')).held(), 'in a new session');
});

test('calls end: when nobody answers, when the client is closed', async (t) => {
  const { client, info } = await server(t);
  const [a, b] = [client(), client()];
  const lost = client({ addresses: ['127.0.0.1:1', 'unix:///nowhere/belay.sock'], timeout: 50 });
  await assert.rejects(lost.lock('x'), (error: Unreachable) => {
    assert.ok(error instanceof Unreachable);
    assert.match(error.message, /cannot reach (127.0.0.1:1|unix:\/\/\/nowhere\/belay.sock): connect E/);
    return true;
  });
  const held = await a.lock('x');
  const watch = await b.watch();
  const waits = [
    b.lock('x'),
    b.lock(['x', 'y']),
    b.election('x').campaign(),
    b.transaction([belay.txn.assert(belay.txn.lock('x'))], { wait: 60_000 }),
  ];
  await until(async () => (await waiting(a, 'x')) === 3 && (await info('waiting_transactions')) === 1);
  const closed = Promise.all(waits.map((wait) => assert.rejects(wait, Closed)));
  await b.close();
  await closed;
  await b.close();
  assert.deepEqual(await watch.next(), { done: true, value: undefined });
  await assert.rejects(b.show('x'), Closed);
  assert.equal(await waiting(a, 'x'), 0);
  assert.ok(held.held());
});

test('wrong arguments are a TypeError, and nothing is sent', async () => {
  const client = new belay.Client({ addresses: '127.0.0.1:1' });
  const wrong = [
    client.lock(''),
    client.lock([]),
    client.lock('x', { ttl: 0 }),
    client.lock('x', { ttl: Infinity }),
    client.lock('x', { wait: -1 }),
    client.lock('x', { wait: NaN }),
    client.lock('x', { permits: 2 }),
    client.lock('x', { shared: true, of: 2 }),
  ];
  for (const lock of wrong) await assert.rejects(lock, TypeError);
  for (const options of [{ owner: '' }, { owner: 'ö'.repeat(51) }, { timeout: 0 }, { addresses: [] }])
    assert.throws(() => new belay.Client(options), TypeError);
  assert.equal(client.address, undefined);
});

test('an owner that is given is one party', async (t) => {
  const { client } = await server(t);
  const [a, b] = [client(), client()];
  await a.lock('x', { owner: 'A' });
  await assert.rejects(a.lock('x', { owner: 'A' }), TypeError);
  await b.lock('y', { owner: 'B' });
  const wait = b.lock('x', { owner: 'B' });
  await until(async () => (await waiting(a, 'x')) === 1);
  await assert.rejects(a.lock('y', { owner: 'A' }), (error: belay.Deadlock) => {
    assert.deepEqual(error.cycle, [{ owner: 'A', waitsFor: 'y' }, { owner: 'B', waitsFor: 'x' }]);
    return true;
  });
  await a.close();
  assert.ok((await wait).held());
});

test('each worker thread has a client of its own, and they exclude each other', async (t) => {
  const { address } = await server(t);
  const program = `
    const { parentPort, workerData } = require('node:worker_threads');
    const { Client } = require('@belay/client');
    const { address, counter } = workerData;
    const client = new Client({ addresses: address });
    const round = () => client.withLock('counter', async () => {
      const value = counter[0];
      await client.show('counter');
      counter[0] = value + 1;
    });
    Promise.all(Array.from({ length: 50 }, round)).then(() => client.close());`;
  const counter = new Int32Array(new SharedArrayBuffer(4));
  const workers = [1, 2].map(() => new Worker(program, { eval: true, workerData: { address, counter } }));
  const codes = await Promise.all(workers.map(async (worker) => (await once(worker, 'exit'))[0] as number));
  assert.deepEqual(codes, [0, 0]);
  assert.equal(counter[0], 100);
});

test('require and import give the same classes', () => {
  const required = createRequire(import.meta.url)('@belay/client') as typeof belay;
  assert.equal(required.Client, belay.Client);
  assert.equal(required.Lost, belay.Lost);
});

test('it writes nothing by itself, and lets the program end', async (t) => {
  const { address } = await server(t);
  const program = `
    const { Client } = require('@belay/client');
    const client = new Client({ addresses: process.argv[1] });
    client.withLock('x', () => {}).then(() => client.close());`;
  const run = async (env: NodeJS.ProcessEnv) => {
    const child = spawn(process.execPath, ['-e', program, address], { cwd: PACKAGE, env });
    let out = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (out += text));
    const [code] = await once(child, 'close');
    assert.equal(code, 0);
    return out;
  };
  assert.equal(await run({ ...process.env, NODE_DEBUG: '' }), '');
  assert.match(await run({ ...process.env, NODE_DEBUG: 'belay' }), /^BELAY \d+: connected to 127\.0\.0\.1:\d+$/m);
});
