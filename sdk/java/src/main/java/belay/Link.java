package belay;

import java.io.IOException;
import java.net.ProtocolException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The connection that all calls of a client share. The lock of the client is held. */
final class Link {
    final Wire wire;

    /** Of transactions that wait: they are left together with the link. */
    final Set<Wire> companions = new HashSet<>();

    private final Core core;
    private final ArrayDeque<Call> sent = new ArrayDeque<>(); // in the order of the answers
    private final Map<Long, Call> parked = new HashMap<>(); // by ticket
    private final Agenda.Task watch;
    private List<Object> brokenBy; // what came right before
    private long heard = Clock.now();
    private boolean isGreeted;

    Link(Core core, Wire wire) {
        this.core = core;
        this.wire = wire;
        this.watch = core.agenda.task(this::look);
    }

    boolean isGreeted() {
        return isGreeted;
    }

    /** The greeting, and what ties the session to this link, leave in one write. */
    void begin() {
        List<List<Object>> greeting = core.config.greeting();
        for (List<Object> words : greeting) {
            boolean isLast = words == greeting.get(greeting.size() - 1);
            core.send(new Call(words, answer -> greeted(answer, isLast)).urgent());
        }
        if (core.session != null) {
            core.session.attach();
        }
        wire.startWriting();
    }

    private void greeted(Answer answer, boolean isLast) {
        if (answer.error() != null) {
            core.refuse(this, answer.error());
        } else if (isLast) {
            isGreeted = true;
            core.flush();
        }
    }

    void send(Call call) {
        call.sent = Clock.now();
        call.linkless = 0;
        if (call.firstSent == 0) {
            call.firstSent = call.sent;
        }
        sent.add(call);
        wire.send(call.bytes);
        watch.setBy(call.sent + limit());
    }

    void forget(Call call) {
        if (call.ticket != 0) {
            parked.remove(call.ticket, call);
        }
    }

    void end() {
        watch.set(Clock.NEVER);
        wire.reset();
        companions.forEach(Wire::reset);
    }

    /** All that are on their way, in the order in which they were asked. */
    List<Call> calls() {
        List<Call> all = new ArrayList<>(sent);
        all.addAll(parked.values());
        all.sort(Comparator.comparingLong(call -> call.number));
        return all;
    }

    // ---- signs of life

    void add(Wire companion) {
        companions.add(companion);
        watch.setBy(heard + Core.PING);
    }

    private long limit() {
        return isGreeted ? core.limit() : Math.min(core.limit(), Core.CONNECT);
    }

    /** Leaves a server that does not answer, and asks one that is only waited for. */
    private void look() {
        long now = Clock.now();
        if (!sent.isEmpty()) {
            long due = Math.max(heard, sent.peek().sent) + limit();
            if (due <= now) {
                core.leave(this, new IOException(
                        wire.address.text() + " has not answered for " + Clock.millis(limit()) + " ms"));
                return;
            }
            watch.setBy(due);
        } else if (!parked.isEmpty() || !companions.isEmpty()) {
            long due = heard + Core.PING;
            if (due <= now) {
                send(new Call(List.of("PING"), answer -> {}));
                return;
            }
            watch.setBy(due);
        }
    }

    // ---- answers

    /** Without the lock: reads until the link is left. */
    void read() {
        boolean goesOn = true;
        while (goesOn) {
            try {
                Object value = wire.read();
                goesOn = core.locked(() -> take(value));
            } catch (IOException e) {
                core.locked(() -> core.leave(this, e));
                return;
            }
        }
    }

    private boolean take(Object value) {
        if (core.link != this) {
            return false;
        }
        heard = Clock.now();
        if (value instanceof Resp.Push push) {
            takePush(push.items());
        } else if (sent.isEmpty()) {
            core.leave(this, new ProtocolException(wire.address.text() + ": an answer without a request"));
        } else if (value instanceof ServerException e && ServerException.hasCode(e, ServerException.UNAVAILABLE)) {
            core.leave(this, new IOException(wire.address.text() + ": " + e.getMessage()));
        } else {
            takeAnswer(sent.remove(), value);
        }
        return core.link == this;
    }

    private void takeAnswer(Call call, Object value) {
        if (!call.isUrgent) {
            core.answered();
        }
        List<?> items = Reply.list(value);
        if (call.placed != null && Reply.text(Reply.at(items, 0)).equals("queued")) {
            park(call, Reply.whole(Reply.at(items, 1)), (int) Reply.whole(Reply.at(items, 2)));
        } else {
            core.finish(call, Answer.of(value));
        }
    }

    private void park(Call call, long ticket, int place) {
        if (call.isOver) {
            return; // somebody else looks after it
        }
        call.ticket = ticket;
        parked.put(ticket, call);
        call.placed.accept(place);
        watch.setBy(heard + Core.PING);
    }

    /** What is not known here is for later versions. */
    private void takePush(List<Object> push) {
        List<Object> told = brokenBy;
        brokenBy = null;
        String word = Reply.text(Reply.at(push, 0));
        if (push.size() == 5 && word.equals("broken-by")) {
            brokenBy = push;
        }
        if (push.size() != 6) {
            return;
        }
        switch (word) {
            case "session-ended" -> core.sessionEnded(Reply.text(push.get(1)), Reply.text(push.get(5)));
            case "broken", "expired" -> core.holdEnded(push, told);
            case "granted", "timeout", "refused", "deadlock", "failed" -> outcome(word, push);
            default -> { }
        }
    }

    /** The last word about a place in the line. It becomes what would have been the answer without one. */
    private void outcome(String word, List<Object> push) {
        Call call = parked.get(Reply.whole(push.get(3)));
        if (call == null) {
            return;
        }
        core.answered();
        switch (word) {
            case "failed" -> core.leave(this, new IOException(wire.address.text() + ": " + Reply.text(push.get(5))));
            case "granted" -> core.finish(call, Answer.late(word, push.get(2), push.get(4), Reply.bytes(push.get(5))));
            default -> core.finish(call, Answer.late(word, Reply.bytes(push.get(5))));
        }
    }
}
