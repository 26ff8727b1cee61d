import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { examples } from './readme.gen.mjs';
import { server } from './server.mjs';

test('every example of the README runs', async (t) => {
  const { client } = await server(t);
  const web = createServer((_, response) => response.end('ok')).listen(0, '127.0.0.1');
  await once(web, 'listening');
  t.after(() => web.close());
  t.mock.method(console, 'log', () => {});
  const fences: number[] = [];
  const world = {
    client: client(),
    url: `http://127.0.0.1:${(web.address() as AddressInfo).port}/`,
    save: async (_: unknown, { fence }: { fence: number }) => void fences.push(fence),
  };
  assert.ok(examples.length > 8);
  const busy = await client().lock('deploy');
  for (const example of examples) await example(world);
  assert.deepEqual(fences, [...fences].sort((a, b) => a - b));
  assert.equal(fences.length, 3);
  await busy.release();
});
