package belay;

/** The lock did not become free in time. */
public final class TimedOutException extends NotAcquiredException {
    private static final long serialVersionUID = 1;

    TimedOutException(String name) {
        super(name, "the wait is over");
    }
}
