import assert = require('node:assert/strict');
import test = require('node:test');
import belay = require('@belay/client');

test('require has the types, too', async () => {
  const client: belay.Client = new belay.Client({ addresses: '127.0.0.1:1', timeout: 20 });
  const options: belay.LockOptions = { ttl: 1000, wait: 0 };
  await assert.rejects(client.lock('x', options), belay.Unreachable);
  await client.close();
});
