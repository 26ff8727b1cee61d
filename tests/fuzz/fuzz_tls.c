/* fuzz_tls.c - any bytes to a side that was called and to one that calls, in pieces: it fails
 * with words or waits for more, and gives nothing to the program before anything is proven. The
 * first byte says how many bytes of a true handshake come before. */
#include "base/check.h"
#include "tls/cert.h"
#include "tls/tls.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATH_BYTES = 64, PIECE_BYTES = 64 };

static struct tls_context *context, *clients;

static void make_context(void)
{
    char dir[] = "/tmp/belay-fuzz-XXXXXX";
    char ca[PATH_BYTES];
    char crt[PATH_BYTES];
    char key[PATH_BYTES];
    char ca_key[PATH_BYTES];
    BELAY_CHECK(mkdtemp(dir));
    BELAY_CHECK(cert_make_ca(dir, 10) == BELAY_OK);
    BELAY_CHECK(cert_make(&(struct cert_wish){
                    .kind = CERT_NODE, .name = "n1", .ca = dir, .out = dir, .days = 5}) ==
                BELAY_OK);
    snprintf(ca, sizeof ca, "%s/ca.crt", dir);
    snprintf(ca_key, sizeof ca_key, "%s/ca.key", dir);
    snprintf(crt, sizeof crt, "%s/n1.crt", dir);
    snprintf(key, sizeof key, "%s/n1.key", dir);
    BELAY_CHECK(tls_context_open(&(struct tls_files){ca, crt, key}, TLS_NODES, &context) ==
                BELAY_OK);
    BELAY_CHECK(tls_context_open(&(struct tls_files){ca, crt, key}, TLS_CLIENTS, &clients) ==
                BELAY_OK);
    (void)unlink(ca), (void)unlink(ca_key), (void)unlink(crt), (void)unlink(key);
    (void)rmdir(dir);
}

static void feed(struct tls *t, struct slice bytes)
{
    struct buf plain = {0};
    struct buf out = {0};
    while (bytes.len > 0) {
        size_t n = bytes.len < PIECE_BYTES ? bytes.len : PIECE_BYTES;
        enum tls_state state = tls_feed(t, slice_of(bytes.data, n), &plain);
        tls_drain(t, &out);
        BELAY_CHECK(state != TLS_FAILED || *tls_problem(t));
        BELAY_CHECK(state == TLS_OPEN || !tls_is(t, "n1"));
        BELAY_CHECK(state != TLS_SHAKING || buf_len(&plain) == 0);
        bytes = slice_of(bytes.data + n, bytes.len - n);
    }
    buf_done(&plain);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!context)
        make_context();
    if (size == 0)
        return 0;
    struct slice in = slice_of((const char *)data + 1, size - 1);
    struct tls *called = tls_open(data[0] % 2 ? context : clients, true);
    struct tls *caller = tls_call(context, "n1");
    struct buf first = {0};
    tls_drain(caller, &first);
    size_t n = data[0] < buf_len(&first) ? data[0] : buf_len(&first);
    feed(called, slice_of(buf_data(&first), n));
    feed(called, in);
    feed(caller, in);
    tls_close(called);
    tls_close(caller);
    buf_done(&first);
    return 0;
}
