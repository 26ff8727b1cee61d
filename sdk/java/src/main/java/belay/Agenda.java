package belay;

import java.util.TreeSet;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** Runs tasks at their times. Its thread, and whoever sets a task, has the lock of the client. */
final class Agenda {
    /** Something to do at its time. */
    final class Task implements Comparable<Task> {
        private final Runnable work;
        private final long number = ++numbers;
        private long at = Clock.NEVER;

        private Task(Runnable work) {
            this.work = work;
        }

        /** Puts it on the agenda or moves it; {@link Clock#NEVER} takes it off. */
        void set(long at) {
            if (this.at != Clock.NEVER) {
                tasks.remove(this);
            }
            this.at = at;
            if (at != Clock.NEVER && !isOver) {
                tasks.add(this);
                wake(this);
            }
        }

        /** Moves it if it would be later. */
        void setBy(long at) {
            if (at < this.at) {
                set(at);
            }
        }

        @Override
        public int compareTo(Task other) {
            return at != other.at ? Long.compare(at, other.at) : Long.compare(number, other.number);
        }
    }

    private final ReentrantLock lock;
    private final Condition isEarlier;
    private final TreeSet<Task> tasks = new TreeSet<>();
    private long numbers;
    private Thread thread;
    private boolean isOver;

    Agenda(ReentrantLock lock) {
        this.lock = lock;
        this.isEarlier = lock.newCondition();
    }

    Task task(Runnable work) {
        return new Task(work);
    }

    void close() {
        isOver = true;
        tasks.clear();
        isEarlier.signal();
    }

    private void wake(Task task) {
        if (thread == null) {
            thread = Core.thread("agenda", this::run);
        } else if (tasks.first() == task) {
            isEarlier.signal();
        }
    }

    private void run() {
        lock.lock();
        try {
            while (!isOver) {
                long next = tasks.isEmpty() ? Clock.NEVER : tasks.first().at;
                if (next > Clock.now()) {
                    isEarlier.awaitNanos(next - Clock.now());
                    continue;
                }
                Task task = tasks.pollFirst();
                task.at = Clock.NEVER;
                task.work.run();
            }
        } catch (InterruptedException e) {
            throw new AssertionError("nobody knows this thread", e);
        } finally {
            lock.unlock();
        }
    }
}
