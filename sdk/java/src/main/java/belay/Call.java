package belay;

import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.IntConsumer;

/**
 * A request whose answer is awaited. Everything in it belongs to the lock of the client.
 *
 * <pre>
 * queue --ready--> sent --answer--> done
 *   ^               | '--"queued"--> parked --push--> done
 *   '--link is left-+------------------'
 * </pre>
 */
final class Call {
    final byte[] bytes;
    private final BiConsumer<Answer, Call> done; // is called once
    boolean isSentAgain; // when its answer did not come
    boolean isUrgent; // it makes the link ready
    boolean isPatient; // it outlasts the lack of a connection
    IntConsumer placed; // is told the place in the line; null: it does not wait in one
    Session session; // it ends with this one
    long until = Clock.NEVER; // it is given up then

    long number; // in the order in which they were asked
    long firstSent; // 0: not yet
    long sent;
    long linkless; // since then it is on no connection; 0: it is on one
    long ticket; // parked
    boolean isOver; // it is done, or nobody wants it any more
    Agenda.Task expiry;

    Call(List<?> words, BiConsumer<Answer, Call> done) {
        this.bytes = Resp.command(words);
        this.done = done;
    }

    Call(List<?> words, Consumer<Answer> done) {
        this(words, (answer, call) -> done.accept(answer));
    }

    Call again() {
        isSentAgain = true;
        return this;
    }

    Call urgent() {
        isUrgent = true;
        return this;
    }

    Call patient() {
        isPatient = true;
        return this;
    }

    Call inLine(IntConsumer placed) {
        this.placed = placed;
        return this;
    }

    Call in(Session session) {
        this.session = session;
        return this;
    }

    Call until(long at) {
        until = at;
        return this;
    }

    void finish(Answer answer) {
        if (!isOver) {
            isOver = true;
            done.accept(answer, this);
        }
    }
}
