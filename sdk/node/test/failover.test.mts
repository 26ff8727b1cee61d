import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { ServerError, TimedOut, Unreachable } from '@belay/client';
import { server, until } from './server.mjs';

/** What a node says to each command, by its name; it says the rest to everything else. */
type Answers = { [command: string]: string };

const COMMAND = /^\*\d+\r\n\$\d+\r\n(.*)\r\n(?:\$\d+\r\n(.*)\r\n)?/gm; // its first two words
const GRANTED = '*4\r\n+granted\r\n:1\r\n:-1\r\n+\r\n';
const FAILED = '*3\r\n+queued\r\n:7\r\n:1\r\n>6\r\n+failed\r\n+\r\n:0\r\n:7\r\n:0\r\n+not now\r\n';
const GREETING: Answers = { HELLO: '%0\r\n', OPEN: '+id\r\n', ATTACH: '+OK\r\n' };

interface Node {
  address: string;
  /** Commands, in their order. */
  heard: string[];
  /** How its connections ended, in their order: "end" or an error. */
  ended: string[];
}

/** A node that is not as it should be. */
async function node(t: TestContext, answers: Answers, rest: string): Promise<Node> {
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
  t.after(() => {
    listener.close();
    for (const socket of sockets) socket.destroy();
  });
  return { address: `127.0.0.1:${(listener.address() as AddressInfo).port}`, heard, ended };
}

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
