import type { Client } from './client.js';
import type { Held } from './held.js';
import type { Lost } from './errors.js';
import type { News } from './news.js';
import { Watch, type WatchOptions } from './watch.js';

/** Who leads, as everybody sees it. */
export interface Leader {
  owner: string;
  fence: number;
  /** What the leader says of itself. */
  body: Buffer;
}

export interface CampaignOptions {
  /** What observers are told of the leader: its address, for example. */
  body?: string | Uint8Array | undefined;
  /** As of `lock`. */
  ttl?: number | undefined;
  wait?: number | undefined;
  onLost?: ((lost: Lost) => void) | undefined;
  signal?: AbortSignal | undefined;
}

/** One of many leads: whoever has the lock of that name. */
export class Election {
  readonly #client: Client;
  readonly #newsOf: (options: WatchOptions) => Promise<News>;

  /** @internal */
  constructor(
    client: Client,
    readonly name: string,
    newsOf: (options: WatchOptions) => Promise<News>,
  ) {
    this.#client = client;
    this.#newsOf = newsOf;
  }

  /** Waits until I lead; I lead until the lock is lost or released. */
  campaign(options: CampaignOptions = {}): Promise<Held> {
    return this.#client.lock(this.name, options);
  }

  async leader(): Promise<Leader | undefined> {
    const { holders, body } = await this.#client.show(this.name);
    return holders[0] && { owner: holders[0].owner, fence: holders[0].fence, body };
  }

  /** The present leader first, then each other one; undefined: there is none. */
  async observe(options: WatchOptions = {}): Promise<Watch<Leader | undefined>> {
    const news = await this.#newsOf(options);
    return new Watch(news, this.#leaders(news));
  }

  async *#leaders(news: News): AsyncGenerator<Leader | undefined, undefined> {
    let last = await this.leader();
    yield last;
    for (;;) {
      const { done, value: event } = await news.next();
      if (done) return undefined;
      if (event.name !== this.name && event.event !== 'gone') continue;
      const present = await this.leader();
      if (!isSame(last, present)) yield present;
      last = present;
    }
  }
}

function isSame(a: Leader | undefined, b: Leader | undefined): boolean {
  return a && b ? a.fence === b.fence && a.body.equals(b.body) : a === b;
}
