import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAddresses } from '#dist/address.js';
import { Decoder, encode, ErrorReply, Push, type Reply } from '#dist/resp.js';

test('commands are arrays of bytes', () => {
  const bytes = encode(['SET', 'ö', 42, Uint8Array.of(0, 255, 13, 10)]);
  assert.equal(bytes, '*4\r\n$3\r\nSET\r\n$2\r\n\u00c3\u00b6\r\n$2\r\n42\r\n$4\r\n\u0000\u00ff\r\n\r\n');
});

const REPLIES: [bytes: string, reply: Reply][] = [
  [':42\r\n', 42],
  [':-1\r\n', -1],
  ['_\r\n', null],
  ['$-1\r\n', null],
  ['*-1\r\n', null],
  ['#t\r\n', 1],
  [',0.5\r\n', 0.5],
  ['+OK\r\n', Buffer.from('OK')],
  ['$0\r\n\r\n', Buffer.from('')],
  ['$4\r\na\r\nb\r\n', Buffer.from('a\r\nb')],
  ['-STALE it is over\r\n', new ErrorReply('STALE', 'it is over')],
  ['-STALE\r\n', new ErrorReply('STALE', 'STALE')],
  ['*0\r\n', []],
  ['*2\r\n*1\r\n:1\r\n$1\r\nx\r\n', [[1], Buffer.from('x')]],
  ['%2\r\n$1\r\na\r\n:1\r\n+b\r\n*1\r\n%0\r\n', new Map<string, Reply>([['a', 1], ['b', [new Map()]]])],
  ['>2\r\n+event\r\n:7\r\n', new Push([Buffer.from('event'), 7])],
];

test('replies come whole, wherever the stream is cut', () => {
  const stream = Buffer.from(REPLIES.map(([bytes]) => bytes).join(''));
  const want = REPLIES.map(([, reply]) => reply);
  for (let cut = 0; cut <= stream.length; cut++) {
    const decoder = new Decoder();
    const got = [...decoder.feed(stream.subarray(0, cut)), ...decoder.feed(stream.subarray(cut))];
    assert.deepEqual(got, want, `cut at ${cut}`);
  }
  const decoder = new Decoder();
  assert.deepEqual([...stream].flatMap((byte) => [...decoder.feed(Buffer.of(byte))]), want);
});

test('what is no RESP3 is refused', () => {
  const wrong = ['HTTP/1.1 200 OK\r\n', ':\r\n', ':1.5\r\n', ':99999999999999999999\r\n', '$x\r\n', '$99999999999\r\n',
    '*1048577\r\n', '*1\r\n'.repeat(9), `+${'x'.repeat(65_537)}`];
  for (const bytes of wrong)
    assert.throws(() => [...new Decoder().feed(Buffer.from(bytes))], SyntaxError, JSON.stringify(bytes.slice(0, 40)));
});

test('addresses', () => {
  const shown = (list: string | string[]) => parseAddresses(list).map(({ text }) => text);
  assert.deepEqual(shown('a, b:1,[::1],[::1]:2'), ['a:7117', 'b:1', '[::1]:7117', '[::1]:2']);
  assert.deepEqual(shown(['tls://a.example', 'unix:///run/b.sock']), ['tls://a.example:7117', 'unix:///run/b.sock']);
  const [one] = parseAddresses('tls://[::1]:2');
  assert.deepEqual([one!.host, one!.port, one!.tls], ['::1', 2, true]);
  const wrong = ['', 'a,', ':1', 'a:', 'a:0', 'a:65536', 'a:x', '::1', '[::1', 'a b', 'a/b', 'http://a', 'unix://a'];
  for (const list of wrong) assert.throws(() => parseAddresses(list), TypeError, list);
  assert.throws(() => parseAddresses(Array.from({ length: 17 }, () => 'a')), TypeError);
});
