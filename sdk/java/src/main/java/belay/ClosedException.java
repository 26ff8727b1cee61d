package belay;

/** The client, or the watch, was closed. */
public final class ClosedException extends BelayException {
    private static final long serialVersionUID = 1;

    ClosedException(String what) {
        super(what + " is closed");
    }
}
