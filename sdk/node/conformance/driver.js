// driver.js - does what the conformance suite says with this library: sdk/conformance/README.md.
'use strict';
const fs = require('node:fs');
const readline = require('node:readline');
const belay = require('..');
const { txn } = belay;

const clients = new Map();
const helds = new Map();
const streams = new Map();
const running = new Map(); // AbortControllers of requests, by their ids
const leaving = new Map(); // what ends a block, by its held

const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const forever = (ms) => (ms === -1 ? Infinity : ms);

function logger() {
  const line = (level) => (text) => say({ event: 'log', level, text });
  return { debug: line('debug'), info: line('info'), warn: line('warning'), error: line('error') };
}

function lockOptions(request, signal) {
  const { id, held, ttl, wait, shared, permits, of, body, grace, delay, owner, early } = request;
  const onPlace = (position) => say({ event: 'place', id, position });
  const onLost = ({ lockName: name, fence, reason, by, text }) =>
    say({ event: 'lost', held, name, fence, reason, by, text });
  const options = { ttl, wait: forever(wait), shared, permits, of, body, grace, delay, owner, early };
  return { ...options, onPlace, onLost, signal };
}

const leaderOf = (leader) => (leader ? { ...leader, body: leader.body.toString() } : null);

/** Tells what comes until it is unwatched. */
async function tell(name, stream, event) {
  streams.set(name, stream);
  for await (const value of stream) say({ ...event(value), watch: name });
}

async function count({ client, name, file, log, tasks, rounds, ttl }) {
  const counter = fs.openSync(file, 'r+');
  const lines = fs.openSync(log, 'a');
  let done = 0;
  const round = async () => {
    const held = await clients.get(client).lock(name, { ttl });
    try {
      const digits = Buffer.alloc(20);
      fs.readSync(counter, digits, 0, 20, 0);
      const value = `${BigInt(digits.toString()) + 1n}`;
      if (!held.held()) return false;
      fs.writeSync(counter, value.padStart(20, '0'), 0);
      fs.writeSync(lines, `${value} ${held.fence} node\n`);
      done++;
      return true;
    } finally {
      await held.release();
    }
  };
  const task = async () => {
    for (let i = 0; i < rounds; i++) while (!(await round()));
  };
  await Promise.all(Array.from({ length: tasks }, task));
  return { done };
}

function builder() {
  const nested = txn.and(txn.true(), txn.or(txn.false(), txn.xor(txn.true(), txn.false())));
  return [
    txn.assert(txn.not(txn.exists('t', 'a'))),
    txn.assert(txn.exists('t', 'b', { n: 1 }, { withThisSession: true })),
    txn.block(
      txn.anyway(txn.set('t', 'c', 'v')),
      txn.anyway(
        txn.set('t', 'd', [1, null, true], {
          ttl: 1500,
          description: 'why',
          allowDuplicates: true,
          respectExclusive: true,
        }),
      ),
    ),
    txn.if(nested, txn.selectConstant('branch', 'then'), txn.abort()),
    txn.if(txn.delete('t', 'c'), txn.abort()),
    txn.anyway(txn.delete('t', 'd', 7)),
    txn.select('one', 't', 'a'),
    txn.select('all', 't', 'b', { many: true, withThisSession: true, abortIfNotFound: true }),
    txn.selectOperator('was', txn.unlock('l', { owner: 'o' })),
    txn.assert(txn.lock('l', { into: 'fence' })),
    txn.assert(txn.lock('m', { owner: 'o', shared: true, ttl: 1000, grace: 10, delay: 20 })),
    txn.assert(txn.lock('s', { of: 5, permits: 2 })),
    txn.assert(txn.unlock('m', { fence: 9 })),
  ];
}

const ops = {
  hello: () => ({ language: 'node' }),
  open({ client, addresses, namespace, token, tls, owner, session_ttl: sessionTtl, timeout }) {
    const options = { addresses, namespace, token, tls, owner, sessionTtl, timeout, logger: logger() };
    clients.set(client, new belay.Client(options));
  },
  close: ({ client }) => clients.get(client).close(),
  where({ client }) {
    const { address = null, session = null } = clients.get(client);
    return { address, session };
  },
  async lock(request, signal) {
    const held = await clients.get(request.client).lock(request.names ?? request.name, lockOptions(request, signal));
    helds.set(request.held, held);
    const { fence, owner, body } = held;
    return { fence, owner, body: body.toString(), ...(request.names && { fences: Object.fromEntries(held.fences) }) };
  },
  cancel: ({ target }) => running.get(target)?.abort(),
  async block(request, signal) {
    const names = request.names ?? request.name;
    await clients.get(request.client).withLock(names, lockOptions(request, signal), async (held) => {
      helds.set(request.held, held);
      say({ event: 'entered', id: request.id, fence: held.fence });
      await new Promise((resolve) => {
        leaving.set(request.held, resolve);
        held.signal.addEventListener('abort', resolve);
      });
    });
  },
  leave: ({ held }) => leaving.get(held)(),
  held: ({ held }) => ({ held: helds.get(held).held() }),
  check: async ({ held }) => ({ current: await helds.get(held).check() }),
  set_body: ({ held, body }) => helds.get(held).setBody(body),
  async convert({ held, shared, wait }, signal) {
    await helds.get(held).convert({ shared, wait: forever(wait), signal });
    return { fence: helds.get(held).fence };
  },
  release: async ({ held }) => ({ held: await helds.get(held).release() }),
  async show({ client, name }) {
    const { state, body, holders, waiters } = await clients.get(client).show(name);
    return { state, body: body.toString(), holders, waiters };
  },
  break: async ({ client, name, reason }) => ({ count: await clients.get(client).break(name, reason) }),
  call: async ({ client, words }) => ({ value: await clients.get(client).call(...words) }),
  async watch({ client, watch, prefix }) {
    const stream = await clients.get(client).watch(prefix);
    tell(watch, stream, ({ event: word, name, fence }) => ({ event: 'news', word, name, fence }));
  },
  async campaign(request, signal) {
    const { body, wait, ttl, onLost } = lockOptions(request, signal);
    const election = clients.get(request.client).election(request.name);
    const held = await election.campaign({ body, wait, ttl, onLost, signal });
    helds.set(request.held, held);
    return { fence: held.fence };
  },
  leader: async ({ client, name }) => ({ leader: leaderOf(await clients.get(client).election(name).leader()) }),
  async observe({ client, watch, name }) {
    const stream = await clients.get(client).election(name).observe();
    tell(watch, stream, (leader) => ({ event: 'leader', leader: leaderOf(leader) }));
  },
  unwatch: ({ watch }) => streams.get(watch).close(),
  async transaction({ client, statements, wait }, signal) {
    const { cause = null, failed = null, ...rest } = await clients.get(client).transaction(statements, { wait, signal });
    return { ...rest, cause, failed };
  },
  builder: () => ({ statements: builder() }),
  count,
};

function errorOf(error, signal) {
  if (signal.aborted && error === signal.reason) return { type: 'cancelled' };
  const ms = (n) => (n === Infinity ? -1 : n);
  const { reason, code, message, lockName: name, fence, by, text } = error;
  switch (error.constructor) {
    case belay.Refused: {
      const holders = error.holders.map(({ expiresIn, ...holder }) => ({ ...holder, expires_in: ms(expiresIn) }));
      return { type: 'refused', reason, holders };
    }
    case belay.TimedOut:
      return { type: 'timeout' };
    case belay.Deadlock:
      return { type: 'deadlock', cycle: error.cycle.map(({ owner, waitsFor }) => ({ owner, waits_for: waitsFor })) };
    case belay.Lost:
      return { type: 'lost', name, fence, reason, by, text };
    case belay.ServerError:
      return { type: 'server', code, message };
    case belay.Unreachable:
      return { type: 'unreachable', message };
    case belay.Closed:
      return { type: 'closed' };
    case TypeError:
      return { type: 'usage', message };
    default:
      return { type: 'bug', message: error.stack };
  }
}

async function perform(request) {
  const { id, op } = request;
  const controller = new AbortController();
  running.set(id, controller);
  try {
    if (!Object.hasOwn(ops, op)) return say({ id, error: { type: 'unknown op' } });
    say({ id, ok: (await ops[op](request, controller.signal)) ?? {} });
  } catch (error) {
    say({ id, error: errorOf(error, controller.signal) });
  } finally {
    running.delete(id);
  }
}

readline
  .createInterface({ input: process.stdin })
  .on('line', (line) => perform(JSON.parse(line)))
  .on('close', () => process.exit(0));
