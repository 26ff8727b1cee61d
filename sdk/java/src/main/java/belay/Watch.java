package belay;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Optional;

/**
 * What comes in from the server, in its order. Take it in time: a watch that is too far behind misses some.
 *
 * @param <T> what it is
 */
public final class Watch<T> implements AutoCloseable {
    private static final int ROOM = 1024;

    private final ArrayDeque<T> items = new ArrayDeque<>();
    private Runnable onClose;
    private boolean isClosed;

    Watch(Runnable onClose) {
        this.onClose = onClose;
    }

    /**
     * Waits for the next one.
     *
     * @throws ClosedException if the watch, or its client, is closed
     */
    public synchronized T take() throws InterruptedException {
        while (items.isEmpty() && !isClosed) {
            wait();
        }
        return next();
    }

    /** Waits for the next one for a while. */
    public synchronized Optional<T> poll(Duration waitAtMost) throws InterruptedException {
        long end = Clock.after(Clock.now(), Clock.nanos(waitAtMost));
        while (items.isEmpty() && !isClosed) {
            long left = end - Clock.now();
            if (left <= 0) {
                return Optional.empty();
            }
            wait(Clock.millis(left));
        }
        return Optional.of(next());
    }

    private T next() {
        if (isClosed) {
            throw new ClosedException("the watch");
        }
        notifyAll();
        return items.remove();
    }

    /** Waits for room; false: nobody wants it any more. */
    synchronized boolean put(T item) throws InterruptedException {
        while (items.size() == ROOM && !isClosed) {
            wait();
        }
        if (!isClosed) {
            items.add(item);
            notifyAll();
        }
        return !isClosed;
    }

    synchronized boolean isClosed() {
        return isClosed;
    }

    /** Nothing comes any more. A second close does nothing. */
    @Override
    public void close() {
        Runnable last;
        synchronized (this) {
            isClosed = true;
            notifyAll();
            last = onClose;
            onClose = () -> {};
        }
        last.run();
    }
}
