import static belay.Check.inBackground;
import static belay.Check.is;

import belay.Check;
import belay.Client;
import belay.Test;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** The examples, each with more than one replica. */
final class RecipesTest {
    @Test
    void runOnce() throws Exception {
        List<Long> fences = new ArrayList<>();
        for (int replica = 0; replica < 3; replica++) {
            try (Client client = Client.create()) {
                is(RunOnce.runOnce(client, "report", "2026-11-19", fences::add), replica == 0);
            }
        }
        try (Client client = Client.create()) {
            is(RunOnce.runOnce(client, "report", "2026-11-20", fences::add), true);
        }
        is(fences.size(), 2);
    }

    @Test
    void leaderTask() throws Exception {
        LinkedBlockingQueue<String> led = new LinkedBlockingQueue<>();
        try (Client one = Client.create(); Client two = Client.create()) {
            var first = inBackground(() -> {
                new LeaderTask(one, "task", "one", term -> say(led, "one")).run();
                return null;
            });
            is(led.poll(Check.PATIENCE_S, TimeUnit.SECONDS), "one");
            var second = inBackground(() -> {
                new LeaderTask(two, "task", "two", term -> say(led, "two")).run();
                return null;
            });
            first.interrupt();
            is(led.poll(Check.PATIENCE_S, TimeUnit.SECONDS), "two");
            second.interrupt();
            first.join();
            second.join();
        }
    }

    /** Says it once, and then works until it is interrupted. */
    private static void say(LinkedBlockingQueue<String> to, String who) throws InterruptedException {
        to.add(who);
        Thread.sleep(Long.MAX_VALUE);
    }

    @Test
    void rateLimit() throws Exception {
        AtomicInteger busy = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Check.Background> calls = new ArrayList<>();
        try (Client client = Client.create()) {
            RateLimit limit = new RateLimit(client, "mail", 2);
            for (int i = 0; i < 10; i++) {
                calls.add(inBackground(() -> limit.call(() -> {
                    most.accumulateAndGet(busy.incrementAndGet(), Math::max);
                    Thread.sleep(1);
                    return busy.decrementAndGet();
                })));
            }
            for (Check.Background call : calls) {
                call.join();
            }
        }
        is(most.get() <= 2, true);
    }

    /** In memory. */
    private static final class Database implements Migration.Schema {
        private int version = 1;
        private int migrations;

        @Override
        public synchronized int version() {
            return version;
        }

        @Override
        public synchronized void migrate(int to, long fence) {
            version = to;
            migrations++;
        }
    }

    @Test
    void migration() throws Exception {
        Database database = new Database();
        List<Check.Background> replicas = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            replicas.add(inBackground(() -> {
                try (Client client = Client.create()) {
                    Migration.atStart(client, database, 2);
                }
                return null;
            }));
        }
        for (Check.Background replica : replicas) {
            replica.join();
        }
        is(database.version, 2);
        is(database.migrations, 1);
    }
}
