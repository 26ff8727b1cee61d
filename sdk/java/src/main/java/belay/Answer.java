package belay;

import java.util.Arrays;
import java.util.List;

/**
 * What became of a call.
 *
 * @param isLate it came by a push
 */
record Answer(Object value, BelayException error, boolean isLate) {
    static Answer of(Object value) {
        return value instanceof BelayException error ? failed(error) : new Answer(value, null, false);
    }

    static Answer failed(BelayException error) {
        return new Answer(null, error, false);
    }

    static Answer late(Object... value) {
        return new Answer(Arrays.asList(value), null, true);
    }

    /** What ACQUIRE and CONVERT were granted. */
    record Grant(long fence, byte[] body) {}

    /** Reads the answer to ACQUIRE and CONVERT. It throws the error, a refusal among them. */
    Grant grant(String name) {
        if (error != null) {
            throw error;
        }
        List<?> items = Reply.list(value);
        switch (Reply.text(Reply.at(items, 0))) {
            case "granted":
                return new Grant(Reply.whole(Reply.at(items, 1)), Reply.bytes(Reply.at(items, 3)));
            case "timeout":
                throw new TimedOutException(name);
            case "deadlock":
                throw new DeadlockException(name, items.stream().skip(1).map(Reply::list).map(Answer::edge).toList());
            case "refused":
                throw new RefusedException(name, Reply.text(Reply.at(items, 1)),
                        items.stream().skip(2).map(Reply::list).map(Answer::holder).toList());
            default:
                throw new UnreachableException("the answer is not one of a Belay server");
        }
    }

    private static DeadlockException.Edge edge(List<?> items) {
        return new DeadlockException.Edge(Reply.text(Reply.at(items, 0)), Reply.text(Reply.at(items, 1)));
    }

    private static Holder holder(List<?> items) {
        return new Holder(Reply.text(Reply.at(items, 0)), Reply.text(Reply.at(items, 1)),
                Reply.whole(Reply.at(items, 2)), Reply.duration(Reply.at(items, 3)));
    }
}
