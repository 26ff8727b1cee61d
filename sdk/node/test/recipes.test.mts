import assert from 'node:assert/strict';
import { once as event } from 'node:events';
import { test } from 'node:test';
import { whileLeading } from '../examples/leader.mjs';
import { paced, throttled } from '../examples/limit.mjs';
import { migrate } from '../examples/migrate.mjs';
import { once } from '../examples/once.mjs';
import { server, until } from './server.mjs';

test('a job runs once for each tick', async (t) => {
  const { client } = await server(t);
  const replicas = Array.from({ length: 5 }, () => client());
  const ran: string[] = [];
  for (const tick of [new Date(60_000), new Date(120_000)]) {
    const job = async () => void ran.push(tick.toISOString());
    const here = await Promise.all(replicas.map((each) => once(each, 'report', tick, job)));
    assert.equal(here.filter(Boolean).length, 1);
    assert.equal(await once(replicas[0]!, 'report', tick, job), false, 'a clock that is behind');
  }
  assert.deepEqual(ran, ['1970-01-01T00:01:00.000Z', '1970-01-01T00:02:00.000Z']);
  await assert.rejects(
    once(replicas[0]!, 'report', new Date(180_000), async () => Promise.reject(new Error('its own'))),
    /its own/,
  );
});

test('a task runs in the leader only, and moves', async (t) => {
  const { client } = await server(t);
  const stops = [new AbortController(), new AbortController()];
  const running: number[] = [];
  const lead = (i: number) => {
    const task = async (signal: AbortSignal) => {
      running.push(i);
      assert.equal(running.length, 1);
      if (!signal.aborted) await event(signal, 'abort');
      running.pop();
    };
    return whileLeading(client(), 'janitor', task, stops[i]!.signal);
  };
  const tasks = [lead(0), lead(1)];
  await until(() => running.length === 1);
  const [first] = running as [number];
  stops[first]!.abort();
  await tasks[first];
  await until(() => running.length === 1);
  assert.equal(running[0], 1 - first);
  const observer = client();
  await observer.break('janitor');
  await until(() => running.length === 1);
  stops[1 - first]!.abort();
  await Promise.all(tasks);
  assert.equal(running.length, 0);
});

test('limits hold for all processes together', async (t) => {
  const { client } = await server(t);
  const clients = [client(), client()];
  let now = 0;
  let most = 0;
  const work = async () => {
    most = Math.max(most, ++now);
    await new Promise(setImmediate);
    now--;
  };
  await Promise.all(Array.from({ length: 40 }, (_, i) => throttled(clients[i % 2]!, 'api', 3, work)));
  assert.equal(most, 3);

  const begun: number[] = [];
  const call = async () => void begun.push(performance.now());
  await Promise.all(Array.from({ length: 6 }, (_, i) => paced(clients[i % 2]!, 'mail', { calls: 2, per: 100 }, call)));
  const gaps = begun.slice(2).map((at, i) => at - begun[i]!);
  assert.ok(gaps.every((gap) => gap >= 99), `${gaps}`);
});

test('a migration runs in one replica, and the others wait for it', async (t) => {
  const { client } = await server(t);
  let applied = 0;
  let fails = true;
  const apply = async () => {
    if (fails) {
      fails = false;
      throw new Error('no disk');
    }
    await new Promise(setImmediate);
    applied++;
  };
  const start = async () => {
    const here = await migrate(client(), 'shop', '20260101', apply);
    assert.equal(applied, 1);
    return here;
  };
  const results = await Promise.allSettled(Array.from({ length: 4 }, start));
  assert.equal(results.filter(({ status }) => status === 'rejected').length, 1);
  assert.equal(results.filter((result) => result.status === 'fulfilled' && result.value).length, 1);
});
