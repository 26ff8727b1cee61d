package belay;

import static belay.Check.fails;
import static belay.Check.inBackground;
import static belay.Check.is;
import static belay.Check.that;
import static belay.Check.until;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/** What is Java's own about clients. */
final class ClientTest {
    private static Set<Thread> threads() {
        return Thread.getAllStackTraces().keySet().stream().filter(t -> t.getName().startsWith("belay-"))
                .collect(Collectors.toSet());
    }

    @Test
    void aCloseEndsEverything() throws Exception {
        until(() -> threads().isEmpty());
        Client client = Client.create();
        is(threads(), Set.of());
        Held held = client.lock("close").acquire();
        var waiting = inBackground(() -> client.lock("close").acquire());
        Watch<Event> news = client.watch("close");
        var watching = inBackground(news::take);
        until(() -> client.show("close").waiters().size() == 1);
        client.close();
        fails(ClosedException.class, waiting::join);
        fails(ClosedException.class, watching::join);
        fails(ClosedException.class, () -> client.show("close"));
        fails(ClosedException.class, () -> client.lock("close").acquire());
        fails(ClosedException.class, () -> client.watch("close"));
        is(held.isHeld(), false);
        is(held.release(), false);
        is(client.address().isPresent() || client.session().isPresent(), false);
        client.close();
        until(() -> threads().isEmpty());
    }

    @Test
    void aLossIsNotTheFaultOfWhoCloses() throws Exception {
        Client client = Client.create();
        try (Held held = client.lock("closed first").acquire()) {
            client.close();
            is(held.lost().isDone(), false);
        }
    }

    @Test
    void errorsComeFromTheLineThatHasAsked() throws Exception {
        try (Client client = Client.create()) {
            ServerException error = fails(ServerException.class, () -> client.call("FROB"));
            that(Arrays.stream(error.getStackTrace()).anyMatch(at -> at.getClassName().equals(getClass().getName())),
                    "this test is in the trace");
        }
    }

    @Test
    void aTransactionThatWaitsCanBeInterrupted() throws Exception {
        try (Client client = Client.create()) {
            var waiting = inBackground(() -> client.transaction(Txn.assertThat(Txn.exists("interrupt", "k")))
                    .waitAtMost(Duration.ofMinutes(1)).run());
            until(() -> client.call("INFO").toString().contains("waiting_transactions:1"));
            waiting.interrupt();
            fails(InterruptedException.class, waiting::join);
            until(() -> client.call("INFO").toString().contains("waiting_transactions:0"));
        }
    }

    @Test
    void valuesOfATransactionComeBackAsJson() throws Exception {
        try (Client client = Client.create()) {
            TransactionResult result = client.transaction(
                    Txn.selectConstant("text", "a \"quoted\" line\nü"),
                    Txn.selectConstant("map", Map.of("n", 1))).run();
            is(result.data().get("map"), "{\"n\":1}");
            that(result.data().get("text").startsWith("\"a \\\"quoted\\\" line"), result.data().get("text"));
            is(result.isOk(), true);
        }
    }

    @Test
    void anObserverSeesEveryChange() throws Exception {
        try (Client client = Client.create(); Watch<Optional<Leader>> leaders = client.election("lead").observe()) {
            is(leaders.take(), Optional.empty());
            Held lead = client.election("lead").campaign().body("me").acquire();
            is(leaders.take().orElseThrow().bodyText(), "me");
            lead.release();
            is(leaders.take(), Optional.empty());
            is(leaders.poll(Duration.ZERO), Optional.empty());
        }
    }

    @Test
    void aTokenIsReadFromTheBuilder() {
        try (Client client = Client.builder().token("blt_0123456789abcdef_00").timeout(Duration.ofSeconds(5)).build()) {
            is(fails(ServerException.class, () -> client.show("x")).code(), "DENIED");
        }
    }

    @Test
    void wrongOptionsAreRefused() throws Exception {
        fails(IllegalArgumentException.class, () -> Client.of("no port:x"));
        fails(IllegalArgumentException.class, () -> Client.builder().owner("o".repeat(101)).build());
        fails(IllegalArgumentException.class, () -> Client.builder().sessionTtl(Duration.ZERO).build());
        Path empty = Files.createTempFile("belay", ".pem");
        fails(IllegalArgumentException.class, () -> Client.builder().tls(empty));
        fails(IllegalArgumentException.class, () -> Client.builder().tls(Path.of("/nowhere")));
        Files.delete(empty);
    }
}
