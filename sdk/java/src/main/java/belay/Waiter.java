package belay;

import java.util.Map;

/**
 * One of those who wait for a lock.
 *
 * @param owner who it is, for people who look
 * @param session its session; "" outside of one
 * @param mode "exclusive", "shared" or "semaphore"
 * @param position its place in the line; 1 is next
 */
public record Waiter(String owner, String session, String mode, int position) {
    static Waiter of(Map<?, ?> row) {
        return new Waiter(Reply.text(row.get("owner")), Reply.text(row.get("session")),
                Reply.text(row.get("mode")), (int) Reply.whole(row.get("position")));
    }
}
