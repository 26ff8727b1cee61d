package belay;

/** A lock is not held any more, and was not given back. */
public final class LostException extends BelayException {
    private static final long serialVersionUID = 1;

    // Reasons for which the server has no word.
    static final String STALE = "stale";
    static final String SILENCE = "silence";
    static final String SESSION = "session";

    private final String name;
    private final long fence;
    private final String reason;
    private final String by;
    private final String text;

    LostException(String name, long fence, String reason, String by, String text) {
        super(name + ": lost: " + reason + (by.isEmpty() ? "" : " by " + by) + (text.isEmpty() ? "" : ": " + text));
        this.name = name;
        this.fence = fence;
        this.reason = reason;
        this.by = by;
        this.text = text;
    }

    /** The lock. */
    public String name() {
        return name;
    }

    /** Its fence when it was lost. */
    public long fence() {
        return fence;
    }

    /**
     * The server's word: "break", "ttl", "session", "release", "namespace"; "stale" when it does not
     * say why, "silence" when it was not heard of in time.
     */
    public String reason() {
        return reason;
    }

    /** The token that broke the lock; "" if it did not tell. */
    public String by() {
        return by;
    }

    /** Why the lock was broken, in the operator's words; "" if there are none. */
    public String text() {
        return text;
    }

    /** The same, thrown from here. */
    LostException again() {
        return new LostException(name, fence, reason, by, text);
    }
}
