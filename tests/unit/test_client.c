/* libbelay against a server that says what the test wants, dies when the test wants, and is
 * silent when the test wants. The real server is in tests/e2e/test_cli. */
#include "belay.h"
#include "client/client.h"
#include "fake_server.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct fake_server server;

static int start(void **state)
{
    (void)state;
    fake_start(&server);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    fake_stop(&server);
    return 0;
}

static struct belay *open_handle(const char *addrs, int64_t timeout_ms)
{
    struct belay *b = NULL;
    struct belay_options o = {.addrs = addrs, .timeout_ms = timeout_ms, .connect_ms = 2000};
    assert_int_equal(belay_open(&o, &b), BELAY_E_OK);
    return b;
}

#define RULES(...) ((const struct fake_rule[]){__VA_ARGS__, {0}})
#define SAYS(words, text)                                                                      \
    {                                                                                          \
        .verb = (words), .reply = (text)                                                       \
    }
#define CUTS(words, text)                                                                      \
    {                                                                                          \
        .verb = (words), .reply = (text), .cut = true                                          \
    }

/* ---- answers --------------------------------------------------------------------------- */

static void every_answer_of_an_acquire_is_understood(void **state)
{
    static const struct {
        const char *reply;
        int err;
        enum belay_status status;
    } rows[] = {
        {"*4\r\n$7\r\ngranted\r\n:13\r\n:30000\r\n$2\r\nhi\r\n", BELAY_E_OK, BELAY_GRANTED},
        {"*4\r\n$7\r\ngranted\r\n:13\r\n:-1\r\n$0\r\n\r\n", BELAY_E_OK, BELAY_GRANTED},
        {"*2\r\n$7\r\nrefused\r\n$4\r\nheld\r\n", BELAY_E_OK, BELAY_REFUSED},
        {"*1\r\n$7\r\ntimeout\r\n", BELAY_E_OK, BELAY_TIMED_OUT},
        {"*1\r\n$8\r\ndeadlock\r\n", BELAY_E_OK, BELAY_DEADLOCK},
        {"-LIMIT too many\r\n", BELAY_E_LIMIT, BELAY_GRANTED},
        {"-QUOTA too many\r\n", BELAY_E_LIMIT, BELAY_GRANTED},
        {"-OVERLOADED no memory\r\n", BELAY_E_LIMIT, BELAY_GRANTED},
        {"-THROTTLED wait 7 ms\r\n", BELAY_E_LIMIT, BELAY_GRANTED},
        {"-DENIED log in\r\n", BELAY_E_DENIED, BELAY_GRANTED},
        {"*1\r\n$7\r\ngranted\r\n", BELAY_E_PROTOCOL, BELAY_GRANTED},
        {"*1\r\n$3\r\nwhy\r\n", BELAY_E_PROTOCOL, BELAY_GRANTED},
        {":1\r\n", BELAY_E_PROTOCOL, BELAY_GRANTED},
        {"$-1\r\n", BELAY_E_PROTOCOL, BELAY_GRANTED},
    };
    struct belay *b = open_handle(server.addr, 2000);
    struct belay_acquire want = {.name = "n", .owner = "o"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct belay_grant g;
        fake_set(&server, RULES(SAYS("ACQUIRE n o", rows[i].reply)));
        assert_int_equal(belay_acquire(b, &want, &g), rows[i].err);
        if (rows[i].err == BELAY_E_OK)
            assert_int_equal(g.status, rows[i].status);
        if (rows[i].err == BELAY_E_OK && g.status == BELAY_GRANTED)
            assert_int_equal(g.fence, 13);
    }
    belay_close(b);
}

static void an_error_answer_has_a_code_a_word_and_a_text(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    (void)state;
    fake_set(&server, RULES(SAYS("RENEW", "-STALE not yours\r\n")));
    assert_int_equal(belay_renew(b, "n", 3, NULL, 0, NULL), BELAY_E_STALE);
    assert_string_equal(belay_error_word(b), "STALE");
    assert_string_equal(belay_error(b), "not yours");
    assert_int_equal(belay_error_code(b), BELAY_E_STALE);
    fake_set(&server, RULES(SAYS("RENEW", "-WHATEVER is this\r\n")));
    assert_int_equal(belay_renew(b, "n", 3, NULL, 0, NULL), BELAY_E_SERVER);
    belay_close(b);
}

static void wrong_arguments_are_told_before_anything_is_sent(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct belay_grant g;
    bool yes;
    (void)state;
    fake_set(&server, RULES(SAYS("X", "+OK\r\n")));
    assert_int_equal(belay_acquire(b, &(struct belay_acquire){.owner = "o"}, &g),
                     BELAY_E_USAGE);
    assert_int_equal(belay_acquire(b, &(struct belay_acquire){.name = "n"}, &g), BELAY_E_USAGE);
    assert_int_equal(
        belay_acquire(b, &(struct belay_acquire){.name = "n", .owner = "o", .ttl_ms = -2}, &g),
        BELAY_E_USAGE);
    assert_int_equal(
        belay_acquire(b, &(struct belay_acquire){.name = "n", .owner = "o", .ttl_ms = -1}, &g),
        BELAY_E_USAGE);
    assert_int_equal(belay_release(b, "n", 0, NULL, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_release(b, "", 1, NULL, NULL), BELAY_E_USAGE);
    assert_int_equal(belay_check(b, NULL, 1, NULL, &yes), BELAY_E_USAGE);
    assert_int_equal(belay_callv(b, NULL, 0, 0, NULL), BELAY_E_USAGE);
    assert_int_equal(fake_count(&server, ""), 0);
    belay_close(b);
}

/* ---- a server that fails --------------------------------------------------------------- */

static const char granted_13[] = "*4\r\n$7\r\ngranted\r\n:13\r\n:30000\r\n$2\r\nhi\r\n";

/* Two servers; the handle knows both, `server` first. */
struct pair {
    struct fake_server other;
    struct belay *b;
};

static void pair_open(struct pair *p, int64_t timeout_ms)
{
    char list[80];
    fake_start(&p->other);
    snprintf(list, sizeof list, "%s,%s", server.addr, p->other.addr);
    p->b = open_handle(list, timeout_ms);
}

static void pair_close(struct pair *p)
{
    belay_close(p->b);
    fake_stop(&p->other);
}

static void both_saw_the_same(struct pair *p, const char *prefix)
{
    char here[FAKE_WORD * 4], there[FAKE_WORD * 4];
    assert_string_equal(fake_seen(&server, prefix, here), fake_seen(&p->other, prefix, there));
    assert_true(here[0] != '\0');
}

/* Cut after every number of bytes of a reply: never a crash, and the other server gets the same
 * request. */
static void what_a_dying_server_did_not_answer_is_sent_to_the_next(void **state)
{
    struct pair p;
    struct belay_acquire want = {.name = "n", .owner = "o"};
    struct belay_grant g;
    (void)state;
    pair_open(&p, 2000);
    for (size_t n = 0; n < sizeof granted_13 - 1; n++) {
        char part[sizeof granted_13] = "";
        memcpy(part, granted_13, n);
        bool here = strcmp(belay_addr(p.b), server.addr) == 0;
        fake_set(here ? &server : &p.other, RULES(CUTS("ACQUIRE", part)));
        fake_set(here ? &p.other : &server, RULES(SAYS("ACQUIRE", granted_13)));
        assert_int_equal(belay_acquire(p.b, &want, &g), BELAY_E_OK);
        assert_int_equal(g.fence, 13);
        both_saw_the_same(&p, "ACQUIRE n o REQUEST ");
    }
    pair_close(&p);
}

/* As often as its time-out lets it, under one id; then it may have been carried out. */
static void what_nobody_answers_fails_in_the_end(void **state)
{
    struct belay *b = open_handle(server.addr, 400);
    struct belay_grant g;
    char first[FAKE_WORD * 4];
    (void)state;
    fake_set(&server, RULES(CUTS("ACQUIRE", "")));
    assert_int_equal(belay_acquire(b, &(struct belay_acquire){.name = "n", .owner = "o"}, &g),
                     BELAY_E_CLOSED);
    assert_non_null(strstr(belay_error(b), server.addr));
    assert_non_null(strstr(belay_error(b), "it may have been carried out"));
    fake_seen(&server, "ACQUIRE n o REQUEST ", first);
    assert_true(fake_count(&server, first) > 1);
    assert_int_equal(fake_count(&server, first), fake_count(&server, "ACQUIRE"));
    fake_set(&server, RULES(SAYS("ACQUIRE", granted_13)));
    assert_int_equal(belay_acquire(b, &(struct belay_acquire){.name = "n", .owner = "o"}, &g),
                     BELAY_E_OK);
    assert_int_equal(fake_count(&server, first), 0); /* another request has another id */
    belay_close(b);
}

static void who_cannot_serve_is_left(void **state)
{
    struct pair p;
    (void)state;
    pair_open(&p, 2000);
    fake_set(&server, RULES(SAYS("RELEASE", "-UNAVAILABLE this node is stopping\r\n")));
    fake_set(&p.other, RULES(SAYS("RELEASE", ":1\r\n")));
    assert_int_equal(belay_release(p.b, "n", 7, NULL, NULL), BELAY_E_OK);
    assert_string_equal(belay_addr(p.b), p.other.addr);
    both_saw_the_same(&p, "RELEASE n 7 REQUEST ");
    pair_close(&p);
}

/* The place in the line is found again, on the other server. */
static void a_place_in_line_moves_with_its_client(void **state)
{
    static const char queued[] = "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n";
    static const char failed[] =
        "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n"
        ">6\r\n$6\r\nfailed\r\n$1\r\nn\r\n:0\r\n:7\r\n:0\r\n$8\r\nstopping\r\n";
    static const char late[] =
        "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n"
        ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:30000\r\n$2\r\nhi\r\n";
    struct belay_acquire want = {.name = "n", .owner = "o", .wait_ms = 1000};
    struct belay_grant g;
    (void)state;
    for (int told = 0; told < 2; told++) { /* it dies, or says that it stops */
        struct pair p;
        pair_open(&p, 2000);
        fake_set(&server,
                 told ? RULES(SAYS("ACQUIRE", failed)) : RULES(CUTS("ACQUIRE", queued)));
        fake_set(&p.other, RULES(SAYS("ACQUIRE", late)));
        assert_int_equal(belay_acquire(p.b, &want, &g), BELAY_E_OK);
        assert_int_equal(g.status, BELAY_GRANTED);
        assert_int_equal(g.fence, 8);
        both_saw_the_same(&p, "ACQUIRE n o WAIT 1000 NOBLOCK REQUEST ");
        pair_close(&p);
    }
}

static const struct {
    const char *words[8];
    bool again; /* it is sent to the other server too */
    bool id;    /* with an id that the library made */
} commands[] = {
    {{"SHOW", "n"}, true, false},
    {{"TABLE", "LIST"}, true, false},
    {{"renew", "n", "7"}, true, false},
    {{"SESSION", "KEEPALIVE", "s"}, true, false},
    {{"session", "close", "s"}, true, true},
    {{"BODY", "n", "OWNER", "o", "REQUEST"}, true, true},
    {{"RELEASE", "REQUEST", "7"}, true, true},
    {{"RELEASE", "n", "7", "REQUEST", "mine"}, true, false},
    {{"TXN", "{}"}, true, true},
    {{"NAMESPACE", "CREATE", "n"}, true, true},
    {{"SET", "k", "v", "NX"}, false, false},
    {{"CLUSTER", "REMOVE", "n"}, false, false},
    {{"WATCH"}, false, false},
};

static void only_what_may_be_repeated_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct pair p;
        struct belay_bytes words[8];
        char line[FAKE_WORD * 4] = "", seen[FAKE_WORD * 4];
        size_t n = 0;
        for (; commands[i].words[n]; n++) {
            words[n] = (struct belay_bytes){commands[i].words[n], strlen(commands[i].words[n])};
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s", n ? " " : "",
                     commands[i].words[n]);
        }
        pair_open(&p, 2000);
        fake_set(&server, RULES(CUTS(line, "")));
        fake_set(&p.other, RULES(SAYS(line, "+OK\r\n")));
        int err = belay_callv(p.b, words, n, 0, NULL);
        assert_int_equal(err, commands[i].again ? BELAY_E_OK : BELAY_E_CLOSED);
        assert_int_equal(fake_count(&p.other, line), commands[i].again);
        fake_seen(&server, line, seen);
        assert_int_equal(strncmp(seen + strlen(line), " REQUEST ", 9) == 0, commands[i].id);
        assert_int_equal(strlen(seen) > strlen(line), commands[i].id);
        if (commands[i].again)
            both_saw_the_same(&p, line);
        pair_close(&p);
    }
}

static void a_server_that_speaks_another_language_is_an_error(void **state)
{
    static const char *const rows[] = {
        "HTTP/1.1 400 Bad Request\r\n\r\n", "*-7\r\n", "$x\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"};
    struct belay *b = open_handle(server.addr, 2000);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fake_set(&server, RULES(SAYS("PING", rows[i])));
        assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_PROTOCOL);
    }
    fake_set(&server, RULES(SAYS("PING", "+PONG\r\n")));
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    belay_close(b);
}

static void nobody_there_is_told_with_the_address(void **state)
{
    struct fake_server gone;
    (void)state;
    fake_start(&gone);
    fake_stop(&gone); /* its port is free again */
    struct belay *b = open_handle(gone.addr, 2000);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_CONNECT);
    assert_non_null(strstr(belay_error(b), gone.addr));
    belay_close(b);
}

static void the_next_address_of_the_list_is_taken(void **state)
{
    struct fake_server gone;
    char list[80];
    (void)state;
    fake_start(&gone);
    fake_stop(&gone);
    snprintf(list, sizeof list, "%s,%s", gone.addr, server.addr);
    fake_set(&server, RULES(SAYS("PING", "+PONG\r\n")));
    struct belay *b = open_handle(list, 2000);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_string_equal(belay_addr(b), server.addr);
    belay_close(b);
}

/* A connection that broke is no address that was tried: the call after it goes round the whole
 * list, back to where it broke. */
static void one_dead_neighbour_does_not_end_the_search(void **state)
{
    struct fake_server gone, other;
    char list[80];
    (void)state;
    fake_start(&gone);
    fake_stop(&gone);
    fake_start(&other);
    snprintf(list, sizeof list, "%s,%s", gone.addr, other.addr);
    fake_set(&other, RULES(CUTS("DIE", "")));
    struct belay *b = open_handle(list, 2000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
        assert_int_equal(belay_call(b, NULL, "DIE", NULL), BELAY_E_CLOSED);
    }
    fake_stop(&other);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_CONNECT);
    belay_close(b);
}

static void a_namespace_that_is_missing_fails_every_call(void **state)
{
    struct belay *b = NULL;
    struct belay_options o = {.addrs = server.addr, .ns = "void"};
    (void)state;
    fake_set(&server, RULES(SAYS("USE void", "-NONAMESPACE no such namespace\r\n")));
    assert_int_equal(belay_open(&o, &b), BELAY_E_OK);
    assert_int_equal(belay_release(b, "n", 1, NULL, NULL), BELAY_E_NO_NAMESPACE);
    assert_int_equal(fake_count(&server, "RELEASE"), 0); /* never in the wrong room */
    belay_close(b);
}

static void a_late_answer_is_not_taken_for_the_next_one(void **state)
{
    struct belay *b = open_handle(server.addr, 100);
    const struct belay_reply *r = NULL;
    (void)state;
    fake_set(&server, RULES(SAYS("SLOW", ""), SAYS("FAST", ":1\r\n:2\r\n")));
    assert_int_equal(belay_call(b, &r, "SLOW", NULL), BELAY_E_DEADLINE);
    /* :1 is the late answer of SLOW, :2 that of FAST */
    assert_int_equal(belay_call(b, &r, "FAST", NULL), BELAY_E_OK);
    assert_int_equal(r->number, 2);
    belay_close(b);
}

static void an_acquire_that_was_given_up_is_released_when_it_comes(void **state)
{
    struct belay *b = open_handle(server.addr, 100);
    struct belay_grant g;
    (void)state;
    fake_set(&server,
             RULES(SAYS("ACQUIRE", ""),
                   SAYS("PING", "*4\r\n$7\r\ngranted\r\n:9\r\n:1\r\n$0\r\n\r\n+PONG\r\n"),
                   SAYS("RELEASE n 9", ":1\r\n")));
    assert_int_equal(belay_acquire(b, &(struct belay_acquire){.name = "n", .owner = "o"}, &g),
                     BELAY_E_DEADLINE);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_int_equal(belay_call(b, NULL, "PING2", NULL), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "RELEASE n 9"), 1);
    belay_close(b);
}

static void looks_may_be_stale(void **state)
{
    struct belay *b = NULL;
    const struct belay_reply *r = NULL;
    struct belay_options o = {.addrs = server.addr, .stale = true};
    (void)state;
    fake_set(&server, RULES(SAYS("RELEASE", ":1\r\n")));
    assert_int_equal(belay_open(&o, &b), BELAY_E_OK);
    assert_int_equal(belay_show(b, "n", &r), BELAY_E_OK);
    assert_int_equal(belay_list(b, "p", NULL, 5, &r), BELAY_E_OK);
    assert_int_equal(belay_call(b, &r, "SHOW", "n", "stale", NULL), BELAY_E_OK);
    assert_int_equal(belay_release(b, "n", 1, NULL, NULL), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "SHOW n STALE"), 1);
    assert_int_equal(fake_count(&server, "LIST PREFIX p LIMIT 5 STALE"), 1);
    assert_int_equal(fake_count(&server, "SHOW n stale STALE"), 0);
    assert_int_equal(fake_count(&server, "RELEASE n 1 REQUEST"), 1);
    belay_close(b);
}

/* ---- waiting and keeping --------------------------------------------------------------- */

static void a_place_in_line_is_answered_by_a_push(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct belay_acquire want = {.name = "n", .owner = "o", .wait_ms = 1000};
    struct belay_grant g;
    (void)state;
    fake_set(
        &server,
        RULES(SAYS("ACQUIRE n o WAIT 1000 NOBLOCK",
                   "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n"
                   ">6\r\n$7\r\ngranted\r\n$5\r\nother\r\n:5\r\n:4\r\n:9\r\n$0\r\n\r\n"
                   ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:30000\r\n$2\r\nhi\r\n")));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(g.status, BELAY_GRANTED);
    assert_int_equal(g.fence, 8);
    assert_string_equal(g.body, "hi");
    fake_set(
        &server,
        RULES(SAYS("ACQUIRE",
                   "*3\r\n$6\r\nqueued\r\n:9\r\n:1\r\n"
                   ">6\r\n$7\r\nrefused\r\n$1\r\nn\r\n:0\r\n:9\r\n:0\r\n$8\r\nreplaced\r\n")));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(g.status, BELAY_REFUSED);
    assert_string_equal(g.reason, "replaced");
    belay_close(b);
}

/* A grant out of the line may be old: it is renewed before it is believed. */
static void a_grant_out_of_the_line_is_confirmed(void **state)
{
    static const char pushed[] =
        "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n"
        ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:500\r\n$2\r\nhi\r\n";
    struct belay *b = open_handle(server.addr, 2000);
    struct belay_acquire want = {
        .name = "n", .owner = "o", .ttl_ms = 500, .wait_ms = 1000, .keep = true};
    struct belay_grant g;
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", pushed), SAYS("RENEW n 8 TTL 500", ":500\r\n")));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "RENEW n 8"), 1);
    assert_string_equal(g.body, "hi");
    assert_true(belay_proven_ms(b) > client_now_ms());
    assert_true(belay_proven_ms(b) <= client_now_ms() + 500);
    fake_set(&server, RULES(SAYS("ACQUIRE", pushed), SAYS("RENEW", "-STALE gone\r\n")));
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_STALE);
    belay_close(b);
}

struct lost_note {
    int calls, why;
    int64_t left_ms, at_ms;
    char name[16];
};

static void note_lost(struct belay *b, const struct belay_lost *lost, void *arg)
{
    struct lost_note *n = arg;
    (void)b;
    n->calls++;
    n->why = lost->why;
    n->left_ms = lost->left_ms;
    n->at_ms = client_now_ms();
    snprintf(n->name, sizeof n->name, "%s", lost->name ? lost->name : "(session)");
}

static void a_silent_server_is_told_before_the_lease_can_pass_on(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 600, .keep = true};
    struct belay_grant g;
    struct lost_note note = {0};
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", "*4\r\n$7\r\ngranted\r\n:3\r\n:600\r\n$0\r\n\r\n"),
                            SAYS("RENEW", "")));
    belay_on_lost(b, 150, note_lost, &note);
    int64_t sent = client_now_ms();
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    while (!note.calls)
        assert_int_equal(belay_poll(b, 2000), BELAY_E_OK);
    assert_int_equal(note.calls, 1);
    assert_string_equal(note.name, "n");
    assert_int_equal(note.why, BELAY_E_DEADLINE);
    assert_true(fake_count(&server, "RENEW n 3 TTL 600") == 1);
    assert_true(note.at_ms - sent >= 440);
    assert_true(note.at_ms - sent < 600); /* before anybody else can have it */
    assert_true(note.left_ms > 0);
    assert_int_equal(belay_proven_ms(b), INT64_MAX); /* not kept any more */
    belay_close(b);
}

/* A session that was given up must not live on at the server, attached to our connection. */
static void a_session_that_is_given_up_takes_its_connection_with_it(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct lost_note note = {0};
    (void)state;
    fake_set(&server,
             RULES(SAYS("SESSION OPEN", "$2\r\ns1\r\n"), SAYS("SESSION KEEPALIVE", "")));
    belay_on_lost(b, 100, note_lost, &note);
    assert_int_equal(belay_session_open(b, 400, 0, "test"), BELAY_E_OK);
    int err = BELAY_E_OK;
    while (!note.calls)
        err = belay_poll(b, 2000);
    assert_string_equal(note.name, "(session)");
    assert_int_equal(note.why, BELAY_E_DEADLINE);
    assert_int_equal(err, BELAY_E_CLOSED);
    assert_false(belay_is_connected(b));
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK); /* on a new one */
    assert_int_equal(atomic_load(&server.connections), 2);
    belay_close(b);
}

static void a_stale_renewal_is_told_at_once(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct belay_acquire want = {.name = "n", .owner = "o", .ttl_ms = 300, .keep = true};
    struct belay_grant g;
    struct lost_note note = {0};
    (void)state;
    fake_set(&server, RULES(SAYS("ACQUIRE", "*4\r\n$7\r\ngranted\r\n:3\r\n:300\r\n$0\r\n\r\n"),
                            SAYS("RENEW", "-STALE broken\r\n")));
    belay_on_lost(b, 0, note_lost, &note);
    assert_int_equal(belay_acquire(b, &want, &g), BELAY_E_OK);
    while (!note.calls)
        assert_int_equal(belay_poll(b, 2000), BELAY_E_OK);
    assert_int_equal(note.why, BELAY_E_STALE);
    belay_close(b);
}

static void a_session_is_attached_again_after_the_connection_broke(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct lost_note note = {0};
    (void)state;
    belay_on_lost(b, 0, note_lost, &note);
    fake_set(&server, RULES(SAYS("SESSION OPEN", "$2\r\ns1\r\n"), CUTS("DIE", "")));
    assert_int_equal(belay_session_open(b, 5000, 0, "test"), BELAY_E_OK);
    assert_string_equal(belay_session_id(b), "s1");
    assert_int_equal(belay_call(b, NULL, "DIE", NULL), BELAY_E_CLOSED);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "SESSION ATTACH s1"), 2);
    assert_int_equal(note.calls, 0);
    /* and when it is over by then, that is told */
    fake_set(&server, RULES(SAYS("SESSION ATTACH", "-NOSESSION over\r\n"), CUTS("DIE", "")));
    assert_int_equal(belay_call(b, NULL, "DIE", NULL), BELAY_E_CLOSED);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_int_equal(note.calls, 1);
    assert_int_equal(note.why, BELAY_E_LOST);
    struct belay_grant g;
    assert_int_equal(belay_acquire(b, &(struct belay_acquire){.name = "n", .owner = "o"}, &g),
                     BELAY_E_LOST);
    belay_close(b);
}

/* ---- the event loop -------------------------------------------------------------------- */

struct reply_note {
    int calls, err;
    int64_t number;
    int nested; /* what a blocking call inside the callback said */
};

static void note_reply(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    struct reply_note *n = arg;
    n->calls++;
    n->err = err;
    n->number = belay_int(r, -1);
    n->nested = belay_call(b, NULL, "PING", NULL);
}

static void one_descriptor_drives_everything(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct reply_note notes[3] = {{0}};
    (void)state;
    fake_set(&server, RULES(SAYS("N", ":5\r\n")));
    int fd = belay_fd(b);
    assert_true(fd >= 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(belay_send(b, &(struct belay_bytes){"N", 1}, 1, note_reply, &notes[i]),
                         BELAY_E_OK);
    for (int i = 0; i < 100 && !notes[2].calls; i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 2000), 1);
        assert_int_equal(belay_dispatch(b), BELAY_E_OK);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(notes[i].calls, 1);
        assert_int_equal(notes[i].number, 5);
        assert_int_equal(notes[i].nested, BELAY_E_USAGE);
    }
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0); /* nothing to do: not readable */
    belay_close(b);
}

static void every_callback_is_called_once_in_the_worst_case_by_close(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct reply_note note = {0};
    (void)state;
    assert_int_equal(belay_send(b, &(struct belay_bytes){"N", 1}, 1, note_reply, &note),
                     BELAY_E_OK);
    belay_close(b);
    assert_int_equal(note.calls, 1);
    assert_int_equal(note.err, BELAY_E_CLOSED);
}

static void close_me(struct belay *b, int err, const struct belay_reply *r, void *arg)
{
    (void)r;
    ++*(int *)arg;
    if (err == BELAY_E_OK)
        belay_close(b);
}

static void a_callback_may_close_the_handle(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    int calls = 0, err = BELAY_E_OK;
    (void)state;
    fake_set(&server, RULES(SAYS("N", ":5\r\n")));
    for (int i = 0; i < 2; i++)
        assert_int_equal(belay_send(b, &(struct belay_bytes){"N", 1}, 1, close_me, &calls),
                         BELAY_E_OK);
    while (err == BELAY_E_OK)
        err = belay_poll(b, 2000);
    assert_int_equal(err, BELAY_E_CLOSED);
    assert_int_equal(calls, 2);
}

struct news_note {
    int calls, gaps;
    char event[16];
};

static void note_news(struct belay *b, int err, const struct belay_reply *event, void *arg)
{
    struct news_note *n = arg;
    (void)b;
    if (err != BELAY_E_OK) {
        assert_int_equal(err, BELAY_E_GONE);
        n->gaps++;
        return;
    }
    n->calls++;
    snprintf(n->event, sizeof n->event, "%s", belay_text(belay_get(event, "event"), "?"));
}

static void news_arrive_as_maps(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct news_note note = {0};
    (void)state;
    fake_set(&server, RULES(SAYS("WATCH PREFIX db/ SINCE 4",
                                 "+OK\r\n>4\r\n$5\r\nevent\r\n:5\r\n$7\r\ngranted\r\n"
                                 "%2\r\n$3\r\nseq\r\n:5\r\n$5\r\nevent\r\n$7\r\ngranted\r\n"),
                            CUTS("DIE", "")));
    assert_int_equal(belay_watch(b, "db/", 4, note_news, &note), BELAY_E_OK);
    while (!note.calls)
        assert_int_equal(belay_poll(b, 2000), BELAY_E_OK);
    assert_string_equal(note.event, "granted");
    /* after a broken connection it goes on behind what was seen */
    assert_int_equal(belay_call(b, NULL, "DIE", NULL), BELAY_E_CLOSED);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "WATCH PREFIX db/ SINCE 5"), 1);
    /* and when the server has dropped that, it says so and goes on from now */
    fake_set(&server,
             RULES(SAYS("WATCH PREFIX db/ SINCE", "-GONE dropped\r\n"), CUTS("DIE", "")));
    assert_int_equal(belay_call(b, NULL, "DIE", NULL), BELAY_E_CLOSED);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_int_equal(note.gaps, 1);
    assert_int_equal(fake_count(&server, "WATCH"), 2);
    belay_close(b);
}

static void news_may_be_missed_before_the_first_came(void **state)
{
    struct belay *b = open_handle(server.addr, 2000);
    struct news_note note = {0};
    (void)state;
    fake_set(&server, RULES(CUTS("DIE", "")));
    assert_int_equal(belay_watch(b, NULL, 0, note_news, &note), BELAY_E_OK);
    assert_int_equal(note.gaps, 0);
    assert_int_equal(belay_call(b, NULL, "DIE", NULL), BELAY_E_CLOSED);
    assert_int_equal(belay_call(b, NULL, "PING", NULL), BELAY_E_OK);
    assert_int_equal(fake_count(&server, "WATCH"), 2);
    assert_int_equal(note.gaps, 1);
    belay_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_answer_of_an_acquire_is_understood, start, stop),
        cmocka_unit_test_setup_teardown(an_error_answer_has_a_code_a_word_and_a_text, start,
                                        stop),
        cmocka_unit_test_setup_teardown(wrong_arguments_are_told_before_anything_is_sent, start,
                                        stop),
        cmocka_unit_test_setup_teardown(what_a_dying_server_did_not_answer_is_sent_to_the_next,
                                        start, stop),
        cmocka_unit_test_setup_teardown(what_nobody_answers_fails_in_the_end, start, stop),
        cmocka_unit_test_setup_teardown(who_cannot_serve_is_left, start, stop),
        cmocka_unit_test_setup_teardown(a_place_in_line_moves_with_its_client, start, stop),
        cmocka_unit_test_setup_teardown(only_what_may_be_repeated_is, start, stop),
        cmocka_unit_test_setup_teardown(a_server_that_speaks_another_language_is_an_error,
                                        start, stop),
        cmocka_unit_test_setup_teardown(nobody_there_is_told_with_the_address, start, stop),
        cmocka_unit_test_setup_teardown(the_next_address_of_the_list_is_taken, start, stop),
        cmocka_unit_test(one_dead_neighbour_does_not_end_the_search),
        cmocka_unit_test_setup_teardown(a_namespace_that_is_missing_fails_every_call, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_late_answer_is_not_taken_for_the_next_one, start,
                                        stop),
        cmocka_unit_test_setup_teardown(an_acquire_that_was_given_up_is_released_when_it_comes,
                                        start, stop),
        cmocka_unit_test_setup_teardown(looks_may_be_stale, start, stop),
        cmocka_unit_test_setup_teardown(a_place_in_line_is_answered_by_a_push, start, stop),
        cmocka_unit_test_setup_teardown(a_grant_out_of_the_line_is_confirmed, start, stop),
        cmocka_unit_test_setup_teardown(a_silent_server_is_told_before_the_lease_can_pass_on,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_session_that_is_given_up_takes_its_connection_with_it,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_stale_renewal_is_told_at_once, start, stop),
        cmocka_unit_test_setup_teardown(a_session_is_attached_again_after_the_connection_broke,
                                        start, stop),
        cmocka_unit_test_setup_teardown(one_descriptor_drives_everything, start, stop),
        cmocka_unit_test_setup_teardown(
            every_callback_is_called_once_in_the_worst_case_by_close, start, stop),
        cmocka_unit_test_setup_teardown(a_callback_may_close_the_handle, start, stop),
        cmocka_unit_test_setup_teardown(news_arrive_as_maps, start, stop),
        cmocka_unit_test_setup_teardown(news_may_be_missed_before_the_first_came, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
