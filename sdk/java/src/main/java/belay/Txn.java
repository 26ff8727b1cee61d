package belay;

import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Makes the statements of a transaction. docs/TRANSACTIONS.md says what each of them means. Values are null,
 * a Boolean, a Number, a String, or a List or Map of them.
 *
 * <pre>{@code
 * client.transaction(
 *         assertThat(not(exists("Month-End", "CGROVE-35"))),
 *         assertThat(set("MDS-Entry", "CGROVE-35", "R-45899").allowDuplicates()));
 * }</pre>
 */
public final class Txn {
    private Txn() {}

    /** What has one word and its members. */
    abstract static class Node {
        private final Object json;
        private final Map<String, Object> members = new LinkedHashMap<>();

        private Node(Json.Raw raw) {
            json = raw;
        }

        private Node(String word, Object value) {
            json = Map.of(word, value);
        }

        private Node(String word, Map<String, ?> required) {
            members.putAll(required);
            json = Map.of(word, members);
        }

        final Object json() {
            return json;
        }

        /** The JSON that is sent. */
        @Override
        public final String toString() {
            return Json.write(this);
        }

        final void with(String member, Object value) {
            members.put(member, value);
        }
    }

    /** One step of a transaction. */
    public static class Statement extends Node {
        private Statement(Json.Raw raw) {
            super(raw);
        }

        private Statement(String word, Object value) {
            super(word, value);
        }

        private Statement(String word, Map<String, ?> members) {
            super(word, members);
        }
    }

    /** True or false; it may change something. */
    public static class Op extends Node {
        private Op(String word, Object value) {
            super(word, value);
        }

        private Op(String word, Map<String, ?> members) {
            super(word, members);
        }
    }

    private static Map<String, Object> record(String table, String key) {
        return new LinkedHashMap<>(Map.of("table", table, "key", key));
    }

    // ---- statements

    /** {@code assert}: aborts the transaction when the operator is false. */
    public static Statement assertThat(Op op) {
        return new Statement("assert", op);
    }

    /** Aborts the transaction. */
    public static Statement abort() {
        return new Statement("abort", Map.of());
    }

    /** Does the statements in order, until one aborts. */
    public static Statement block(Statement... statements) {
        return new Statement("block", Arrays.asList(statements));
    }

    /** {@code if} without {@code else}. */
    public static Statement when(Op condition, Statement then) {
        return new Statement("if", Map.of("cond", condition, "then", then));
    }

    /** {@code if}: does the one or the other statement. */
    public static Statement when(Op condition, Statement then, Statement otherwise) {
        return new Statement("if", Map.of("cond", condition, "then", then, "else", otherwise));
    }

    /** Does the operator, whatever it says. */
    public static Statement anyway(Op op) {
        return new Statement("anyway", op);
    }

    /** Adds the oldest record of a key to the data, or null. */
    public static Select select(String into, String table, String key) {
        return new Select(into, table, key);
    }

    /** Adds a value to the data. */
    public static Statement selectConstant(String into, Object value) {
        Map<String, Object> members = new LinkedHashMap<>(Map.of("into", into));
        members.put("value", value);
        return new Statement("select_constant", members);
    }

    /** Adds true or false to the data. */
    public static Statement selectOperator(String into, Op op) {
        return new Statement("select_operator", Map.of("into", into, "op", op));
    }

    /** A statement as docs/TRANSACTIONS.md writes it. */
    public static Statement json(String text) {
        return new Statement(new Json.Raw(text));
    }

    // ---- operators

    /** {@code true}. */
    public static Op always() {
        return new Op("true", Map.of());
    }

    /** {@code false}. */
    public static Op never() {
        return new Op("false", Map.of());
    }

    /** True when the operator is false. */
    public static Op not(Op op) {
        return new Op("not", op);
    }

    /** True when all are. All of them are evaluated, whatever the others say. */
    public static Op and(Op... ops) {
        return new Op("and", List.of(ops));
    }

    /** True when one is. All of them are evaluated. */
    public static Op or(Op... ops) {
        return new Op("or", List.of(ops));
    }

    /** True when an odd number of them is. All of them are evaluated. */
    public static Op xor(Op... ops) {
        return new Op("xor", List.of(ops));
    }

    /** True when another session has a record there. */
    public static Exists exists(String table, String key) {
        return new Exists(table, key);
    }

    /** True when the key was free; it is set now. */
    public static Assignment set(String table, String key, Object value) {
        return new Assignment(table, key, value);
    }

    /** True when this session had a record there; it is gone now. */
    public static Deletion delete(String table, String key) {
        return new Deletion(table, key);
    }

    /** True when the lock could be had at once; it is held now. */
    public static Locking lock(String name) {
        return new Locking(name);
    }

    /** True when the lock was held; it is free now. */
    public static Unlocking unlock(String name) {
        return new Unlocking(name);
    }

    // ---- what they may have

    /** {@code select}. */
    public static final class Select extends Statement {
        private Select(String into, String table, String key) {
            super("select", record(table, key));
            with("into", into);
        }

        /** All records, as an array. */
        public Select many() {
            with("many", true);
            return this;
        }

        /** False: those of the own session, too. */
        public Select ignoreThisSession(boolean ignore) {
            with("ignore_this_session", ignore);
            return this;
        }

        /** Aborts the transaction when there is no record. */
        public Select abortIfNotFound() {
            with("abort_if_not_found", true);
            return this;
        }
    }

    /** {@code exists}. */
    public static final class Exists extends Op {
        private Exists(String table, String key) {
            super("exists", record(table, key));
        }

        /** It must have this value. */
        public Exists value(Object value) {
            with("value", value);
            return this;
        }

        /** False: those of the own session count, too. */
        public Exists ignoreThisSession(boolean ignore) {
            with("ignore_this_session", ignore);
            return this;
        }
    }

    /** {@code set}. */
    public static final class Assignment extends Op {
        private Assignment(String table, String key, Object value) {
            super("set", record(table, key));
            with("value", value);
        }

        /** The record ends by itself. */
        public Assignment ttl(Duration ttl) {
            with("ttl_ms", ttl.toMillis());
            return this;
        }

        /** What the record is for. */
        public Assignment description(String description) {
            with("description", description);
            return this;
        }

        /** Beside records of other sessions. */
        public Assignment allowDuplicates() {
            with("allow_duplicates", true);
            return this;
        }

        /** Not beside a record that was set without {@link #allowDuplicates}. */
        public Assignment respectExclusive() {
            with("respect_exclusive", true);
            return this;
        }
    }

    /** {@code delete}. */
    public static final class Deletion extends Op {
        private Deletion(String table, String key) {
            super("delete", record(table, key));
        }

        /** It must have this value. */
        public Deletion value(Object value) {
            with("value", value);
            return this;
        }
    }

    /** {@code lock}. */
    public static final class Locking extends Op {
        private Locking(String name) {
            super("lock", Map.of("name", name));
        }

        /** Who holds it. The default is the session. */
        public Locking owner(String owner) {
            with("owner", owner);
            return this;
        }

        /** Together with other shared holders. */
        public Locking shared() {
            with("mode", "shared");
            return this;
        }

        /** Permits of a semaphore that has so many of them in all. */
        public Locking permits(int permits, int of) {
            with("permits", permits);
            with("of", of);
            return this;
        }

        /** The lease ends by itself. */
        public Locking ttl(Duration ttl) {
            with("ttl_ms", ttl.toMillis());
            return this;
        }

        /** Keeps the lock from others for so long after its lease is over. */
        public Locking grace(Duration grace) {
            with("grace_ms", grace.toMillis());
            return this;
        }

        /** Keeps the lock closed for so long after it was lost, and not given back. */
        public Locking delay(Duration delay) {
            with("delay_ms", delay.toMillis());
            return this;
        }

        /** Adds the fence to the data. */
        public Locking into(String into) {
            with("into", into);
            return this;
        }
    }

    /** {@code unlock}. */
    public static final class Unlocking extends Op {
        private Unlocking(String name) {
            super("unlock", Map.of("name", name));
        }

        /** Who holds it. */
        public Unlocking owner(String owner) {
            with("owner", owner);
            return this;
        }

        /** The number of the grant. */
        public Unlocking fence(long fence) {
            with("fence", fence);
            return this;
        }
    }
}
