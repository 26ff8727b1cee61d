package belay;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** A lock request as a {@link Lock}. */
final class LockView implements Lock {
    private final LockRequest request;
    private final Map<Thread, Held> helds = new ConcurrentHashMap<>();

    LockView(LockRequest request) {
        this.request = request;
    }

    @Override
    public void lock() {
        requireNotHeld();
        keep(request.acquireUninterruptibly());
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        requireNotHeld();
        keep(request.acquire(Clock.NEVER));
    }

    @Override
    public boolean tryLock() {
        requireNotHeld();
        return request.tryAcquire().map(this::keep).isPresent();
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        if (time <= 0) {
            return tryLock();
        }
        requireNotHeld();
        try {
            keep(request.acquire(Clock.nanos(Duration.of(time, unit.toChronoUnit()))));
            return true;
        } catch (TimedOutException e) {
            return false;
        }
    }

    @Override
    public void unlock() {
        Held held = helds.remove(Thread.currentThread());
        if (held == null) {
            throw new IllegalMonitorStateException("this thread has not locked it");
        }
        held.close();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("there are no conditions");
    }

    private void requireNotHeld() {
        if (helds.containsKey(Thread.currentThread())) {
            throw new IllegalStateException("this thread has locked it already, and it is not reentrant");
        }
    }

    private Held keep(Held held) {
        helds.put(Thread.currentThread(), held);
        return held;
    }
}
