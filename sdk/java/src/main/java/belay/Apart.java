package belay;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;

/**
 * A connection beside the link, for what would hold back or flood others. One thread uses it, without the lock
 * of the client.
 */
final class Apart implements AutoCloseable {
    private final Core core;
    private final Wire wire;

    private Apart(Core core, Wire wire) {
        this.core = core;
        this.wire = wire;
    }

    /** Connects and greets. */
    static Apart open(Core core, Wire wire) throws IOException {
        Apart apart = new Apart(core, wire);
        Agenda.Task guard = core.guard(wire, Core.CONNECT);
        try {
            core.connect(wire);
            List<List<Object>> greeting = core.config.greeting();
            greeting.forEach(words -> wire.send(Resp.command(words)));
            wire.startWriting();
            for (int i = 0; i < greeting.size(); i++) {
                requireOk(wire.read());
            }
            return apart;
        } catch (IOException | BelayException e) {
            apart.close();
            throw e;
        } finally {
            core.locked(() -> guard.set(Clock.NEVER));
        }
    }

    private static Object requireOk(Object answer) {
        if (answer instanceof ServerException error) {
            throw error;
        }
        return answer;
    }

    /** Asks, and waits for the answer. */
    Object ask(long limit, Object... words) throws IOException {
        Agenda.Task guard = core.guard(wire, limit);
        try {
            wire.send(Resp.command(Arrays.asList(words)));
            return requireOk(wire.read());
        } finally {
            core.locked(() -> guard.set(Clock.NEVER));
        }
    }

    /** What comes next. A server that says nothing is asked whether it is there. */
    Object next() throws IOException {
        Agenda.Task ping = core.agenda.task(() -> wire.send(Resp.command(List.of("PING"))));
        core.locked(() -> ping.set(Clock.now() + Core.PING));
        Agenda.Task guard = core.guard(wire, Core.PING + Core.SILENCE);
        try {
            return wire.read();
        } finally {
            core.locked(() -> {
                ping.set(Clock.NEVER);
                guard.set(Clock.NEVER);
            });
        }
    }

    /** Leaves its place, if it waits in a line. */
    @Override
    public void close() {
        core.drop(wire);
    }
}
