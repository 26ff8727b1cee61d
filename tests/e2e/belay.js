// belay.js - what the Node tests share: a server on a free port, TAP lines. See belay.py.
'use strict';
const { spawn } = require('child_process');
const path = require('path');
const readline = require('readline');

const ROOT = path.dirname(path.dirname(__dirname));
const BELAY = process.env.BELAY || path.join(ROOT, 'build', 'belay');

async function withServer(fn) {
  const child = spawn(BELAY, ['serve', '--memory', '--listen', '127.0.0.1:0'],
    { stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  child.stderr.on('data', (d) => { log += d; });
  const ended = new Promise((resolve) => child.on('exit', (code) => resolve(code)));
  const line = await new Promise((resolve) =>
    readline.createInterface({ input: child.stdout }).once('line', resolve));
  const port = Number(line.split(':').pop());
  try {
    await fn(port);
  } finally {
    child.kill('SIGTERM');
    const code = await ended;
    if (code !== 0) throw new Error(`the server ended with ${code}: ${log}`);
  }
}

const tests = [];
function test(name, fn) { tests.push([name, fn]); }

async function main() {
  let failed = 0;
  for (const [name, fn] of tests) {
    const limit = new Promise((_, no) => setTimeout(() => no(new Error('took too long')), 30000).unref());
    try {
      await Promise.race([fn(), limit]);
      console.log(`ok - ${name}`);
    } catch (e) {
      failed++;
      console.log(`not ok - ${name}\n#   ${String(e.stack).replace(/\n/g, '\n#   ')}`);
    }
  }
  process.exit(failed ? 1 : 0);
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

module.exports = { withServer, test, main, sleep };
