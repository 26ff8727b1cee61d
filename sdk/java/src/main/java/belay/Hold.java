package belay;

import java.lang.System.Logger.Level;
import java.util.List;
import java.util.function.Consumer;

/**
 * A lock that was granted, until it is released or lost. The lock of the client is held.
 *
 * <pre>
 * sent           sent + ttl/3       proven - early     proven = sent + ttl
 * |--------------|------------------|------------------|
 * | proven       | renewed, again   | lost             | somebody else may have it
 * |              | and again        |                  |
 * </pre>
 */
final class Hold {
    final String name;
    final String owner;
    final byte[] body;
    final long ttl; // nanoseconds; 0: it lives as long as its session
    final Session session;
    long fence;
    int converting; // conversions under way: the fence may change
    Consumer<BelayException> ended; // is told when it ends by itself

    private final Core core;
    private final long early;
    private final Agenda.Task tend;
    private long proven = Clock.NEVER; // never: as long as its session
    private long renew = Clock.NEVER; // when to send the next RENEW
    private Runnable whenProven; // is told of the next renewal: until then it is nobody's
    private boolean isRenewing; // one is on its way
    private boolean isOver;
    private BelayException cause; // why it ended by itself

    Hold(Core core, LockRequest.Options options, Core.Party party, Answer.Grant grant, Call call) {
        this.core = core;
        this.name = party.name();
        this.owner = party.owner();
        this.fence = grant.fence();
        this.body = grant.body();
        this.ttl = options.ttl;
        this.session = call.session;
        this.tend = core.agenda.task(this::tend);
        long lease = core.config.sessionTtl();
        if (ttl > 0) {
            proven = Clock.after(call.firstSent, ttl);
            renew = Clock.after(call.firstSent, ttl / Core.RENEW_PART);
            lease = Math.min(lease, ttl);
        }
        this.early = Math.min(options.early < 0 ? lease / Core.EARLY_PART : options.early, lease / 2);
        core.add(this);
        schedule();
    }

    /** Why it ended by itself; null if it did not. */
    BelayException cause() {
        return cause;
    }

    boolean isOver() {
        return isOver;
    }

    /** Looks at the clock: later than its deadline, it is lost. */
    boolean isLate() {
        if (!isOver && Clock.now() >= deadline()) {
            lose(LostException.SILENCE);
        }
        return isOver;
    }

    private long deadline() {
        return Math.min(proven, session.proven()) - early;
    }

    private boolean mayRenew() {
        return !isRenewing && core.isReady();
    }

    private void schedule() {
        tend.set(mayRenew() ? Math.min(renew, deadline()) : deadline());
    }

    private void tend() {
        if (isLate()) {
            return;
        }
        if (mayRenew() && Clock.now() >= renew) {
            sendRenew();
        }
        schedule();
    }

    void renewSoon() {
        if (ttl > 0) {
            renew = Clock.now();
            schedule();
        }
    }

    /** Does not believe in the grant before it was renewed. */
    void prove(Runnable then) {
        proven = Clock.after(Clock.now(), ttl);
        whenProven = then;
        renewSoon();
    }

    private void sendRenew() {
        isRenewing = true;
        long asked = fence;
        core.send(new Call(List.of("RENEW", name, fence, "TTL", Clock.millis(ttl)),
                (answer, call) -> renewed(answer, asked, call.sent)).in(session));
    }

    private void renewed(Answer answer, long asked, long sent) {
        isRenewing = false;
        if (isOver) {
            return;
        }
        if (answer.error() == null) {
            proven = Math.max(proven, Clock.after(sent, ttl));
            renew = Clock.after(sent, ttl / Core.RENEW_PART);
            if (whenProven != null && !isLate()) {
                Runnable then = whenProven;
                whenProven = null;
                then.run();
            }
        } else if (ServerException.hasCode(answer.error(), ServerException.STALE) && isOfNow(asked)) {
            lose(LostException.STALE);
        } else {
            renew = Clock.now() + Core.RETRY;
        }
        if (!isOver) {
            schedule();
        }
    }

    /** What the server says of that fence says it of this hold. */
    boolean isOfNow(long asked) {
        return fence == asked && converting == 0;
    }

    /** A conversion was granted, which was first asked for at that time. */
    void moved(long to, long firstSent) {
        if (isOver) {
            core.giveBack(name, to, session, Clock.NEVER, answer -> {});
            return;
        }
        core.remove(this);
        fence = to;
        core.add(this);
        if (ttl > 0) {
            proven = Math.max(proven, Clock.after(firstSent, ttl));
            renewSoon();
        }
    }

    void lose(String reason) {
        lose(reason, "", "");
    }

    void lose(String reason, String by, String text) {
        if (isOver) {
            return;
        }
        LostException lost = new LostException(name, fence, reason, by, text);
        core.log(Level.WARNING, lost.getMessage());
        if (reason.equals(LostException.SILENCE)) { // the server may not know
            core.giveBack(name, fence, session, proven, answer -> {});
        }
        end(lost);
    }

    /** It is over, but was not given back. */
    void end(BelayException cause) {
        if (isOver) {
            return;
        }
        this.cause = cause;
        end();
        ended.accept(cause);
    }

    private void end() {
        isOver = true;
        core.remove(this);
        core.parties.remove(new Core.Party(name, owner));
        tend.set(Clock.NEVER);
    }

    void release(Consumer<Answer> done) {
        end();
        core.giveBack(name, fence, session, proven, done);
    }
}
