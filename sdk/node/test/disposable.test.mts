import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { compileFunction } from 'node:vm';
import type * as belay from '@belay/client';
import { PACKAGE, server } from './server.mjs';

const { iterator, asyncIterator } = Symbol;

/** The library, where `Symbol` is this one. */
function libraryWith(symbols: object): typeof belay {
  const real = createRequire(import.meta.url);
  const loaded = new Map<string, object>();
  const load = (file: string): object => {
    const known = loaded.get(file);
    if (known) return known;
    const exports = {};
    loaded.set(file, exports);
    const require = (id: string) => (id.startsWith('.') ? load(resolve(PACKAGE, 'dist', id)) : (real(id) as object));
    compileFunction(readFileSync(file, 'utf8'), ['exports', 'require', 'Symbol'])(exports, require, symbols);
    return exports;
  };
  return load(resolve(PACKAGE, 'dist/index.js')) as typeof belay;
}

test('without Symbol.asyncDispose, and with a polyfill that comes later', async (t) => {
  const { address } = await server(t);
  const bare = Object.assign((what: string) => Symbol(what), { iterator, asyncIterator });
  const { Client } = libraryWith(bare);
  const client = new Client({ addresses: address });
  const held = await client.lock('x');
  assert.deepEqual(Object.getOwnPropertySymbols(held), []);
  await held.release();
  const asyncDispose = Symbol('asyncDispose');
  Object.assign(bare, { asyncDispose });
  const later = (await client.lock('x')) as unknown as { held(): boolean; [asyncDispose](): Promise<void> };
  assert.ok(later.held());
  await later[asyncDispose]();
  assert.equal((await client.show('x')).state, 'unlocked');
  await client.close();
});
