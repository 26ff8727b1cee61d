/* A connection to a server that fails: at every message of the protocol, in every way. Every
 * statement is answered once, nothing that was rolled back is told as done, and the connection
 * comes back. The server is a fake in the same loop, one for each place and way of failing. */
#include "queue/pg.h"

#include "base/buf.h"
#include "base/mem.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum fault {
    FAULT_NONE,
    FAULT_ERROR,        /* an error instead of the message */
    FAULT_BEFORE,       /* an error, and then the message: at the end of a batch, its commit */
    FAULT_FATAL,        /* last words, then the end */
    FAULT_CLOSE,        /* the end without a word */
    FAULT_HALF,         /* half of the message, then the end */
    FAULT_TWICE,        /* the message twice */
    FAULT_COPY,         /* something else instead */
    FAULT_EMPTY,        /* something else instead, that could be an answer */
    FAULT_UNKNOWN,      /* something that is not in the protocol */
    FAULT_HUGE,         /* something that claims to be very long */
    FAULT_NOTICE,       /* harmless */
    FAULT_NOTIFICATION, /* harmless */
    FAULT_SILENCE,      /* nothing any more */
    FAULTS
};

enum { STEPS = 64, STATEMENTS = 6, STARTUP_STEPS = 5, PID = 4711, ANSWER_MS = 1500 };

struct scenario;

struct tag {
    struct scenario *s;
    size_t i;
};

struct scenario {
    struct tag tags[STATEMENTS];
    enum fault fault;
    unsigned at;   /* the number of the message that fails */
    bool own;      /* the server tells its real process id: no pooler */
    unsigned step; /* messages sent so far, by all connections */
    bool failed;   /* it has */
    uv_pipe_t listener;
    struct pg *pg;
    unsigned calls[STATEMENTS], good[STATEMENTS];
    bool in_failed[STATEMENTS]; /* the server rolled it back */
    unsigned ups, downs;
    bool sent, done;
    char words[128]; /* of the last loss */
};

/* One connection of the fake server. */
struct peer {
    uv_pipe_t pipe;
    struct scenario *s;
    struct buf in, out;
    bool started, skipping, silent, ending;
    bool in_txn, aborted; /* between BEGIN and COMMIT; only COMMIT works */
    char named[32][16];   /* the beginnings of prepared statements; 0: without a name */
    const char *sql;      /* bound last */
    bool in_batch[STATEMENTS];
    char read_buf[4096];
};

static char dir[] = "/tmp/belay-pg-XXXXXX";
static uv_loop_t loop;

/* ---- the server ----------------------------------------------------------------------------
 */

static void put_u32(struct buf *b, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_put_byte(b, (char)(v >> shift));
}

static void put_message(struct buf *out, char type, const struct buf *body)
{
    buf_put_byte(out, type);
    put_u32(out, (uint32_t)buf_len(body) + 4);
    buf_put(out, buf_data(body), buf_len(body));
}

static void put_error(struct peer *p, const char *severity, const char *state)
{
    struct buf b = {0};
    const char *fields[] = {"S", severity, "V", severity, "C", state, "M", "as planned"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i += 2) {
        buf_put_str(&b, fields[i]);
        buf_put(&b, fields[i + 1], strlen(fields[i + 1]) + 1);
    }
    buf_put_byte(&b, '\0');
    put_message(&p->out, 'E', &b);
    buf_done(&b);
}

static void fail_batch(struct peer *p)
{
    p->aborted = p->in_txn;
    for (size_t i = 0; i < STATEMENTS; i++)
        if (p->in_batch[i])
            p->s->in_failed[i] = true;
}

static void put_odd(struct peer *p, enum fault fault)
{
    static const char copy[] = {'G', 0, 0, 0, 7, 0, 0, 0};
    static const char empty[] = {'I', 0, 0, 0, 4};
    static const char unknown[] = {'~', 0, 0, 0, 4};
    static const char huge[] = {'D', 0x7f, 0x7f, 0x7f, 0x7f, 1, 2, 3};
    static const char notification[] = "A\0\0\0\x0b\0\0\0\x01x\0y"; /* and its NUL */
    static const char notice[] = "N\0\0\0\x15SWARNING\0C01000\0";   /* and its NUL */
    if (fault == FAULT_COPY)
        buf_put(&p->out, copy, sizeof copy);
    else if (fault == FAULT_EMPTY)
        buf_put(&p->out, empty, sizeof empty);
    else if (fault == FAULT_UNKNOWN)
        buf_put(&p->out, unknown, sizeof unknown);
    else if (fault == FAULT_HUGE)
        buf_put(&p->out, huge, sizeof huge);
    else if (fault == FAULT_NOTIFICATION)
        buf_put(&p->out, notification, sizeof notification);
    else if (fault == FAULT_NOTICE)
        buf_put(&p->out, notice, sizeof notice);
}

/* Sends one message, or fails instead. */
static void say(struct peer *p, char type, const struct buf *body)
{
    struct scenario *s = p->s;
    if (p->silent || p->ending)
        return;
    bool fails = !s->failed && s->step++ == s->at && s->fault != FAULT_NONE;
    if (!fails) {
        put_message(&p->out, type, body);
        return;
    }
    s->failed = true;
    size_t before = buf_len(&p->out);
    switch (s->fault) {
    case FAULT_ERROR:
        put_error(p, p->started ? "ERROR" : "FATAL", "40001");
        fail_batch(p);
        p->skipping = type != 'Z';
        p->ending = !p->started;
        if (type == 'Z')
            put_message(&p->out, type, body);
        break;
    case FAULT_BEFORE:
        put_error(p, "ERROR", "40001");
        fail_batch(p);
        put_message(&p->out, type, body);
        break;
    case FAULT_FATAL:
        put_error(p, "FATAL", "57P01");
        p->ending = true;
        break;
    case FAULT_HALF:
        put_message(&p->out, type, body);
        p->out.end -= (buf_len(&p->out) - before) / 2;
        p->ending = true;
        break;
    case FAULT_CLOSE:
        p->ending = true;
        break;
    case FAULT_SILENCE:
        p->silent = true;
        break;
    case FAULT_TWICE:
        put_message(&p->out, type, body);
        put_message(&p->out, type, body);
        break;
    case FAULT_NONE:
    case FAULTS:
    case FAULT_COPY:
    case FAULT_EMPTY:
    case FAULT_UNKNOWN:
    case FAULT_HUGE:
    case FAULT_NOTICE:
    case FAULT_NOTIFICATION:
        /* libpq 15 forgets to free the rows that it has when a COPY begins. */
        put_odd(p, s->fault == FAULT_COPY && strchr("DC", type) ? FAULT_UNKNOWN : s->fault);
        if (s->fault == FAULT_NOTICE || s->fault == FAULT_NOTIFICATION)
            put_message(&p->out, type, body);
    }
}

static void say_text(struct peer *p, char type, const char *text, size_t n)
{
    struct buf b = {0};
    buf_put(&b, text, n);
    say(p, type, &b);
    buf_done(&b);
}

static bool has_rows(const struct peer *p)
{
    return strncmp(p->sql, "SELECT", 6) == 0;
}

static void say_row(struct peer *p)
{
    struct buf b = {0};
    char value[16];
    (void)snprintf(value, sizeof value, "%d", PID);
    buf_put(&b, "\0\1", 2);
    put_u32(&b, (uint32_t)strlen(value));
    buf_put_str(&b, value);
    say(p, 'D', &b);
    buf_done(&b);
}

static void say_hello(struct peer *p)
{
    struct buf key = {0};
    static const char encoding[] = "client_encoding\0UTF8", version[] = "server_version\0"
                                                                        "15.0";
    put_u32(&key, p->s->own ? PID : PID + 1);
    put_u32(&key, 99);
    say_text(p, 'R', "\0\0\0\0", 4);
    say_text(p, 'S', encoding, sizeof encoding);
    say_text(p, 'S', version, sizeof version);
    say(p, 'K', &key);
    say_text(p, 'Z', "I", 1);
    buf_done(&key);
    p->started = true;
}

/* The place of the statement with this name: "" or "s" and a number. */
static char *named(struct peer *p, const char *name)
{
    return p->named[name[0] ? strtoul(name + 1, NULL, 10) % 32 : 0];
}

static void answer(struct peer *p, char type, const char *body)
{
    static const char row[] = "\0\1x\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0";
    if (type == 'X') {
        p->ending = true;
    } else if (type == 'S') {
        say_text(p, 'Z', p->aborted ? "E" : p->in_txn ? "T" : "I", 1);
        p->skipping = false;
        if (!p->in_txn)
            memset(p->in_batch, 0, sizeof p->in_batch);
    } else if (p->skipping) {
        return;
    } else if (type == 'P' && p->aborted && strcmp(body + strlen(body) + 1, "COMMIT") != 0) {
        put_error(p, "ERROR", "25P02");
        p->skipping = true;
    } else if (type == 'P') {
        (void)snprintf(named(p, body), sizeof p->named[0], "%.15s", body + strlen(body) + 1);
        say_text(p, '1', "", 0);
    } else if (type == 'B') {
        p->sql = named(p, body + strlen(body) + 1);
        say_text(p, '2', "", 0);
    } else if (type == 'D') {
        if (has_rows(p))
            say_text(p, 'T', row, sizeof row);
        else
            say_text(p, 'n', "", 0);
    } else if (type == 'E') {
        if (strncmp(p->sql, "SELECT 'S", 9) == 0)
            p->in_batch[p->sql[9] - '0'] = true;
        if (has_rows(p))
            say_row(p);
        if (!p->skipping)
            say_text(p, 'C', "DONE", 5);
        if (!p->skipping && strncmp(p->sql, "BEGIN", 5) == 0)
            p->in_txn = true;
        if (!p->skipping && strcmp(p->sql, "COMMIT") == 0)
            p->in_txn = p->aborted = false;
    }
}

static void on_peer_closed(uv_handle_t *handle)
{
    struct peer *p = handle->data;
    buf_done(&p->in);
    buf_done(&p->out);
    free(p);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct peer *p = handle->data;
    (void)suggested;
    *buf = uv_buf_init(p->read_buf, sizeof p->read_buf);
}

static uint32_t u32_at(const struct buf *b, size_t at)
{
    const unsigned char *d = (const unsigned char *)buf_data(b) + at;
    return (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 | (uint32_t)d[2] << 8 | d[3];
}

static void take_messages(struct peer *p)
{
    while (buf_len(&p->in) >= 5 && !p->ending) {
        size_t head = p->started ? 1 : 0;
        size_t n = u32_at(&p->in, head) + head;
        if (buf_len(&p->in) < n)
            return;
        if (p->started)
            answer(p, buf_data(&p->in)[0], buf_data(&p->in) + 5);
        else
            say_hello(p);
        buf_consume(&p->in, n);
    }
}

static void on_peer_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct peer *p = stream->data;
    if (n > 0) {
        buf_put(&p->in, buf->base, (size_t)n);
        take_messages(p);
        uv_buf_t out =
            uv_buf_init((char *)(uintptr_t)buf_data(&p->out), (unsigned)buf_len(&p->out));
        if (out.len > 0)
            (void)uv_try_write(stream, &out, 1); /* little, and it is read */
        buf_clear(&p->out);
    }
    if ((n < 0 || p->ending) && !uv_is_closing((uv_handle_t *)&p->pipe))
        uv_close((uv_handle_t *)&p->pipe, on_peer_closed);
}

static void on_connection(uv_stream_t *listener, int status)
{
    assert_int_equal(status, 0);
    struct peer *p = mem_zalloc(sizeof *p);
    p->s = listener->data;
    (void)uv_pipe_init(&loop, &p->pipe, 0);
    p->pipe.data = p;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&p->pipe), 0);
    (void)uv_read_start((uv_stream_t *)&p->pipe, on_alloc, on_peer_read);
}

/* ---- the client ----------------------------------------------------------------------------
 */

static const char *const statements[STATEMENTS] = {"SELECT 'S0'", "SELECT 'S1'", "SELECT 'S2'",
                                                   "SELECT 'S3'", "SELECT 'S4'", "SELECT 'S5'"};

static void finish_if_done(struct scenario *s)
{
    for (size_t i = 0; i < STATEMENTS; i++)
        if (s->calls[i] == 0)
            return;
    s->done = s->good[STATEMENTS - 1] > 0;
    if (s->done) {
        pg_close(s->pg);
        s->pg = NULL;
        uv_close((uv_handle_t *)&s->listener, NULL);
    }
}

static void on_answer(void *arg, const PGresult *res)
{
    struct tag *t = arg;
    struct scenario *s = t->s;
    s->calls[t->i]++;
    s->good[t->i] += pg_ok(res);
    finish_if_done(s);
}

static void send_one(struct scenario *s, size_t i)
{
    s->tags[i] = (struct tag){s, i};
    pg_send(s->pg, statements[i], 0, NULL, on_answer, &s->tags[i]);
}

static void send_last(struct scenario *s)
{
    pg_begin(s->pg);
    send_one(s, 5);
    pg_commit(s->pg);
}

static void on_up(void *arg)
{
    struct scenario *s = arg;
    s->ups++;
    pg_set_sticky(s->pg, pg_is_own(s->pg));
    if (!s->sent) {
        s->sent = true;
        pg_begin(s->pg);
        send_one(s, 0);
        send_one(s, 1);
        pg_commit(s->pg);
        send_one(s, 2);
        pg_sync(s->pg);
        pg_begin(s->pg);
        send_one(s, 3);
        pg_commit(s->pg);
        send_one(s, 4);
        pg_sync(s->pg);
    }
    send_last(s);
}

static void on_down(void *arg, const char *why, bool hopeless)
{
    struct scenario *s = arg;
    (void)hopeless;
    s->downs++;
    (void)snprintf(s->words, sizeof s->words, "%s", why);
}

/* The last statement is tried until it works; the others are sent once. */
static void on_retry(uv_timer_t *timer)
{
    struct scenario *s = timer->data;
    if (!s->pg) {
        uv_close((uv_handle_t *)timer, (uv_close_cb)free);
        return;
    }
    if (pg_is_up(s->pg) && s->calls[5] > 0 && s->good[5] == 0) {
        send_last(s);
    }
}

static void begin(struct scenario *s, unsigned port)
{
    static const struct pg_events events = {on_up, on_down, NULL};
    char path[128], url[160];
    (void)snprintf(path, sizeof path, "%s/.s.PGSQL.%u", dir, port);
    (void)snprintf(url, sizeof url, "host=%s port=%u user=u dbname=d", dir, port);
    (void)uv_pipe_init(&loop, &s->listener, 0);
    s->listener.data = s;
    assert_int_equal(uv_pipe_bind(&s->listener, path), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&s->listener, 16, on_connection), 0);
    s->pg = pg_open(&loop, url, "test", &events, s);
    pg_set_answer_ms(s->pg, ANSWER_MS);
    uv_timer_t *retry = mem_zalloc(sizeof *retry);
    (void)uv_timer_init(&loop, retry);
    retry->data = s;
    (void)uv_timer_start(retry, on_retry, 20, 20);
}

static void check(const struct scenario *s)
{
    bool good = s->done;
    for (size_t i = 0; i < STATEMENTS - 1; i++)
        good = good && s->calls[i] == 1 && !(s->in_failed[i] && s->good[i] > 0);
    if (!good)
        fail_msg(
            "fault %d at message %u (own %d): done %d, calls %u %u %u %u %u, good %u %u %u %u %u, "
            "ups %u, downs %u (%s)",
            (int)s->fault, s->at, s->own, s->done, s->calls[0], s->calls[1], s->calls[2],
            s->calls[3], s->calls[4], s->good[0], s->good[1], s->good[2], s->good[3],
            s->good[4], s->ups, s->downs, s->words);
}

static void any_failure_at_any_message(void **state)
{
    (void)state;
    enum { N = FAULTS * STEPS * 2 };
    struct scenario *all = mem_zalloc(N * sizeof *all);
    unsigned n = 0, reached = 0;
    for (int fault = 0; fault < FAULTS; fault++)
        for (unsigned at = 0; at < STEPS; at++)
            for (int own = 0; own < 2; own++) {
                if ((fault == FAULT_SILENCE || fault == FAULT_HUGE) && at < STARTUP_STEPS)
                    continue; /* the ten seconds of a connect are too long for a test */
                all[n].fault = (enum fault)fault;
                all[n].at = at;
                all[n].own = own;
                begin(&all[n], n + 1);
                n++;
            }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    for (unsigned i = 0; i < n; i++) {
        check(&all[i]);
        reached += all[i].failed;
    }
    print_message("# %u of %u failures took place\n", reached, n);
    assert_true(reached > n / 2);
    free(all);
}

static struct scenario *one(enum fault fault, unsigned at, bool own)
{
    static unsigned port = 30000;
    struct scenario *s = mem_zalloc(sizeof *s);
    s->fault = fault;
    s->at = at;
    s->own = own;
    begin(s, port++);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    check(s);
    return s;
}

static void the_servers_words_are_told(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 3 * STARTUP_STEPS; at++) {
        struct scenario *s = one(FAULT_FATAL, at, true);
        assert_int_equal(s->downs, 1);
        assert_non_null(strstr(s->words, "as planned"));
        free(s);
    }
}

static void a_session_with_another_process_id_is_not_ours(void **state)
{
    (void)state;
    struct scenario *own = one(FAULT_NONE, 0, true), *pooled = one(FAULT_NONE, 0, false);
    assert_int_equal(own->downs + pooled->downs, 0);
    assert_true(own->step != pooled->step); /* settings here, BEGIN and COMMIT there */
    free(own);
    free(pooled);
}

static int open_loop(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN); /* the server writes to who has gone */
    return mkdtemp(dir) && uv_loop_init(&loop) == 0 ? 0 : -1;
}

static int close_loop(void **state)
{
    (void)state;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 && rmdir(dir) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_failure_at_any_message),
        cmocka_unit_test(the_servers_words_are_told),
        cmocka_unit_test(a_session_with_another_process_id_is_not_ours),
    };
    return cmocka_run_group_tests(tests, open_loop, close_loop);
}
