import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** One line of the harness. */
record Request(Map<?, ?> members) {
    long id() {
        return number("id");
    }

    boolean has(String member) {
        return members.get(member) != null;
    }

    /** Null: it is not there. */
    String text(String member) {
        return (String) members.get(member);
    }

    int number(String member) {
        return has(member) ? ((Long) members.get(member)).intValue() : 0;
    }

    boolean is(String member) {
        return Boolean.TRUE.equals(members.get(member));
    }

    List<String> texts(String member) {
        return ((List<?>) members.get(member)).stream().map(String.class::cast).toList();
    }

    void ifText(String member, Consumer<String> use) {
        if (has(member)) {
            use.accept(text(member));
        }
    }

    /** A duration that has an end. */
    void ifDuration(String member, Consumer<Duration> use) {
        if (has(member) && (Long) members.get(member) >= 0) {
            use.accept(Duration.ofMillis((Long) members.get(member)));
        }
    }
}
