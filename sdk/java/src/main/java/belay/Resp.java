package belay;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The form of the wire, RESP3. */
final class Resp {
    /** A message of the server that answers no request. */
    record Push(List<Object> items) {}

    /** Where bytes come from; -1 at the end, as {@link java.io.InputStream#read(byte[], int, int)}. */
    interface Source {
        int read(byte[] into, int from, int length) throws IOException;
    }

    // What a reply may have at most, as libbelay has it.
    private static final int DEPTH_MAX = 8;
    private static final int ITEMS_MAX = 1 << 20;
    private static final int BYTES_MAX = 64 << 20;
    private static final int LINE_MAX = 64 << 10;

    private final Source source;
    private final byte[] buffer = new byte[16 << 10];
    private int at;
    private int end;
    private int items; // of this reply

    Resp(Source source) {
        this.source = source;
    }

    /** A command: an array of strings. Words are byte arrays, or anything that has a text. */
    static byte[] command(List<?> words) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(64);
        out.writeBytes(("*" + words.size() + "\r\n").getBytes(UTF_8));
        for (Object word : words) {
            byte[] bytes = word instanceof byte[] raw ? raw : word.toString().getBytes(UTF_8);
            out.writeBytes(("$" + bytes.length + "\r\n").getBytes(UTF_8));
            out.writeBytes(bytes);
            out.write('\r');
            out.write('\n');
        }
        return out.toByteArray();
    }

    /**
     * The next reply: null, a Boolean, Long, Double, String (of a line), byte[], List, Map or Push, or
     * a ServerException.
     */
    Object read() throws IOException {
        items = 0;
        return value(0);
    }

    private Object value(int depth) throws IOException {
        if (depth > DEPTH_MAX || ++items > ITEMS_MAX) {
            throw new ProtocolException("too many values");
        }
        String line = line();
        if (line.isEmpty()) {
            throw new ProtocolException("an empty line");
        }
        String rest = line.substring(1);
        return switch (line.charAt(0)) {
            case '+' -> rest;
            case '-' -> ServerException.of(rest);
            case ':' -> whole(rest);
            case ',' -> real(rest);
            case '_' -> null;
            case '#' -> rest.equals("t");
            case '$' -> bytes(rest);
            case '=' -> verbatim(rest);
            case '*', '~' -> list(rest, depth);
            case '>' -> push(rest, depth);
            case '%' -> map(rest, depth);
            default -> throw new ProtocolException("not an answer of a Belay server: " + line.charAt(0));
        };
    }

    private static long whole(String text) throws ProtocolException {
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException e) {
            throw new ProtocolException("not a number: " + text);
        }
    }

    private static double real(String text) throws ProtocolException {
        try {
            return switch (text) {
                case "inf" -> Double.POSITIVE_INFINITY;
                case "-inf" -> Double.NEGATIVE_INFINITY;
                default -> Double.parseDouble(text);
            };
        } catch (NumberFormatException e) {
            throw new ProtocolException("not a number: " + text);
        }
    }

    /** A length that is declared allocates nothing: memory grows with the bytes that come. */
    private byte[] bytes(String length) throws IOException {
        long left = whole(length);
        if (left == -1) {
            return null;
        }
        if (left < 0 || left > BYTES_MAX) {
            throw new ProtocolException("a text of " + left + " bytes");
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream((int) Math.min(left, LINE_MAX));
        while (left > 0) {
            fill();
            int part = (int) Math.min(left, end - at);
            out.write(buffer, at, part);
            at += part;
            left -= part;
        }
        if (!line().isEmpty()) {
            throw new ProtocolException("a text that is longer than its length");
        }
        return out.toByteArray();
    }

    /** "txt:" and the text. */
    private byte[] verbatim(String length) throws IOException {
        byte[] bytes = bytes(length);
        return bytes == null || bytes.length < 4 ? bytes : Arrays.copyOfRange(bytes, 4, bytes.length);
    }

    private List<Object> list(String length, int depth) throws IOException {
        long n = whole(length);
        if (n == -1) {
            return null;
        }
        List<Object> list = new ArrayList<>();
        for (; n > 0; n--) {
            list.add(value(depth + 1));
        }
        return list;
    }

    private Push push(String length, int depth) throws IOException {
        List<Object> list = list(length, depth);
        return new Push(list == null ? List.of() : list);
    }

    private Map<String, Object> map(String length, int depth) throws IOException {
        Map<String, Object> map = new LinkedHashMap<>();
        for (long n = whole(length); n > 0; n--) {
            String key = Reply.text(value(depth + 1));
            map.put(key, value(depth + 1));
        }
        return map;
    }

    private String line() throws IOException {
        ByteArrayOutputStream head = null;
        while (true) {
            fill();
            int stop = at;
            while (stop < end && buffer[stop] != '\n') {
                stop++;
            }
            if (stop < end && head == null) {
                String line = text(buffer, at, stop - at);
                at = stop + 1;
                return line;
            }
            head = head == null ? new ByteArrayOutputStream() : head;
            head.write(buffer, at, stop - at);
            at = Math.min(stop + 1, end);
            if (stop < end) {
                byte[] line = head.toByteArray();
                return text(line, 0, line.length);
            }
            if (head.size() > LINE_MAX) {
                throw new ProtocolException("a line without end");
            }
        }
    }

    private static String text(byte[] line, int from, int length) throws ProtocolException {
        if (length == 0 || line[from + length - 1] != '\r') {
            throw new ProtocolException("LF without CR");
        }
        return new String(line, from, length - 1, UTF_8);
    }

    /** Afterwards there is something in the buffer. */
    private void fill() throws IOException {
        if (at < end) {
            return;
        }
        int n = source.read(buffer, 0, buffer.length);
        if (n < 0) {
            throw new EOFException("the connection was closed");
        }
        at = 0;
        end = n;
    }
}
