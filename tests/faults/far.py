"""far.py - nodes that are far from each other: between them are proxies that hold everything back.

    with Far(3) as n: n.ms[0] = 80      # what is sent to node 0 by the others takes that long
"""
import asyncio
import threading

from nodes import Nodes, free_ports


class Far(Nodes):
    def __init__(self, n, *args):
        super().__init__(n, *args)
        self.ms, self.far_ms = [0] * n, 0  # of those who join later
        self.far_ports = free_ports(n)
        self.tasks = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    async def pump(self, i, reader, writer):
        queue = asyncio.Queue()

        async def later():
            while True:
                at, data = await queue.get()
                await asyncio.sleep(max(0, at - self.loop.time()))
                if not data:
                    break
                if not writer.is_closing():
                    writer.write(data)
            writer.close()
        task = asyncio.ensure_future(later())
        data = True
        while data:
            try:
                data = await reader.read(65536)
            except OSError:
                data = b""
            queue.put_nowait((self.loop.time() + self.ms[i] / 1000, data))
        await task

    def proxy(self, i):
        """What is sent to node i goes through here."""
        async def on_connection(reader, writer):
            self.tasks.append(asyncio.current_task())
            try:
                there = await asyncio.open_connection("127.0.0.1", self.peer_ports[i])
            except OSError:
                writer.close()
                return
            await asyncio.gather(self.pump(i, reader, there[1]), self.pump(i, there[0], writer))
        asyncio.run_coroutine_threadsafe(
            asyncio.start_server(on_connection, "127.0.0.1", self.far_ports[i]), self.loop).result()

    def peer_address(self, i):
        return "127.0.0.1:%d" % self.far_ports[i]

    def __enter__(self):
        self.thread.start()
        for i in range(self.n):
            self.proxy(i)
        return super().__enter__()

    def __exit__(self, kind, value, trace):
        super().__exit__(kind, value, trace)
        asyncio.run_coroutine_threadsafe(self.end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    async def end(self):
        """The nodes are gone: what is still held back is read to its end."""
        self.ms = [0] * len(self.ms)
        for t in self.tasks:
            await t

    def new_node(self):
        i = super().new_node()
        self.far_ports += free_ports(1)
        self.ms.append(self.far_ms)
        self.proxy(i)
        return i
