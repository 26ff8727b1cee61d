import static java.nio.charset.StandardCharsets.UTF_8;

import belay.BelayException;
import belay.Client;
import belay.ClosedException;
import belay.DeadlockException;
import belay.Held;
import belay.Holder;
import belay.LostException;
import belay.RefusedException;
import belay.ServerException;
import belay.TimedOutException;
import belay.UnreachableException;
import belay.Watch;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** The driver of the Java library for the conformance suite: sdk/conformance/README.md says what it does. */
final class Driver {
    static final class UnknownOp extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    final Map<String, Client> clients = new ConcurrentHashMap<>();
    final Map<String, Held> helds = new ConcurrentHashMap<>();
    final Map<String, CompletableFuture<Void>> leaving = new ConcurrentHashMap<>();
    final Map<String, Streaming> streams = new ConcurrentHashMap<>();
    final Map<Long, Thread> running = new ConcurrentHashMap<>();

    private final FileOutputStream out = new FileOutputStream(FileDescriptor.out);

    public static void main(String[] args) throws IOException {
        new Driver().run();
        Runtime.getRuntime().halt(0);
    }

    private void run() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Request request = new Request((Map<?, ?>) Json.read(line));
            Thread thread = new Thread(() -> answer(request));
            running.put(request.id(), thread);
            thread.start();
        }
    }

    private void answer(Request request) {
        Map<String, Object> answer;
        try {
            answer = object("id", request.id(), "ok", new Ops(this, request).run());
        } catch (Throwable e) {
            answer = object("id", request.id(), "error", told(e));
        }
        running.remove(request.id());
        write(answer);
    }

    synchronized void write(Map<String, Object> line) {
        try {
            out.write((Json.write(line) + "\n").getBytes(UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static Map<String, Object> object(Object... members) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int i = 0; i < members.length; i += 2) {
            object.put((String) members[i], members[i + 1]);
        }
        return object;
    }

    private static Map<String, Object> told(Throwable error) {
        if (error instanceof RefusedException refused) {
            return object("type", "refused", "reason", refused.reason(), "holders",
                    refused.holders().stream().map(Driver::told).toList());
        }
        if (error instanceof DeadlockException deadlock) {
            return object("type", "deadlock", "cycle", deadlock.cycle().stream()
                    .map(edge -> object("owner", edge.owner(), "waits_for", edge.waitsFor())).toList());
        }
        if (error instanceof LostException lost) {
            return told(lost, "type", "lost");
        }
        if (error instanceof ServerException said) {
            return object("type", "server", "code", said.code(), "message", said.getMessage());
        }
        Map<Class<?>, String> plain = Map.of(TimedOutException.class, "timeout", ClosedException.class, "closed",
                UnreachableException.class, "unreachable", InterruptedException.class, "cancelled",
                IllegalArgumentException.class, "usage", IllegalStateException.class, "usage",
                UnknownOp.class, "unknown op");
        return object("type", plain.getOrDefault(error.getClass(), "a defect"), "message",
                error instanceof BelayException ? error.getMessage() : error + Arrays.toString(error.getStackTrace()));
    }

    private static Map<String, Object> told(Holder holder) {
        Duration left = holder.expiresIn();
        return object("owner", holder.owner(), "mode", holder.mode(), "fence", holder.fence(), "expires_in",
                left == null ? -1L : left.toMillis());
    }

    static Map<String, Object> told(LostException lost, Object... members) {
        Map<String, Object> told = object(members);
        told.putAll(object("name", lost.name(), "fence", lost.fence(), "reason", lost.reason()));
        if (!lost.by().isEmpty()) {
            told.put("by", lost.by());
        }
        if (!lost.text().isEmpty()) {
            told.put("text", lost.text());
        }
        return told;
    }

    /** Tells what a watch brings, until it is closed. */
    record Streaming(Watch<?> watch, Thread thread) {
        void end() throws InterruptedException {
            watch.close();
            thread.join();
        }
    }

    interface Teller<T> {
        Map<String, Object> tell(T item);
    }

    <T> void stream(String name, Watch<T> watch, Teller<T> teller) {
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    write(teller.tell(watch.take()));
                }
            } catch (ClosedException | InterruptedException e) {
                return;
            }
        });
        thread.setDaemon(true);
        streams.put(name, new Streaming(watch, thread));
        thread.start();
    }
}
