/* Connections between nodes, on one loop: what one side is told of the other. */
#include "base/log.h"
#include "net/peer_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000 };

static uv_loop_t loop;

struct side {
    struct peers *peers;
    int accepted, lost;
    uint64_t whom; /* was lost last */
};

static bool on_frame(void *ctx, uint64_t node, struct slice frame)
{
    (void)ctx;
    (void)node;
    (void)frame;
    return true;
}

static void on_up(void *ctx, uint64_t node)
{
    (void)ctx;
    (void)node;
}

static void on_lost(void *ctx, uint64_t node)
{
    struct side *s = ctx;
    s->lost++;
    s->whom = node;
}

static bool accept_all(void *ctx, const struct peer_hello *hello, struct peer_refusal *ret)
{
    struct side *s = ctx;
    (void)hello;
    (void)ret;
    s->accepted++;
    return true;
}

static void open_side(struct side *s, uint64_t node, const char *listen)
{
    struct peers_config config = {.loop = &loop,
                                  .self = {.cluster = 9, .node = node},
                                  .listen = listen,
                                  .ctx = s,
                                  .frame = on_frame,
                                  .up = on_up,
                                  .lost = on_lost,
                                  .accept = accept_all};
    *s = (struct side){0};
    snprintf(config.self.name, sizeof config.self.name, "n%d", (int)node);
    assert_int_equal(peers_open(&config, &s->peers), BELAY_OK);
}

static void call(struct side *from, const struct side *to)
{
    struct sockaddr_in at;
    int len = sizeof at;
    char address[PEER_TEXT_MAX];
    assert_int_equal(
        uv_tcp_getsockname(&to->peers->listener, (struct sockaddr *)(void *)&at, &len), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    peers_want(from->peers, to->peers->config.self.node, to->peers->config.self.name, address);
}

static void until(const int *count, int n)
{
    uv_update_time(&loop);
    uint64_t end = uv_now(&loop) + PATIENCE_MS;
    while (*count < n) {
        assert_true(uv_now(&loop) < end);
        (void)uv_run(&loop, UV_RUN_ONCE); /* each side has a timer */
    }
    assert_int_equal(*count, n);
}

static int open_loop(void **state)
{
    (void)state;
    return uv_loop_init(&loop);
}

static int close_loop(void **state)
{
    (void)state;
    return uv_loop_close(&loop);
}

static void close_sides(struct side *sides, size_t n)
{
    for (size_t i = 0; i < n; i++)
        peers_stop(sides[i].peers);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < n; i++)
        peers_close(sides[i].peers);
}

static void a_connection_that_ends_is_told(void **state)
{
    (void)state;
    struct side s[2];
    open_side(&s[0], 1, "127.0.0.1:0");
    open_side(&s[1], 2, NULL);
    call(&s[1], &s[0]);
    until(&s[0].accepted, 1);
    assert_int_equal(s[0].lost, 0);
    peers_stop(s[1].peers); /* as the end of its process does */
    until(&s[0].lost, 1);
    assert_int_equal(s[0].whom, 2);
    assert_null(s[0].peers->inlets_in[place_of(2)]);
    close_sides(s, 2);
    assert_int_equal(s[0].lost, 1);
}

static void a_connection_that_a_newer_one_replaces_is_not(void **state)
{
    (void)state;
    struct side s[3];
    open_side(&s[0], 1, "127.0.0.1:0");
    open_side(&s[1], 2, NULL);
    open_side(&s[2], 2, NULL);
    call(&s[1], &s[0]);
    until(&s[0].accepted, 1);
    call(&s[2], &s[0]);
    until(&s[0].accepted, 2);
    assert_int_equal(s[0].lost, 0);
    peers_stop(s[1].peers); /* its end has been taken: it would come again */
    peers_stop(s[2].peers);
    until(&s[0].lost, 1);
    close_sides(s, 3);
    assert_int_equal(s[0].lost, 1);
}

int main(void)
{
    log_set_level(LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_connection_that_ends_is_told, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(a_connection_that_a_newer_one_replaces_is_not,
                                        open_loop, close_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
