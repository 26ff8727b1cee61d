package belay;

import java.io.IOException;
import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Fills a watch with events, from one node after another. Without the lock of the client. */
final class News {
    final Watch<Event> watch = new Watch<>(this::close);

    private final Core core;
    private final CompletableFuture<Void> isStarted = new CompletableFuture<>();
    private final String prefix;
    private volatile Apart from;
    private long seen; // 0: it begins with what happens from now on

    News(Core core, String prefix) {
        this.core = core;
        this.prefix = prefix;
    }

    /** When this returns, nothing is missed any more. */
    void start() {
        core.locked(() -> core.add(watch));
        Core.thread("watch", this::run);
        Core.join(isStarted);
    }

    private void close() {
        core.locked(() -> core.remove(watch));
        if (from != null) {
            from.close();
        }
    }

    private boolean isOver() {
        return watch.isClosed();
    }

    private void connect(long end) {
        Pace pace = new Pace();
        List<Address> addresses = core.config.addresses();
        for (int at = core.address();; at++) {
            Exception trouble;
            try {
                from = Apart.open(core, new Wire(addresses.get(at % addresses.size())));
                begin();
                return;
            } catch (ServerException e) {
                if (!e.code().equals(ServerException.UNAVAILABLE)) {
                    throw e;
                }
                trouble = e;
            } catch (IOException e) {
                trouble = e;
            }
            if (isOver()) {
                throw new ClosedException("the watch");
            }
            if (Clock.now() >= end) {
                throw new UnreachableException("no server has answered", trouble);
            }
            pace.failed();
            core.pause(pace.next(addresses.size()));
        }
    }

    /** Asks for what follows the last event that was seen, or for what happens from now on. */
    private void begin() throws IOException {
        List<Object> words = new ArrayList<>(List.of("WATCH"));
        if (!prefix.isEmpty()) {
            words.addAll(List.of("PREFIX", prefix));
        }
        if (seen > 0) {
            List<Object> since = new ArrayList<>(words);
            since.addAll(List.of("SINCE", seen));
            try {
                from.ask(Core.SILENCE, since.toArray());
                return;
            } catch (ServerException e) {
                if (!e.code().equals(ServerException.GONE)) {
                    throw e;
                }
            }
        }
        seen = 0;
        from.ask(Core.SILENCE, words.toArray());
    }

    private void run() {
        try {
            connect(Clock.after(Clock.now(), core.config.timeout()));
            isStarted.complete(null);
            while (!isOver()) {
                follow();
                from.close();
                reconnect();
                if (seen == 0 && !isOver()) {
                    watch.put(Event.gone());
                }
            }
        } catch (BelayException e) {
            isStarted.completeExceptionally(e);
        } catch (InterruptedException e) {
            throw new AssertionError("nobody knows this thread", e);
        } finally {
            watch.close();
            close();
        }
    }

    private void reconnect() {
        while (!isOver()) {
            try {
                connect(Clock.NEVER);
                return;
            } catch (BelayException e) {
                core.log(Level.DEBUG, "a watch is refused: " + e.getMessage());
                from.close();
                core.pause(Pace.MAX);
            }
        }
    }

    private void follow() throws InterruptedException {
        try {
            while (!isOver()) {
                Object value = from.next();
                if (value instanceof Resp.Push push && Reply.at(push.items(), 3) instanceof Map<?, ?> map) {
                    Event event = Event.of(map);
                    seen = event.seq();
                    watch.put(event);
                }
            }
        } catch (IOException e) {
            core.log(Level.DEBUG, "a watch goes on elsewhere: " + e.getMessage());
        }
    }
}
