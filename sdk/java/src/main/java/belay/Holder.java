package belay;

import java.time.Duration;
import java.util.Map;

/**
 * One of those who hold a lock.
 *
 * @param owner who it is, for people who look
 * @param mode "exclusive", "shared" or "semaphore"
 * @param fence the number of this grant
 * @param expiresIn what is left of its lease; null: it has no end of its own
 */
public record Holder(String owner, String mode, long fence, Duration expiresIn) {
    static Holder of(Map<?, ?> row) {
        return new Holder(Reply.text(row.get("owner")), Reply.text(row.get("mode")),
                Reply.whole(row.get("fence")), Reply.duration(row.get("expires_in_ms")));
    }
}
