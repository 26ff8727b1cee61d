package belay;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads parts of replies. What is not of the expected kind reads as nothing. */
final class Reply {
    private Reply() {}

    static String text(Object value) {
        if (value instanceof byte[] bytes) {
            return new String(bytes, UTF_8);
        }
        return value instanceof String text ? text : "";
    }

    static byte[] bytes(Object value) {
        return value instanceof byte[] bytes ? bytes : text(value).getBytes(UTF_8);
    }

    static long whole(Object value) {
        return value instanceof Long whole ? whole : 0;
    }

    static double real(Object value) {
        return value instanceof Number number ? number.doubleValue() : 0;
    }

    /** Null: without end, or it does not apply. */
    static Duration duration(Object value) {
        return value instanceof Long ms && ms >= 0 ? Duration.ofMillis(ms) : null;
    }

    static List<?> list(Object value) {
        return value instanceof List<?> list ? list : List.of();
    }

    static Map<?, ?> map(Object value) {
        return value instanceof Map<?, ?> map ? map : Map.of();
    }

    /** An item; null if there are not so many. */
    static Object at(List<?> list, int index) {
        return index < list.size() ? list.get(index) : null;
    }

    /** The same with texts in place of bytes. */
    static Object readable(Object value) {
        if (value instanceof byte[]) {
            return text(value);
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Reply::readable).toList();
        }
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> readable = new LinkedHashMap<>();
            map.forEach((key, of) -> readable.put(key, readable(of)));
            return readable;
        }
        return value;
    }
}
