package belay;

import static belay.Check.inBackground;
import static belay.Check.that;
import static belay.Check.until;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** Threads that fight for one lock, while they are interrupted and cancel at random. */
final class StormTest {
    private static final String NAME = "storm";
    private static final int THREADS = 8;
    private static final int ROUNDS = 50;

    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicLong lastFence = new AtomicLong();

    @Test
    void nothingStaysBehindAndFencesRise() throws Exception {
        long seed = System.nanoTime();
        System.out.println("# seed " + seed);
        try (Client client = Client.create()) {
            List<Check.Background> threads = new ArrayList<>();
            AtomicInteger ended = new AtomicInteger();
            for (int i = 0; i < THREADS; i++) {
                Random random = new Random(seed + i);
                threads.add(inBackground(() -> {
                    for (int round = 0; round < ROUNDS; round++) {
                        takeOrNot(client, random);
                    }
                    return ended.incrementAndGet();
                }));
            }
            Random random = new Random(seed - 1);
            until(() -> {
                threads.get(random.nextInt(THREADS)).interrupt();
                return ended.get() == THREADS;
            });
            for (Check.Background thread : threads) {
                thread.join();
            }
            until(() -> client.show(NAME).holders().isEmpty() && client.show(NAME).waiters().isEmpty());
        }
    }

    private void takeOrNot(Client client, Random random) throws ExecutionException {
        LockRequest request = client.lock(NAME);
        if (random.nextBoolean()) {
            request.ttl(Duration.ofSeconds(10));
        }
        try (Held held = random.nextBoolean() ? request.acquire() : future(request, random)) {
            that(inside.incrementAndGet() == 1, "one at a time");
            that(lastFence.getAndSet(held.fence()) < held.fence(), "fences rise");
            inside.decrementAndGet();
        } catch (InterruptedException | CancellationException e) {
            return; // it holds nothing, and waits for nothing
        }
    }

    private static Held future(LockRequest request, Random random) throws InterruptedException, ExecutionException {
        CompletableFuture<Held> future = request.acquireAsync();
        if (random.nextBoolean()) {
            future.cancel(true);
        }
        try {
            return future.get();
        } catch (InterruptedException e) {
            if (!future.cancel(true)) {
                Core.join(future).release(); // another interrupt does not keep it
            }
            throw e;
        }
    }
}
