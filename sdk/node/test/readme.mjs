// readme.mjs - makes readme.gen.mts: every example of the README as a function.
import { readFileSync, writeFileSync } from 'node:fs';

const here = new URL('.', import.meta.url);
const blocks = [...readFileSync(new URL('../README.md', here), 'utf8').matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code);
const isImport = (line) => line.startsWith('import ');
const bodies = blocks.map((code) => code.split('\n').filter((line) => !isImport(line)).join('\n'));
writeFileSync(
  new URL('readme.gen.mts', here),
  `import { Client, Refused, txn } from '@belay/client';

export interface World {
  client: Client;
  url: string;
  save(what: unknown, how: { fence: number }): Promise<void>;
}

export const examples: ((world: World) => Promise<void>)[] = [
${bodies.map((body) => `async ({ client, url, save }) => {{\n${body}}},`).join('\n')}
];
`,
);
