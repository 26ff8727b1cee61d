package belay;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/**
 * Something that happened to a lock. What does not apply is 0, "" or null.
 *
 * @param event its word: "granted", "queued", "released"... (docs/PROTOCOL.md has the list)
 * @param seq rises; of one node, since it was started
 * @param at the time of the server
 * @param namespace where it happened
 * @param name the lock
 * @param owner who it was
 * @param session its session
 * @param mode "exclusive", "shared" or "semaphore"
 * @param fence the number of the grant
 * @param ticket the number of the wait
 * @param position the place in the line
 * @param reason why
 * @param expiresIn what is left of the lease
 * @param waited how long it has waited
 * @param count of permits, or of changes
 * @param by the token that broke the lock
 * @param why the reason that it gave
 */
public record Event(String event, long seq, Instant at, String namespace, String name, String owner, String session,
        String mode, long fence, long ticket, int position, String reason, Duration expiresIn, Duration waited,
        int count, String by, String why) {

    /** The word of an event that says: events may be missing, read the state again. */
    public static final String GONE = "gone";

    static Event gone() {
        return of(Map.of("event", GONE));
    }

    static Event of(Map<?, ?> map) {
        return new Event(Reply.text(map.get("event")), Reply.whole(map.get("seq")),
                Instant.ofEpochMilli(Reply.whole(map.get("at_ms"))), Reply.text(map.get("namespace")),
                Reply.text(map.get("name")), Reply.text(map.get("owner")), Reply.text(map.get("session")),
                Reply.text(map.get("mode")), Reply.whole(map.get("fence")), Reply.whole(map.get("ticket")),
                (int) Reply.whole(map.get("position")), Reply.text(map.get("reason")),
                Reply.duration(map.get("expires_in_ms")), Reply.duration(map.get("waited_ms")),
                (int) Reply.whole(map.get("count")), Reply.text(map.get("by")), Reply.text(map.get("why")));
    }
}
