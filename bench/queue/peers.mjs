// peers.mjs - no-op jobs through the peers: node peers.mjs PEER JOBS CONCURRENCY; prints jobs per second.
//   graphile        graphile-worker, one job a time per slot
//   graphile-batch  its batch mode: local queue of 500, batched completion
//   pgboss          pg-boss, one job a time per worker
//   pgboss-batch    pg-boss, 500 jobs a fetch
// The clock runs from the first job to the last completion; the jobs are there before.
import { run, makeWorkerUtils } from "graphile-worker";
import PgBoss from "pg-boss";

const [peer, jobsText, concurrencyText] = process.argv.slice(2);
const jobs = Number(jobsText), concurrency = Number(concurrencyText);
const connectionString = process.env.BENCH_DB;

async function graphile(batch) {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  const specs = Array.from({ length: jobs }, (_, i) => ({ identifier: "noop", payload: { entity: i } }));
  for (let i = 0; i < jobs; i += 5000) await utils.addJobs(specs.slice(i, i + 5000));
  await utils.release();
  let first = 0, done = 0, finished;
  const all = new Promise((resolve) => { finished = resolve; });
  const quiet = { error: console.error, warn() {}, info() {}, debug() {} };
  const { Logger } = await import("graphile-worker");
  const preset = {
    worker: {
      connectionString, concurrentJobs: concurrency, pollInterval: 1000,
      ...(batch ? { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {}),
    },
  };
  const runner = await run({
    preset, logger: new Logger(() => (level, message) => { if (level === "error") quiet.error(message); }),
    taskList: { noop() { if (!first) first = performance.now(); if (++done === jobs) finished(performance.now()); } },
  });
  const last = await all;
  await runner.stop();
  return jobs / ((last - first) / 1000);
}

async function pgboss(batch) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false });
  await boss.start();
  await boss.createQueue("noop");
  const specs = Array.from({ length: jobs }, (_, i) => ({ name: "noop", data: { entity: i } }));
  for (let i = 0; i < jobs; i += 5000) await boss.insert(specs.slice(i, i + 5000));
  let first = 0, done = 0, finished;
  const all = new Promise((resolve) => { finished = resolve; });
  // work() sleeps between polls, so its speed is its poll interval; fetch and complete are what it calls.
  async function slot() {
    for (;;) {
      const got = await boss.fetch("noop", { batchSize: batch ? 500 : 1 });
      if (!got || got.length === 0) return;
      if (!first) first = performance.now();
      await boss.complete("noop", got.map((j) => j.id));
      done += got.length;
      if (done === jobs) finished(performance.now());
    }
  }
  await Promise.all(Array.from({ length: concurrency }, slot));
  const last = await all;
  await boss.stop({ graceful: false });
  return jobs / ((last - first) / 1000);
}

const run_peer = { graphile: () => graphile(false), "graphile-batch": () => graphile(true), pgboss: () => pgboss(false), "pgboss-batch": () => pgboss(true) }[peer];
console.log(Math.round(await run_peer()));
process.exit(0);
