/* test_command.c - requests become ops, or errors that say what is wrong: tables for RESP and
 * HTTP.
 *
 * An op is shown as its kind and every field that is not absent; namespace and account only
 * when they are not "default". "-WORD text" is an error, "=> text" an answer at once. */
#include "command/command.h"
#include "command/scripts.h"
#include "proto/http.h"
#include "proto/json.h"
#include "proto/resp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct row {
    const char *request; /* words; for HTTP "METHOD path body" */
    const char *want;    /* a prefix of it when it ends in "..." */
};

static struct arena arena;
static struct scripts *scripts;

static void put_bytes(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c > ' ' && c <= '~')
            buf_put_byte(out, (char)c);
        else
            buf_printf(out, "\\x%02x", c);
    }
}

static void put_u64(struct buf *out, const char *name, uint64_t v)
{
    if (v)
        buf_printf(out, " %s=%llu", name, (unsigned long long)v);
}

static void put_field(struct buf *out, const char *name, struct slice s)
{
    bool usual = strcmp(name, "account") == 0 || strcmp(name, "ns") == 0;
    if (s.len == 0 || (usual && slice_eq(s, SLICE("default"))))
        return;
    buf_printf(out, " %s=", name);
    put_bytes(out, s);
}

static void put_names(struct buf *out, const char *name, struct names names)
{
    for (size_t i = 0; i < names.n; i++) {
        buf_printf(out, " %s+=", name);
        put_bytes(out, names.items[i]);
    }
}

static void put_op(struct buf *out, const struct op *op)
{
    buf_put_str(out, op_word(op->kind));
#define SHOW_u64       put_u64
#define SHOW_bytes     put_field
#define SHOW_names     put_names
#define X(type, field) SHOW_##type(out, #field, op->field);
    OP_FIELD_MAP(X)
#undef X
}

static void put_call(struct buf *out, const struct call *call)
{
    switch (call->kind) {
    case CALL_OP:
        put_op(out, &call->op);
        break;
    case CALL_ACTION:
        buf_printf(out, "action %d %llu ", (int)call->action, (unsigned long long)call->number);
        put_bytes(out, call->text);
        break;
    case CALL_REPLY:
        if (call->reply->kind == REPLY_ERROR) {
            buf_printf(out, "-%s ", err_word(call->reply->err));
            buf_put_slice(out, call->reply->text);
        } else {
            buf_printf(out, "=> %d ", call->reply->status);
            json_write(out, call->reply);
        }
        break;
    }
}

/* Words as redis-cli takes them: quotes and \x escapes work. */
static void read_resp(const char *line, int version, struct buf *out)
{
    struct buf bytes = {0};
    struct request req = {0};
    struct call call;
    size_t used = 0;
    const char *why = NULL;
    buf_printf(&bytes, "%s\r\n", line);
    assert_int_equal(resp_next(buf_slice(&bytes), &arena, &req, &used, &why), RESP_DONE);
    struct context context = {.account = SLICE("default"),
                              .ns = SLICE("default"),
                              .resp = version,
                              .target = 77,
                              .scripts = scripts};
    command_read(&req, &context, &arena, &call);
    put_call(out, &call);
    buf_done(&bytes);
}

static void read_http(const char *line, const char *type, struct buf *out)
{
    struct buf bytes = {0};
    struct request req = {0};
    struct call call;
    struct http_error bad = {0};
    size_t used = 0;
    const char *path = strchr(line, ' ') + 1;
    size_t path_len = strcspn(path, " ");
    const char *body = path[path_len] ? path + path_len + 1 : "";
    buf_printf(&bytes, "%.*s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n",
               (int)(path + path_len - line), line, type);
    buf_printf(&bytes, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    assert_int_equal(http_next(buf_slice(&bytes), &arena, &req, &used, &bad), HTTP_DONE);
    struct context context = {
        .account = SLICE("default"), .ns = SLICE("default"), .scripts = scripts};
    command_read(&req, &context, &arena, &call);
    put_call(out, &call);
    buf_done(&bytes);
}

static bool fits(const char *got, const char *want)
{
    size_t len = strlen(want);
    bool open = len >= 3 && strcmp(want + len - 3, "...") == 0;
    return open ? strncmp(got, want, len - 3) == 0 : strcmp(got, want) == 0;
}

static void check_rows(const struct row *rows, size_t n, const char *type)
{
    int wrong = 0;
    for (size_t i = 0; i < n; i++) {
        struct buf got = {0};
        arena_reset(&arena);
        if (type)
            read_http(rows[i].request, type, &got);
        else
            read_resp(rows[i].request, 2, &got);
        if (!fits(buf_cstr(&got), rows[i].want)) {
            print_error("%s\n  got  %s\n  want %s\n", rows[i].request, buf_cstr(&got),
                        rows[i].want);
            wrong++;
        }
        buf_done(&got);
    }
    assert_int_equal(wrong, 0);
}
#define CHECK_ROWS(rows, type) check_rows(rows, sizeof(rows) / sizeof *(rows), type)

#define ACQ "acquire name=l owner=o"

static void words_become_ops(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"ACQUIRE l o", ACQ " mode=1 flags=256 ttl_ms=30000"},
        {"acquire l o", ACQ " mode=1 flags=256 ttl_ms=30000"},
        {"ACQUIRE l o MODE shared TTL 5", ACQ " mode=2 flags=256 ttl_ms=5"},
        {"ACQUIRE l o ttl 5 mode SHARED wait 0", ACQ " mode=2 flags=256 ttl_ms=5"},
        {"ACQUIRE l o WAIT 7", ACQ " mode=1 flags=256 ttl_ms=30000 wait_ms=7"},
        {"ACQUIRE l o WAIT 7 NOBLOCK", ACQ " mode=1 flags=257 ttl_ms=30000 wait_ms=7"},
        {"ACQUIRE l o NOBLOCK", ACQ " mode=1 flags=256 ttl_ms=30000"},
        {"ACQUIRE l o PERMITS 2 OF 5", ACQ " mode=3 flags=256 ttl_ms=30000 permits=2 of=5"},
        {"ACQUIRE l o OF 5", ACQ " mode=3 flags=256 ttl_ms=30000 permits=1 of=5"},
        {"ACQUIRE l o SESSION s TTL 0", ACQ " session=s mode=1 flags=256"},
        {"ACQUIRE l o BODY x", ACQ " body=x mode=1 flags=260 ttl_ms=30000"},
        {"ACQUIRE l o BODY \"\"", ACQ " mode=1 flags=260 ttl_ms=30000"},
        {"ACQUIRE l o GRACE 3 DELAY 4",
         ACQ " mode=1 flags=256 ttl_ms=30000 grace_ms=3 delay_ms=4"},
        {"ACQUIRE l o POLICY soft", ACQ " mode=1 policy=1 flags=256 ttl_ms=30000"},
        {"ACQUIRE l o POLICY hard", ACQ " mode=1 flags=256 ttl_ms=30000"},
        {"ACQUIRE l o POLICY timed 9 WAIT 9",
         ACQ " mode=1 policy=2 flags=256 ttl_ms=30000 wait_ms=9 quiet_ms=9"},
        {"ACQUIRE l o WAIT 9 QUIET 9 POLICY timed",
         ACQ " mode=1 policy=2 flags=256 ttl_ms=30000 wait_ms=9 quiet_ms=9"},
        {"ACQUIRE \"\\x00\\xff\" o",
         "acquire name=\\x00\\xff owner=o mode=1 flags=256 ttl_ms=30000"},
        {"ACQUIRE TTL OWNER TTL 5", "acquire name=TTL owner=OWNER mode=1 flags=256 ttl_ms=5"},
        {"RELEASE l 7", "release name=l fence=7"},
        {"RELEASE l OWNER o", "release name=l owner=o"},
        {"RELEASE l owner OWNER", "release name=l owner=OWNER"},
        {"RENEW l 7", "renew name=l fence=7"},
        {"RENEW l OWNER o TTL 9", "renew name=l owner=o ttl_ms=9"},
        {"CONVERT l 7 MODE shared", "convert name=l fence=7 mode=2 flags=256"},
        {"CONVERT l 7 MODE exclusive WAIT 5 NOBLOCK TTL 3",
         "convert name=l fence=7 mode=1 flags=257 ttl_ms=3 wait_ms=5"},
        {"CHECK l 7", "check name=l fence=7"},
        {"BODY l 7 v", "body name=l body=v fence=7 flags=4"},
        {"BODY l OWNER o \"\"", "body name=l owner=o flags=4"},
        {"SHOW l", "show name=l"},
        {"LIST", "list limit=100"},
        {"LIST PREFIX p AFTER a LIMIT 3", "list name=p text=a limit=3"},
        {"BREAK l", "break name=l"},
        {"SESSION OPEN ID s TTL 5 LINGER 6 DESCRIPTION d",
         "session-open session=s text=d flags=8192 ttl_ms=5 linger_ms=6"},
        {"session open id s", "session-open session=s flags=8192 ttl_ms=60000"},
        {"SESSION ATTACH s", "session-attach session=s target=77"},
        {"SESSION KEEPALIVE a b", "session-keepalive more+=a more+=b"},
        {"SESSION CLOSE s", "session-close session=s"},
        {"SESSION SHOW s", "session-show session=s"},
        {"SESSION LIST AFTER a", "session-list text=a limit=100"},
        {"NAMESPACE CREATE n DESCRIPTION d", "namespace-create ns=n text=d"},
        {"NAMESPACE UPDATE n DESCRIPTION \"\"", "namespace-update ns=n flags=32"},
        {"NAMESPACE DELETE n FORCE", "namespace-delete ns=n flags=2"},
        {"NAMESPACE SHOW n", "namespace-show ns=n"},
        {"NAMESPACE LIST", "namespace-list limit=100"},
        {"USE n", "action 2 0 n"},
        {"PING", "=> 0 \"PONG\""},
        {"PING x", "=> 0 \"x\""},
        {"ECHO x", "=> 0 \"x\""},
        {"SELECT 0", "=> 0 \"OK\""},
        {"HELLO", "action 1 0 "},
        {"HELLO 3", "action 1 3 "},
        {"HELLO 2 SETNAME me", "action 1 2 me"},
        {"CONFIG GET save nothing", "=> 0 {\"save\":\"\"}"},
        {"COMMAND INFO show nope", "=> 0 [[\"show\",-2,[\"readonly\"],1,1,1],null]"},
        {"COMMAND DOCS release", "=> 0 {\"release\":{\"summary\":\"give a lock back..."},
    };
    CHECK_ROWS(rows, NULL);
}

static void redis_words_become_ops(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"SET k v NX PX 5", "acquire name=k owner=v mode=1 flags=64 ttl_ms=5"},
        {"SET k v PX 5 NX", "acquire name=k owner=v mode=1 flags=64 ttl_ms=5"},
        {"set k v nx ex 5", "acquire name=k owner=v mode=1 flags=64 ttl_ms=5000"},
        {"SET k v NX", "acquire name=k owner=v mode=1 flags=64"},
        {"SETNX k v", "acquire name=k owner=v mode=1 flags=64"},
        {"GET k", "show name=k"},
        {"EXISTS k", "show name=k"},
        {"PTTL k", "show name=k"},
        {"TTL k", "show name=k"},
        {"DEL k", "release name=k flags=16"},
        {"DEL k l m", "release name=k flags=16 more+=l more+=m"},
        {"UNLINK k l", "release name=k flags=16 more+=l"},
        {"PEXPIRE k 5", "renew name=k flags=16 ttl_ms=5"},
        {"EXPIRE k 5", "renew name=k flags=16 ttl_ms=5000"},
        {"PEXPIRE k 0", "release name=k flags=16"},
        {"ZREM k v", "release name=k owner=v flags=4096"},
        {"SET k v", "-SYNTAX SET without NX would take a lock from its holder; this is a lock "
                    "server: SET key value NX [PX ms|EX s]"},
        {"SET k v XX", "-SYNTAX SET takes a lock: SET key value NX [PX ms|EX s], not 'XX'"},
        {"SET k v NX KEEPTTL", "-SYNTAX SET takes a lock..."},
        {"SET k v NX NX", "-SYNTAX SET takes a lock..."},
        {"SET k v NX GET", "-SYNTAX SET takes a lock..."},
        {"SET k v NX PX", "-SYNTAX SET takes a lock..."},
        {"SET k v NX PX 5 EX 5", "-SYNTAX SET takes a lock..."},
        {"SET k v NX PX 0",
         "-RANGE the time must be a whole number from 1 to 604800000, not '0'"},
        {"SET k v NX PX -1", "-RANGE the time..."},
        {"SET k v NX EX 604801", "-RANGE the time must be a whole number from 1 to 604800..."},
        {"SET k", "-SYNTAX value is missing..."},
        {"SET k \"\" NX", "-RANGE VALUE must have 1 to 128 bytes, not 0"},
        {"SET \"\" v NX", "-RANGE KEY must have 1 to 512 bytes, not 0"},
        {"DEL", "-SYNTAX key... is missing..."},
        {"DEL a \"\"", "-RANGE key must have 1 to 512 bytes, not 0"},
        {"EXISTS a b", "-SYNTAX unknown word 'b'..."},
        {"PEXPIRE k", "-SYNTAX n is missing..."},
        {"PEXPIRE k x", "-RANGE NUMBER must be a whole number..."},
        {"EXPIRE k 604801", "-RANGE the time must be at most 604800"},
        {"EVALSHA 0123456789012345678901234567890123456789 1 k v",
         "-NOSCRIPT No matching script. Please use EVAL."},
        {"EVALSHA short 1 k v", "-NOSCRIPT No matching script. Please use EVAL."},
        {"EVAL \"return 1\" 0", "-UNKNOWN script: Belay has no Lua engine..."},
        {"SCRIPT LOAD \"return 1\"", "-UNKNOWN script: Belay has no Lua engine..."},
        {"SCRIPT EXISTS x y", "=> 0 [0,0]"},
        {"SCRIPT KILL", "-UNKNOWN unknown sub-command 'KILL' of 'SCRIPT'"},
    };
    CHECK_ROWS(rows, NULL);
}

static const struct row wrong_words[] = {
    {"NOPE", "-UNKNOWN unknown command 'NOPE'; COMMAND LIST names all commands"},
    {"/healthz", "-UNKNOWN unknown command '/healthz'..."},
    {"SESSION", "-UNKNOWN a sub-command is missing behind 'SESSION'..."},
    {"SESSION NOPE", "-UNKNOWN unknown sub-command 'NOPE' of 'SESSION'"},
    {"CLIENT KILL x", "-UNKNOWN unknown sub-command 'KILL' of 'CLIENT'"},
    {"COMMAND NOPE", "-SYNTAX unknown word 'NOPE'; it takes: nothing"},
    {"ACQUIRE", "-SYNTAX name is missing; it takes: name owner [MODE exclusive|shared]..."},
    {"ACQUIRE l", "-SYNTAX owner is missing..."},
    {"ACQUIRE \"\" o", "-RANGE NAME must have 1 to 512 bytes, not 0"},
    {"ACQUIRE l \"\"", "-RANGE OWNER must have 1 to 128 bytes, not 0"},
    {"ACQUIRE l o x", "-SYNTAX unknown word 'x'..."},
    {"ACQUIRE l o \"a\\r\\nb\"", "-SYNTAX unknown word 'a??b'..."},
    {"ACQUIRE l o 0123456789012345678901234567890123456789abc",
     "-SYNTAX unknown word '0123456789012345678901234567890123456789...'..."},
    {"ACQUIRE l o TTL", "-SYNTAX TTL needs a value behind it: ms"},
    {"ACQUIRE l o TTL x", "-RANGE TTL must be a whole number from 0 to 604800000, not 'x'"},
    {"ACQUIRE l o TTL \"\"", "-RANGE TTL must be..."},
    {"ACQUIRE l o TTL +5", "-RANGE TTL must be..."},
    {"ACQUIRE l o TTL 5s", "-RANGE TTL must be..."},
    {"ACQUIRE l o TTL 604800001", "-RANGE TTL must be..."},
    {"ACQUIRE l o TTL 18446744073709551621", "-RANGE TTL must be..."},
    {"ACQUIRE l o TTL 5 TTL 5", "-SYNTAX TTL is given twice"},
    {"ACQUIRE l o NOBLOCK NOBLOCK", "-SYNTAX NOBLOCK is given twice"},
    {"ACQUIRE l o TTL 0", "-RANGE TTL 0 (until released) needs a SESSION to end with"},
    {"ACQUIRE l o MODE", "-SYNTAX MODE needs a value behind it: exclusive|shared"},
    {"ACQUIRE l o MODE semaphore",
     "-SYNTAX MODE must be one of exclusive, shared, not 'semaphore'"},
    {"ACQUIRE l o PERMITS 2", "-SYNTAX PERMITS needs OF: how many permits there are in all"},
    {"ACQUIRE l o PERMITS 0 OF 2", "-RANGE PERMITS must be a whole number from 1..."},
    {"ACQUIRE l o PERMITS 3 OF 2",
     "-RANGE PERMITS 3 OF 2: a semaphore has no more permits than OF"},
    {"ACQUIRE l o OF 2 MODE shared", "-SYNTAX a semaphore (PERMITS n OF m) has no MODE"},
    {"ACQUIRE l o OF 2 POLICY soft", "-SYNTAX POLICY soft and timed are for exclusive locks"},
    {"ACQUIRE l o POLICY maybe", "-SYNTAX POLICY must be one of hard, soft, timed..."},
    {"ACQUIRE l o POLICY timed", "-SYNTAX POLICY timed needs its quiet time..."},
    {"ACQUIRE l o POLICY timed 9", "-RANGE POLICY timed needs WAIT of at least..."},
    {"ACQUIRE l o POLICY timed 600001 WAIT 700000", "-RANGE QUIET must be..."},
    {"ACQUIRE l o POLICY timed 9 QUIET 9", "-SYNTAX QUIET is given twice"},
    {"ACQUIRE l o QUIET 9 POLICY timed 9", "-SYNTAX QUIET is given twice"},
    {"ACQUIRE l o QUIET 9", "-SYNTAX QUIET belongs to POLICY timed"},
    {"ACQUIRE l o GRACE 604800001", "-RANGE GRACE must be..."},
    {"ACQUIRE l o DELAY 600001", "-RANGE DELAY must be..."},
    {"ACQUIRE l o SESSION \"\"", "-RANGE SESSION must have 1 to 64 bytes, not 0"},
    {"RELEASE l", "-SYNTAX fence|OWNER owner is missing..."},
    {"RELEASE l OWNER", "-SYNTAX OWNER needs an owner behind it"},
    {"RELEASE l 0", "-RANGE FENCE must be a whole number from 1..."},
    {"RELEASE l 9223372036854775808", "-RANGE FENCE must be..."},
    {"RELEASE l 5 5", "-SYNTAX unknown word '5'..."},
    {"RENEW l 5 TTL 0", "-RANGE TTL must be at least 1 ms..."},
    {"RENEW l 5 WAIT 5", "-SYNTAX unknown word 'WAIT'..."},
    {"CONVERT l 5", "-SYNTAX MODE is missing: CONVERT to shared or to exclusive?"},
    {"CONVERT l 5 MODE shared TTL 0", "-RANGE TTL must be at least 1 ms..."},
    {"BODY l 5", "-SYNTAX bytes is missing..."},
    {"SHOW", "-SYNTAX name is missing..."},
    {"LIST LIMIT 0", "-RANGE LIMIT must be a whole number from 1 to 1000, not '0'"},
    {"LIST LIMIT 1001", "-RANGE LIMIT must be..."},
    {"SESSION OPEN TTL 0", "-RANGE TTL must be a whole number from 1..."},
    {"SESSION OPEN LINGER 86400001", "-RANGE LINGER must be..."},
    {"SESSION KEEPALIVE", "-SYNTAX id... is missing..."},
    {"SESSION KEEPALIVE a \"\"", "-RANGE id must have 1 to 64 bytes, not 0"},
    {"NAMESPACE CREATE \"\"", "-RANGE NAME must have 1 to 128 bytes, not 0"},
    {"NAMESPACE DELETE n FORCE FORCE", "-SYNTAX FORCE is given twice"},
    {"USE", "-SYNTAX namespace is missing..."},
    {"SELECT 1", "-RANGE there is only database 0; USE chooses a namespace"},
    {"HELLO 4", "-NOPROTO unsupported protocol version; RESP 2 and 3 are known"},
    {"HELLO x", "-NOPROTO unsupported..."},
    {"HELLO 3 AUTH a", "-SYNTAX unknown word 'AUTH'..."},
    {"HELLO 3 NOPE", "-SYNTAX unknown word 'NOPE'..."},
    {"AUTH", "-SYNTAX AUTH takes a token..."},
    {"AUTH a b c", "-SYNTAX AUTH takes a token..."},
    {"PING a b", "-SYNTAX PING takes one text at most"},
    {"ECHO", "-SYNTAX text is missing..."},
    {"CLIENT SETNAME \"a b\"", "-SYNTAX a name has printable characters without spaces"},
    {"WATCH", "-SYNTAX WATCH needs RESP3: send HELLO 3 first"},
};

static void wrong_words_say_what_is_wrong(void **state)
{
    (void)state;
    CHECK_ROWS(wrong_words, NULL);
}

#define L    "/v1/namespaces/default/locks/l"
#define JSON "application/json"
#define TXN  "{\"session\":\"s\""

/* What changes something may bring an id. */
static void a_request_may_have_an_id(void **state)
{
    (void)state;
    static const struct row words[] = {
        {"ACQUIRE l o REQUEST r", ACQ " mode=1 flags=256 ttl_ms=30000 request=r"},
        {"ACQUIRE l o request r WAIT 5",
         ACQ " mode=1 flags=256 ttl_ms=30000 wait_ms=5 request=r"},
        {"RELEASE l 7 REQUEST r", "release name=l fence=7 request=r"},
        {"RENEW l OWNER o REQUEST r", "renew name=l owner=o request=r"},
        {"CONVERT l 7 MODE shared REQUEST r",
         "convert name=l fence=7 mode=2 flags=256 request=r"},
        {"BODY l 7 b REQUEST r", "body name=l body=b fence=7 flags=4 request=r"},
        {"BREAK l REQUEST r", "break name=l request=r"},
        {"SESSION OPEN ID s REQUEST r",
         "session-open session=s flags=8192 ttl_ms=60000 request=r"},
        {"SESSION CLOSE s REQUEST r", "session-close session=s request=r"},
        {"NAMESPACE CREATE n REQUEST r", "namespace-create ns=n request=r"},
        {"NAMESPACE UPDATE n REQUEST r", "namespace-update ns=n request=r"},
        {"NAMESPACE DELETE n REQUEST r", "namespace-delete ns=n request=r"},
        {"TXN '" TXN "}' REQUEST r", "txn session=s request=r"},
        {"TXN '" TXN ",\"request\":\"r\"}'", "txn session=s request=r"},
        {"TXN '" TXN ",\"request\":\"r\"}' REQUEST x", "txn session=s request=r"},
        {"ACQUIRE l o REQUEST \"\"", "-RANGE REQUEST must have 1 to 64 bytes, not 0"},
        {"SHOW l REQUEST r", "-SYNTAX unknown word 'REQUEST'..."},
        {"SESSION KEEPALIVE s REQUEST r", "session-keepalive more+=s more+=REQUEST more+=r"},
    };
    static const struct row bodies[] = {
        {"POST " L "/acquire {\"owner\":\"o\",\"request\":\"r\"}",
         ACQ " mode=1 flags=8 ttl_ms=30000 request=r"},
        {"DELETE " L "?request=r", "break name=l flags=8 request=r"},
        {"POST /v1/namespaces/default/transactions " TXN ",\"request\":\"r\"}",
         "txn session=s request=r"},
        {"GET " L "?request=r", "-SYNTAX unknown query parameter 'request'"},
    };
    static const struct row headers[] = {
        {"POST " L "/release {\"fence\":7}", "release name=l fence=7 flags=8 request=key"},
        {"DELETE /v1/sessions/s", "session-close session=s request=key"},
        {"POST /v1/namespaces/default/transactions " TXN "}", "txn session=s request=key"},
        {"POST " L "/release {\"fence\":7,\"request\":\"r\"}",
         "-SYNTAX \"request\" is given, and Idempotency-Key too"},
        {"GET " L, "show name=l"},
        {"POST /v1/sessions/s/keepalive", "session-keepalive more+=s"},
    };
    CHECK_ROWS(words, NULL);
    CHECK_ROWS(bodies, JSON);
    CHECK_ROWS(headers, JSON "\r\nIdempotency-Key: key");
}

static void a_look_may_be_stale(void **state)
{
    (void)state;
    static const struct row words[] = {
        {"SHOW l STALE", "show name=l flags=512"},
        {"LIST stale PREFIX p", "list name=p flags=512 limit=100"},
        {"SESSION SHOW s STALE", "session-show session=s flags=512"},
        {"SESSION LIST STALE", "session-list flags=512 limit=100"},
        {"NAMESPACE SHOW n STALE", "namespace-show ns=n flags=512"},
        {"NAMESPACE LIST STALE", "namespace-list flags=512 limit=100"},
        {"TABLE LIST STALE", "table-list flags=512"},
        {"TABLE SHOW t STALE", "table-show name=t flags=512"},
        {"CHECK l 7 STALE", "-SYNTAX unknown word 'STALE'..."},
        {"RELEASE l 7 STALE", "-SYNTAX unknown word 'STALE'..."},
    };
    static const struct row rows[] = {
        {"GET " L "?stale=1", "show name=l flags=512"},
        {"GET " L "?stale=true", "show name=l flags=512"},
        {"GET " L "?stale=0", "show name=l"},
        {"GET /v1/sessions?stale=1", "session-list flags=512 limit=100"},
        {"GET " L "?stale=yes", "-SYNTAX \"stale\" must be true or false"},
        {"POST " L "/check {\"fence\":7,\"stale\":true}", "-SYNTAX unknown member 'stale'"},
    };
    CHECK_ROWS(words, NULL);
    CHECK_ROWS(rows, JSON);
}

static void http_becomes_ops(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"POST " L "/acquire {\"owner\":\"o\"}", ACQ " mode=1 flags=8 ttl_ms=30000"},
        {"POST " L "/acquire?owner=o&ttl_ms=5", ACQ " mode=1 flags=8 ttl_ms=5"},
        {"POST " L "/acquire {\"owner\":\"o\",\"session\":null,\"ttl_ms\":1e3}",
         ACQ " mode=1 flags=8 ttl_ms=1000"},
        {"POST " L "/acquire {\"owner\":\"o\",\"wait_ms\":5,\"block\":false}",
         ACQ " mode=1 flags=9 ttl_ms=30000 wait_ms=5"},
        {"POST " L "/acquire {\"owner\":\"o\",\"wait_ms\":5,\"block\":true}",
         ACQ " mode=1 flags=8 ttl_ms=30000 wait_ms=5"},
        {"POST " L "/acquire {\"owner\":\"o\",\"permits\":2,\"of\":3}",
         ACQ " mode=3 flags=8 ttl_ms=30000 permits=2 of=3"},
        {"POST " L
         "/acquire {\"owner\":\"o\",\"policy\":\"timed\",\"quiet_ms\":5,\"wait_ms\":6}",
         ACQ " mode=1 policy=2 flags=8 ttl_ms=30000 wait_ms=6 quiet_ms=5"},
        {"POST " L "/acquire {\"owner\":\"\\u00e9\\u0000\",\"body\":\"\"}",
         "acquire name=l owner=\\xc3\\xa9\\x00 mode=1 flags=12 ttl_ms=30000"},
        {"POST /v1/namespaces/a%2Fb/locks/%00%2F%20/acquire {\"owner\":\"o\"}",
         "acquire ns=a/b name=\\x00/\\x20 owner=o mode=1 flags=8 ttl_ms=30000"},
        {"POST " L "/release {\"fence\":7}", "release name=l fence=7 flags=8"},
        {"POST " L "/release {\"owner\":\"o\"}", "release name=l owner=o flags=8"},
        {"POST " L "/renew {\"fence\":7,\"ttl_ms\":5}", "renew name=l fence=7 ttl_ms=5"},
        {"POST " L "/convert {\"fence\":7,\"mode\":\"shared\"}",
         "convert name=l fence=7 mode=2 flags=8"},
        {"POST " L "/check {\"fence\":7}", "check name=l fence=7"},
        {"PUT " L "/body {\"fence\":7,\"body\":\"b\"}", "body name=l body=b fence=7 flags=4"},
        {"GET " L, "show name=l"},
        {"DELETE " L, "break name=l flags=8"},
        {"GET /v1/namespaces/n/locks?prefix=p&after=a&limit=3",
         "list ns=n name=p text=a limit=3"},
        {"POST /v1/sessions {\"id\":\"s\",\"ttl_ms\":5,\"linger_ms\":6,\"description\":\"d\"}",
         "session-open session=s text=d flags=8192 ttl_ms=5 linger_ms=6"},
        {"GET /v1/sessions/s", "session-show session=s"},
        {"GET /v1/sessions", "session-list limit=100"},
        {"DELETE /v1/sessions/s", "session-close session=s"},
        {"POST /v1/sessions/s/keepalive", "session-keepalive more+=s"},
        {"POST /v1/namespaces {\"name\":\"n\",\"description\":\"d\"}",
         "namespace-create ns=n text=d"},
        {"GET /v1/namespaces", "namespace-list limit=100"},
        {"GET /v1/namespaces/n", "namespace-show ns=n"},
        {"PATCH /v1/namespaces/n {\"description\":\"d\"}",
         "namespace-update ns=n text=d flags=32"},
        {"DELETE /v1/namespaces/n?force=true", "namespace-delete ns=n flags=2"},
        {"DELETE /v1/namespaces/n?force=false", "namespace-delete ns=n"},
        {"GET /healthz", "=> 0 \"ok\\n\""},
        {"GET /v1/namespaces/n/events?prefix=p", "action 3 0 p"},
        {"GET /v1/namespaces/n/events?since=4", "action 3 5 "},
    };
    CHECK_ROWS(rows, JSON);
}

static void wrong_http_says_what_is_wrong(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"GET /nope", "-UNKNOWN no such path: '/nope'"},
        {"GET /v1", "-UNKNOWN no such path..."},
        {"GET /v1/", "-UNKNOWN no such path..."},
        {"GET /healthz/", "-UNKNOWN no such path..."},
        {"GET //healthz", "-UNKNOWN no such path..."},
        {"GET /v1/namespaces//locks", "-UNKNOWN no such path..."},
        {"GET /v1/a/b/c/d/e/f/g/h/i", "-UNKNOWN no such path..."},
        {"POST " L "/nope", "-UNKNOWN no such path..."},
        {"GET " L "/acquire", "-METHOD this path takes POST, not 'GET'"},
        {"PATCH " L, "-METHOD this path takes GET, DELETE, not 'PATCH'"},
        {"DELETE /healthz", "-METHOD this path takes GET, not 'DELETE'"},
        {"GET /v1/namespaces/%/locks", "-SYNTAX the path is badly percent-encoded at '%'"},
        {"POST " L "/acquire", "-SYNTAX \"owner\" is missing"},
        {"POST " L "/acquire {}", "-SYNTAX \"owner\" is missing"},
        {"POST " L "/acquire []", "-SYNTAX ..."},
        {"POST " L "/acquire {", "-SYNTAX ..."},
        {"POST " L "/acquire {\"owner\":1}", "-SYNTAX \"owner\" must be a string"},
        {"POST " L "/acquire {\"owner\":[\"o\"]}", "-SYNTAX \"owner\" must be a string"},
        {"POST " L "/acquire {\"owner\":null}", "-SYNTAX \"owner\" is missing"},
        {"POST " L "/acquire {\"owner\":\"\"}", "-RANGE owner must have 1 to 128 bytes, not 0"},
        {"POST " L "/acquire {\"owner\":\"o\",\"nope\":1}", "-SYNTAX unknown member 'nope'"},
        {"POST " L "/acquire {\"owner\":\"o\",\"TTL\":1}", "-SYNTAX unknown member 'TTL'"},
        {"POST " L "/acquire?nope=1 {\"owner\":\"o\"}", "-SYNTAX unknown query parameter..."},
        {"POST " L "/acquire {\"owner\":\"o\",\"name\":\"x\"}",
         "-SYNTAX \"name\" is given twice"},
        {"POST " L "/acquire?owner=a {\"owner\":\"o\"}", "-SYNTAX ..."},
        {"POST " L "/acquire {\"owner\":\"o\",\"ttl_ms\":\"5\"}",
         "-SYNTAX \"ttl_ms\" must be a whole number"},
        {"POST " L "/acquire {\"owner\":\"o\",\"ttl_ms\":1.5}",
         "-RANGE ttl_ms must be a whole number from 0 to 604800000, not '1.5'"},
        {"POST " L "/acquire {\"owner\":\"o\",\"ttl_ms\":-1}", "-RANGE ttl_ms must be..."},
        {"POST " L "/acquire {\"owner\":\"o\",\"ttl_ms\":1e300}", "-RANGE ttl_ms must be..."},
        {"POST " L "/acquire {\"owner\":\"o\",\"mode\":\"x\"}",
         "-SYNTAX mode must be one of..."},
        {"POST " L "/acquire {\"owner\":\"o\",\"block\":\"false\"}",
         "-SYNTAX \"block\" must be true or false"},
        {"POST " L "/release {}", "-SYNTAX give either \"fence\" or \"owner\", and not both"},
        {"POST " L "/release {\"fence\":1,\"owner\":\"o\"}", "-SYNTAX give either..."},
        {"POST " L "/release {\"fence\":\"1\"}", "-SYNTAX \"fence\" must be a whole number"},
        {"PUT " L "/body {\"fence\":1}", "-SYNTAX \"body\" is missing"},
        {"POST /v1/namespaces {}", "-SYNTAX \"name\" is missing"},
        {"POST /v1/namespaces {\"ns\":\"x\"}", "-SYNTAX unknown member 'ns'"},
        {"DELETE /v1/namespaces/n?force=yes", "-SYNTAX \"force\" must be true or false"},
        {"GET " L "?x=1", "-SYNTAX unknown query parameter 'x'"},
    };
    CHECK_ROWS(rows, JSON);
    static const struct row untyped[] = {
        {"POST " L "/acquire {\"owner\":\"o\"}",
         "-TYPE send the body with Content-Type: application/json"},
        {"GET " L, "show name=l"},
    };
    CHECK_ROWS(untyped, "text/plain");
}

static void glock_paths_become_ops(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"POST /locks/l?nonce=o", "acquire name=l owner=o mode=1 ttl_ms=30000"},
        {"PUT /locks/l nonce=a%20b+c",
         "acquire name=l owner=a\\x20b\\x20c mode=1 ttl_ms=30000"},
        {"PUT /locks/l?nonce=q nonce=b", "acquire name=l owner=q mode=1 ttl_ms=30000"},
        {"POST /locks/l/7/heartbeat", "renew name=l fence=7 ttl_ms=30000"},
        {"POST /locks/l/7 any=thing", "body name=l body=any=thing fence=7 flags=4"},
        {"DELETE /locks/l/7", "release name=l fence=7"},
        {"DELETE /locks/l/0", "release name=l fence=9223372036854775807"},
        {"POST /locks/l", "=> 400 {\"error\":\"nonce missing or empty\"}"},
        {"POST /locks/l?nonce=", "=> 400 {\"error\":\"nonce missing or empty\"}"},
        {"POST /locks/l/x", "=> 400 {\"error\":\"fence not an integer\"}"},
        {"POST /locks/l/x/heartbeat", "=> 400 {\"error\":\"fence not an integer\"}"},
        {"DELETE /locks/l/-1", "=> 400 {\"error\":\"fence not an integer\"}"},
        {"DELETE /locks/l", "=> 400 {\"error\":\"fence missing or empty\"}"},
        {"POST /locks/l?x=1", "=> 400 {\"error\":\"unknown query parameter 'x'\"}"},
        {"GET /locks/l", "-METHOD this path takes POST, PUT, DELETE, not 'GET'"},
    };
    CHECK_ROWS(rows, "application/x-www-form-urlencoded");
}

/* The same script in other words is the same script; another one is not. */
static void scripts_are_known_by_what_they_do(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) "
         "else return 0 end\" 1 k v",
         "release name=k owner=v flags=4096"},
        {"EVAL \"if redis.pcall(\\\"GET\\\", KEYS[1]) == ARGV[1] then -- ours\\n  return "
         "redis.call(\\\"UNLINK\\\",KEYS[1]);\\nelse return 0 end\" 1 k v",
         "release name=k owner=v flags=4096"},
        {"EVAL \"local a=KEYS[1] local b=ARGV[1] if redis.call('get',a)==b then return "
         "redis.call('del',a) end return 0\" 1 k v",
         "release name=k owner=v flags=4096"},
        {"EVAL \"local x = redis.call('get', KEYS[1]) if not x or x ~= ARGV[1] then return 0 end "
         "redis.call('pexpire', KEYS[1], ARGV[2]) return 1\" 1 k v 500",
         "renew name=k owner=v ttl_ms=500"},
        {"EVAL \"for _, k in ipairs(KEYS) do if redis.call('exists', k) == 1 then return 0 end "
         "end for _, k in ipairs(KEYS) do redis.call('set', k, ARGV[1], 'PX', ARGV[2]) end "
         "return #KEYS\" 2 a b v 500",
         "acquire name=a owner=v mode=1 flags=64 ttl_ms=500 more+=b"},
        {"EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return "
         "redis.call('expire',KEYS[1],ARGV[2]) else return 0 end\" 1 k v 5",
         "renew name=k owner=v ttl_ms=5000"},
        /* not the same: another key, no comparison, one more call */
        {"EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[2]) "
         "else return 0 end\" 1 k v",
         "-UNKNOWN script..."},
        {"EVAL \"return redis.call('del',KEYS[1])\" 1 k v", "-UNKNOWN script..."},
        {"EVAL \"if redis.call('get',KEYS[1])~=ARGV[1] then return redis.call('del',KEYS[1]) "
         "else return 0 end\" 1 k v",
         "-UNKNOWN script..."},
        {"EVAL \"local a=KEYS[1] a=KEYS[2] if redis.call('get',a)==ARGV[1] then return "
         "redis.call('del',a) end return 0\" 1 k v",
         "-UNKNOWN script..."},
        {"EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1])\" 1",
         "-UNKNOWN script..."},
        {"EVAL \"--[[ never closed\" 1 k", "-UNKNOWN script..."},
        {"EVAL \"'open\" 1 k", "-UNKNOWN script..."},
        /* known, but called wrongly */
        {"EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) "
         "else return 0 end\" 0",
         "-RANGE this script needs 1 to 64 keys, and they must be given"},
        {"EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) "
         "else return 0 end\" 5 k",
         "-RANGE this script needs..."},
        {"EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) "
         "else return 0 end\" 1 k",
         "-RANGE the script's owner must have 1 to 128 bytes"},
        {"EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return "
         "redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end\" 1 k v x",
         "-RANGE the time must be..."},
    };
    CHECK_ROWS(rows, NULL);
}

static void a_script_is_remembered_by_its_sha1(void **state)
{
    (void)state;
    struct scripts *s = scripts_open();
    char sha[SCRIPT_SHA_BYTES];
    struct slice text = SLICE("if redis.call('get',KEYS[1])==ARGV[1] then return "
                              "redis.call('del',KEYS[1]) else return 0 end");
    const struct script *known = scripts_learn(s, text, sha);
    assert_non_null(known);
    assert_ptr_equal(scripts_find(s, slice_of(sha, sizeof sha)), known);
    sha[0] = (char)(sha[0] ^ 1);
    assert_null(scripts_find(s, slice_of(sha, sizeof sha)));
    assert_null(scripts_learn(s, SLICE("abc"), sha));
    assert_memory_equal(sha, "a9993e364706816aba3e25717850c26c9cd0d89d", sizeof sha);
    scripts_forget(s);
    sha[0] = 'a';
    assert_null(scripts_find(s, slice_of(sha, sizeof sha)));
    scripts_close(s);
    scripts_close(NULL);
}

static void a_session_id_is_random_when_it_is_not_given(void **state)
{
    (void)state;
    struct buf one = {0}, two = {0};
    read_resp("SESSION OPEN", 3, &one);
    read_resp("SESSION OPEN", 3, &two);
    assert_true(fits(buf_cstr(&one), "session-open session=..."));
    assert_int_equal(strlen(buf_cstr(&one)), strlen("session-open session= ttl_ms=60000") + 32);
    assert_string_not_equal(buf_cstr(&one), buf_cstr(&two));
    buf_done(&one);
    buf_done(&two);
}

static void resp3_may_watch(void **state)
{
    (void)state;
    struct buf got = {0};
    read_resp("WATCH PREFIX p SINCE 4", 3, &got);
    assert_string_equal(buf_cstr(&got), "action 3 5 p");
    buf_done(&got);
}

/* The list in PROTOCOL.md is made from the table: BELAY_UPDATE_DOCS=1 writes it anew. */
static void the_manual_lists_every_command(void **state)
{
    (void)state;
    static const char path[] = "docs/PROTOCOL.md";
    static const char begin[] = "<!-- commands -->\n", end[] = "<!-- end of commands -->";
    struct buf file = {0}, docs = {0};
    assert_int_equal(buf_read_file(&file, path, 1 << 20), BELAY_OK);
    const char *from = strstr(buf_cstr(&file), begin), *to = strstr(buf_cstr(&file), end);
    assert_non_null(from);
    assert_non_null(to);
    from += strlen(begin);
    command_write_docs(&docs);
    buf_put_byte(&docs, '\n');
    if (getenv("BELAY_UPDATE_DOCS")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fwrite(buf_data(&file), 1, (size_t)(from - buf_data(&file)), f);
        (void)fwrite(buf_data(&docs), 1, buf_len(&docs), f);
        (void)fputs(to, f);
        (void)fclose(f);
    } else if (!slice_eq(buf_slice(&docs), slice_of(from, (size_t)(to - from)))) {
        fail_msg("%s is behind commands.def: run BELAY_UPDATE_DOCS=1 test_command", path);
    }
    buf_done(&file);
    buf_done(&docs);
}

static int setup(void **state)
{
    (void)state;
    scripts = scripts_open();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scripts_close(scripts);
    arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_ops),
        cmocka_unit_test(redis_words_become_ops),
        cmocka_unit_test(wrong_words_say_what_is_wrong),
        cmocka_unit_test(a_request_may_have_an_id),
        cmocka_unit_test(a_look_may_be_stale),
        cmocka_unit_test(http_becomes_ops),
        cmocka_unit_test(wrong_http_says_what_is_wrong),
        cmocka_unit_test(glock_paths_become_ops),
        cmocka_unit_test(scripts_are_known_by_what_they_do),
        cmocka_unit_test(a_script_is_remembered_by_its_sha1),
        cmocka_unit_test(a_session_id_is_random_when_it_is_not_given),
        cmocka_unit_test(resp3_may_watch),
        cmocka_unit_test(the_manual_lists_every_command),
    };
    return cmocka_run_group_tests_name("command", tests, setup, teardown);
}
