import static belay.Txn.abort;
import static belay.Txn.always;
import static belay.Txn.and;
import static belay.Txn.anyway;
import static belay.Txn.assertThat;
import static belay.Txn.block;
import static belay.Txn.delete;
import static belay.Txn.exists;
import static belay.Txn.lock;
import static belay.Txn.never;
import static belay.Txn.not;
import static belay.Txn.or;
import static belay.Txn.select;
import static belay.Txn.selectConstant;
import static belay.Txn.selectOperator;
import static belay.Txn.set;
import static belay.Txn.unlock;
import static belay.Txn.when;
import static belay.Txn.xor;

import belay.Txn;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** What reference.json has, made with the builder. */
final class Reference {
    private Reference() {}

    static List<?> statements() {
        List<Txn.Statement> statements = List.of(
                assertThat(not(exists("t", "a"))),
                assertThat(exists("t", "b").value(Map.of("n", 1)).ignoreThisSession(false)),
                block(anyway(set("t", "c", "v")),
                        anyway(set("t", "d", Arrays.asList(1, null, true)).ttl(Duration.ofMillis(1500))
                                .description("why").allowDuplicates().respectExclusive())),
                when(and(always(), or(never(), xor(always(), never()))), selectConstant("branch", "then"), abort()),
                when(delete("t", "c"), abort()),
                anyway(delete("t", "d").value(7)),
                select("one", "t", "a"),
                select("all", "t", "b").many().ignoreThisSession(false).abortIfNotFound(),
                selectOperator("was", unlock("l").owner("o")),
                assertThat(lock("l").into("fence")),
                assertThat(lock("m").owner("o").shared().ttl(Duration.ofSeconds(1)).grace(Duration.ofMillis(10))
                        .delay(Duration.ofMillis(20))),
                assertThat(lock("s").permits(2, 5)),
                assertThat(unlock("m").fence(9)));
        return statements.stream().map(s -> Json.read(s.toString())).toList();
    }
}
