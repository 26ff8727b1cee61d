package belay;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.concurrent.ThreadLocalRandom;

/**
 * When to try the next server: at once, until each of them has failed in turn. Then there is a pause, which
 * grows.
 */
final class Pace {
    static final long MIN = MILLISECONDS.toNanos(50);
    static final long MAX = SECONDS.toNanos(1);

    private int failures;
    private long pause;

    void failed() {
        failures++;
    }

    void reset() {
        failures = 0;
        pause = 0;
    }

    /** Nanoseconds. */
    long next(int servers) {
        if (failures < servers) {
            return 0;
        }
        failures = 0;
        pause = Math.min(Math.max(2 * pause, MIN), MAX);
        return pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2);
    }
}
