package belay;

import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;

/** Writes JSON. */
final class Json {
    /** JSON already. */
    record Raw(String text) {}

    private Json() {}

    static String write(Object value) {
        if (value == null || value instanceof Boolean || value instanceof Number) {
            return number(value);
        }
        if (value instanceof Raw raw) {
            return raw.text();
        }
        if (value instanceof Txn.Node node) {
            return write(node.json());
        }
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(e -> string(e.getKey().toString()) + ":" + write(e.getValue()))
                    .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Iterable<?> items) {
            return StreamSupport.stream(items.spliterator(), false).map(Json::write)
                    .collect(Collectors.joining(",", "[", "]"));
        }
        if (value instanceof CharSequence) {
            return string(value.toString());
        }
        throw new IllegalArgumentException("there is no JSON for a " + value.getClass().getName());
    }

    private static String number(Object value) {
        if (value instanceof Number number && !Double.isFinite(number.doubleValue())) {
            throw new IllegalArgumentException("there is no JSON for " + number);
        }
        return String.valueOf(value);
    }

    private static String string(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            switch (c) {
                case '"', '\\' -> out.append('\\').append(c);
                default -> {
                    if (c < ' ') {
                        out.append(String.format("\\u%04x", (int) c));
                    } else {
                        out.append(c);
                    }
                }
            }
        }
        return out.append('"').toString();
    }
}
