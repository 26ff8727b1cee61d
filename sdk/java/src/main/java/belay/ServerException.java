package belay;

/** An error answer of the server. docs/PROTOCOL.md has the codes. */
public final class ServerException extends BelayException {
    private static final long serialVersionUID = 1;

    // Codes that mean something to this library.
    static final String GONE = "GONE";
    static final String NO_SESSION = "NOSESSION";
    static final String STALE = "STALE";
    static final String UNAVAILABLE = "UNAVAILABLE";

    private final String code;

    private ServerException(String code, String line) {
        super(line);
        this.code = code;
    }

    static ServerException of(String line) {
        return new ServerException(line.split(" ", 2)[0], line);
    }

    /** "DENIED", "LIMIT"... */
    public String code() {
        return code;
    }

    static boolean hasCode(BelayException error, String code) {
        return error instanceof ServerException said && said.code.equals(code);
    }
}
