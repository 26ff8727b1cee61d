package belay;

import static java.util.concurrent.TimeUnit.DAYS;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.io.IOException;
import java.lang.System.Logger.Level;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * The inside of a client: its calls, its link, its session and what it holds. One lock guards all of it;
 * methods are called with it, except for those that say "without the lock". Nothing blocks with it.
 */
final class Core {
    static final long CONNECT = SECONDS.toNanos(3); // for one server to accept and greet us
    static final long SILENCE = SECONDS.toNanos(4); // without an answer that is due: the server is left
    static final long PING = SECONDS.toNanos(3); // of silence, while something is waited for
    static final long RETRY = MILLISECONDS.toNanos(50);
    static final long WAIT_MAX = DAYS.toNanos(7); // of one request
    static final int RENEW_PART = 3; // of a TTL: then it is renewed
    static final int EARLY_PART = 10; // of a TTL: so long before its end what is not renewed counts as lost

    private static final SecureRandom RANDOM = new SecureRandom();

    /** Who holds or waits: one at a time. */
    record Party(String name, String owner) {}

    private record Grip(String name, long fence) {}

    final Config config;
    final Agenda agenda;

    Session session; // null: none is needed yet, or the last one is over
    Link link; // null: there is none
    final Set<Party> parties = new HashSet<>();
    final Map<Party, List<Runnable>> leaving = new HashMap<>(); // a line; and what is to be done afterwards

    private final ExecutorService callbacks = callbacks(); // runs what belongs to the user
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition isOver = lock.newCondition();
    private final String id = randomHex(12); // begins the ids of requests
    private final Map<Grip, Hold> holds = new HashMap<>();
    private final TreeMap<Long, Integer> ttls = new TreeMap<>(); // of the holds
    private final Set<Call> queue = new LinkedHashSet<>(); // those that wait for the link
    private final Set<Wire> wires = new HashSet<>(); // beside the link
    private final Set<Watch<?>> watches = new HashSet<>();
    private final Pace pace = new Pace();
    private long requests;
    private long calls;
    private long owners;
    private int at; // the address in use, or to be tried
    private Exception trouble; // what a server has failed with last
    private boolean isConnecting;
    private boolean isClosed;

    Core(Config config) {
        this.config = config;
        this.agenda = new Agenda(lock);
    }

    // ---- threads

    static Thread thread(String name, Runnable work) {
        Thread thread = daemon(name, work);
        thread.start();
        return thread;
    }

    private static Thread daemon(String name, Runnable work) {
        Thread thread = new Thread(work, "belay-" + name);
        thread.setDaemon(true);
        return thread;
    }

    private static ExecutorService callbacks() {
        ThreadPoolExecutor one = new ThreadPoolExecutor(1, 1, 1, SECONDS, new LinkedBlockingQueue<>(),
                work -> daemon("callbacks", work), new ThreadPoolExecutor.DiscardPolicy());
        one.allowCoreThreadTimeOut(true);
        return one;
    }

    /** Runs what the user gave, in the thread for that. */
    void tell(Runnable callback) {
        callbacks.execute(() -> {
            try {
                callback.run();
            } catch (RuntimeException e) {
                log(Level.ERROR, "a callback has failed: " + e);
            }
        });
    }

    void log(Level level, String text) {
        if (config.logger() != null) {
            callbacks.execute(() -> config.logger().log(level, text));
        }
    }

    void locked(Runnable work) {
        lock.lock();
        try {
            work.run();
        } finally {
            lock.unlock();
        }
    }

    <T> T locked(Supplier<T> work) {
        lock.lock();
        try {
            return work.get();
        } finally {
            lock.unlock();
        }
    }

    // ---- asking

    static String randomHex(int bytes) {
        byte[] random = new byte[bytes];
        RANDOM.nextBytes(random);
        return HexFormat.of().formatHex(random);
    }

    /** By this a server knows a request that is sent again. */
    String requestId() {
        return id + "-" + ++requests;
    }

    String nextOwner() {
        return config.owner() + "#" + ++owners;
    }

    /** Without the lock: asks for what comes at once, again until it is answered, and waits for that. */
    Object ask(Object... words) {
        return ask(Arrays.asList(words), true, null);
    }

    /** Without the lock: the same for what changes something. It takes effect once. */
    Object change(Object... words) {
        return changeIn(null, words);
    }

    /** Without the lock: the same. It ends with a session. */
    Object changeIn(Session in, Object... words) {
        List<Object> all = new ArrayList<>(Arrays.asList(words));
        all.addAll(List.of("REQUEST", locked(this::requestId)));
        return ask(all, true, in);
    }

    /** Without the lock. */
    Object ask(List<?> words, boolean isSentAgain, Session in) {
        CompletableFuture<Object> answered = new CompletableFuture<>();
        locked(() -> {
            Call call = new Call(words, answer -> complete(answered, answer))
                    .in(in).until(Clock.after(Clock.now(), config.timeout()));
            call.isSentAgain = isSentAgain;
            send(call);
        });
        return join(answered);
    }

    static void complete(CompletableFuture<Object> future, Answer answer) {
        if (answer.error() != null) {
            future.completeExceptionally(answer.error());
        } else {
            future.complete(answer.value());
        }
    }

    /** Without the lock: waits, whether or not the thread is interrupted. */
    static <T> T join(CompletableFuture<T> future) {
        try {
            return future.join();
        } catch (CompletionException e) {
            throw here(e.getCause());
        }
    }

    /** Without the lock: waits until the thread is interrupted. */
    static <T> T await(CompletableFuture<T> future, long nanos) throws InterruptedException, TimeoutException {
        try {
            return future.get(nanos, NANOSECONDS);
        } catch (ExecutionException e) {
            throw here(e.getCause());
        }
    }

    /** The error as one of the thread that is told. */
    private static RuntimeException here(Throwable error) {
        if (error instanceof LostException lost) {
            return lost.again();
        }
        error.fillInStackTrace();
        return error instanceof RuntimeException usual ? usual : new IllegalStateException(error);
    }

    // ---- calls

    /** Sends it now, or when the link is ready. */
    void send(Call call) {
        call.number = ++calls;
        if (isClosed) {
            call.finish(Answer.failed(new ClosedException("the client")));
            return;
        }
        call.expiry = agenda.task(() -> expire(call));
        if (link != null && (call.isUrgent || isReady())) {
            link.send(call);
        } else {
            call.linkless = Clock.now();
            queue.add(call);
            connect();
        }
        if (!call.isOver) {
            call.expiry.set(giveUp(call));
        }
    }

    boolean isReady() {
        return link != null && link.isGreeted() && (session == null || session.isAttached());
    }

    /** Sends what has waited for the link, if it is ready now. */
    void flush() {
        if (!isReady()) {
            return;
        }
        List<Call> waiting = List.copyOf(queue);
        queue.clear();
        waiting.forEach(link::send);
    }

    /** When a call is given up if nothing changes. */
    private long giveUp(Call call) {
        boolean hasTime = call.linkless == 0 || call.isPatient;
        return hasTime ? call.until : Math.min(call.until, Clock.after(call.linkless, config.timeout()));
    }

    private void expire(Call call) {
        if (giveUp(call) > Clock.now()) {
            call.expiry.set(giveUp(call));
            return;
        }
        finish(call, Answer.failed(new UnreachableException("no server has answered", trouble)));
    }

    void finish(Call call, Answer answer) {
        forget(call);
        call.finish(answer);
    }

    /** Makes it a call that nobody waits for. Its answer, if it comes, finds its place in the order. */
    private void forget(Call call) {
        if (call.expiry != null) {
            call.expiry.set(Clock.NEVER);
        }
        queue.remove(call);
        if (link != null) {
            link.forget(call);
        }
    }

    void drop(Call call) {
        forget(call);
        call.isOver = true;
    }

    private List<Call> calls() {
        List<Call> all = link == null ? new ArrayList<>() : link.calls();
        all.addAll(queue);
        return all;
    }

    // ---- the link

    /** Makes a link if there is none and somebody needs it. */
    private void connect() {
        if (link == null && !isConnecting && isNeeded()) {
            isConnecting = true;
            thread("link", this::run);
        }
    }

    private boolean isNeeded() {
        boolean hasState = !holds.isEmpty() || (session != null && session.isUsed);
        return !isClosed && (hasState || !queue.isEmpty());
    }

    /** Without the lock: the thread of one link. */
    private void run() {
        Link made = null;
        while (made == null) {
            Wire wire = locked(this::nextWire);
            if (wire == null) {
                return;
            }
            made = dial(wire);
        }
        made.read();
    }

    /** Null: nobody needs one any more. */
    private Wire nextWire() {
        try {
            while (isNeeded()) {
                long pause = pace.next(config.addresses().size());
                if (pause == 0) {
                    return new Wire(config.addresses().get(at));
                }
                isOver.awaitNanos(pause);
            }
        } catch (InterruptedException e) {
            throw new AssertionError("nobody knows this thread", e);
        }
        isConnecting = false;
        return null;
    }

    /** Without the lock. Null: it did not answer, or nobody needs it any more. */
    private Link dial(Wire wire) {
        Agenda.Task guard = guard(wire, locked(() -> Math.min(CONNECT, limit())));
        try {
            connect(wire);
        } catch (IOException e) {
            locked(() -> failed(e));
            return null;
        } finally {
            locked(() -> guard.set(Clock.NEVER));
        }
        return locked(() -> {
            isConnecting = false;
            if (isClosed) {
                drop(wire);
                return null;
            }
            wires.remove(wire);
            link = new Link(this, wire);
            log(Level.DEBUG, "connected to " + wire.address.text());
            link.begin();
            return link;
        });
    }

    /** Without the lock. The wire is reset at the end of the client. */
    void connect(Wire wire) throws IOException {
        locked(() -> {
            wires.add(wire);
            if (isClosed) {
                wire.reset();
            }
        });
        try {
            wire.connect(config.tls());
        } catch (IOException e) {
            drop(wire);
            throw e;
        }
    }

    /** Needs no lock. */
    void drop(Wire wire) {
        wire.reset();
        locked(() -> wires.remove(wire));
    }

    /** Resets a wire after a while, unless the task is taken off before. */
    Agenda.Task guard(Wire wire, long limit) {
        return locked(() -> {
            Agenda.Task guard = agenda.task(wire::reset);
            guard.set(Clock.after(Clock.now(), limit));
            return guard;
        });
    }

    /** The server in use is not well: the next one is tried. */
    private void failed(Exception error) {
        trouble = error;
        pace.failed();
        at = (at + 1) % config.addresses().size();
        log(Level.DEBUG, "a server has failed: " + error.getMessage());
    }

    /** The server in use has answered. */
    void answered() {
        pace.reset();
    }

    /** Drops the link because of a failure. What may be sent again waits for the next one. */
    void leave(Link left, Exception error) {
        if (link != left) {
            return;
        }
        List<Call> under = left.calls();
        link = null;
        failed(error);
        left.end();
        if (session != null) {
            session.detach();
        }
        List<Call> kept = new ArrayList<>();
        for (Call call : under) {
            call.ticket = 0;
            if (call.isSentAgain && !call.isOver) {
                call.linkless = Clock.now();
                call.expiry.set(giveUp(call));
                kept.add(call);
            } else {
                finish(call, Answer.failed(new UnreachableException("the server has not answered", error)));
            }
        }
        kept.addAll(queue);
        queue.clear();
        queue.addAll(kept);
        connect();
    }

    /** A server says that we may not have a link: what waits for one fails. */
    void refuse(Link by, BelayException error) {
        if (link != by) {
            return;
        }
        if (error instanceof ServerException) {
            List.copyOf(queue).forEach(call -> finish(call, Answer.failed(error)));
        }
        leave(by, error);
    }

    /**
     * How long an answer may take. With another server in reserve, two more can be tried before a lease
     * counts as lost.
     */
    long limit() {
        if (config.addresses().size() == 1 || session == null) {
            return SILENCE;
        }
        long least = ttls.isEmpty() ? config.sessionTtl() : Math.min(ttls.firstKey(), config.sessionTtl());
        long patience = (least - least / RENEW_PART - least / EARLY_PART) / 3;
        return Math.min(Math.max(patience, Pace.MIN), SILENCE);
    }

    // ---- the session

    /** The session of the client, a new one if there is none. */
    Session needSession() {
        if (session == null && !isClosed) {
            session = new Session(this);
            if (link != null) {
                session.attach();
            }
        }
        return session;
    }

    void sessionEnded(String id, String reason) {
        if (session != null && session.id.equals(id)) {
            endSession(session, reason);
        }
    }

    /** All that was held in it is lost. What waits in a line is asked for again in the next one. */
    void endSession(Session over, String reason) {
        if (session != over) {
            return;
        }
        session = null;
        over.end();
        log(Level.WARNING, "the session " + over.id + " is over: " + reason);
        List.copyOf(holds.values()).forEach(hold -> hold.lose(reason));
        for (Call call : calls()) {
            if (call.session == over) {
                finish(call, Answer.failed(new SessionOverException()));
            }
        }
        flush();
    }

    // ---- what is held

    void add(Hold hold) {
        holds.put(new Grip(hold.name, hold.fence), hold);
        if (hold.ttl > 0) {
            ttls.merge(hold.ttl, 1, Integer::sum);
        }
    }

    void remove(Hold hold) {
        holds.remove(new Grip(hold.name, hold.fence));
        if (hold.ttl > 0) {
            ttls.computeIfPresent(hold.ttl, (ttl, count) -> count == 1 ? null : count - 1);
        }
    }

    void renewAll() {
        holds.values().forEach(Hold::renewSoon);
    }

    /** "broken" or "expired", and the "broken-by" right before it. */
    void holdEnded(List<Object> push, List<Object> told) {
        long fence = Reply.whole(push.get(2));
        Hold hold = holds.get(new Grip(Reply.text(push.get(1)), fence));
        if (hold == null) {
            return;
        }
        List<Object> by = told != null && Reply.whole(told.get(2)) == fence ? told : List.of();
        hold.lose(Reply.text(push.get(5)), Reply.text(Reply.at(by, 3)), Reply.text(Reply.at(by, 4)));
    }

    /** Is sent again until it is answered or the lease is over. */
    void giveBack(String name, long fence, Session in, long end, Consumer<Answer> done) {
        send(new Call(List.of("RELEASE", name, fence, "REQUEST", requestId()), done)
                .again().patient().in(in).until(end));
    }

    // ---- the end

    void add(Watch<?> watch) {
        if (isClosed) {
            throw new ClosedException("the client");
        }
        watches.add(watch);
    }

    void remove(Watch<?> watch) {
        watches.remove(watch);
    }

    boolean isClosed() {
        return isClosed;
    }

    /** Without the lock, in a thread of this library: waits for a while, or until the client is closed. */
    void pause(long nanos) {
        lock.lock();
        try {
            if (!isClosed) {
                isOver.awaitNanos(nanos);
            }
        } catch (InterruptedException e) {
            throw new AssertionError("nobody knows this thread", e);
        } finally {
            lock.unlock();
        }
    }

    /** Without the lock. */
    int address() {
        return locked(() -> at);
    }

    /** Without the lock. */
    void close() {
        CompletableFuture<Object> freed = locked(this::endAll);
        try {
            await(freed, SECONDS.toNanos(1));
        } catch (TimeoutException | BelayException e) {
            log(Level.DEBUG, "the server was not told of the end: " + e.getMessage());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        locked(() -> {
            if (link != null) {
                link.wire.close();
                link = null;
            }
            wires.forEach(Wire::reset);
            agenda.close();
            isOver.signalAll();
        });
        callbacks.shutdown();
    }

    /** All calls and holds end. The future: the server has freed the session. */
    private CompletableFuture<Object> endAll() {
        CompletableFuture<Object> freed = new CompletableFuture<>();
        if (isClosed) {
            freed.complete(null);
            return freed;
        }
        List<Call> open = calls();
        if (session != null && isReady()) {
            link.send(new Call(List.of("SESSION", "CLOSE", session.id, "REQUEST", requestId()),
                    answer -> complete(freed, answer)));
        } else {
            freed.complete(null);
        }
        isClosed = true;
        ClosedException closed = new ClosedException("the client");
        List.copyOf(holds.values()).forEach(hold -> hold.end(closed));
        open.forEach(call -> finish(call, Answer.failed(closed)));
        List.copyOf(watches).forEach(Watch::close);
        return freed;
    }
}
