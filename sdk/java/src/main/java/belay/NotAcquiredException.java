package belay;

/** The server is well, and the lock is not yours. */
public abstract class NotAcquiredException extends BelayException {
    private static final long serialVersionUID = 1;

    private final String name;

    NotAcquiredException(String name, String message) {
        super(name + ": " + message);
        this.name = name;
    }

    /** The lock. */
    public String name() {
        return name;
    }
}
