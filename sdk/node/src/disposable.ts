/** A runtime may get its Symbol.asyncDispose from a polyfill, at any time. */
export function disposable(object: object, dispose: () => Promise<void>): void {
  const symbol: symbol | undefined = Symbol.asyncDispose;
  if (symbol) Object.defineProperty(object, symbol, { value: dispose });
}
