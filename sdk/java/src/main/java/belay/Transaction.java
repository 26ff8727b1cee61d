package belay;

import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;

/** A transaction: say what differs from the defaults, then run it, once. */
public final class Transaction {
    private final Core core;
    private final List<Txn.Statement> statements;
    private String description = "";
    private long wait;
    private Duration minUptime = Duration.ZERO;
    private double minTrust;

    Transaction(Core core, List<Txn.Statement> statements) {
        this.core = core;
        this.statements = List.copyOf(statements);
    }

    /** How long to wait for what it asserts. The default is not to wait. */
    public Transaction waitAtMost(Duration wait) {
        this.wait = Math.min(Clock.nanos(wait), Core.WAIT_MAX);
        return this;
    }

    /** What it is for. */
    public Transaction description(String description) {
        this.description = description;
        return this;
    }

    /** How long the server must have run. */
    public Transaction minUptime(Duration minUptime) {
        this.minUptime = minUptime;
        return this;
    }

    /** How much of what it knew the server must know again: 0 to 1. */
    public Transaction minTrust(double minTrust) {
        this.minTrust = minTrust;
        return this;
    }

    /** Runs it in the session of the client. */
    public TransactionResult run() throws InterruptedException {
        while (true) {
            Session session = core.locked(this::session);
            try {
                TransactionResult result = TransactionResult.of(ask(session));
                if (!result.cause().equals(LostException.SESSION)) {
                    return result;
                }
                core.locked(() -> core.endSession(session, LostException.SESSION));
            } catch (SessionOverException e) {
                continue; // what was done in it is over, too
            }
        }
    }

    private Session session() {
        Session session = core.needSession();
        if (session == null) {
            throw new ClosedException("the client");
        }
        session.isUsed = true;
        return session;
    }

    private String json(String session) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("session", session);
        json.put("description", description);
        json.put("wait_ms", Clock.millis(wait));
        json.put("min_uptime_s", minUptime.toSeconds());
        json.put("min_trust", minTrust);
        json.put("statements", statements);
        return Json.write(json);
    }

    private Object ask(Session session) throws InterruptedException {
        String json = json(session.id);
        if (wait == 0) {
            return core.changeIn(session, "TXN", json);
        }
        long end = Clock.after(Clock.after(Clock.now(), wait), core.config.timeout());
        Waiting waiting = new Waiting(session, end, "TXN", json, "REQUEST", core.locked(core::requestId));
        Core.thread("transaction", waiting::run);
        try {
            return Core.await(waiting.answered, Clock.NEVER);
        } catch (TimeoutException e) {
            throw new AssertionError("after 292 years", e);
        } finally {
            waiting.cancel();
        }
    }

    /**
     * Waits on a connection of its own to the node of the link, which finds out whether that node is there. When
     * the link leaves it, this goes on elsewhere, where its request id keeps its place.
     */
    private final class Waiting {
        final CompletableFuture<Object> answered = new CompletableFuture<>();

        private final Session session;
        private final Object[] words;
        private final long end;
        private volatile boolean isOver;
        private Wire wire;

        Waiting(Session session, long end, Object... words) {
            this.session = session;
            this.end = end;
            this.words = words;
        }

        void cancel() {
            core.locked(() -> {
                isOver = true;
                if (wire != null) {
                    core.drop(wire);
                }
            });
        }

        private void run() {
            try {
                while (!isOver && !askOnce()) {
                    core.pause(Pace.MIN);
                }
            } catch (RuntimeException e) {
                answered.completeExceptionally(e);
            }
        }

        /** The link that the next wire goes along with; null: there is none. */
        private Link join() {
            if (core.session != session) {
                throw new SessionOverException();
            }
            if (core.link == null || isOver) {
                return null;
            }
            wire = new Wire(core.link.wire.address);
            core.link.add(wire);
            return core.link;
        }

        private boolean askOnce() {
            core.ask(List.of("PING"), true, session); // it is attached to the link now
            Link link = core.locked(this::join);
            if (link == null) {
                return false;
            }
            try (Apart apart = Apart.open(core, wire)) {
                answered.complete(apart.ask(Math.max(end - Clock.now(), 0), words));
                return true;
            } catch (IOException e) {
                giveUpIfLate(e);
            } catch (ServerException e) {
                if (!e.code().equals(ServerException.UNAVAILABLE)) {
                    throw e;
                }
                giveUpIfLate(e);
            } finally {
                core.locked(() -> link.companions.remove(wire));
            }
            return false;
        }

        private void giveUpIfLate(Exception error) {
            if (core.isClosed()) {
                throw new ClosedException("the client");
            }
            if (Clock.now() >= end) {
                throw new UnreachableException("no server has answered", error);
            }
        }
    }
}
