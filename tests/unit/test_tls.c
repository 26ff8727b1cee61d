/* TLS between memory buffers, with real certificates. */
#include "tls/cert.h"
#include "tls/tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH_BYTES = 128, TURNS_MAX = 10 };

static char dir[] = "/tmp/belay-tls-XXXXXX";

static const char *path(const char *name)
{
    static char out[4][PATH_BYTES];
    static size_t at;
    char *p = out[at++ % 4];
    snprintf(p, PATH_BYTES, "%s/%s", dir, name);
    return p;
}

static void make(enum cert_kind kind, const char *name, const char *ca, int days)
{
    struct cert_wish wish = {
        .kind = kind, .name = name, .ca = path(ca), .out = dir, .days = days};
    assert_int_equal(cert_make(&wish), BELAY_OK);
}

static int make_all(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    assert_int_equal(cert_make_ca(dir, 10), BELAY_OK);
    assert_int_equal(cert_make_ca(path("other"), 10), BELAY_OK);
    make(CERT_NODE, "n1", "", 5);
    make(CERT_NODE, "n2", "", 5);
    make(CERT_NODE, "late", "", -1);
    make(CERT_CLIENT, "billing", "", 5);
    make(CERT_NODE, "foreign", "other", 5);
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    static const char *const names[] = {"ca",      "n1",      "n2",      "late",
                                        "billing", "foreign", "other/ca"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[PATH_BYTES];
        snprintf(file, sizeof file, "%s/%s.crt", dir, names[i]);
        (void)unlink(file);
        snprintf(file, sizeof file, "%s/%s.key", dir, names[i]);
        (void)unlink(file);
    }
    (void)rmdir(path("other"));
    return rmdir(dir);
}

static enum belay_err try_open(const char *name, const char *ca, enum tls_use use,
                               struct tls_context **ret)
{
    char cert[PATH_BYTES];
    char key[PATH_BYTES];
    snprintf(cert, sizeof cert, "%s/%s.crt", dir, name);
    snprintf(key, sizeof key, "%s/%s.key", dir, name);
    return tls_context_open(&(struct tls_files){path(ca), cert, key}, use, ret);
}

static struct tls_context *context(const char *name, const char *ca, enum tls_use use)
{
    struct tls_context *c = NULL;
    assert_int_equal(try_open(name, ca, use, &c), BELAY_OK);
    return c;
}

struct pair {
    struct tls *a, *b; /* a calls b */
    struct buf to_a, to_b;
};

static void pass(struct tls *from, struct tls *to, struct buf *plain)
{
    struct buf bytes = {0};
    tls_drain(from, &bytes);
    if (buf_len(&bytes))
        (void)tls_feed(to, buf_slice(&bytes), plain);
    buf_done(&bytes);
}

static void turn(struct pair *p)
{
    pass(p->a, p->b, &p->to_b);
    pass(p->b, p->a, &p->to_a);
}

static struct pair meet(const struct tls_context *a, const struct tls_context *b)
{
    struct pair p = {.a = tls_open(a, false), .b = tls_open(b, true)};
    for (int i = 0; i < TURNS_MAX; i++)
        turn(&p);
    return p;
}

static void part(struct pair *p)
{
    tls_close(p->a);
    tls_close(p->b);
    buf_done(&p->to_a);
    buf_done(&p->to_b);
}

static void nodes_of_one_ca_know_each_other_by_name(void **state)
{
    (void)state;
    struct tls_context *one = context("n1", "ca.crt", TLS_NODES);
    struct tls_context *two = context("n2", "ca.crt", TLS_NODES);
    struct pair p = meet(one, two);
    assert_int_equal(tls_state(p.a), TLS_OPEN);
    assert_int_equal(tls_state(p.b), TLS_OPEN);
    assert_true(tls_is(p.a, "n2"));
    assert_true(tls_is(p.b, "n1"));
    assert_false(tls_is(p.b, "n2"));
    assert_false(tls_is(p.b, "n"));
    assert_false(tls_is(p.b, ""));

    char large[100000];
    memset(large, 'x', sizeof large);
    assert_int_equal(tls_write(p.a, slice_of(large, sizeof large)), TLS_OPEN);
    assert_int_equal(tls_write(p.b, SLICE("hello")), TLS_OPEN);
    turn(&p);
    assert_int_equal(buf_len(&p.to_b), sizeof large);
    assert_memory_equal(buf_data(&p.to_b), large, sizeof large);
    assert_true(slice_eq(buf_slice(&p.to_a), SLICE("hello")));

    /* A connection goes on when the files are read again. */
    assert_int_equal(tls_context_reload(one), BELAY_OK);
    assert_int_equal(tls_write(p.a, SLICE("more")), TLS_OPEN);
    turn(&p);
    assert_int_equal(buf_len(&p.to_b), sizeof large + 4);
    part(&p);
    tls_context_close(one);
    tls_context_close(two);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    struct tls_context *one = context("n1", "ca.crt", TLS_NODES);
    struct tls_context *foreign = context("foreign", "other/ca.crt", TLS_NODES);
    struct tls_context *client = context("billing", "ca.crt", TLS_CLIENTS);
    struct pair p = meet(foreign, one);
    assert_int_equal(tls_state(p.a), TLS_FAILED);
    assert_non_null(strstr(tls_problem(p.a), "certificate is not accepted"));
    part(&p);
    p = meet(one, foreign);
    assert_int_equal(tls_state(p.a), TLS_FAILED);
    part(&p);
    p = meet(client, one);
    assert_int_equal(tls_state(p.b), TLS_FAILED);
    assert_string_equal(tls_problem(p.b), "its certificate is not that of a node");
    part(&p);
    tls_context_close(one);
    tls_context_close(foreign);
    tls_context_close(client);
}

static struct pair call(const struct tls_context *a, const struct tls_context *b,
                        const char *host)
{
    struct pair p = {.a = tls_call(a, host), .b = tls_open(b, true)};
    for (int i = 0; i < TURNS_MAX; i++)
        turn(&p);
    return p;
}

static void a_client_knows_its_server_by_name_and_ca(void **state)
{
    (void)state;
    static const struct {
        const char *host, *ca, *says; /* NULL: it opens */
    } rows[] = {
        {"n1", "ca.crt", NULL},
        {"n2", "ca.crt", "its certificate is not accepted: hostname mismatch"},
        {"127.0.0.1", "ca.crt", "its certificate is not accepted: IP address mismatch"},
        {"n1", "other/ca.crt",
         "its certificate is not accepted: self-signed certificate in "
         "certificate chain"},
    };
    struct tls_context *server = context("n1", "ca.crt", TLS_CLIENTS);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tls_context *caller = NULL;
        assert_int_equal(
            tls_context_open(&(struct tls_files){.ca = path(rows[i].ca)}, TLS_CALLER, &caller),
            BELAY_OK);
        struct pair p = call(caller, server, rows[i].host);
        assert_int_equal(tls_state(p.a), rows[i].says ? TLS_FAILED : TLS_OPEN);
        if (rows[i].says && strncmp(tls_problem(p.a), rows[i].says, 40) != 0)
            fail_msg("\"%s\"", tls_problem(p.a));
        part(&p);
        tls_context_close(caller);
    }
    tls_context_close(server);
}

static void a_client_may_prove_itself(void **state)
{
    (void)state;
    char uri[PATH_BYTES];
    struct tls_context *server = context("n1", "ca.crt", TLS_CLIENTS);
    struct tls_context *known = context("billing", "ca.crt", TLS_CALLER);
    struct tls_context *foreign = context("foreign", "ca.crt", TLS_CALLER);
    struct pair p = call(known, server, "n1");
    assert_int_equal(tls_state(p.b), TLS_OPEN);
    assert_false(tls_uri(p.b, "belay:", uri, sizeof uri));
    part(&p);
    p = call(foreign, server, "n1");
    assert_int_equal(tls_state(p.b), TLS_FAILED);
    assert_string_equal(
        tls_problem(p.b),
        "its certificate is not accepted: unable to get local issuer certificate");
    assert_string_equal(tls_problem(p.a), "it does not accept our certificate: unknown CA");
    part(&p);
    tls_context_close(server);
    tls_context_close(known);
    tls_context_close(foreign);
}

static void an_end_is_told(void **state)
{
    (void)state;
    struct tls_context *server = context("n1", "ca.crt", TLS_CLIENTS);
    struct tls_context *caller = context("billing", "ca.crt", TLS_CALLER);
    struct pair p = call(caller, server, "n1");
    tls_end(p.a);
    turn(&p);
    assert_int_equal(tls_state(p.b), TLS_CLOSED);
    assert_int_equal(tls_write(p.b, SLICE("the last answer")), TLS_CLOSED);
    assert_true(tls_has_output(p.b));
    turn(&p);
    assert_false(tls_has_output(p.b));
    assert_true(slice_eq(buf_slice(&p.to_a), SLICE("the last answer")));
    part(&p);
    tls_context_close(server);
    tls_context_close(caller);
}

static void what_is_not_tls_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"GET / HTTP/1.1\r\n\r\n", "BELAYPR1 and so on",
                                       "*1\r\n$4\r\nPING\r\n"};
    struct tls_context *one = context("n1", "ca.crt", TLS_NODES);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf plain = {0};
        struct tls *t = tls_open(one, true);
        assert_int_equal(tls_feed(t, slice_str(rows[i]), &plain), TLS_FAILED);
        assert_true(*tls_problem(t));
        assert_int_equal(tls_feed(t, SLICE("more"), &plain), TLS_FAILED);
        tls_close(t);
        buf_done(&plain);
    }
    tls_context_close(one);
}

static void a_changed_byte_ends_it(void **state)
{
    (void)state;
    struct tls_context *one = context("n1", "ca.crt", TLS_NODES);
    struct tls_context *two = context("n2", "ca.crt", TLS_NODES);
    struct pair p = meet(one, two);
    struct buf bytes = {0};
    assert_int_equal(tls_write(p.a, SLICE("hello")), TLS_OPEN);
    tls_drain(p.a, &bytes);
    bytes.mem[bytes.end - 1] ^= 1;
    assert_int_equal(tls_feed(p.b, buf_slice(&bytes), &p.to_b), TLS_FAILED);
    assert_int_equal(buf_len(&p.to_b), 0);
    buf_done(&bytes);
    part(&p);
    tls_context_close(one);
    tls_context_close(two);
}

static void wrong_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name, *ca;
        const char *says;
        enum tls_use use;
    } rows[] = {
        {"n1", "nothing.crt", "nothing.crt: No such file or directory", TLS_NODES},
        {"nobody", "ca.crt", "nobody.crt: No such file or directory", TLS_NODES},
        {"n1", "other/ca.crt", "n1.crt: unable to get local issuer certificate", TLS_NODES},
        {"late", "ca.crt", "late.crt: certificate has expired", TLS_NODES},
        {"late", "ca.crt", "late.crt: certificate has expired", TLS_CLIENTS},
        {"late", "ca.crt", "late.crt: certificate has expired", TLS_CALLER},
        {"billing", "ca.crt", "billing.crt: is not the certificate of a node", TLS_NODES},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tls_context *c = NULL;
        assert_int_equal(try_open(rows[i].name, rows[i].ca, rows[i].use, &c), BELAY_ERR_SYNTAX);
        assert_null(c);
        assert_non_null(strstr(tls_context_problem(), rows[i].says));
    }
}

static void expiry_is_known(void **state)
{
    (void)state;
    struct tls_context *one = context("n1", "ca.crt", TLS_NODES);
    int64_t days = 24 * 3600;
    assert_in_range(tls_context_expires_s(one), 5 * days - 60, 5 * days);
    tls_context_close(one);
}

static void files_are_private_and_never_written_over(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(stat(path("n1.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(path("n1.crt"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(cert_make_ca(dir, 10), BELAY_ERR_EXISTS);
    static const char *const bad[] = {"", "../n9", "a/b", "ca", "a,DNS:n2", "-x", "a b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(
            cert_make(&(struct cert_wish){.name = bad[i], .ca = dir, .out = dir, .days = 5}),
            BELAY_ERR_SYNTAX);
    const char *const host[] = {"n2,DNS:n3"};
    assert_int_equal(
        cert_make(&(struct cert_wish){
            .name = "n9", .ca = dir, .out = dir, .hosts = host, .n_hosts = 1, .days = 5}),
        BELAY_ERR_SYNTAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_of_one_ca_know_each_other_by_name),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(a_client_knows_its_server_by_name_and_ca),
        cmocka_unit_test(a_client_may_prove_itself),
        cmocka_unit_test(an_end_is_told),
        cmocka_unit_test(what_is_not_tls_is_refused),
        cmocka_unit_test(a_changed_byte_ends_it),
        cmocka_unit_test(wrong_files_are_named),
        cmocka_unit_test(expiry_is_known),
        cmocka_unit_test(files_are_private_and_never_written_over),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
