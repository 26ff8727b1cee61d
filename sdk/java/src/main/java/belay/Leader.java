package belay;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Who leads.
 *
 * @param owner who it is, for people who look
 * @param fence the number of its term, which grows
 * @param body what it said of itself
 */
public record Leader(String owner, long fence, byte[] body) {
    /** The body, read as UTF-8. */
    public String bodyText() {
        return new String(body, UTF_8);
    }
}
