const PORT = 7117;
const ADDRESSES_MAX = 16;

export interface Address {
  /** As it is shown: "10.0.0.1:7117", "tls://a.example:7117", "unix:///run/belay.sock". */
  readonly text: string;
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  /** Of a socket of this machine. */
  readonly path?: string;
}

/** "host:port", "[::1]:7117", "tls://host:port" or "unix:///path"; the port may be left out. */
export function parseAddress(item: string): Address {
  const wrong = (why: string): never => {
    throw new TypeError(`address ${JSON.stringify(item)}: ${why}`);
  };
  if (item.startsWith('unix://')) {
    const path = item.slice('unix://'.length);
    if (!path.startsWith('/')) wrong('the path of a socket begins with a "/": unix:///run/belay.sock');
    return { text: item, host: '', port: 0, tls: false, path };
  }
  const tls = item.startsWith('tls://');
  const match = /^(?:\[([^[\]]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(tls ? item.slice('tls://'.length) : item);
  if (!match) return wrong('it is not host:port; an IPv6 address needs brackets: [::1]:7117');
  const host = match[1] ?? match[2]!;
  const port = match[3] === undefined ? PORT : Number(match[3]);
  if (/[\s/]/.test(host)) wrong('a host name has no such character');
  if (port < 1 || port > 65535) wrong('the port is not a number from 1 to 65535');
  const shown = host.includes(':') ? `[${host}]` : host;
  return { text: `${tls ? 'tls://' : ''}${shown}:${port}`, host, port, tls };
}

/** A list, or one text with commas. */
export function parseAddresses(list: string | readonly string[]): Address[] {
  const items = typeof list === 'string' ? list.split(',') : list;
  if (items.length === 0) throw new TypeError('no address of a server');
  if (items.length > ADDRESSES_MAX) throw new TypeError(`more than ${ADDRESSES_MAX} addresses`);
  return items.map((item) => parseAddress(item.trim()));
}
