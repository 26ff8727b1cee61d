import belay.Client;
import belay.Held;
import java.time.Duration;

/**
 * Replicas that start together migrate the schema once, before they do anything else: the others wait, and find it
 * done. (Flyway and Liquibase do have locks of their own, which stay behind when a replica is killed.)
 */
final class Migration {
    /** The database. */
    interface Schema {
        int version();

        /** Remembers the fence, and refuses a smaller one. */
        void migrate(int version, long fence);
    }

    private Migration() {}

    static void atStart(Client client, Schema schema, int version) throws InterruptedException {
        try (Held held = client.lock("schema").ttl(Duration.ofMinutes(1)).acquire()) {
            if (schema.version() < version) {
                schema.migrate(version, held.fence());
            }
        }
    }
}
