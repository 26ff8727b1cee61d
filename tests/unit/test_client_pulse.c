/* test_client_pulse.c - libbelay with a second connection to its server: what goes there while a
 * transaction waits is carried out and answered in any order beside the rest. */
#include "belay.h"
#include "client/client.h"
#include "fake_server.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void on_grant(struct belay *b, int err, const struct belay_grant *g, void *arg)
{
    (void)b;
    (void)g;
    *(int *)arg = err == BELAY_E_OK ? -1 : err;
}

/* The proof of a grant was carried out before the release of all that the owner has, and is answered
 * behind it. */
static void what_its_owner_has_released_is_not_proven_afterwards(void **state)
{
    static const struct fake_rule rules[] = {
        {.verb = "ACQUIRE", .reply = "*3\r\n$6\r\nqueued\r\n:7\r\n:1\r\n"},
        {.verb = "TXN", .reply = "+OK\r\n", .after_ms = 500},
        {.verb = "RENEW n 8", .reply = ":60000\r\n", .after_ms = 2000},
        {.verb = "RELEASE", .reply = ":1\r\n"},
        {0}};
    struct fake_server server;
    struct belay *b = NULL;
    int answer = 0;
    struct belay_acquire want = {
        .name = "n", .owner = "o", .wait_ms = 20000, .ttl_ms = 60000, .keep = true};
    struct belay_bytes txn[2] = {{"TXN", 3}, {"{}", 2}};
    (void)state;
    fake_start(&server);
    fake_set(&server, rules);
    struct belay_options o = {.addrs = server.addr, .timeout_ms = 20000};
    assert_int_equal(belay_open(&o, &b), BELAY_E_OK);
    assert_int_equal(belay_acquire_send(b, &want, on_grant, &answer), BELAY_E_OK);
    while (fake_count(&server, "ACQUIRE") == 0)
        assert_true(belay_poll(b, 10) >= 0);
    assert_int_equal(belay_send(b, txn, 2, NULL, NULL), BELAY_E_OK);
    fake_send(&server, ">6\r\n$7\r\ngranted\r\n$1\r\nn\r\n:8\r\n:7\r\n:60000\r\n$0\r\n\r\n");
    while (fake_count(&server, "RENEW n 8") == 0)
        assert_true(belay_poll(b, 10) >= 0);
    assert_int_equal(belay_release(b, "n", 0, "o", NULL), BELAY_E_OK);
    assert_int_equal(answer, 0); /* the proof is still on its way */
    while (!answer)
        assert_true(belay_poll(b, 10) >= 0);
    assert_int_equal(answer, BELAY_E_STALE);
    assert_false(belay_held(b, "n", 0));
    belay_close(b);
    fake_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_its_owner_has_released_is_not_proven_afterwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
