import belay.Client;
import belay.Held;
import java.util.function.LongConsumer;

/**
 * A job of a timetable (a ScheduledExecutorService, Spring's @Scheduled, Quartz) runs once, though every replica has
 * the timetable.
 *
 * <p>The lock alone is not enough: a replica whose clock is late would find it free again. So what was done last is
 * stored with the lock, where it stays when nobody holds it.
 */
final class RunOnce {
    private RunOnce() {}

    /**
     * Runs the job with a fence, unless it was run for this slot or a later one. Slots rise as text, as times do:
     * "2026-11-19T03:00".
     */
    static boolean runOnce(Client client, String name, String slot, LongConsumer job) throws InterruptedException {
        try (Held held = client.lock("timetable/" + name).acquire()) {
            if (held.bodyText().compareTo(slot) >= 0) {
                return false;
            }
            job.accept(held.fence());
            held.setBody(slot);
            return true;
        }
    }
}
