import { disposable } from './disposable.js';
import type { News } from './news.js';

export interface WatchOptions {
  /** Ends it: the iteration throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** A stream of what happens, for `for await`. It has a connection of its own: leave the loop, or close it. */
export class Watch<T> implements AsyncIterableIterator<T> {
  readonly #news: News;
  readonly #values: AsyncIterator<T, undefined>;

  /** Where the runtime or a polyfill has Symbol.asyncDispose: close() for `await using`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  /** @internal */
  constructor(news: News, values: AsyncIterator<T, undefined>) {
    this.#news = news;
    this.#values = values;
    disposable(this, () => this.close());
  }

  next(): Promise<IteratorResult<T, undefined>> {
    return this.#values.next();
  }

  async return(): Promise<IteratorResult<T, undefined>> {
    await this.close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The iteration ends, and the connection. */
  close(): Promise<void> {
    return this.#news.close();
  }
}
