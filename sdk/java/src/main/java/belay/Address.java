package belay;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.Arrays;
import java.util.List;

/**
 * Where a server listens.
 *
 * @param text as people write it, with its port: {@code tls://a.example:7117}
 * @param host for TLS: what the certificate must say
 * @param path of a socket of this machine, else null
 */
record Address(String text, String host, int port, boolean isTls, String path) {
    static final String DEFAULT = "127.0.0.1:7117";

    private static final int PORT = 7117;

    /** Reads {@code host:port,tls://[::1]:7117,unix:///path}. */
    static List<Address> list(List<String> texts) {
        return Arrays.stream(String.join(",", texts).split(",", -1)).map(Address::of).toList();
    }

    private static Address of(String text) {
        if (text.startsWith("unix://")) {
            String path = text.substring("unix://".length());
            if (!path.startsWith("/")) {
                throw wrong(text, "the path of a socket begins with a '/': unix:///run/belay.sock");
            }
            return new Address(text, null, 0, false, path);
        }
        boolean isTls = text.startsWith("tls://");
        String place = isTls ? text.substring("tls://".length()) : text;
        URI uri;
        try {
            uri = new URI("belay://" + place).parseServerAuthority();
        } catch (URISyntaxException e) {
            throw wrong(text, "an address is host:port, with brackets around IPv6: [::1]:7117");
        }
        int port = uri.getPort() == -1 ? PORT : uri.getPort();
        if (uri.getHost() == null || uri.getUserInfo() != null || !uri.getRawAuthority().equals(place)) {
            throw wrong(text, "not a host name");
        }
        if (port < 1 || port > 65535) {
            throw wrong(text, "the port is not a number from 1 to 65535");
        }
        String where = uri.getHost() + ":" + port;
        return new Address(isTls ? "tls://" + where : where, uri.getHost(), port, isTls, null);
    }

    private static IllegalArgumentException wrong(String text, String why) {
        return new IllegalArgumentException("address " + text + ": " + why);
    }
}
