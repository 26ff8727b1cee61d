package belay;

import java.time.Duration;

/** The clock that leases are measured by: nanoseconds since some start. It never goes back. */
final class Clock {
    static final long NEVER = Long.MAX_VALUE;

    private static final long MILLI = 1_000_000;
    private static final long START = System.nanoTime() - 1;

    private Clock() {}

    static long now() {
        return System.nanoTime() - START;
    }

    /** {@code at + nanos}, or never. */
    static long after(long at, long nanos) {
        long sum = at + nanos;
        return sum < 0 ? NEVER : sum;
    }

    static long nanos(Duration duration) {
        if (duration.isNegative()) {
            throw new IllegalArgumentException("a duration is negative: " + duration);
        }
        return duration.compareTo(Duration.ofNanos(NEVER)) >= 0 ? NEVER : duration.toNanos();
    }

    /** Whole milliseconds: at least 1 if there is anything. */
    static long millis(long nanos) {
        return nanos / MILLI + (nanos % MILLI == 0 ? 0 : 1);
    }
}
