/* Bytes from another node: frames, hellos, messages, configurations. What is accepted must come
 * out the same when it is written again. */
#include "base/buf.h"
#include "net/peer.h"
#include "raft/group.h"
#include "raft/peer_message.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void message(struct slice in)
{
    struct arena a = {0};
    struct peer_message w, again;
    struct buf out = {0};
    if (peer_message_decode(in, &a, &w) == BELAY_OK) {
        peer_message_encode(&w, &out);
        BELAY_CHECK(peer_message_decode(buf_slice(&out), &a, &again) == BELAY_OK);
        BELAY_CHECK(slice_eq(buf_slice(&out), in)); /* one form only */
        BELAY_CHECK(again.n_entries == w.n_entries);
    }
    buf_done(&out);
    arena_done(&a);
}

static void messages(struct slice frame)
{
    struct arena a = {0};
    struct peer_message w;
    while (frame.len > 0 && peer_message_next(&frame, &a, &w) == BELAY_OK)
        arena_reset(&a);
    arena_done(&a);
}

static void configuration(struct slice in)
{
    struct group_conf conf, again;
    struct buf out = {0};
    if (group_conf_decode(in, &conf) == BELAY_OK) {
        group_conf_encode(&conf, &out);
        BELAY_CHECK(group_conf_decode(buf_slice(&out), &again) == BELAY_OK);
        BELAY_CHECK(again.n == conf.n);
    }
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of((const char *)data, size);
    struct slice frame;
    size_t used;
    struct peer_hello hello;
    message(in);
    configuration(in);
    if (peer_hello_decode(in, &hello) == BELAY_OK) {
        struct buf out = {0};
        peer_hello_encode(&hello, &out);
        BELAY_CHECK(slice_eq(buf_slice(&out), in));
        buf_done(&out);
    }
    struct peer_refusal refusal;
    if (peer_refusal_decode(in, &refusal) == BELAY_OK) {
        struct buf out = {0};
        peer_refusal_encode(&refusal, &out);
        BELAY_CHECK(slice_eq(buf_slice(&out), in));
        buf_done(&out);
    }
    while (in.len > 0 && peer_frame_next(in, &frame, &used) == 1) {
        BELAY_CHECK(used <= in.len);
        messages(frame);
        in = slice_of(in.data + used, in.len - used);
    }
    return 0;
}
