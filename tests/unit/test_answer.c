/* test_answer.c - every event as its asker sees it, in RESP and in JSON, and as watchers do. */
#include "command/answer.h"
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

static struct arena arena;

/* "*2 $ok :1" for "*2\r\n$2\r\nok\r\n:1\r\n": lengths of strings left out. */
static void put_resp(struct buf *out, const struct reply *r, int version)
{
    struct buf bytes = {0};
    resp_write(&bytes, r, version);
    const char *p = buf_data(&bytes);
    const char *end = p + buf_len(&bytes);
    while (p < end) {
        const char *line = memmem(p, (size_t)(end - p), "\r\n", 2);
        if (buf_len(out))
            buf_put_byte(out, ' ');
        if (*p == '$' && p[1] != '-') {
            size_t n = strtoul(p + 1, NULL, 10);
            buf_put_byte(out, '$');
            buf_put(out, line + 2, n);
            p = line + 2 + n + 2;
        } else {
            buf_put(out, p, (size_t)(line - p));
            p = line + 2;
        }
    }
    buf_done(&bytes);
}

static void expect(const char *what, const char *got, const char *want)
{
    if (strcmp(got, want) != 0)
        print_error("%s\n  got  %s\n  want %s\n", what, got, want);
    assert_string_equal(got, want);
}

/* The answer over RESP2, and over HTTP as "status json". */
static void answers(const struct event *ev, struct manner manner, const char *resp,
                    const char *http)
{
    struct buf got = {0};
    arena_reset(&arena);
    manner.http = false;
    put_resp(&got, answer_event(ev, manner, 0, &arena), 2);
    if (resp)
        expect("RESP", buf_cstr(&got), resp);
    buf_clear(&got);
    manner.http = true;
    const struct reply *r = answer_event(ev, manner, 0, &arena);
    int status = r->status ? r->status : r->kind == REPLY_ERROR ? err_status(r->err) : 200;
    buf_printf(&got, "%d ", status);
    json_write(&got, r);
    if (http)
        expect("HTTP", buf_cstr(&got), http);
    buf_done(&got);
}

static struct manner plain(enum op_kind op)
{
    return (struct manner){.form = FORM_PLAIN, .op = (uint8_t)op};
}

static struct holder_row holder = {
    .owner = {"a", 1}, .mode = MODE_EXCLUSIVE, .fence = 7, .held_ms = 5, .expires_in_ms = 95};
static struct waiter_row waiter = {.owner = {"b", 1},
                                   .session = {"s", 1},
                                   .mode = MODE_SHARED,
                                   .ticket = 8,
                                   .position = 1,
                                   .waited_ms = 2,
                                   .expires_in_ms = 98};
static struct lock_row lock = {.name = {"l", 1},
                               .body = {"x", 1},
                               .state = LOCK_EXCLUSIVE,
                               .holders = &holder,
                               .waiters = &waiter,
                               .n_holders = 1,
                               .n_waiters = 1,
                               .holders_total = 1,
                               .waiters_total = 1};
#define LOCK_JSON                                                                              \
    "{\"name\":\"l\",\"state\":\"exclusive\",\"body\":\"x\",\"holders\":[{\"owner\":\"a\","    \
    "\"mode\":\"exclusive\",\"fence\":7,\"session\":null,\"held_ms\":5,\"expires_in_ms\":95,"  \
    "\"overdue\":false}],\"waiters\":[{\"owner\":\"b\",\"mode\":\"shared\",\"ticket\":8,"      \
    "\"position\":1,\"session\":\"s\",\"waited_ms\":2,\"expires_in_ms\":98}]}"
#define LOCK_RESP                                                                                \
    "*10 $name $l $state $exclusive $body $x $holders *1 *14 $owner $a $mode $exclusive $fence " \
    ":7 $session $-1 $held_ms :5 $expires_in_ms :95 $overdue :0 $waiters *1 *14 $owner $b "      \
    "$mode $shared $ticket :8 $position :1 $session $s $waited_ms :2 $expires_in_ms :98"

static void granted(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_GRANTED,
                       .fence = 7,
                       .ticket = 3,
                       .expires_in_ms = 100,
                       .text = SLICE("x")};
    answers(&ev, plain(OP_ACQUIRE), "*4 $granted :7 :100 $x",
            "200 {\"status\":\"granted\",\"fence\":7,\"ticket\":3,\"expires_in_ms\":100,"
            "\"body\":\"x\"}");
    ev.forever = true;
    ev.text = SLICE("");
    answers(&ev, plain(OP_ACQUIRE), "*4 $granted :7 :-1 $",
            "200 {\"status\":\"granted\",\"fence\":7,\"ticket\":3,\"expires_in_ms\":null,"
            "\"body\":\"\"}");
    ev.locks = &lock;
    ev.n_rows = 1;
    answers(&ev, plain(OP_CONVERT), "*4 $granted :7 :-1 $",
            "200 {\"status\":\"granted\",\"fence\":7,\"ticket\":3,\"expires_in_ms\":null,"
            "\"body\":\"\",\"lock\":" LOCK_JSON "}");
}

static void queued_refused_timeout(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_QUEUED, .ticket = 8, .position = 2};
    answers(&ev, plain(OP_ACQUIRE), "*3 $queued :8 :2",
            "202 {\"status\":\"queued\",\"ticket\":8,\"position\":2}");
    ev = (struct event){.kind = EVENT_REFUSED, .reason = REASON_CLOSED};
    answers(&ev, plain(OP_ACQUIRE), "*2 $refused $closed",
            "409 {\"status\":\"refused\",\"reason\":\"closed\"}");
    ev = (struct event){
        .kind = EVENT_REFUSED, .reason = REASON_HELD, .locks = &lock, .n_rows = 1};
    answers(&ev, plain(OP_ACQUIRE), "*3 $refused $held *4 $a $exclusive :7 :95",
            "409 {\"status\":\"refused\",\"reason\":\"held\",\"lock\":" LOCK_JSON "}");
    ev = (struct event){.kind = EVENT_LEFT, .reason = REASON_SESSION};
    answers(&ev, plain(OP_ACQUIRE), "*2 $refused $session",
            "409 {\"status\":\"refused\",\"reason\":\"session\"}");
    ev = (struct event){.kind = EVENT_TIMEOUT, .waited_ms = 50};
    answers(&ev, plain(OP_ACQUIRE), "*1 $timeout",
            "408 {\"status\":\"timeout\",\"waited_ms\":50}");
}

static void deadlock(void **state)
{
    (void)state;
    struct cycle_step cycle[] = {{SLICE("a"), SLICE("y")}, {SLICE("b"), SLICE("x")}};
    struct event ev = {.kind = EVENT_DEADLOCK, .cycle = cycle, .n_cycle = 2};
    answers(&ev, plain(OP_ACQUIRE), "*3 $deadlock *2 $a $y *2 $b $x",
            "409 {\"status\":\"deadlock\",\"cycle\":[{\"owner\":\"a\",\"waits_for\":\"y\"},"
            "{\"owner\":\"b\",\"waits_for\":\"x\"}]}");
}

static void what_a_holder_does(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_RELEASED, .count = 2};
    answers(&ev, plain(OP_RELEASE), ":1", "200 {\"released\":true}");
    ev.count = 0;
    answers(&ev, plain(OP_RELEASE), ":0", "200 {\"released\":false}");
    ev = (struct event){.kind = EVENT_RENEWED, .fence = 7, .expires_in_ms = 30};
    answers(&ev, plain(OP_RENEW), ":30", "200 {\"fence\":7,\"expires_in_ms\":30}");
    ev.forever = true;
    answers(&ev, plain(OP_RENEW), ":-1", "200 {\"fence\":7,\"expires_in_ms\":null}");
    ev = (struct event){.kind = EVENT_BODY_SET, .fence = 7, .expires_in_ms = 30};
    answers(&ev, plain(OP_BODY), "+OK", "200 {\"fence\":7,\"expires_in_ms\":30}");
    ev = (struct event){.kind = EVENT_CHECKED, .count = 1};
    answers(&ev, plain(OP_CHECK), ":1", "200 {\"current\":true}");
    ev.count = 0;
    answers(&ev, plain(OP_CHECK), ":0", "200 {\"current\":false}");
    ev = (struct event){.kind = EVENT_BROKEN, .count = 2};
    answers(&ev, plain(OP_BREAK), ":2", "200 {\"broken\":2}");
}

static void sessions(void **state)
{
    (void)state;
    struct event ev = {
        .kind = EVENT_SESSION_OPENED, .session = SLICE("s1"), .expires_in_ms = 60000};
    answers(&ev, plain(OP_SESSION_OPEN), "$s1", "201 {\"id\":\"s1\",\"ttl_ms\":60000}");
    ev = (struct event){.kind = EVENT_SESSION_KEPT, .count = 1};
    answers(&ev, plain(OP_SESSION_KEEPALIVE), ":1", "200 {\"alive\":1}");
    arena_reset(&arena);
    struct buf got = {0};
    put_resp(&got, answer_event(&ev, plain(OP_SESSION_ATTACH), 0, &arena), 2);
    expect("attach", buf_cstr(&got), "+OK");
    buf_done(&got);
    ev.count = 0;
    struct manner one = {.form = FORM_KEPT_ONE, .op = OP_SESSION_KEEPALIVE};
    answers(&ev, one, "-NOSESSION no such session, or it has ended",
            "404 {\"error\":{\"code\":\"NOSESSION\",\"message\":\"no such session, or it has "
            "ended\"}}");
    ev = (struct event){.kind = EVENT_SESSION_ENDED, .count = 3};
    answers(&ev, plain(OP_SESSION_CLOSE), ":3", "200 {\"freed\":3}");
    struct session_row row = {.id = SLICE("s1"),
                              .description = SLICE("d"),
                              .ttl_ms = 9,
                              .linger_ms = 1,
                              .expires_in_ms = 8,
                              .holds = 2,
                              .attached = true};
    ev = (struct event){.kind = EVENT_ROWS, .sessions = &row, .n_rows = 1};
    answers(&ev, plain(OP_SESSION_SHOW),
            "*18 $id $s1 $description $d $ttl_ms :9 $linger_ms :1 $expires_in_ms :8 $attached "
            ":1 $holds :2 $waits :0 $variables :0",
            "200 {\"id\":\"s1\",\"description\":\"d\",\"ttl_ms\":9,\"linger_ms\":1,"
            "\"expires_in_ms\":8,\"attached\":true,\"holds\":2,\"waits\":0,\"variables\":0}");
    answers(
        &ev, plain(OP_SESSION_LIST), NULL,
        "200 {\"sessions\":[{\"id\":\"s1\",\"description\":\"d\",\"ttl_ms\":9,"
        "\"linger_ms\":1,\"expires_in_ms\":8,\"attached\":true,\"holds\":2,\"waits\":0,\"variables\":0}],"
        "\"next\":null}");
}

static void what_may_be_old_says_how_old(void **state)
{
    (void)state;
    struct lock_row free_lock = {.name = SLICE("l"), .state = LOCK_UNLOCKED};
    struct event ev = {
        .kind = EVENT_ROWS, .locks = &free_lock, .n_rows = 1, .stale = true, .age_ms = 70};
    answers(
        &ev, plain(OP_LIST), NULL,
        "200 {\"locks\":[{\"name\":\"l\",\"state\":\"unlocked\",\"body\":\"\",\"holders\":[],"
        "\"waiters\":[]}],\"next\":null,\"stale_ms\":70}");
    answers(
        &ev, plain(OP_SHOW), NULL,
        "200 {\"name\":\"l\",\"state\":\"unlocked\",\"body\":\"\",\"holders\":[],\"waiters\":[],"
        "\"stale_ms\":70}");
}

static void namespaces(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_NAMESPACE_CREATED, .ns = SLICE("n")};
    answers(&ev, plain(OP_NAMESPACE_CREATE), "+OK",
            "201 {\"name\":\"n\",\"status\":\"created\"}");
    ev.kind = EVENT_NAMESPACE_UPDATED;
    answers(&ev, plain(OP_NAMESPACE_UPDATE), "+OK",
            "200 {\"name\":\"n\",\"status\":\"updated\"}");
    ev.kind = EVENT_NAMESPACE_DELETED;
    answers(&ev, plain(OP_NAMESPACE_DELETE), "+OK",
            "200 {\"name\":\"n\",\"status\":\"deleted\"}");
    struct namespace_row row = {.name = SLICE("n"),
                                .description = SLICE("d"),
                                .created_ms = 10,
                                .updated_ms = 20,
                                .locks = 3,
                                .held = 2,
                                .waiting = 1,
                                .shard = 7};
    ev = (struct event){.kind = EVENT_ROWS, .at_ms = 30, .namespaces = &row, .n_rows = 1};
    answers(
        &ev, plain(OP_NAMESPACE_SHOW),
        "*22 $name $n $description $d $created_ms_ago :20 $updated_ms_ago :10 $locks :3 "
        "$held :2 $waiting :1 $tables :0 $variables :0 $waiting_transactions :0 $shard :7",
        "200 {\"name\":\"n\",\"description\":\"d\",\"created_ms_ago\":20,"
        "\"updated_ms_ago\":10,\"locks\":3,\"held\":2,\"waiting\":1,\"tables\":0,\"variables\":0,\"waiting_transactions\":0,\"shard\":7}");
    ev.more = true;
    answers(
        &ev, plain(OP_NAMESPACE_LIST), NULL,
        "200 {\"namespaces\":[{\"name\":\"n\",\"description\":\"d\",\"created_ms_ago\":20,"
        "\"updated_ms_ago\":10,\"locks\":3,\"held\":2,\"waiting\":1,\"tables\":0,\"variables\":0,\"waiting_transactions\":0,\"shard\":7}],\"next\":\"n\"}");
}

static void locks_are_shown(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_ROWS, .locks = &lock, .n_rows = 1};
    answers(&ev, plain(OP_SHOW), LOCK_RESP, "200 " LOCK_JSON);
    answers(&ev, plain(OP_LIST), "*2 *1 " LOCK_RESP " $-1",
            "200 {\"locks\":[" LOCK_JSON "],\"next\":null}");
    ev.more = true;
    answers(&ev, plain(OP_LIST), "*2 *1 " LOCK_RESP " $l",
            "200 {\"locks\":[" LOCK_JSON "],\"next\":\"l\"}");
    struct lock_row closed = {.name = SLICE("c"), .state = LOCK_CLOSED, .closed_ms = 9};
    ev = (struct event){.kind = EVENT_ROWS, .locks = &closed, .n_rows = 1};
    answers(&ev, plain(OP_SHOW), NULL,
            "200 {\"name\":\"c\",\"state\":\"closed\",\"closed_ms\":9,\"body\":\"\","
            "\"holders\":[],\"waiters\":[]}");
    struct holder_row many = {.owner = SLICE("a"),
                              .mode = MODE_SEMAPHORE,
                              .fence = 7,
                              .permits = 2,
                              .forever = true,
                              .overdue = true};
    struct lock_row pool = {.name = SLICE("p"),
                            .state = LOCK_SEMAPHORE,
                            .of = 5,
                            .holders = &many,
                            .n_holders = 1,
                            .holders_total = 200,
                            .waiters_total = 300};
    ev = (struct event){.kind = EVENT_ROWS, .locks = &pool, .n_rows = 1};
    answers(&ev, plain(OP_SHOW), NULL,
            "200 {\"name\":\"p\",\"state\":\"semaphore\",\"of\":5,\"body\":\"\",\"holders\":[{"
            "\"owner\":\"a\",\"mode\":\"semaphore\",\"fence\":7,\"permits\":2,\"session\":null,"
            "\"held_ms\":0,\"expires_in_ms\":null,\"overdue\":true}],\"waiters\":[],"
            "\"holders_total\":200,\"waiters_total\":300}");
}

static void failures(void **state)
{
    (void)state;
    struct event ev = {
        .kind = EVENT_FAILED, .err = BELAY_ERR_STALE, .text = SLICE("not yours")};
    answers(&ev, plain(OP_RENEW), "-STALE not yours",
            "409 {\"error\":{\"code\":\"STALE\",\"message\":\"not yours\"}}");
    ev = (struct event){.kind = EVENT_FAILED, .err = BELAY_ERR_LIMIT};
    answers(&ev, plain(OP_ACQUIRE), "-LIMIT a limit of the server is reached",
            "429 {\"error\":{\"code\":\"LIMIT\",\"message\":\"a limit of the server is "
            "reached\"}}");
    ev = (struct event){.kind = EVENT_OVERDUE};
    answers(&ev, plain(OP_ACQUIRE), "-INTERNAL no answer has the form overdue", NULL);
}

static void redis_forms(void **state)
{
    (void)state;
    struct event granted_ev = {.kind = EVENT_GRANTED, .fence = 7};
    struct event refused_ev = {.kind = EVENT_REFUSED, .reason = REASON_HELD};
    struct event stale = {.kind = EVENT_FAILED, .err = BELAY_ERR_STALE};
    struct event gone = {.kind = EVENT_FAILED, .err = BELAY_ERR_NO_NAMESPACE};
    struct event released = {.kind = EVENT_RELEASED, .count = 2};
    struct event shown = {.kind = EVENT_ROWS, .locks = &lock, .n_rows = 1};
    struct lock_row empty = {.name = SLICE("l")};
    struct event absent = {.kind = EVENT_ROWS, .locks = &empty, .n_rows = 1};
    const struct {
        enum form form;
        uint32_t count;
        const struct event *ev;
        const char *want;
    } rows[] = {
        {FORM_OK_NIL, 1, &granted_ev, "+OK"},
        {FORM_OK_NIL, 1, &refused_ev, "$-1"},
        {FORM_OK_NIL, 1, &gone, "-NONAMESPACE no such namespace"},
        {FORM_COUNT, 3, &granted_ev, ":3"},
        {FORM_COUNT, 3, &refused_ev, ":0"},
        {FORM_COUNT, 1, &stale, ":0"},
        {FORM_COUNT, 1, &released, ":1"},
        {FORM_RELEASED, 3, &released, ":2"},
        {FORM_RELEASED, 1, &released, ":1"},
        {FORM_OWNER, 0, &shown, "$a"},
        {FORM_OWNER, 0, &absent, "$-1"},
        {FORM_EXISTS, 0, &shown, ":1"},
        {FORM_EXISTS, 0, &absent, ":0"},
        {FORM_PTTL, 0, &shown, ":95"},
        {FORM_PTTL, 0, &absent, ":-2"},
        {FORM_TTL, 0, &shown, ":0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct manner manner = {.form = (uint8_t)rows[i].form, .count = rows[i].count};
        answers(rows[i].ev, manner, rows[i].want, NULL);
    }
    holder.forever = true;
    answers(&shown, (struct manner){.form = FORM_PTTL}, ":-1", NULL);
    holder.forever = false;
}

static void glock_forms(void **state)
{
    (void)state;
    struct event ev = {
        .kind = EVENT_GRANTED, .fence = 13, .expires_in_ms = 30000, .text = SLICE("b")};
    struct manner acquire = {.form = FORM_GLOCK_ACQUIRE, .http = true};
    struct manner renew = {.form = FORM_GLOCK_RENEW, .http = true};
    struct buf got = {0};
    arena_reset(&arena);
    json_write(&got, answer_event(&ev, acquire, 1560293851404462301U, &arena));
    expect("glock", buf_cstr(&got),
           "{\"acquireTime\":\"2019-06-11T22:57:31.404462301Z\",\"expireTime\":"
           "\"2019-06-11T22:58:01.404462301Z\",\"fence\":13,\"body\":\"b\"}");
    buf_done(&got);
    ev = (struct event){.kind = EVENT_REFUSED};
    answers(&ev, acquire, NULL, "403 {\"error\":\"Lock in use\"}");
    ev = (struct event){.kind = EVENT_FAILED, .err = BELAY_ERR_STALE};
    answers(&ev, renew, NULL, "403 {\"error\":\"Lock expired\"}");
    ev = (struct event){.kind = EVENT_FAILED, .err = BELAY_ERR_LIMIT};
    answers(&ev, acquire, NULL, "429 {\"error\":\"a limit of the server is reached\"}");
    ev = (struct event){.kind = EVENT_RENEWED};
    assert_int_equal(answer_event(&ev, renew, 0, &arena)->kind, REPLY_NONE);
    ev = (struct event){.kind = EVENT_RELEASED};
    struct manner release = {.form = FORM_GLOCK_RELEASE, .http = true};
    assert_int_equal(answer_event(&ev, release, 0, &arena)->kind, REPLY_NONE);
}

static void pushes(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_GRANTED,
                       .name = SLICE("l"),
                       .fence = 9,
                       .ticket = 8,
                       .expires_in_ms = 30,
                       .text = SLICE("b")};
    struct buf got = {0};
    put_resp(&got, answer_push(&ev, &arena), 3);
    expect("push", buf_cstr(&got), ">6 $granted $l :9 :8 :30 $b");
    buf_clear(&got);
    ev = (struct event){
        .kind = EVENT_LEFT, .name = SLICE("l"), .ticket = 8, .reason = REASON_SESSION};
    put_resp(&got, answer_push(&ev, &arena), 3);
    expect("push", buf_cstr(&got), ">6 $refused $l :0 :8 :0 $session");
    buf_clear(&got);
    ev = (struct event){.kind = EVENT_TIMEOUT, .name = SLICE("l"), .ticket = 8};
    put_resp(&got, answer_push(&ev, &arena), 3);
    expect("push", buf_cstr(&got), ">6 $timeout $l :0 :8 :0 $");
    buf_done(&got);
}

static void news(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_EXPIRED,
                       .at_ms = 100,
                       .ns = SLICE("n"),
                       .name = SLICE("l"),
                       .owner = SLICE("a"),
                       .mode = MODE_SHARED,
                       .fence = 7,
                       .reason = REASON_TTL};
    struct buf got = {0};
    json_write(&got, answer_news(&ev, 5, &arena));
    expect("news", buf_cstr(&got),
           "{\"seq\":5,\"event\":\"expired\",\"at_ms\":100,\"namespace\":\"n\",\"name\":\"l\","
           "\"owner\":\"a\",\"mode\":\"shared\",\"fence\":7,\"reason\":\"ttl\"}");
    buf_clear(&got);
    ev = (struct event){.kind = EVENT_GRANTED, .forever = true, .ticket = 3, .waited_ms = 4};
    json_write(&got, answer_news(&ev, 6, &arena));
    expect("news", buf_cstr(&got),
           "{\"seq\":6,\"event\":\"granted\",\"at_ms\":0,\"namespace\":\"\",\"ticket\":3,"
           "\"expires_in_ms\":null,\"waited_ms\":4}");
    buf_done(&got);
}

static void outcomes(void **state)
{
    (void)state;
    struct event ev = {.kind = EVENT_GRANTED};
    assert_int_equal(answer_outcome(&ev), OUTCOME_OK);
    ev.kind = EVENT_TIMEOUT;
    assert_int_equal(answer_outcome(&ev), OUTCOME_REFUSED);
    ev.kind = EVENT_LEFT;
    assert_int_equal(answer_outcome(&ev), OUTCOME_REFUSED);
    ev.kind = EVENT_FAILED;
    assert_int_equal(answer_outcome(&ev), OUTCOME_ERROR);
}

static int teardown(void **state)
{
    (void)state;
    arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(granted),     cmocka_unit_test(queued_refused_timeout),
        cmocka_unit_test(deadlock),    cmocka_unit_test(what_a_holder_does),
        cmocka_unit_test(sessions),    cmocka_unit_test(what_may_be_old_says_how_old),
        cmocka_unit_test(namespaces),  cmocka_unit_test(locks_are_shown),
        cmocka_unit_test(failures),    cmocka_unit_test(redis_forms),
        cmocka_unit_test(glock_forms), cmocka_unit_test(pushes),
        cmocka_unit_test(news),        cmocka_unit_test(outcomes),
    };
    return cmocka_run_group_tests_name("answer", tests, NULL, teardown);
}
