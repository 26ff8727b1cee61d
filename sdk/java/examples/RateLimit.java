import belay.Client;
import belay.Held;
import java.util.concurrent.Callable;

/** At most so many calls at a time to a service that bears no more, from all replicas together. */
final class RateLimit {
    private final Client client;
    private final String service;
    private final int limit;

    RateLimit(Client client, String service, int limit) {
        this.client = client;
        this.service = service;
        this.limit = limit;
    }

    <T> T call(Callable<T> request) throws Exception {
        try (Held permit = client.lock("limit/" + service).permits(1, limit).acquire()) {
            return request.call();
        }
    }
}
