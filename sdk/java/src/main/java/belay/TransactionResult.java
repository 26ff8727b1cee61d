package belay;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What became of a transaction.
 *
 * @param status "ok": all of it happened; "error", "timeout": nothing did
 * @param failed the way to the statement that failed: "1:/AssertOp/"; "" if there is none
 * @param cause "statement", "session", "requirements"; "" if it did not fail
 * @param uptime of the server
 * @param trust 0 to 1
 * @param norm of the trust
 * @param data what was selected, each as JSON
 */
public record TransactionResult(String status, String failed, String cause, Duration uptime, double trust, double norm,
        Map<String, String> data) {

    /** All of it happened. */
    public boolean isOk() {
        return status.equals("ok");
    }

    static TransactionResult of(Object reply) {
        List<?> items = Reply.list(reply);
        Map<String, String> data = new LinkedHashMap<>();
        for (Object row : Reply.list(Reply.at(items, 6))) {
            List<?> pair = Reply.list(row);
            data.put(Reply.text(Reply.at(pair, 0)), Reply.text(Reply.at(pair, 1)));
        }
        return new TransactionResult(Reply.text(Reply.at(items, 0)), Reply.text(Reply.at(items, 1)),
                Reply.text(Reply.at(items, 2)), Duration.ofSeconds(Reply.whole(Reply.at(items, 3))),
                Reply.real(Reply.at(items, 4)), Reply.real(Reply.at(items, 5)), data);
    }
}
