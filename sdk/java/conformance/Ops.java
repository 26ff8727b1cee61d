import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.READ;
import static java.nio.file.StandardOpenOption.WRITE;

import belay.Client;
import belay.Held;
import belay.Leader;
import belay.LockInfo;
import belay.LockRequest;
import belay.Transaction;
import belay.TransactionResult;
import belay.Txn;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.text.MessageFormat;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.ResourceBundle;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;

/** What one line of the harness asks for. */
final class Ops {
    private static final Map<String, Object> DONE = Map.of();

    private final Driver driver;
    private final Request request;

    Ops(Driver driver, Request request) {
        this.driver = driver;
        this.request = request;
    }

    Map<String, Object> run() throws Exception {
        return switch (request.text("op")) {
            case "hello" -> Driver.object("language", "java");
            case "open" -> open();
            case "close" -> close();
            case "where" -> Driver.object("address", client().address().orElse(null), "session",
                    client().session().orElse(null));
            case "lock" -> lock(request(client()));
            case "cancel" -> cancel();
            case "block" -> block();
            case "leave" -> leave();
            case "held" -> Driver.object("held", held().isHeld());
            case "check" -> Driver.object("current", held().check());
            case "set_body" -> setBody();
            case "convert" -> Driver.object("fence", convert());
            case "release" -> Driver.object("held", held().release());
            case "show" -> show();
            case "break" -> Driver.object("count", request.has("reason")
                    ? client().breakLock(request.text("name"), request.text("reason"))
                    : client().breakLock(request.text("name")));
            case "call" -> Driver.object("value", client().call(request.texts("words").toArray(String[]::new)));
            case "watch" -> watch();
            case "campaign" -> lock(options(client().election(request.text("name")).campaign()));
            case "leader" -> Driver.object("leader", told(client().election(request.text("name")).leader()));
            case "observe" -> observe();
            case "unwatch" -> unwatch();
            case "transaction" -> transaction();
            case "builder" -> Driver.object("statements", Reference.statements());
            case "count" -> count();
            default -> throw new Driver.UnknownOp();
        };
    }

    private Client client() {
        return driver.clients.get(request.text("client"));
    }

    private Held held() {
        return driver.helds.get(request.text("held"));
    }

    // ---- clients

    private Map<String, Object> open() {
        Client.Builder builder = Client.builder().logger(new Log());
        request.ifText("addresses", builder::addresses);
        request.ifText("namespace", builder::namespace);
        request.ifText("token", builder::token);
        request.ifText("owner", builder::owner);
        request.ifDuration("session_ttl", builder::sessionTtl);
        request.ifDuration("timeout", builder::timeout);
        if (request.has("tls")) {
            Request tls = new Request((Map<?, ?>) request.members().get("tls"));
            builder.tls(path(tls, "ca"), path(tls, "cert"), path(tls, "key"));
        }
        driver.clients.put(request.text("client"), builder.build());
        return DONE;
    }

    private static Path path(Request tls, String member) {
        return tls.has(member) ? Path.of(tls.text(member)) : null;
    }

    private Map<String, Object> close() {
        client().close();
        return DONE;
    }

    private Map<String, Object> cancel() {
        Thread target = driver.running.get((long) request.number("target"));
        if (target != null) {
            target.interrupt();
        }
        return DONE;
    }

    /** Writes the log of a client as events. */
    private final class Log implements System.Logger {
        @Override
        public String getName() {
            return "belay";
        }

        @Override
        public boolean isLoggable(Level level) {
            return true;
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
            driver.write(Driver.object("event", "log", "level", level.name().toLowerCase(), "text", text));
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String format, Object... parameters) {
            log(level, bundle, parameters == null ? format : MessageFormat.format(format, parameters),
                    (Throwable) null);
        }
    }

    // ---- locks

    private LockRequest request(Client client) {
        return options(request.has("names") ? client.lock(request.texts("names")) : client.lock(request.text("name")));
    }

    private LockRequest options(LockRequest lock) {
        request.ifDuration("ttl", lock::ttl);
        request.ifDuration("wait", lock::waitAtMost);
        request.ifDuration("grace", lock::grace);
        request.ifDuration("delay", lock::delay);
        request.ifDuration("early", lock::early);
        request.ifText("body", lock::body);
        request.ifText("owner", lock::owner);
        if (request.is("shared")) {
            lock.shared();
        }
        if (request.has("permits") || request.has("of")) {
            lock.permits(Math.max(request.number("permits"), 1), request.number("of"));
        }
        return lock.onPlace(
                place -> driver.write(Driver.object("event", "place", "id", request.id(), "position", place)));
    }

    private void keep(Held held) {
        String name = request.text("held");
        driver.helds.put(name, held);
        held.lost().thenAccept(lost -> driver.write(Driver.told(lost, "event", "lost", "held", name)));
    }

    private Map<String, Object> lock(LockRequest lock) throws InterruptedException {
        Held held = lock.acquire();
        keep(held);
        Map<String, Object> ok = Driver.object("fence", held.fence(), "owner", held.owner(), "body", held.bodyText());
        if (request.has("names")) {
            ok.put("fences", held.fences());
        }
        return ok;
    }

    private Map<String, Object> block() throws InterruptedException, ExecutionException {
        CompletableFuture<Void> leave = new CompletableFuture<>();
        driver.leaving.put(request.text("held"), leave);
        try (Held held = request(client()).acquire()) {
            keep(held);
            driver.write(Driver.object("event", "entered", "id", request.id(), "fence", held.fence()));
            CompletableFuture.anyOf(leave, held.lost()).get();
        }
        return DONE;
    }

    private Map<String, Object> leave() {
        driver.leaving.get(request.text("held")).complete(null);
        return DONE;
    }

    private Map<String, Object> setBody() {
        held().setBody(request.text("body"));
        return DONE;
    }

    private long convert() throws InterruptedException {
        boolean isEndless = !request.has("wait") || request.number("wait") < 0;
        return isEndless ? held().convert(request.is("shared"))
                : held().convert(request.is("shared"), Duration.ofMillis(request.number("wait")));
    }

    private Map<String, Object> show() {
        LockInfo info = client().show(request.text("name"));
        return Driver.object("state", info.state(), "body", new String(info.body(), UTF_8),
                "holders", info.holders().stream()
                        .map(h -> Driver.object("owner", h.owner(), "mode", h.mode(), "fence", h.fence())).toList(),
                "waiters", info.waiters().stream()
                        .map(w -> Driver.object("owner", w.owner(), "position", w.position())).toList());
    }

    // ---- streams

    private Map<String, Object> watch() {
        String name = request.text("watch");
        driver.stream(name, client().watch(request.text("prefix")), event -> Driver.object("event", "news", "watch",
                name, "word", event.event(), "name", event.name(), "fence", event.fence()));
        return DONE;
    }

    private Map<String, Object> observe() {
        String name = request.text("watch");
        driver.stream(name, client().election(request.text("name")).observe(),
                leader -> Driver.object("event", "leader", "watch", name, "leader", told(leader)));
        return DONE;
    }

    private static Map<String, Object> told(Optional<Leader> leader) {
        return leader.map(l -> Driver.object("owner", l.owner(), "fence", l.fence(), "body", l.bodyText()))
                .orElse(null);
    }

    private Map<String, Object> unwatch() throws InterruptedException {
        driver.streams.get(request.text("watch")).end();
        return DONE;
    }

    // ---- transactions

    private Map<String, Object> transaction() throws InterruptedException {
        List<?> statements = (List<?>) request.members().get("statements");
        Transaction transaction = client().transaction(
                statements.stream().map(s -> Txn.json(Json.write(s))).toArray(Txn.Statement[]::new));
        request.ifDuration("wait", transaction::waitAtMost);
        TransactionResult result = transaction.run();
        Map<String, Object> data = Driver.object();
        result.data().forEach((name, json) -> data.put(name, Json.read(json)));
        return Driver.object("status", result.status(), "cause", orNull(result.cause()), "failed",
                orNull(result.failed()), "data", data);
    }

    private static String orNull(String text) {
        return text.isEmpty() ? null : text;
    }

    // ---- the counter

    private Map<String, Object> count() throws Exception {
        ExecutorService tasks = Executors.newFixedThreadPool(request.number("tasks"));
        Callable<Integer> task = () -> {
            int done = 0;
            while (done < request.number("rounds")) {
                done += countOnce() ? 1 : 0;
            }
            return done;
        };
        int done = 0;
        List<Callable<Integer>> all = IntStream.range(0, request.number("tasks")).mapToObj(i -> task).toList();
        for (Future<Integer> one : tasks.invokeAll(all)) {
            done += one.get();
        }
        tasks.shutdown();
        return Driver.object("done", done);
    }

    private boolean countOnce() throws IOException, InterruptedException {
        LockRequest lock = client().lock(request.text("name"));
        request.ifDuration("ttl", lock::ttl);
        Held held = lock.acquire();
        try (FileChannel file = FileChannel.open(Path.of(request.text("file")), READ, WRITE);
                FileChannel log = FileChannel.open(Path.of(request.text("log")), WRITE, APPEND)) {
            ByteBuffer digits = ByteBuffer.allocate(20);
            file.read(digits, 0);
            long value = Long.parseLong(new String(digits.array(), US_ASCII)) + 1;
            if (!held.isHeld()) {
                return false;
            }
            file.write(US_ASCII.encode(String.format("%020d", value)), 0);
            log.write(US_ASCII.encode(value + " " + held.fence() + " java\n"));
            return true;
        } finally {
            held.release();
        }
    }
}
