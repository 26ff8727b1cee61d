package belay;

import java.lang.System.Logger.Level;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * One acquire: some locks, usually one, one after another in the order of their names. Methods are called
 * with the lock of the client, except for those that say otherwise.
 */
final class Acquisition {
    private static final long MOMENT = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long LOOK = TimeUnit.SECONDS.toNanos(1); // between two looks at the place in a line

    /** What becomes of it. Nobody's code but the library's may depend on it. */
    final CompletableFuture<Held> held = new CompletableFuture<>();

    private final Core core;
    private final LockRequest.Options options;
    private final String owner;
    private final long end;
    private final ArrayDeque<String> names; // of those that are not held yet; the first is asked for
    private final List<Hold> holds = new ArrayList<>();
    private final Agenda.Task look;
    private Call call; // the present one
    private Hold unproven; // granted, but not believed in yet
    private int place;
    private boolean isOver;

    Acquisition(Core core, List<String> names, LockRequest.Options options) {
        this.core = core;
        this.options = options;
        this.owner = options.owner == null ? core.nextOwner() : options.owner;
        this.end = Clock.after(Clock.now(), options.wait);
        this.names = new ArrayDeque<>(names);
        this.look = core.agenda.task(this::look);
        for (String name : names) {
            if (core.parties.contains(new Core.Party(name, owner))) {
                throw new IllegalStateException(name + ": " + owner + " holds it or waits for it already");
            }
        }
        names.forEach(name -> core.parties.add(new Core.Party(name, owner)));
    }

    /** Without the lock. */
    Acquisition start() {
        core.locked(this::ask);
        return this;
    }

    /** Without the lock: leaves the line, or gives back what was granted. */
    void cancel() {
        core.locked(() -> {
            if (!isOver) {
                leaveLine();
                fail(new CancellationException("nobody wants the lock any more"));
            } else if (held.isDone() && !held.isCompletedExceptionally()) {
                holds.stream().filter(hold -> !hold.isOver()).forEach(hold -> hold.release(answer -> {}));
            }
        });
    }

    private Core.Party party() {
        return new Core.Party(names.peek(), owner);
    }

    // ---- asking

    private void ask() {
        if (isOver) {
            return;
        }
        List<Runnable> left = core.leaving.get(party());
        if (left != null) { // the line that it has just left
            left.add(this::ask);
            return;
        }
        long now = Clock.now();
        long wait = Math.min(end - now, Core.WAIT_MAX);
        if (options.wait == 0) {
            wait = 0;
        } else if (wait <= 0) {
            fail(new TimedOutException(names.peek()));
            return;
        }
        core.parties.add(party());
        Session session = core.needSession();
        List<Object> words = words(session, wait);
        if (options.body != null) {
            words.addAll(List.of("BODY", options.body));
        }
        call = request(words, session, this::answered).inLine(wait > 0 ? this::placed : null)
                .until(Clock.after(Clock.after(now, wait), core.config.timeout()));
        core.send(call);
    }

    private Call request(List<Object> words, Session session, Consumer<Answer> done) {
        words.addAll(List.of("REQUEST", core.requestId()));
        return new Call(words, done).again().in(session);
    }

    private List<Object> words(Session session, long wait) {
        List<Object> words = new ArrayList<>(List.of("ACQUIRE", names.peek(), owner));
        if (options.isShared) {
            words.addAll(List.of("MODE", "shared"));
        }
        if (options.of > 0) {
            words.addAll(List.of("PERMITS", options.permits, "OF", options.of));
        }
        words.addAll(List.of("TTL", Clock.millis(options.ttl)));
        if (session != null) { // else the client is closed, which the call is told
            words.addAll(List.of("SESSION", session.id));
        }
        if (wait > 0) {
            words.addAll(List.of("WAIT", Clock.millis(wait), "NOBLOCK"));
        }
        if (options.grace > 0) {
            words.addAll(List.of("GRACE", Clock.millis(options.grace)));
        }
        if (options.delay > 0) {
            words.addAll(List.of("DELAY", Clock.millis(options.delay)));
        }
        return words;
    }

    // ---- the place in the line

    private void placed(int position) {
        if (options.onPlace != null && !isOver) {
            look.set(Clock.now() + LOOK);
            tellPlace(position);
        }
    }

    private void tellPlace(int position) {
        if (position != place) {
            place = position;
            core.tell(() -> options.onPlace.accept(position));
        }
    }

    private void look() {
        Call asked = call;
        core.send(new Call(List.of("SHOW", names.peek()), answer -> looked(asked, answer))
                .until(Clock.after(Clock.now(), core.config.timeout())));
    }

    private void looked(Call asked, Answer answer) {
        if (call != asked || call.ticket == 0 || isOver) {
            return;
        }
        if (answer.error() == null) {
            LockInfo.of(answer.value()).waiters().stream()
                    .filter(waiter -> waiter.owner().equals(owner) && waiter.session().equals(asked.session.id))
                    .forEach(waiter -> tellPlace(waiter.position()));
            look.set(Clock.now() + LOOK);
        }
    }

    // ---- answers

    private void answered(Answer answer) {
        look.set(Clock.NEVER);
        place = 0;
        try {
            granted(answer.grant(names.peek()), answer.isLate());
        } catch (TimedOutException e) {
            if (Clock.after(call.firstSent, Core.WAIT_MAX) <= end) {
                ask(); // one request waits so long at most
            } else {
                fail(e);
            }
        } catch (SessionOverException e) {
            ask();
        } catch (RefusedException e) {
            askInNewSession(e, e.reason().equals(LostException.SESSION));
        } catch (ServerException e) {
            if (e.code().equals(ServerException.STALE)) {
                ask(); // granted while there was no link, and over by now
            } else {
                askInNewSession(e, e.code().equals(ServerException.NO_SESSION));
            }
        } catch (UnreachableException e) {
            leaveLine();
            fail(e);
        } catch (BelayException e) {
            fail(e);
        }
    }

    private void askInNewSession(BelayException error, boolean isSessionOver) {
        if (isSessionOver) {
            core.endSession(call.session, LostException.SESSION);
            ask();
        } else {
            fail(error);
        }
    }

    /**
     * The lease counts from when it was first asked for. When that is long ago, or it is not known when it was
     * granted, it is renewed before anybody believes in it.
     */
    private void granted(Answer.Grant grant, boolean isLate) {
        Hold hold = new Hold(core, options, party(), grant, call);
        unproven = hold;
        hold.ended = cause -> {
            unproven = null;
            if (cause instanceof LostException) {
                ask();
            } else {
                fail(cause);
            }
        };
        if (hold.ttl > 0 && (isLate || Clock.now() >= call.firstSent + hold.ttl / Core.RENEW_PART)) {
            hold.prove(() -> take(hold));
        } else if (!hold.isLate()) {
            take(hold);
        }
    }

    private void take(Hold hold) {
        unproven = null;
        call = null;
        names.remove();
        holds.add(hold);
        hold.ended = cause -> {
            leaveLine();
            fail(cause);
        };
        if (!names.isEmpty()) {
            ask();
            return;
        }
        isOver = true;
        held.complete(new Held(core, holds, options.onLost));
    }

    private void fail(RuntimeException error) {
        if (isOver) {
            return;
        }
        isOver = true;
        look.set(Clock.NEVER);
        names.forEach(name -> core.parties.remove(new Core.Party(name, owner)));
        holds.stream().filter(hold -> !hold.isOver()).forEach(hold -> hold.release(answer -> {}));
        held.completeExceptionally(error);
    }

    // ---- nobody wants it

    /**
     * Asks once more, for a moment: the same owner takes the place over, and it ends. A request that was never
     * sent needs no such thing.
     */
    private void leaveLine() {
        if (unproven != null) {
            unproven.release(answer -> {});
            return;
        }
        if (call == null) {
            return;
        }
        look.set(Clock.NEVER);
        core.drop(call);
        Session session = call.session;
        if (call.firstSent == 0 || core.session != session) {
            return;
        }
        Core.Party party = party();
        core.leaving.put(party, new ArrayList<>());
        core.send(request(words(session, MOMENT), session, answer -> hasLeft(party, session, answer))
                .inLine(position -> {}).patient());
    }

    private void hasLeft(Core.Party party, Session session, Answer answer) {
        try {
            long fence = answer.grant(party.name()).fence();
            core.giveBack(party.name(), fence, session, Clock.NEVER, done -> {});
        } catch (BelayException e) {
            core.log(Level.DEBUG, "left the line: " + e.getMessage());
        }
        core.leaving.remove(party).forEach(Runnable::run);
    }
}
