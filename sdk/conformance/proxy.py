"""A proxy between one client and one node: it knows where requests and answers end, and cuts where it is told to."""
import asyncio
import os
import socket
import struct
import sys


def value_end(data, at=0):
    """Where the RESP value that begins at `at` ends; None: it is not whole."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    kind, end = data[at:at + 1], line + 2
    if kind in b"+-:,_#(":
        return end
    n = int(data[at + 1:line])
    if kind == b"$":
        end += n + 2 if n >= 0 else 0
        return end if end <= len(data) else None
    for _ in range(2 * n if kind == b"%" else n):
        end = value_end(data, end)
        if end is None:
            return None
    return end


def values(data):
    """The whole values at the beginning of `data`, which are taken out of it."""
    while data:
        end = value_end(data)
        if end is None:
            return
        yield bytes(data[:end])
        del data[:end]


def command(request):
    """SESSION KEEPALIVE, ACQUIRE..."""
    words = request.split(b"\r\n")[2::2]
    one = words[0].decode().upper()
    return f"{one} {words[1].decode().upper()}" if one == "SESSION" else one


def reset(writer):
    sock = writer.get_extra_info("socket")
    if sock and sock.family != socket.AF_UNIX and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Cut:
    """What happens to the next request of that name: `before` it is passed on the connection is reset, `behind`: when
    its answer has come, which is not passed on; `kill`: it is passed on, and the node killed."""

    def __init__(self, where, name):
        self.where, self.name = where, name
        self.done = asyncio.Event()


class Line:
    """One connection of the client."""

    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.expected = []  # for each answer that is due: the Cut behind it, or None

    def cut(self):
        reset(self.client)
        reset(self.server)

    async def requests(self, reader):
        data = bytearray()
        while part := await reader.read(65536):
            data += part
            for request in values(data):
                await self.proxy.route.open.wait()
                if not self.request(request):
                    return
        self.server.close()

    def request(self, request):
        route, name = self.proxy.route, command(request)
        route.commands.append(name)
        cut = route.cut if route.cut and name == route.cut.name and route.cut.where != "done" else None
        if cut and cut.where == "before":
            self.over(cut)
            return False
        self.expected.append(cut)
        self.server.write(request)
        if cut and cut.where == "kill":
            self.expected[-1] = None
            route.cut = None
            self.proxy.kill()
            cut.done.set()
        elif cut:
            cut.where = "done"
        return True

    def over(self, cut):
        self.proxy.route.cut = None
        self.cut()
        cut.done.set()

    async def answers(self, reader):
        data = bytearray()
        while part := await reader.read(65536):
            data += part
            for value in values(data):
                await self.proxy.route.open.wait()
                cut = None if value[:1] == b">" else self.expected.pop(0)
                if cut:
                    return self.over(cut)
                self.client.write(value)
        self.client.close()


class Proxy:
    def __init__(self, route, port, kill):
        self.route, self.port, self.kill = route, port, kill
        self.lines = set()

    async def start(self):
        self.server = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def connected(self, reader, writer):
        try:
            from_server, server = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return reset(writer)
        line = Line(self, writer, server)
        self.lines.add(line)
        both = [asyncio.ensure_future(line.requests(reader)), asyncio.ensure_future(line.answers(from_server))]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if task.exception() and not isinstance(task.exception(), OSError):
                    raise task.exception()
        finally:
            for task in both:
                task.cancel()
            line.cut()
            self.lines.discard(line)


class Route:
    """All proxies of one client, one for each node."""

    def __init__(self):
        self.proxies, self.commands, self.cut = [], [], None
        self.open = asyncio.Event()
        self.open.set()

    async def start(self, ports, kill):
        self.proxies = [Proxy(self, port, lambda i=i: kill(i)) for i, port in enumerate(ports)]
        self.ports = [await p.start() for p in self.proxies]
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def reset(self):
        for p in self.proxies:
            for line in list(p.lines):
                line.cut()

    def stop(self):
        for p in self.proxies:
            p.server.close()
        self.reset()
