package belay;

import static belay.Check.fails;
import static belay.Check.inBackground;
import static belay.Check.is;
import static belay.Check.that;
import static belay.Check.until;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;

/** What is Java's own about locks; the conformance suite has what all libraries have in common. */
final class LockTest {
    private static int waiters(Client client, String name) {
        return client.show(name).waiters().size();
    }

    @Test
    void aTryReleasesAtItsEnd() throws Exception {
        try (Client client = Client.create()) {
            long fence;
            try (Held held = client.lock("try").acquire()) {
                fence = held.fence();
                is(client.lock("try").tryAcquire().isEmpty(), true);
            }
            try (Held held = client.lock("try").tryAcquire().orElseThrow()) {
                that(held.fence() > fence, "the fence grows");
                is(held.release(), true);
            }
        }
    }

    @Test
    void aTryWhoseLockIsLostFails() throws Exception {
        try (Client client = Client.create()) {
            LostException lost = fails(LostException.class, () -> {
                try (Held held = client.lock("try lost").acquire()) {
                    client.breakLock("try lost", "a test");
                    is(held.lost().get(Check.PATIENCE_S, TimeUnit.SECONDS).text(), "a test");
                }
            });
            is(lost.reason(), "break");
        }
    }

    @Test
    void anErrorInTheTryComesFirst() throws Exception {
        try (Client client = Client.create()) {
            IllegalStateException error = fails(IllegalStateException.class, () -> {
                try (Held held = client.lock("try fails").acquire()) {
                    client.breakLock("try fails");
                    until(() -> !held.isHeld());
                    throw new IllegalStateException();
                }
            });
            that(error.getSuppressed()[0] instanceof LostException, "the loss is told as well");
        }
    }

    @Test
    void anInterruptGivesUpThePlace() throws Exception {
        try (Client client = Client.create(); Held held = client.lock("interrupt").acquire()) {
            var waiting = inBackground(() -> client.lock("interrupt").acquire());
            until(() -> waiters(client, "interrupt") == 1);
            waiting.interrupt();
            fails(InterruptedException.class, waiting::join);
            until(() -> waiters(client, "interrupt") == 0);
            is(held.isHeld(), true);
        }
    }

    @Test
    void anInterruptedThreadAsksNothing() throws Exception {
        try (Client client = Client.create()) {
            Thread.currentThread().interrupt();
            fails(InterruptedException.class, () -> client.lock("interrupted").acquire());
            is(client.show("interrupted").holders().size(), 0);
        }
    }

    @Test
    void callsThatDoNotWaitKeepTheInterrupt() throws Exception {
        try (Client client = Client.create()) {
            Held held = client.lock("kept").acquire();
            Thread.currentThread().interrupt();
            client.watch("kept").close();
            is(held.check(), true);
            is(held.release(), true);
            is(Thread.interrupted(), true);
        }
    }

    @Test
    void aFutureThatIsCancelledGivesUpThePlace() throws Exception {
        try (Client client = Client.create(); Held held = client.lock("cancel").acquire()) {
            CompletableFuture<Held> waiting = client.lock("cancel").acquireAsync();
            until(() -> waiters(client, "cancel") == 1);
            waiting.cancel(true);
            until(() -> waiters(client, "cancel") == 0);
            CompletableFuture<Held> inTime = client.lock("cancel").acquireAsync().orTimeout(0, TimeUnit.SECONDS);
            fails(Exception.class, () -> inTime.get(Check.PATIENCE_S, TimeUnit.SECONDS));
            held.release();
            client.lock("cancel").acquire().release(); // what nobody wanted was given back
        }
    }

    @Test
    void aThousandFuturesWaitOnOneConnection() throws Exception {
        int n = 1000;
        try (Client client = Client.create()) {
            Held first = client.lock("thousand").acquire();
            int threads = Thread.activeCount();
            List<Long> fences = new CopyOnWriteArrayList<>();
            List<CompletableFuture<Void>> all = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                all.add(client.lock("thousand").acquireAsync().thenAccept(held -> {
                    fences.add(held.fence());
                    held.release();
                }));
            }
            that(Thread.activeCount() < threads + 20, "they need no threads");
            first.release();
            CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get(Check.PATIENCE_S, TimeUnit.SECONDS);
            is(fences.stream().sorted().toList(), fences);
            is(fences.size(), n);
        }
    }

    @Test
    void aCallbackMayUseTheClient() throws Exception {
        try (Client client = Client.create()) {
            CompletableFuture<String> seen = new CompletableFuture<>();
            Held held = client.lock("callback")
                    .onLost(lost -> seen.complete(client.show("callback").state())).acquire();
            client.breakLock("callback");
            is(seen.get(Check.PATIENCE_S, TimeUnit.SECONDS), "unlocked");
            is(held.release(), false);
        }
    }

    @Test
    void aCallbackThatFailsHarmsNothing() throws Exception {
        try (Client client = Client.create()) {
            Held held = client.lock("bad callback").onLost(lost -> {
                throw new IllegalStateException("of a test");
            }).acquire();
            client.breakLock("bad callback");
            held.lost().get(Check.PATIENCE_S, TimeUnit.SECONDS);
            client.lock("bad callback").acquire().release();
        }
    }

    @Test
    void aViewExcludesThreads() throws Exception {
        try (Client client = Client.create()) {
            Lock lock = client.lock("view").asLock();
            int[] counter = {0};
            AtomicInteger inside = new AtomicInteger();
            List<Check.Background> threads = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                threads.add(inBackground(() -> {
                    for (int round = 0; round < 10; round++) {
                        lock.lock();
                        is(inside.incrementAndGet(), 1);
                        counter[0]++;
                        inside.decrementAndGet();
                        lock.unlock();
                    }
                    return null;
                }));
            }
            for (Check.Background thread : threads) {
                thread.join();
            }
            is(counter[0], 40);
        }
    }

    @Test
    void aViewSaysNo() throws Exception {
        try (Client client = Client.create()) {
            Lock lock = client.lock("view says no").asLock();
            is(lock.tryLock(), true);
            fails(IllegalStateException.class, lock::lock);
            inBackground(() -> {
                is(lock.tryLock(), false);
                is(lock.tryLock(1, TimeUnit.MILLISECONDS), false);
                fails(IllegalMonitorStateException.class, lock::unlock);
                return null;
            }).join();
            client.breakLock("view says no");
            until(() -> client.lock("view says no").tryAcquire().map(Held::release).orElse(false));
            fails(LostException.class, lock::unlock);
            fails(IllegalMonitorStateException.class, lock::unlock);
            fails(UnsupportedOperationException.class, lock::newCondition);
        }
    }

    @Test
    void aViewIsNotInterruptedInLock() throws Exception {
        try (Client client = Client.create()) {
            Lock lock = client.lock("view waits").asLock();
            lock.lock();
            var stubborn = inBackground(() -> {
                lock.lock();
                is(Thread.interrupted(), true);
                lock.unlock();
                return null;
            });
            var polite = inBackground(() -> {
                lock.lockInterruptibly();
                return null;
            });
            until(() -> waiters(client, "view waits") == 2);
            stubborn.interrupt();
            polite.interrupt();
            fails(InterruptedException.class, polite::join);
            lock.unlock();
            stubborn.join();
        }
    }

    @Test
    void anOwnerMayAskAgainAtOnceAfterItsWaitWasCancelled() throws Exception {
        try (Client client = Client.create(); Held held = client.lock("again").acquire()) {
            CompletableFuture<Held> first = client.lock("again").owner("me").acquireAsync();
            until(() -> waiters(client, "again") == 1);
            first.cancel(true);
            CompletableFuture<Held> second = client.lock("again").owner("me").acquireAsync();
            held.release();
            is(second.get(Check.PATIENCE_S, TimeUnit.SECONDS).release(), true);
        }
    }

    @Test
    void severalLocksEndTogetherWithTheClient() throws Exception {
        Client client = Client.create();
        Held other = client.lock("together c").acquire();
        CompletableFuture<Held> all = client.lock("together a", "together b", "together c")
                .ttl(Duration.ofMinutes(1)).acquireAsync();
        until(() -> waiters(client, "together c") == 1);
        client.close();
        fails(Exception.class, () -> all.get(Check.PATIENCE_S, TimeUnit.SECONDS));
        is(other.isHeld(), false);
        try (Client next = Client.create()) {
            next.lock("together a", "together b", "together c").waitAtMost(Duration.ZERO).acquire().release();
        }
    }

    @Test
    void aReleaseThatMeetsTheCloseHasAnAnswer() throws Exception {
        for (int i = 0; i < 20; i++) {
            Client client = Client.create();
            Held held = client.lock("meets").acquire();
            var releasing = inBackground(held::release);
            client.close();
            releasing.join();
            is(held.release(), false);
        }
    }

    @Test
    void whatIsHeldIsGivenBackWhenTheNextCannotBeHad() throws Exception {
        try (Client client = Client.create(); Held last = client.lock("next b").acquire()) {
            fails(RefusedException.class, () -> client.lock("next a", "next b").waitAtMost(Duration.ZERO).acquire());
            client.lock("next a").acquire().release();
            CompletableFuture<Held> both = client.lock("next a", "next b").acquireAsync();
            until(() -> waiters(client, "next b") == 1);
            client.breakLock("next a");
            Exception error = fails(Exception.class, () -> both.get(Check.PATIENCE_S, TimeUnit.SECONDS));
            that(error.getCause() instanceof LostException, "it is lost while it waits for the other");
            until(() -> waiters(client, "next b") == 0);
            is(last.isHeld(), true);
        }
    }

    @Test
    void wrongArgumentsSendNothing() {
        try (Client client = Client.of("127.0.0.1:1")) {
            fails(IllegalArgumentException.class, () -> client.lock("").acquire());
            fails(IllegalArgumentException.class, () -> client.lock("x".repeat(513)));
            fails(IllegalArgumentException.class, () -> client.lock(List.of()));
            fails(IllegalArgumentException.class, () -> client.lock("x", "x"));
            fails(IllegalArgumentException.class, () -> client.lock("x").ttl(Duration.ZERO));
            fails(IllegalArgumentException.class, () -> client.lock("x").waitAtMost(Duration.ofSeconds(-1)));
            fails(IllegalArgumentException.class, () -> client.lock("x").permits(3, 2));
            fails(IllegalArgumentException.class, () -> client.lock("x").shared().permits(1, 2).acquire());
            fails(IllegalArgumentException.class, () -> client.lock("x").owner("o".repeat(129)));
        }
    }
}
