package belay;

/** What all errors of this library have in common, except for wrong arguments. */
public abstract class BelayException extends RuntimeException {
    private static final long serialVersionUID = 1;

    BelayException(String message) {
        super(message);
    }

    BelayException(String message, Throwable cause) {
        super(message, cause);
    }
}
