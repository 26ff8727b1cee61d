"""What is Python's own: tasks, threads, forks, packages. sdk/conformance has what all libraries must do."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile
from concurrent.futures import CancelledError

import belay
from belay import _address, _resp

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HOME))
WAIT = 20


class Words(unittest.TestCase):
    def test_replies_cut_at_every_byte(self):
        data = (b"*3\r\n$7\r\ngranted\r\n:12\r\n_\r\n>2\r\n+event\r\n:1\r\n%1\r\n$1\r\na\r\n*1\r\n,1.5\r\n-STALE it is gone\r\n$-1\r\n")
        want = [[b"granted", 12, None], [b"event", 1], {"a": [1.5]}, "STALE it is gone", None]
        for cut in range(len(data)):
            reader = _resp.Reader()
            got = [*reader.feed(data[:cut]), *reader.feed(data[cut:])]
            self.assertEqual([str(g) if isinstance(g, Exception) else g for g in got], want)
            self.assertIsInstance(got[1], _resp.Push)
            self.assertEqual(got[3].code, "STALE")

    def test_what_is_not_resp(self):
        for data in (b"HTTP/1.1 200 OK\r\n", b"*x\r\n", b"$1x\r\n", b"*1\r\n" * 20, b"+" + b"x" * 100000):
            with self.subTest(data[:20]), self.assertRaises(_resp.Malformed):
                list(_resp.Reader().feed(data))

    def test_words_of_any_bytes_and_names_that_are_not_utf8(self):
        self.assertEqual(_resp.encode(("SET", b"\xff\r\n", 7)), b"*3\r\n$3\r\nSET\r\n$3\r\n\xff\r\n\r\n$1\r\n7\r\n")
        self.assertIn(b"\xff", _resp.encode((_resp.text(b"\xff"),)))

    def test_addresses(self):
        for text, want in {
            "a": "a:7117", "a:1": "a:1", "[::1]:7": "[::1]:7", "[::1]": "[::1]:7117", "tls://a": "tls://a:7117",
            "unix:///run/b.sock": "unix:///run/b.sock",
        }.items():
            self.assertEqual(_address.parse(text)[0].text, want)
        self.assertEqual([a.port for a in _address.parse("a:1,b:2")], [1, 2])
        for text in ("", "a,,b", "a:0", "a:99999", "::1", "a:b", "unix://x", "a b", "http://a"):
            with self.subTest(text), self.assertRaises(ValueError):
                belay.Client(text)


class Async(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = belay.AsyncClient()
        self.addAsyncCleanup(self.client.close)

    async def test_a_cancel_from_outside_stays_one_and_releases(self):
        entered = asyncio.Event()

        async def work():
            async with self.client.lock("outside"):
                entered.set()
                await asyncio.sleep(WAIT)

        task = asyncio.ensure_future(work())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await (await self.client.lock("outside", wait=0)).release()

    async def test_an_error_of_the_block_goes_on(self):
        with self.assertRaises(ZeroDivisionError):
            async with self.client.lock("error") as held:
                try:
                    await self.client.break_lock("error")
                    await held.lost
                finally:
                    raise ZeroDivisionError
        await (await self.client.lock("error", wait=0)).release()

    async def test_the_task_goes_on_after_a_lost_block(self):
        with self.assertRaises(belay.Lost):
            async with self.client.lock("lost") as held:
                await self.client.break_lock("lost")
                await held.lost
                await asyncio.sleep(WAIT)
        await asyncio.wait_for(asyncio.sleep(0.01), WAIT)  # nothing of the cancellation is left
        if sys.version_info >= (3, 11):
            self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_lost_at_the_very_end_of_the_block(self):
        with self.assertRaises(belay.Lost):
            async with self.client.lock("end") as held:
                await self.client.break_lock("end")
                while held.held():
                    try:
                        await asyncio.sleep(0.01)
                    except asyncio.CancelledError:
                        pass
        await asyncio.sleep(0.01)

    async def test_a_callback_that_fails_is_logged(self):
        with self.assertLogs("belay", logging.ERROR):
            held = await self.client.lock("callback", on_lost=lambda lost: 1 / 0)
            await self.client.break_lock("callback")
            await asyncio.wait_for(held.lost, WAIT)

    async def test_a_lost_future_can_be_awaited_by_many(self):
        held = await self.client.lock("many")
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(held.lost, 0.01)
        await self.client.break_lock("many")
        self.assertEqual((await asyncio.wait_for(held.lost, WAIT)).reason, "break")

    async def test_a_thousand_waits_on_one_connection(self):
        done = []

        async def one():
            async with self.client.lock("thousand"):
                done.append(self.client.address)

        held = await self.client.lock("thousand")
        tasks = [asyncio.ensure_future(one()) for _ in range(1000)]
        while (await self.client.show("thousand")).get("waiters_total") != 1000:
            pass
        await held.release()
        await asyncio.gather(*tasks)
        self.assertEqual(done, [self.client.address] * 1000)

    async def test_it_belongs_to_one_loop(self):
        await self.client.show("x")

        def elsewhere():
            with self.assertRaises(RuntimeError):
                asyncio.run(self.client.show("x"))

        await asyncio.to_thread(elsewhere)

    async def test_a_stream_ends_with_its_client(self):
        async with self.client.watch("s/") as news:
            ending = asyncio.ensure_future(self.client.close())
            self.assertEqual([event async for event in news], [])
            await ending


class Threads(unittest.TestCase):
    def setUp(self):
        self.client = belay.Client()
        self.addCleanup(self.client.close)

    def test_many_threads_of_one_client_exclude_each_other(self):
        inside, most = [], []

        def work():
            for _ in range(5):
                with self.client.lock("threads"):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        self.assertEqual((len(most), max(most)), (100, 1))

    def test_cancel_in_another_thread(self):
        held = self.client.lock("cancel").acquire()
        placed = threading.Event()
        lock = self.client.lock("cancel", on_place=lambda place: placed.set())
        threading.Thread(target=lambda: (placed.wait(WAIT), lock.cancel())).start()
        with self.assertRaises(CancelledError):
            lock.acquire()
        held.release()
        self.client.lock("cancel", wait=5).acquire().release()

    def test_a_cancel_that_meets_the_grant(self):
        """Whichever comes first: what nobody got is not held."""
        for _ in range(30):
            held, lock = self.client.lock("race").acquire(), self.client.lock("race")
            got = []
            thread = threading.Thread(target=lambda: got.append(self._try(lock.acquire)))
            thread.start()
            while not self.client.show("race")["waiters"]:
                pass
            releasing = threading.Thread(target=held.release)
            releasing.start()
            lock.cancel()
            thread.join(WAIT)
            releasing.join(WAIT)
            if isinstance(got[0], belay.Held):
                got[0].release()
            self.assertIsInstance(got[0], (belay.Held, CancelledError))
            self.client.lock("race", wait=WAIT).acquire().release()

    def test_a_result_that_meets_the_cancel_is_not_forgotten(self):
        unwanted, started = [], []

        async def work():
            while not started:
                await asyncio.sleep(0)
            started[0].cancel()
            return "granted"

        started.append(self.client._runner.start(work(), unwanted.append))
        self.assertRaises(CancelledError, started[0].result, WAIT)
        self.client.show("x")
        self.assertEqual(unwanted, ["granted"])

    def test_ctrl_c_gives_up_the_place(self):
        held = self.client.lock("ctrl-c").acquire()
        placed = threading.Event()
        threading.Thread(target=lambda: (placed.wait(WAIT), os.kill(os.getpid(), signal.SIGINT))).start()
        with self.assertRaises(KeyboardInterrupt):
            self.client.lock("ctrl-c", on_place=lambda place: placed.set()).acquire()
        held.release()
        self.client.lock("ctrl-c", wait=5).acquire().release()

    def test_a_callback_must_not_wait(self):
        said = []
        held = self.client.lock("cb", on_lost=lambda lost: said.append(self._try(lambda: self.client.show("x")))).acquire()
        self.client.break_lock("cb")
        held.lost.result(WAIT)
        self.client.show("x")
        self.assertIsInstance(said[0], RuntimeError)

    @staticmethod
    def _try(call):
        try:
            return call()
        except (Exception, CancelledError) as e:
            return e

    def test_release_after_close(self):
        held = self.client.lock("late").acquire()
        self.client.close()
        self.assertFalse(held.held() or held.release())
        with self.assertRaises(belay.Closed):
            self.client.show("x")

    def test_releases_that_meet_the_close(self):
        for _ in range(20):
            client, errors = belay.Client(), []
            held = client.lock("meets").acquire()
            thread = threading.Thread(target=lambda: errors.append(self._try(held.release)))
            thread.start()
            client.close()
            thread.join(WAIT)
            self.assertIn(errors[0], (True, False), errors)

    def in_child(self, work):
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if work() else 2
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def test_a_child_holds_nothing_and_frees_nothing(self):
        with self.client.lock("fork") as held:

            def child():
                ok = not held.held() and not held.check() and not held.release()
                try:
                    self.client.lock("fork", wait=0).acquire()
                except belay.Refused as e:
                    ok = ok and e.holders[0].fence == held.fence
                with self.client.lock("of the child") as own:
                    ok = ok and own.held() and own.owner.split(":")[1].startswith(str(os.getpid()))
                self.client.close()
                return ok

            self.assertEqual(self.in_child(child), 0)
            self.assertTrue(held.held() and held.check())
            self.client.lock("of the child", wait=5).acquire().release()

    def test_a_child_does_not_keep_the_connection_of_its_parent(self):
        code = """if 1:
            import belay, os, sys, time
            held = belay.Client().lock("orphan").acquire()
            if not os.fork():
                sys.stdin.read()
                os._exit(0)
            os._exit(0)"""
        path = {**os.environ, "PYTHONPATH": os.path.join(HOME, "src")}
        parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=path)
        parent.wait(WAIT)
        with self.client.lock("orphan", wait=WAIT):
            parent.stdin.close()


    def test_nothing_is_printed(self):
        code = """if 1:
            import belay
            with belay.Client() as client:
                held = client.lock("quiet").acquire()
                client.break_lock("quiet")
                held.lost.result(20)"""
        ran = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=WAIT,
                             env={**os.environ, "PYTHONPATH": os.path.join(HOME, "src")})
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))


class Recipes(unittest.TestCase):
    def setUp(self):
        self.client = belay.Client()
        self.addCleanup(self.client.close)

    def test_run_once(self):
        from run_once import run_once

        runs = []
        for slot in ("2026-01-01T10:00", "2026-01-01T10:00", "2026-01-01T09:59", "2026-01-01T10:01"):
            run_once(self.client, "reminders", slot, lambda fence, slot=slot: runs.append(slot))
        self.assertEqual(runs, ["2026-01-01T10:00", "2026-01-01T10:01"])

    def test_leader_task(self):
        from leader_task import lead

        async def play():
            led = asyncio.Queue()
            async with belay.AsyncClient() as one, belay.AsyncClient() as two:

                async def work(who):
                    await led.put(who)
                    await asyncio.sleep(WAIT)

                tasks = [asyncio.ensure_future(lead(c, "reports", w, lambda fence, w=w: work(w)))
                         for c, w in ((one, "one"), (two, "two"))]
                first = await asyncio.wait_for(led.get(), WAIT)
                await one.break_lock("reports")
                second = await asyncio.wait_for(led.get(), WAIT)
                for task in tasks:
                    task.cancel()
            self.assertEqual({first, second}, {"one", "two"})

        asyncio.run(play())

    def test_rate_limit(self):
        from rate_limit import at_once, per_period

        with at_once(self.client, "smtp", 2), at_once(self.client, "smtp", 2):
            self.assertEqual(self.client.show("limit/smtp")["of"], 2)
        for _ in range(3):  # the third begins when the permit of the first is back
            with per_period(self.client, "api", 2, 0.05):
                pass

    def test_migrate(self):
        from migrate import migrate_once

        done = []
        for version in ("1", "1", "2"):
            migrate_once(self.client, "shop", version, lambda v=version: done.append(v))
        self.assertEqual(done, ["1", "2"])

    def test_pytest_fixture(self):
        env = {**os.environ, "PYTHONPATH": os.path.join(HOME, "src")}
        ran = subprocess.run(
            ["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(HOME, "recipes")],
            env=env, capture_output=True, text=True)
        self.assertIn("1 passed", ran.stdout, ran.stderr)


class Package(unittest.TestCase):
    def test_wheel_and_source(self):
        with tempfile.TemporaryDirectory() as out:
            code = (f"import os; from setuptools import build_meta as b; os.chdir('copy'); "
                    f"b.build_wheel({out!r}); b.build_sdist({out!r})")
            subprocess.run(["cp", "-r", HOME, os.path.join(out, "copy")], check=True)
            subprocess.run(["/usr/bin/python3", "-c", code], cwd=out, check=True, capture_output=True)
            with open(os.path.join(ROOT, "include", "belay_version.h"), encoding="utf-8") as f:
                version = f.read().split('"')[1]
            self.assertIn(f"belay-client-{version}.tar.gz", os.listdir(out))
            wheel = os.path.join(out, f"belay_client-{version}-py3-none-any.whl")
            names = zipfile.ZipFile(wheel).namelist()
            modules = [f"belay/{name}" for name in os.listdir(os.path.join(HOME, "src", "belay")) if "__" != name[:2]]
            self.assertEqual(set(modules) - set(names), set())
            ran = subprocess.run([sys.executable, "-c", "import belay; print(belay.__file__)"], capture_output=True,
                                 text=True, env={**os.environ, "PYTHONPATH": wheel})
            self.assertIn(".whl", ran.stdout, ran.stderr)

    def test_types(self):
        ran = subprocess.run(["/usr/bin/python3", "-m", "mypy", "--cache-dir", os.devnull], cwd=HOME,
                             capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
