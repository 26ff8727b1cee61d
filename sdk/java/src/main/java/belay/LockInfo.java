package belay;

import java.util.List;
import java.util.Map;

/**
 * What the server knows about a lock.
 *
 * @param name its name
 * @param state "unlocked", "shared", "exclusive", "semaphore" or "closed"
 * @param body what is stored with it
 * @param holders the first 100 that hold it
 * @param waiters the first 100 that wait for it
 */
public record LockInfo(String name, String state, byte[] body, List<Holder> holders, List<Waiter> waiters) {
    static LockInfo of(Object reply) {
        Map<?, ?> map = Reply.map(reply);
        return new LockInfo(Reply.text(map.get("name")), Reply.text(map.get("state")), Reply.bytes(map.get("body")),
                Reply.list(map.get("holders")).stream().map(row -> Holder.of(Reply.map(row))).toList(),
                Reply.list(map.get("waiters")).stream().map(row -> Waiter.of(Reply.map(row))).toList());
    }
}
