package belay;

/** The session of a call is over: what waits is asked for again. Users do not see it. */
final class SessionOverException extends BelayException {
    private static final long serialVersionUID = 1;

    SessionOverException() {
        super("the session is over");
    }
}
