package belay;

import java.io.IOException;
import java.util.List;

/** What the locks of a client live in. It is attached to the link, and kept alive. */
final class Session {
    final String id = Core.randomHex(16);
    boolean isUsed; // by a transaction: there may be variables in it

    private final Core core;
    private final List<Object> open; // always the same, so it opens one
    private final Agenda.Task tend;
    private long proven = Clock.NEVER;
    private long keep = Clock.NEVER; // when to send the next sign of life
    private boolean isKeeping; // one is on its way
    private boolean isOpen;
    private boolean isAttached; // to the present link

    Session(Core core) {
        this.core = core;
        this.open = List.of("SESSION", "OPEN", "TTL", Clock.millis(core.config.sessionTtl()),
                "DESCRIPTION", core.config.owner(), "ID", id, "REQUEST", core.requestId());
        this.tend = core.agenda.task(this::tend);
    }

    boolean isOpen() {
        return isOpen;
    }

    boolean isAttached() {
        return isAttached;
    }

    long proven() {
        return proven;
    }

    void detach() {
        isAttached = false;
    }

    void end() {
        tend.set(Clock.NEVER);
    }

    /** Ties it to the link. What needs the link waits for that. */
    void attach() {
        Link link = core.link;
        if (!isOpen) {
            core.send(new Call(open, answer -> opened(link, answer)).urgent().in(this));
        }
        core.send(new Call(List.of("SESSION", "ATTACH", id), (answer, call) -> attached(link, answer, call.sent))
                .urgent().in(this));
    }

    private void opened(Link link, Answer answer) {
        if (answer.error() != null) {
            refused(link, answer.error());
        } else {
            isOpen = true;
        }
    }

    private void attached(Link link, Answer answer, long sent) {
        if (ServerException.hasCode(answer.error(), ServerException.NO_SESSION)) {
            core.endSession(this, LostException.SESSION);
        } else if (answer.error() != null) {
            refused(link, answer.error());
        } else if (core.session == this) {
            isAttached = true;
            prove(sent);
            core.renewAll();
            core.flush();
        }
    }

    /** When it is the link that failed, the next one attaches it. */
    private void refused(Link link, BelayException error) {
        if (core.link == link && core.session == this) {
            core.refuse(link, error);
            if (!isOpen) {
                core.endSession(this, LostException.SESSION);
            }
        }
    }

    private void prove(long sent) {
        proven = sent + core.config.sessionTtl();
        keep = sent + core.config.sessionTtl() / Core.RENEW_PART;
        tend.set(keep);
    }

    private void tend() {
        if (Clock.now() >= proven) {
            core.endSession(this, LostException.SILENCE);
            if (core.link != null) { // it must not live on there, for somebody who has given it up
                core.leave(core.link, new IOException(core.link.wire.address.text() + " did not answer in time"));
            }
            return;
        }
        if (Clock.now() >= keep && isAttached && !isKeeping) {
            keepAlive();
        }
        tend.set(isAttached && !isKeeping ? Math.min(keep, proven) : proven);
    }

    private void keepAlive() {
        isKeeping = true;
        core.send(new Call(List.of("SESSION", "KEEPALIVE", id), (answer, call) -> kept(answer, call.sent)).in(this));
    }

    private void kept(Answer answer, long sent) {
        isKeeping = false;
        if (core.session != this) {
            return;
        }
        boolean isGone = answer.error() == null && Reply.whole(answer.value()) == 0;
        if (isGone || ServerException.hasCode(answer.error(), ServerException.NO_SESSION)) {
            core.endSession(this, LostException.SESSION);
        } else if (answer.error() == null) {
            prove(sent);
        } else {
            keep = Clock.now() + Core.RETRY;
            tend.set(Math.min(keep, proven));
        }
    }
}
