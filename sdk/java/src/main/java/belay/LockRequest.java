package belay;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import java.util.function.IntConsumer;

/**
 * How a lock is wanted: say what differs from the defaults, then take it.
 *
 * <pre>{@code
 * try (Held held = client.lock("invoices").ttl(ofSeconds(30)).waitAtMost(ofMinutes(1)).acquire()) {
 *     save(held.fence());
 * }
 * }</pre>
 *
 * <p>A request may be used again: each {@code acquire} asks anew. It belongs to one thread until it is
 * complete.
 */
public final class LockRequest {
    private static final int NAME_MAX = 512;
    private static final int OWNER_MAX = 128;
    private static final long EARLY_DEFAULT = -1;

    /** What was said. Durations are nanoseconds. */
    static final class Options implements Cloneable {
        long ttl;
        long wait = Clock.NEVER;
        long grace;
        long delay;
        long early = EARLY_DEFAULT;
        boolean isShared;
        int permits;
        int of;
        byte[] body;
        String owner;
        IntConsumer onPlace;
        Consumer<LostException> onLost = lost -> {};

        private Options copy() {
            try {
                return (Options) clone();
            } catch (CloneNotSupportedException e) {
                throw new AssertionError(e);
            }
        }
    }

    private final Core core;
    private final List<String> names;
    private final Options options = new Options();

    LockRequest(Core core, Collection<String> names) {
        this.core = core;
        this.names = names.stream().sorted((a, b) -> Arrays.compareUnsigned(a.getBytes(UTF_8), b.getBytes(UTF_8)))
                .toList();
        for (String name : this.names) {
            require(!name.isEmpty() && name.getBytes(UTF_8).length <= NAME_MAX,
                    "the name of a lock has 1 to " + NAME_MAX + " bytes");
        }
        require(!names.isEmpty(), "no name of a lock");
        require(this.names.stream().distinct().count() == names.size(), "a name twice");
    }

    private static void require(boolean isSo, String what) {
        if (!isSo) {
            throw new IllegalArgumentException(what);
        }
    }

    // ---- options

    /**
     * Gives the lock a lease of its own, which is renewed at a third of it. Without it the lock lives as
     * long as the session of the client, and costs nothing beside it.
     */
    public LockRequest ttl(Duration ttl) {
        options.ttl = Clock.nanos(ttl);
        require(options.ttl > 0, "a TTL of nothing");
        return this;
    }

    /** How long to wait in line. The default is: without end; with {@link Duration#ZERO} there is no waiting. */
    public LockRequest waitAtMost(Duration wait) {
        options.wait = Clock.nanos(wait);
        return this;
    }

    /** Takes it together with other shared holders. */
    public LockRequest shared() {
        options.isShared = true;
        return this;
    }

    /** Takes permits of a semaphore that has so many of them in all. */
    public LockRequest permits(int permits, int of) {
        require(permits > 0 && permits <= of, permits + " permits of " + of);
        options.permits = permits;
        options.of = of;
        return this;
    }

    /** Is stored with the lock when it is granted. The next holder finds it. */
    public LockRequest body(byte[] body) {
        options.body = body.clone();
        return this;
    }

    /** The same, as UTF-8. */
    public LockRequest body(String body) {
        return body(body.getBytes(UTF_8));
    }

    /** Keeps the lock from others for so long after its lease is over. */
    public LockRequest grace(Duration grace) {
        options.grace = Clock.nanos(grace);
        return this;
    }

    /** Keeps the lock closed for so long after it was lost, and not given back. */
    public LockRequest delay(Duration delay) {
        options.delay = Clock.nanos(delay);
        return this;
    }

    /**
     * Makes all requests with this owner one party, so that the server sees a deadlock between them and
     * others. Without it each one is a party of its own.
     */
    public LockRequest owner(String owner) {
        int length = owner.getBytes(UTF_8).length;
        require(length > 0 && length <= OWNER_MAX, "an owner has 1 to " + OWNER_MAX + " bytes");
        options.owner = owner;
        return this;
    }

    /** Is told the place in the line, at once and whenever it has changed; 1 is next. It must not block. */
    public LockRequest onPlace(IntConsumer onPlace) {
        options.onPlace = onPlace;
        return this;
    }

    /** Is told when the lock is lost. It must not block. */
    public LockRequest onLost(Consumer<LostException> onLost) {
        options.onLost = onLost;
        return this;
    }

    /**
     * How long before the end of its lease a lock counts as lost when it could not be renewed: the time that
     * you need to stop. The default is a tenth of the lease, and half of it is the most.
     */
    public LockRequest early(Duration early) {
        options.early = Clock.nanos(early);
        return this;
    }

    // ---- taking it

    /**
     * Waits in line and takes the lock.
     *
     * @throws NotAcquiredException if it cannot be had, or not in time
     * @throws InterruptedException if the thread is interrupted; the place is given up
     * @throws IllegalStateException if this client knows that the owner has the lock, or waits for it
     */
    public Held acquire() throws InterruptedException {
        return acquire(options.wait);
    }

    /** Takes the lock if that can be done at once; empty: others hold it, or it is closed after a loss. */
    public Optional<Held> tryAcquire() {
        Acquisition acquisition = start(0);
        try {
            return Optional.of(Core.join(acquisition.held));
        } catch (RefusedException e) {
            if (e.reason().equals(RefusedException.KIND)) {
                throw e;
            }
            return Optional.empty();
        }
    }

    /**
     * Waits in line without a thread. To cancel the future gives up the place. What depends on it runs in the
     * common pool.
     */
    public CompletableFuture<Held> acquireAsync() {
        Acquisition acquisition = start(options.wait);
        CompletableFuture<Held> told = new CompletableFuture<>();
        acquisition.held.whenCompleteAsync((held, error) -> {
            if (error != null) {
                told.completeExceptionally(error);
            } else if (!told.complete(held)) {
                held.release();
            }
        });
        told.whenComplete((held, error) -> {
            if (told.isCancelled()) {
                acquisition.cancel();
            }
        });
        return told;
    }

    /**
     * A view for code that knows {@link Lock}. Each thread that locks it holds it by itself; it is not
     * reentrant and has no conditions. {@code unlock} throws {@link LostException} if the lock was lost.
     */
    public Lock asLock() {
        return new LockView(this);
    }

    Held acquire(long wait) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        Acquisition acquisition = start(wait);
        try {
            return Core.await(acquisition.held, Clock.NEVER);
        } catch (InterruptedException e) {
            acquisition.cancel();
            throw e;
        } catch (TimeoutException e) {
            throw new AssertionError("after 292 years", e);
        }
    }

    Held acquireUninterruptibly() {
        return Core.join(start(Clock.NEVER).held);
    }

    private Acquisition start(long wait) {
        require(!options.isShared || options.of == 0, "a semaphore is not shared");
        Options copy = options.copy();
        copy.wait = wait;
        return core.locked(() -> new Acquisition(core, names, copy)).start();
    }
}
