import belay.Client;
import belay.Held;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.LongStream;

/**
 * Locks of Java, by TASKS threads of one process. Prints what run wants to know as JSON.
 *
 * <pre>java Locks.java belay pair|handover TASKS WARM_S SECONDS PORT</pre>
 */
public class Locks {
    private static final Duration TTL = Duration.ofSeconds(30);
    private static final int HELD_MS = 1;
    private static final LongAdder PAIRS = new LongAdder();

    private static final LongStream.Builder TIMES = LongStream.builder();
    private static long timesCount;
    private static boolean isInside;
    private static long givenAt;
    private static CountDownLatch last;

    /** Holds the lock for a moment. What it answers opens when another thread has the lock. */
    private static CountDownLatch hold() throws InterruptedException {
        long now = System.nanoTime();
        CountDownLatch rest = new CountDownLatch(1);
        synchronized (TIMES) {
            if (isInside) {
                Runtime.getRuntime().halt(1);
            }
            isInside = true;
            if (last != null) {
                TIMES.add(now - givenAt);
                timesCount++;
                last.countDown();
            }
        }
        Thread.sleep(HELD_MS);
        synchronized (TIMES) {
            last = rest;
            isInside = false;
            givenAt = System.nanoTime();
        }
        return rest;
    }

    private static void work(Client client, String name, boolean isHandover) {
        boolean hasLease = !System.getenv().getOrDefault("BENCH_LEASE", "").isEmpty();
        try {
            for (;;) {
                CountDownLatch rest = null;
                var lock = client.lock(name);
                try (Held held = (hasLease ? lock.ttl(TTL) : lock).acquire()) {
                    if (isHandover) {
                        rest = hold();
                    }
                }
                PAIRS.increment();
                if (rest != null) {
                    rest.await();
                }
            }
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static long[] mark() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        synchronized (TIMES) {
            return new long[] {PAIRS.sum(), timesCount, System.nanoTime(), system.getProcessCpuTime()};
        }
    }

    public static void main(String[] words) throws InterruptedException {
        boolean isHandover = words[1].equals("handover");
        Client client = Client.of("127.0.0.1:" + words[5]);
        String name = "bench-" + ProcessHandle.current().pid();
        for (int i = 0; i < Integer.parseInt(words[2]); i++) {
            String lock = isHandover ? name : name + "-" + i;
            new Thread(() -> work(client, lock, isHandover)).start();
        }
        Thread.sleep((long) (Double.parseDouble(words[3]) * 1000));
        long[] before = mark();
        Thread.sleep((long) (Double.parseDouble(words[4]) * 1000));
        long[] after = mark();
        synchronized (TIMES) {
            long[] times = TIMES.build().skip(before[1]).limit(after[1] - before[1]).sorted().toArray();
            System.out.printf("{\"pairs\": %d, \"s\": %f, \"cpu_s\": %f, \"handover_us\": %s}%n", after[0] - before[0],
                    (after[2] - before[2]) / 1e9, (after[3] - before[3]) / 1e9,
                    times.length == 0 ? "null" : times[times.length / 2] / 1e3);
            Runtime.getRuntime().halt(0); // what is held ends with its session or lease
        }
    }
}
