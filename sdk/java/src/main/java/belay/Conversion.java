package belay;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** One convert. It asks until the lease is over: whatever the answer is, the fence must be known. */
final class Conversion {
    private static final long MOMENT = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(1); // for the end of one that is cancelled

    final CompletableFuture<Long> fence = new CompletableFuture<>();

    private final Core core;
    private final Hold hold;
    private final boolean isShared;
    private final long wait;
    private final long end;
    private long asked;

    Conversion(Core core, Hold hold, boolean isShared, long wait) {
        this.core = core;
        this.hold = hold;
        this.isShared = isShared;
        this.wait = wait;
        this.end = Clock.after(Clock.now(), wait);
    }

    void start() {
        core.locked(this::ask);
    }

    /** Asks once more, for a moment, which ends the wait; and waits until it is known how the lock is held. */
    void cancel() {
        CompletableFuture<Object> ended = new CompletableFuture<>();
        core.locked(() -> {
            if (fence.isDone() || hold.isOver()) {
                ended.complete(null);
            } else {
                send(MOMENT, answer -> ended.complete(null));
            }
        });
        ended.completeOnTimeout(null, PATIENCE, TimeUnit.NANOSECONDS).join();
    }

    private void ask() {
        asked = Clock.now();
        long left = Math.min(end - asked, Core.WAIT_MAX);
        send(wait == 0 ? 0 : Math.max(left, MOMENT), this::answered);
    }

    private void answered(Answer answer) {
        if (hold.isOver()) {
            fence.completeExceptionally(hold.cause() == null ? new IllegalStateException(hold.name + " was released")
                    : hold.cause());
            return;
        }
        try {
            answer.grant(hold.name);
            fence.complete(hold.fence);
        } catch (TimedOutException e) {
            if (Clock.after(asked, Core.WAIT_MAX) <= end) {
                ask(); // one request waits so long at most
            } else {
                fence.completeExceptionally(e);
            }
        } catch (BelayException e) {
            fence.completeExceptionally(e);
        }
    }

    private void send(long wait, Consumer<Answer> then) {
        List<Object> words = new ArrayList<>(
                List.of("CONVERT", hold.name, hold.fence, "MODE", isShared ? "shared" : "exclusive"));
        if (wait > 0) {
            words.addAll(List.of("WAIT", Clock.millis(wait), "NOBLOCK"));
        }
        words.addAll(List.of("REQUEST", core.requestId()));
        long from = hold.fence;
        hold.converting++;
        core.send(new Call(words, (answer, call) -> {
            hold.converting--;
            converted(answer, from, call.firstSent);
            then.accept(answer);
        }).again().patient().in(hold.session).inLine(wait > 0 ? place -> {} : null));
    }

    private void converted(Answer answer, long from, long firstSent) {
        try {
            hold.moved(answer.grant(hold.name).fence(), firstSent);
        } catch (BelayException e) {
            boolean isGone = ServerException.hasCode(e, ServerException.STALE)
                    || e instanceof RefusedException refused && refused.reason().equals("lost");
            if (isGone && hold.isOfNow(from)) {
                hold.lose(LostException.STALE);
            }
        }
    }
}
