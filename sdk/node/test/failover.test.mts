import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServerError, TimedOut, Unreachable } from '@belay/client';
import { FAILED, GRANTED, GREETING, node, type Answers } from './node.mjs';
import { server, until } from './server.mjs';

const NODES: [what: string, answers: Answers, rest: string][] = [
  ['speaks another language', {}, 'HTTP/1.1 400 Bad Request\r\n\r\n'],
  ['says nothing', {}, ''],
  ['says nothing after the greeting', GREETING, ''],
  ['cannot serve', {}, '-UNAVAILABLE not now\r\n'],
  ['cannot serve after the greeting', GREETING, '-UNAVAILABLE not now\r\n'],
  ['says that a place in the line has failed', GREETING, FAILED],
  ['never comes to an end', GREETING, '*2\r\n'.repeat(8)],
];

for (const [what, answers, rest] of NODES)
  test(`a node that ${what} is left for the next one`, async (t) => {
    const { address, client } = await server(t);
    const bad = await node(t, answers, rest);
    const a = client({ addresses: [bad.address, address], sessionTtl: 1000 });
    const held = await a.lock('x', { wait: 30_000 });
    assert.ok(await held.check());
    assert.equal(a.address, address);
    assert.equal(bad.heard[0], 'HELLO');
    await until(() => bad.ended.length > 0);
    assert.deepEqual(bad.ended, ['ECONNRESET'], 'a close would end the session');
  });

test('a client that is closed ends its session, and then the connection', async (t) => {
  const { address, heard, ended } = await node(t, { ...GREETING, ACQUIRE: GRANTED }, ':1\r\n');
  const { client } = await server(t);
  const a = client({ addresses: address });
  const held = await a.lock('x');
  await a.close();
  assert.ok(!held.held() && !held.signal.aborted);
  assert.deepEqual(heard, ['HELLO', 'OPEN', 'ATTACH', 'ACQUIRE', 'CLOSE']);
  assert.deepEqual(ended, ['end']);
});

test('a node that answers what was not asked is left for the next one', async (t) => {
  const { address, client } = await server(t);
  const bad = await node(t, GREETING, '*1\r\n+timeout\r\n'.repeat(2));
  const a = client({ addresses: [bad.address, address] });
  await assert.rejects(a.lock('x', { wait: 30_000 }), TimedOut);
  assert.ok((await a.lock('x')).held());
  assert.equal(a.address, address);
});

test('an answer that makes no sense grants nothing', async (t) => {
  const bad = await node(t, GREETING, '+OK\r\n');
  const { client } = await server(t);
  await assert.rejects(client({ addresses: bad.address }).lock('x'), Unreachable);
});

test('a node that does not let us in says why, and calls fail with that', async (t) => {
  const { address, client } = await server(t);
  const bad = await node(t, { ...GREETING, AUTH: '-DENIED who are you?\r\n' }, '+OK\r\n');
  const a = client({ addresses: [bad.address, address], token: 'secret' });
  const denied = (error: ServerError) => error instanceof ServerError && error.code === 'DENIED';
  await assert.rejects(a.lock('x'), denied);
  assert.ok(bad.heard.includes('AUTH') && !bad.heard.includes('ACQUIRE'));
});

test('a session that cannot be opened fails the lock, and not what needs none', async (t) => {
  const bad = await node(t, { ...GREETING, OPEN: '-LIMIT no more sessions\r\n', CHECK: ':1\r\n' }, '+OK\r\n');
  const { client } = await server(t);
  const a = client({ addresses: bad.address });
  assert.equal(await a.call('PING'), 'OK');
  await assert.rejects(a.lock('x'), (error: ServerError) => error.code === 'LIMIT');
  assert.equal(await a.call('CHECK', 'x', 1), 1);
  assert.equal(a.session, undefined);
});
