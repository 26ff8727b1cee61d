package belay;

import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;

/** What a client was made with. Durations are nanoseconds. */
record Config(List<Address> addresses, String namespace, String token, SSLContext tls, String owner, long sessionTtl,
        long timeout, System.Logger logger) {

    /** The first words to a server. */
    List<List<Object>> greeting() {
        List<List<Object>> greeting = new ArrayList<>();
        greeting.add(List.of("HELLO", 3));
        if (!token.isEmpty()) {
            greeting.add(List.of("AUTH", token));
        }
        if (!namespace.isEmpty()) {
            greeting.add(List.of("USE", namespace));
        }
        return greeting;
    }
}
