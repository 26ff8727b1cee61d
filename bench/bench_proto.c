/* bench_proto.c - nanoseconds per message, one thread, no I/O. Prints the best of five rounds.
 */
#include "proto/http.h"
#include "proto/json.h"
#include "proto/resp.h"

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 5, CALLS = 200000 };

static struct arena arena;
static struct buf out;
static size_t sum; /* uses every result, so that none is optimised away */

static const char acquire[] =
    "*5\r\n$7\r\nACQUIRE\r\n$12\r\norders/12345\r\n$8\r\nworker-7\r\n$3\r\nTTL\r\n$5\r\n30000\r\n";
static const char http[] =
    "POST /v1/namespaces/default/locks/orders%2F12345/acquire HTTP/1.1\r\n"
    "Host: 127.0.0.1:7117\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n"
    "Content-Type: application/json\r\nContent-Length: 37\r\n\r\n"
    "{\"owner\":\"worker-7\",\"ttl_ms\":30000}  ";
static const char json[] =
    "{\"status\":\"granted\",\"fence\":13,\"ticket\":0,\"expires_in_ms\":30000,\"body\":\"\",\"lock\":{\"name\":"
    "\"orders/12345\",\"state\":\"exclusive\",\"body\":\"\",\"holders\":[{\"owner\":\"worker-7\",\"mode\":"
    "\"exclusive\",\"fence\":13,\"session\":null,\"held_ms\":12,\"expires_in_ms\":29988,\"overdue\":false}],"
    "\"waiters\":[],\"note\":\"thirty bytes\"}}";

static void read_resp(void)
{
    struct request req;
    size_t used = 0;
    const char *why = NULL;
    BELAY_CHECK(resp_next(SLICE(acquire), &arena, &req, &used, &why) == RESP_DONE);
    sum += used + req.n_words;
}

static struct reply *granted(struct arena *a)
{
    struct reply *r = reply_map(a, NULL, NULL);
    r->flags = REPLY_ROW;
    (void)reply_text(a, r, "status", SLICE("granted"));
    (void)reply_int(a, r, "fence", 1234567);
    (void)reply_int(a, r, "expires_in_ms", 30000);
    (void)reply_text(a, r, "body", SLICE(""));
    return r;
}

static void build_and_write_resp(void)
{
    buf_clear(&out);
    resp_write(&out, granted(&arena), 3);
    sum += buf_len(&out);
}

static const struct reply *ready; /* built once, outside of what is measured */

static void write_resp(void)
{
    buf_clear(&out);
    resp_write(&out, ready, 3);
    sum += buf_len(&out);
}

static void write_http(void)
{
    buf_clear(&out);
    http_write(&out, ready, (struct http_manner){.keep_alive = true});
    sum += buf_len(&out);
}

static void read_http(void)
{
    struct request req;
    size_t used = 0;
    struct http_error err;
    const char *why = NULL;
    BELAY_CHECK(http_next(SLICE(http), &arena, &req, &used, &err) == HTTP_DONE);
    BELAY_CHECK(http_read_body(&req, &arena, &why));
    sum += used + req.n_fields;
}

static void read_json(void)
{
    static struct json_token tokens[64];
    struct json_error err;
    size_t n = 0;
    BELAY_CHECK(json_parse(SLICE(json), tokens, 64, &n, &err));
    sum += n;
}

static double now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void measure(const char *what, void (*call)(void))
{
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++) {
            call();
            arena_reset(&arena);
        }
        double ns = (now_ns() - start) / CALLS;
        if (round == 0 || ns < best)
            best = ns;
    }
    printf("%-44s %8.1f ns\n", what, best);
}

int main(void)
{
    struct arena kept = {0};
    measure("RESP: read ACQUIRE, 5 words", read_resp);
    measure("RESP: build and write [granted ...]", build_and_write_resp);
    ready = granted(&kept);
    measure("RESP: write [granted ...]", write_resp);
    measure("HTTP: write the same as JSON", write_http);
    measure("HTTP: read POST with JSON body, 240 bytes", read_http);
    measure("JSON: parse 300 bytes", read_json);
    arena_done(&kept);
    arena_done(&arena);
    buf_done(&out);
    return sum == 0;
}
