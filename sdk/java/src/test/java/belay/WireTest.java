package belay;

import static belay.Check.fails;
import static belay.Check.is;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** What comes and goes as bytes. */
final class WireTest {
    private static Object read(String text) throws IOException {
        return new Resp(new ByteArrayInputStream(text.getBytes(UTF_8))::read).read();
    }

    @Test
    void aCommandIsAnArrayOfStrings() {
        byte[] body = {0, -1};
        byte[] bytes = Resp.command(List.of("BODY", "ä", 7, body));
        is(new String(bytes, 0, bytes.length - 4, UTF_8), "*4\r\n$4\r\nBODY\r\n$2\r\nä\r\n$1\r\n7\r\n$2\r\n");
        is(Arrays.toString(Arrays.copyOfRange(bytes, bytes.length - 4, bytes.length)), "[0, -1, 13, 10]");
    }

    @Test
    void everyKindOfReplyIsRead() throws IOException {
        String text = "*8\r\n+OK\r\n:-7\r\n,0.5\r\n_\r\n#t\r\n$3\r\na\r\n\r\n=6\r\ntxt:hi\r\n%1\r\n$1\r\nk\r\n*-1\r\n";
        is(Reply.readable(read(text)).toString(), "[OK, -7, 0.5, null, true, a\r\n, hi, {k=null}]");
        is(((Resp.Push) read(">1\r\n:1\r\n")).items(), List.of(1L));
        is(((ServerException) read("-DENIED no right\r\n")).code(), "DENIED");
    }

    @Test
    void aReplyInPiecesIsTheSame() throws IOException {
        String line = "x".repeat(40_000);
        byte[] bytes = ("*2\r\n+" + line + "\r\n$40000\r\n" + line + "\r\n").getBytes(UTF_8);
        ByteArrayInputStream in = new ByteArrayInputStream(bytes);
        Resp resp = new Resp((into, from, length) -> in.read(into, from, Math.min(length, 7)));
        is(Reply.readable(resp.read()), List.of(line, line));
    }

    @Test
    void whatIsNotOfABelayServerIsRefused() {
        for (String text : List.of("HTTP/1.1 400\r\n", "\r\n", ":x\r\n", ":1\n", "$-2\r\n", "$99999999999\r\n",
                "$1\r\nab\r\n", "*1\r\n".repeat(20), "+" + "x".repeat(100_000), "*9999999\r\n" + ":1\r\n".repeat(1_100_000))) {
            fails(ProtocolException.class, () -> read(text));
        }
        fails(EOFException.class, () -> read("$5\r\nab"));
        fails(EOFException.class, () -> read("*2147483648\r\n"));
    }

    @Test
    void addressesAreRead() {
        List<Address> all = Address.list(List.of("a.example,tls://b.example:1,[::1]", "unix:///run/belay.sock"));
        is(all.stream().map(Address::text).toList(),
                List.of("a.example:7117", "tls://b.example:1", "[::1]:7117", "unix:///run/belay.sock"));
        is(all.get(1).isTls(), true);
        for (String wrong : List.of("", "a,,b", "a:0", "a:65536", "a:b", "::1", "a b", "a/b", "u@a", "unix://x",
                "http://a")) {
            fails(IllegalArgumentException.class, () -> Address.list(List.of(wrong)));
        }
    }

    @Test
    void valuesAreJson() {
        Map<String, Object> value = Map.of("k\"\\\n", Arrays.asList(1, 2.5, true, null, "ü\u0001"));
        is(Json.write(value), "{\"k\\\"\\\\\\u000a\":[1,2.5,true,null,\"ü\\u0001\"]}");
        fails(IllegalArgumentException.class, () -> Json.write(Double.NaN));
        fails(IllegalArgumentException.class, () -> Json.write(new Object()));
    }
}
