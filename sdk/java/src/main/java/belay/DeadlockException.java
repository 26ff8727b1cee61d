package belay;

import java.util.List;
import java.util.stream.Collectors;

/** The wait would never have ended: each owner waits for a lock that the next one holds. */
public final class DeadlockException extends NotAcquiredException {
    private static final long serialVersionUID = 1;

    /**
     * One step of the circle.
     *
     * @param owner who waits
     * @param waitsFor the lock, which the owner of the next step holds
     */
    public record Edge(String owner, String waitsFor) {}

    private final transient List<Edge> cycle;

    DeadlockException(String name, List<Edge> cycle) {
        super(name, "deadlock: " + cycle.stream().map(e -> e.owner() + " waits for " + e.waitsFor())
                .collect(Collectors.joining(", ")));
        this.cycle = cycle;
    }

    /** The circle. */
    public List<Edge> cycle() {
        return cycle == null ? List.of() : cycle;
    }
}
