// node.mjs - locks of Node, by TASKS loops of one process.
//
//     node.mjs belay|redlock pair|handover TASKS WARM_S SECONDS PORT
//
// Prints what run wants to know as JSON.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const [system, mode, ...numbers] = process.argv.slice(2);
const [tasks, warmS, seconds, port] = numbers.map(Number);
const TTL_MS = 30_000, HELD_MS = 1;

/** The function that takes a lock and answers the one that gives it back. */
function locks() {
  if (system === 'belay') {
    const { Client } = require('../../sdk/node');
    const client = new Client({ addresses: `127.0.0.1:${port}` });
    const options = process.env.BENCH_LEASE ? { ttl: TTL_MS } : {};
    return async (name) => {
      const held = await client.lock(name, options);
      return () => held.release();
    };
  }
  const { default: Redis } = require('ioredis');
  const { default: Redlock } = require('redlock');
  const redlock = new Redlock([new Redis(port)], { retryCount: -1 });
  return async (name) => {
    const lock = await redlock.acquire([name], TTL_MS);
    return () => lock.release();
  };
}

const lock = locks();
const times = [];
let pairs = 0, inside = 0, givenAt = 0, wakeLast = null;

/** Holds the lock for a moment. Answers a promise that ends when another task has it. */
async function hold() {
  const now = performance.now();
  if (++inside !== 1) process.abort();
  if (wakeLast) {
    times.push(now - givenAt);
    wakeLast();
  }
  await new Promise((over) => { setTimeout(over, HELD_MS); });
  const next = new Promise((wake) => { wakeLast = wake; });
  inside--;
  givenAt = performance.now();
  return { next };
}

async function work(i) {
  const name = `bench-${process.pid}${mode === 'pair' ? `-${i}` : ''}`;
  for (;;) {
    const release = await lock(name);
    const rest = mode === 'handover' ? await hold() : null;
    await release();
    pairs++;
    if (rest) await rest.next;
  }
}

function mark() {
  const { user, system: kernel } = process.cpuUsage();
  return [pairs, times.length, performance.now() / 1000, (user + kernel) / 1e6];
}

for (let i = 0; i < tasks; i++) void work(i);
setTimeout(() => {
  const before = mark();
  setTimeout(() => {
    const [n, handovers, s, cpu] = mark().map((value, i) => value - before[i]);
    const sorted = times.slice(times.length - handovers).sort((a, b) => a - b);
    console.log(JSON.stringify({
      pairs: n, s, cpu_s: cpu, handover_us: handovers ? sorted[handovers >> 1] * 1000 : null,
    }));
    process.exit(0); // what is held ends with its session or lease
  }, seconds * 1000);
}, warmS * 1000);
