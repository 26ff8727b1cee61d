package belay;

import java.lang.System.Logger.Level;
import java.util.Arrays;
import java.util.Optional;

/** A lock whose holder leads. */
public final class Election {
    private final Core core;
    private final Client client;
    private final String name;

    Election(Core core, Client client, String name) {
        this.core = core;
        this.client = client;
        this.name = name;
    }

    /** Asks to lead: who acquires it leads until it is released or lost. Others find its body. */
    public LockRequest campaign() {
        return client.lock(name);
    }

    /** Who leads now. */
    public Optional<Leader> leader() {
        LockInfo info = client.show(name);
        return info.holders().stream().findFirst()
                .map(holder -> new Leader(holder.owner(), holder.fence(), info.body()));
    }

    /** Who leads now, and then each other leader; empty when nobody leads. */
    public Watch<Optional<Leader>> observe() {
        Watch<Event> events = client.watch(name);
        Watch<Optional<Leader>> leaders = new Watch<>(events::close);
        try {
            Optional<Leader> first = leader();
            Core.thread("observe", () -> follow(first, events, leaders));
        } catch (RuntimeException e) {
            events.close();
            throw e;
        }
        return leaders;
    }

    private void follow(Optional<Leader> first, Watch<Event> events, Watch<Optional<Leader>> leaders) {
        try {
            Optional<Leader> current = first;
            while (leaders.put(current)) {
                Optional<Leader> next = current;
                while (isSame(next, current)) {
                    next = after(current, events.take(), leaders);
                }
                current = next;
            }
        } catch (ClosedException e) {
            leaders.close(); // with its client
        } catch (InterruptedException e) {
            throw new AssertionError("nobody knows this thread", e);
        }
    }

    private static boolean isSame(Optional<Leader> a, Optional<Leader> b) {
        if (a.isEmpty() || b.isEmpty()) {
            return a.isEmpty() == b.isEmpty();
        }
        return a.get().fence() == b.get().fence() && Arrays.equals(a.get().body(), b.get().body());
    }

    private Optional<Leader> after(Optional<Leader> current, Event event, Watch<?> leaders) {
        if (event.event().equals(Event.GONE)) {
            return now(leaders);
        }
        if (!event.name().equals(name)) {
            return current;
        }
        boolean isOfCurrent = current.isPresent() && current.get().fence() == event.fence();
        return switch (event.event()) {
            case "granted" -> current.isPresent() && current.get().fence() >= event.fence() ? current
                    : granted(event, leaders);
            case "body" -> isOfCurrent ? now(leaders) : current;
            case "released", "expired", "broken" -> isOfCurrent ? Optional.empty() : current;
            default -> current;
        };
    }

    /** Its body is known if it still leads. */
    private Optional<Leader> granted(Event event, Watch<?> leaders) {
        byte[] body = now(leaders).filter(leader -> leader.fence() == event.fence()).map(Leader::body)
                .orElse(new byte[0]);
        return Optional.of(new Leader(event.owner(), event.fence(), body));
    }

    /** What a server says now, as soon as one answers. */
    private Optional<Leader> now(Watch<?> leaders) {
        while (!leaders.isClosed()) {
            try {
                return leader();
            } catch (UnreachableException | ServerException e) {
                core.log(Level.DEBUG, "who leads is not known: " + e.getMessage());
                core.pause(Pace.MAX);
            }
        }
        throw new ClosedException("the watch");
    }
}
