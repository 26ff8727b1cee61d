package belay;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * A lock that you hold, or several that you took together, until you release it or it is lost. It may be used
 * by all threads.
 *
 * <p>Give {@link #fence} to what you write to, and ask {@link #isHeld} directly before a step that must not be
 * done twice.
 */
public final class Held implements AutoCloseable {
    private final Core core;
    private final List<Hold> holds;
    private final Consumer<LostException> onLost;
    private final CompletableFuture<LostException> told = new CompletableFuture<>();
    private LostException lost;
    private boolean isReleased;

    Held(Core core, List<Hold> holds, Consumer<LostException> onLost) {
        this.core = core;
        this.holds = List.copyOf(holds);
        this.onLost = onLost;
        holds.forEach(hold -> hold.ended = this::ended);
    }

    private void ended(BelayException cause) {
        if (lost == null && !isReleased && cause instanceof LostException first) {
            lost = first;
            core.tell(() -> told.complete(first));
            core.tell(() -> onLost.accept(first));
        }
    }

    // ---- what it is

    /** The name of the lock; of several, the first in their order. */
    public String name() {
        return holds.get(0).name;
    }

    /** Who holds it, for people who look. */
    public String owner() {
        return holds.get(0).owner;
    }

    /**
     * A number that grows with every grant of the lock. Give it to what you write to, so that it can refuse a
     * smaller one than it has seen. A conversion changes it. Of several locks it is the last one's.
     */
    public long fence() {
        return core.locked(() -> holds.get(holds.size() - 1).fence);
    }

    /** The fences of several locks by their names. */
    public Map<String, Long> fences() {
        return core.locked(() -> {
            Map<String, Long> fences = new LinkedHashMap<>();
            holds.forEach(hold -> fences.put(hold.name, hold.fence));
            return fences;
        });
    }

    /** What was stored with the lock when it was granted. */
    public byte[] body() {
        return holds.get(0).body.clone();
    }

    /** The same, read as UTF-8. */
    public String bodyText() {
        return new String(holds.get(0).body, UTF_8);
    }

    // ---- is it held?

    /**
     * Do I hold it now? It asks only the clock, so it is right directly after a stop of the process, too. Call
     * it directly before a step that must not be done twice.
     */
    public boolean isHeld() {
        return core.locked(() -> holds.stream().noneMatch(Hold::isLate));
    }

    /** The same, asked of the server. */
    public boolean check() {
        return fences().entrySet().stream()
                .allMatch(lock -> Reply.whole(core.ask("CHECK", lock.getKey(), lock.getValue())) == 1);
    }

    /**
     * Completes when the lock is lost: before anybody else can have it, unless an operator broke it. It never
     * completes when the lock is released before.
     */
    public CompletableFuture<LostException> lost() {
        return told.copy();
    }

    // ---- changing it

    /**
     * Stores what the next holder finds.
     *
     * @throws LostException if the lock is lost
     */
    public void setBody(byte[] body) {
        for (Hold hold : holds) {
            long fence = core.locked(() -> {
                requireHeld(hold);
                return hold.fence;
            });
            try {
                core.change("BODY", hold.name, fence, body);
            } catch (ServerException e) {
                core.locked(() -> {
                    if (e.code().equals(ServerException.STALE) && hold.isOfNow(fence)) {
                        hold.lose(LostException.STALE);
                    }
                    requireHeld(hold);
                });
                throw e;
            }
        }
    }

    /** The same, as UTF-8. */
    public void setBody(String body) {
        setBody(body.getBytes(UTF_8));
    }

    /** The same, however long it has to wait for that. */
    public long convert(boolean shared) throws InterruptedException {
        return convert(shared, Clock.NEVER);
    }

    /**
     * Makes an exclusive lock shared, or a shared one exclusive. Answers its fence, which changes. If that
     * cannot be had, the lock is held as before.
     *
     * @throws NotAcquiredException if it cannot be had, or not in time
     * @throws LostException if the lock is lost
     */
    public long convert(boolean shared, Duration waitAtMost) throws InterruptedException {
        return convert(shared, Clock.nanos(waitAtMost));
    }

    private long convert(boolean shared, long wait) throws InterruptedException {
        if (holds.size() > 1) {
            throw new IllegalStateException("several locks are not converted together");
        }
        Hold hold = holds.get(0);
        core.locked(() -> requireHeld(hold));
        Conversion conversion = new Conversion(core, hold, shared, wait);
        conversion.start();
        try {
            return Core.await(conversion.fence, Clock.after(wait, core.config.timeout()));
        } catch (InterruptedException e) {
            conversion.cancel();
            throw e;
        } catch (TimeoutException e) {
            conversion.cancel();
            throw new UnreachableException(hold.name + ": no server has answered");
        }
    }

    private void requireHeld(Hold hold) {
        if (!hold.isLate()) {
            return;
        }
        if (hold.cause() instanceof LostException cause) {
            throw cause.again();
        }
        if (hold.cause() != null) {
            throw new ClosedException("the client");
        }
        throw new IllegalStateException(hold.name + " was released");
    }

    // ---- giving it back

    /**
     * Gives the lock back. Answers false if it was not held any more, because it was lost or the client was closed.
     *
     * @throws UnreachableException if no answer came in time; it is given back all the same, as soon as that
     *     is possible
     */
    public boolean release() {
        List<CompletableFuture<Object>> answers = core.locked(() -> {
            isReleased = true;
            return holds.stream().filter(hold -> !hold.isLate()).map(Held::giveBack).toList();
        });
        boolean wasHeld = answers.size() == holds.size();
        for (CompletableFuture<Object> answer : answers) {
            wasHeld &= Reply.whole(answerTo(answer)) == 1;
        }
        return wasHeld;
    }

    private static CompletableFuture<Object> giveBack(Hold hold) {
        CompletableFuture<Object> answered = new CompletableFuture<>();
        hold.release(answer -> Core.complete(answered, answer));
        return answered;
    }

    private Object answerTo(CompletableFuture<Object> answer) {
        CompletableFuture<Object> inTime = answer.copy().completeOnTimeout(this, core.config.timeout(), NANOSECONDS);
        Object value;
        try {
            value = Core.join(inTime);
        } catch (SessionOverException | UnreachableException | ClosedException e) {
            return 0L; // the lock has ended with its session, its lease or the client
        }
        if (value == this) {
            throw new UnreachableException(name() + ": the release goes on, but was not answered yet");
        }
        return value;
    }

    /**
     * Gives the lock back, at the end of a {@code try}.
     *
     * @throws LostException if it was lost: what was done in the {@code try} was not, or not wholly, done by
     *     its only holder
     */
    @Override
    public void close() {
        boolean isFirst = core.locked(() -> !isReleased);
        release();
        LostException was = core.locked(() -> lost);
        if (isFirst && was != null) {
            throw was.again();
        }
    }

    @Override
    public String toString() {
        return "Held" + fences() + (isHeld() ? "" : " (not held)");
    }
}
