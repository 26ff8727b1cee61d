package belay;

import java.util.List;
import java.util.stream.Collectors;

/** The lock cannot be had at once, and you did not want to wait; or it is of another kind. */
public final class RefusedException extends NotAcquiredException {
    private static final long serialVersionUID = 1;

    static final String KIND = "kind";

    private final String reason;
    private final transient List<Holder> holders;

    RefusedException(String name, String reason, List<Holder> holders) {
        super(name, "refused: " + (holders.isEmpty() ? reason : reason + " by "
                + holders.stream().map(Holder::owner).collect(Collectors.joining(", "))));
        this.reason = reason;
        this.holders = holders;
    }

    /** "held" when others hold it or wait for it, "closed" after a loss, "kind" when it is a lock of another kind. */
    public String reason() {
        return reason;
    }

    /** Those who hold it. */
    public List<Holder> holders() {
        return holders == null ? List.of() : holders;
    }
}
