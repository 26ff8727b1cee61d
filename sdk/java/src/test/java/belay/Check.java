package belay;

import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/** What tests expect. */
public final class Check {
    /** Nothing here takes this long; what does has failed. */
    public static final long PATIENCE_S = 30;

    /** Work that may fail. */
    public interface Work {
        /** Does it. */
        void run() throws Exception;
    }

    private Check() {}

    /** They are equal. */
    public static void is(Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(got + ", not " + want);
        }
    }

    /** It is so. */
    public static void that(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError("not so: " + what);
        }
    }

    /** The work fails with such an error. */
    public static <E extends Throwable> E fails(Class<E> with, Work work) {
        try {
            work.run();
        } catch (Throwable e) {
            if (with.isInstance(e)) {
                return with.cast(e);
            }
            throw new AssertionError("another error", e);
        }
        throw new AssertionError("it did not fail");
    }

    /** Asks until it is so. */
    public static void until(Supplier<Boolean> isSo) {
        long end = System.nanoTime() + PATIENCE_S * 1_000_000_000;
        while (!isSo.get()) {
            that(System.nanoTime() < end, "in time");
            LockSupport.parkNanos(1_000_000);
        }
    }

    /** The work in a thread of its own. */
    public static Background inBackground(Callable<?> work) {
        return new Background(work);
    }

    /** A thread and what became of it. */
    public static final class Background {
        private final Thread thread;
        private volatile Throwable error;

        private Background(Callable<?> work) {
            thread = new Thread(() -> {
                try {
                    work.call();
                } catch (Throwable e) {
                    error = e;
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        /** Interrupts it. */
        public void interrupt() {
            thread.interrupt();
        }

        /** Waits for its end; it fails as the work has. */
        public void join() throws Exception {
            thread.join(PATIENCE_S * 1000);
            that(!thread.isAlive(), "it ends");
            if (error instanceof Exception e) {
                throw e;
            }
            if (error instanceof Error e) {
                throw e;
            }
        }
    }
}
