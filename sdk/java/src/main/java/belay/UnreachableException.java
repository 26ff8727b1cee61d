package belay;

/** No server has answered in time. What was asked may have been carried out. */
public final class UnreachableException extends BelayException {
    private static final long serialVersionUID = 1;

    UnreachableException(String message) {
        super(message);
    }

    UnreachableException(String message, Throwable cause) {
        super(cause == null ? message : message + ": " + cause.getMessage(), cause);
    }
}
