package belay;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;

/**
 * A client of a Belay server or cluster. All threads may use it, and one for a program is enough.
 *
 * <p>It has one connection and one session. It connects when it has to. When the connection breaks it connects to
 * this or another node, attaches its session again, and sends again what was not answered; what changes something
 * takes effect once. Its threads are daemons: when the program ends without {@link #close}, the server sees the
 * connection close and frees the locks at once.
 */
public final class Client implements AutoCloseable {
    private final Core core;

    private Client(Config config) {
        this.core = new Core(config);
    }

    /** A client as the environment says: {@code BELAY_ADDR}, {@code BELAY_TOKEN}... */
    public static Client create() {
        return builder().build();
    }

    /** A client of these nodes: {@code "host:port,tls://host:port,unix:///path"}. */
    public static Client of(String addresses) {
        return builder().addresses(addresses).build();
    }

    /** For everything else that can be said about a client. */
    public static Builder builder() {
        return new Builder();
    }

    // ---- locks

    /** A lock, or several that are taken together or not at all. Nothing is asked yet. */
    public LockRequest lock(String name, String... more) {
        return lock(Stream.concat(Stream.of(name), Stream.of(more)).toList());
    }

    /** Several locks that are taken together or not at all. Nothing is asked yet. */
    public LockRequest lock(Collection<String> names) {
        return new LockRequest(core, names);
    }

    /** Who holds a lock, and who waits for it. */
    public LockInfo show(String name) {
        return LockInfo.of(core.ask("SHOW", name));
    }

    /** The same without a reason. */
    public int breakLock(String name) {
        return (int) Reply.whole(core.change("BREAK", name));
    }

    /**
     * Takes a lock away from its holders, and answers how many they were. The reason is told to them, and is in
     * the server's audit log.
     */
    public int breakLock(String name, String reason) {
        return (int) Reply.whole(core.change("BREAK", name, "REASON", reason));
    }

    // ---- everything else

    /** An election. Nothing is asked yet. */
    public Election election(String name) {
        return new Election(core, this, name);
    }

    /**
     * What happens to the locks whose names begin with a prefix. When this returns, nothing is missed any more. It
     * goes on where it stopped when a connection breaks; an event {@link Event#GONE} says that some may be missing.
     */
    public Watch<Event> watch(String prefix) {
        News news = new News(core, prefix);
        news.start();
        return news.watch;
    }

    /** Statements of which all happen, or none. {@link Txn} makes them. */
    public Transaction transaction(Txn.Statement... statements) {
        return new Transaction(core, Arrays.asList(statements));
    }

    /**
     * Sends any command, once. The answer is null, a Boolean, Long, Double, String, List or Map. Commands that
     * wait, and those of the connection (such as {@code USE}), are not for it.
     */
    public Object call(String... words) {
        if (words.length == 0) {
            throw new IllegalArgumentException("a command has at least one word");
        }
        return Reply.readable(core.ask(Arrays.asList(words), false, null));
    }

    /** The node that it is connected to; empty if there is none. */
    public Optional<String> address() {
        return core.locked(() -> Optional.ofNullable(core.link).map(link -> link.wire.address.text()));
    }

    /** The id of its session; empty if there is none. */
    public Optional<String> session() {
        return core.locked(() -> Optional.ofNullable(core.session).filter(Session::isOpen).map(open -> open.id));
    }

    /**
     * Gives all locks back, ends all calls with {@link ClosedException}, and frees everything. A second close does
     * nothing.
     */
    @Override
    public void close() {
        core.close();
    }

    /** Says where the servers are, and who the client is. What is not said is what most need. */
    public static final class Builder {
        private static final int OWNER_MAX = 100; // so that there is room for a number behind it
        private static final Duration SESSION_TTL_MAX = Duration.ofDays(36_500);

        private final Map<String, String> environment = System.getenv();
        private List<String> addresses = List.of(of("BELAY_ADDR", Address.DEFAULT));
        private String namespace = "";
        private String token;
        private SSLContext tls;
        private String owner;
        private Duration sessionTtl = Duration.ofSeconds(30);
        private Duration timeout = Duration.ofSeconds(10);
        private System.Logger logger;

        private Builder() {}

        /**
         * All nodes: {@code host:port}, {@code tls://host:port} or {@code unix:///path}; one string may be a list
         * with commas. The default is {@code $BELAY_ADDR}, or {@code 127.0.0.1:7117}.
         */
        public Builder addresses(String... addresses) {
            this.addresses = List.of(addresses);
            return this;
        }

        /** The namespace of everything that the client does. The default is the server's. */
        public Builder namespace(String namespace) {
            this.namespace = namespace;
            return this;
        }

        /**
         * What to log in with; "": nothing. The default is {@code $BELAY_TOKEN}, or the first line of the file
         * {@code $BELAY_TOKEN_FILE}, or nothing.
         */
        public Builder token(String token) {
            this.token = token;
            return this;
        }

        /**
         * The file, in PEM, of the CAs that vouch for servers. The default is what {@code $BELAY_TLS_CA},
         * {@code $BELAY_TLS_CERT} and {@code $BELAY_TLS_KEY} name, or the CAs of the system.
         */
        public Builder tls(Path ca) {
            return tls(Pem.context(ca, null, null));
        }

        /** The same, with the certificate and the key (PKCS #8) that the client shows to servers. */
        public Builder tls(Path ca, Path cert, Path key) {
            return tls(Pem.context(ca, cert, key));
        }

        /** For addresses that begin with {@code tls://}. The server must prove that it is the host of its address. */
        public Builder tls(SSLContext context) {
            this.tls = context;
            return this;
        }

        /** Who the client is, for people who look: 1 to 100 bytes. The default is {@code host:pid}. */
        public Builder owner(String owner) {
            this.owner = owner;
            return this;
        }

        /** How long the server waits for a sign of life before it frees the locks. The default is 30 s. */
        public Builder sessionTtl(Duration sessionTtl) {
            this.sessionTtl = sessionTtl;
            return this;
        }

        /** How long a call looks for an answer, beyond its own wait. The default is 10 s. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /**
         * Is told of connections, sessions and lost locks, for example {@code System.getLogger("belay")}. The
         * default is nobody: this library prints nothing by itself.
         */
        public Builder logger(System.Logger logger) {
            this.logger = logger;
            return this;
        }

        /** A client. It connects to nothing yet. */
        public Client build() {
            String owner = this.owner == null ? hostName() + ":" + ProcessHandle.current().pid() : this.owner;
            int length = owner.getBytes(UTF_8).length;
            if (length == 0 || length > OWNER_MAX) {
                throw new IllegalArgumentException("the owner of a client has 1 to " + OWNER_MAX + " bytes");
            }
            if (sessionTtl.toMillis() < 1 || sessionTtl.compareTo(SESSION_TTL_MAX) > 0) {
                throw new IllegalArgumentException("a session TTL of " + sessionTtl);
            }
            List<Address> nodes = Address.list(addresses);
            if (tls == null && nodes.stream().anyMatch(Address::isTls)) {
                tls = Pem.context(file("BELAY_TLS_CA"), file("BELAY_TLS_CERT"), file("BELAY_TLS_KEY"));
            }
            return new Client(new Config(nodes, namespace, token == null ? tokenOfEnvironment() : token, tls, owner,
                    Clock.nanos(Duration.ofMillis(sessionTtl.toMillis())), Clock.nanos(timeout), logger));
        }

        private String of(String variable, String otherwise) {
            String value = environment.getOrDefault(variable, "");
            return value.isEmpty() ? otherwise : value;
        }

        private Path file(String variable) {
            String name = of(variable, "");
            return name.isEmpty() ? null : Path.of(name);
        }

        private String tokenOfEnvironment() {
            Path path = file("BELAY_TOKEN_FILE");
            if (environment.containsKey("BELAY_TOKEN") || path == null) {
                return of("BELAY_TOKEN", "");
            }
            try (Stream<String> lines = Files.lines(path)) {
                return lines.findFirst().orElse("").strip();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /** Asks no name server. */
        private String hostName() {
            try {
                String name = Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
                return name.substring(0, Math.min(name.length(), OWNER_MAX / 2));
            } catch (IOException e) {
                return of("COMPUTERNAME", "localhost"); // not Linux
            }
        }
    }
}
