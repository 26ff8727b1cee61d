/* peer_message.c - the messages between nodes as bytes, and back. */
#include "raft/peer_message.h"

#include "base/format.h"
#include "machine/varint.h"
#include "raft/replica.h"

#include <assert.h>

/* Nodes of two versions talk to each other: these lists must not be reordered. */
#define ON_WIRE(name, number) static_assert((name) == (number), #name " is sent as " #number)
ON_WIRE(WIRE_NONE, 0);
ON_WIRE(WIRE_APPEND, 1);
ON_WIRE(WIRE_APPEND_RESULT, 2);
ON_WIRE(WIRE_VOTE, 3);
ON_WIRE(WIRE_VOTE_RESULT, 4);
ON_WIRE(WIRE_SNAPSHOT, 5);
ON_WIRE(WIRE_TIMEOUT_NOW, 6);
ON_WIRE(WIRE_PROBE, 7);
ON_WIRE(WIRE_PROBE_ACK, 8);
ON_WIRE(WIRE_FORWARD, 9);
ON_WIRE(WIRE_READ, 10);
ON_WIRE(WIRE_READ_AT, 11);
ON_WIRE(WIRE_FETCH, 12);
ON_WIRE(WIRE_PIECE, 13);
ON_WIRE(WIRE_ASK, 14);
ON_WIRE(WIRE_TOLD, 15);
ON_WIRE(WIRE_NODE, 16);
ON_WIRE(WIRE_DISRUPT, 1);
ON_WIRE(WIRE_PRE_VOTE, 2);
ON_WIRE(WIRE_GRANTED, 4);
ON_WIRE(WIRE_RETIRING, 8);
ON_WIRE(WIRE_DRAINED, 16);
ON_WIRE(WIRE_NO_ANSWER, 32);
ON_WIRE(WIRE_STARTING, 64);
ON_WIRE(WIRE_LEVEL_MANUAL, 128);
ON_WIRE(WISH_ADD, 0);
ON_WIRE(WISH_REMOVE, 1);
ON_WIRE(WISH_PRIORITY, 2);
ON_WIRE(WISH_TRANSFER, 3);
ON_WIRE(WISH_LEVEL, 4);

#define WIRE_NUMBERS(X)                                                                        \
    X(from)                                                                                    \
    X(term) X(index) X(log_term) X(commit) X(reject) X(conf_index) X(seq) X(flags) X(features)

void peer_message_encode(const struct peer_message *w, struct buf *out)
{
    BELAY_CHECK(w->type != WIRE_NONE);
    BELAY_CHECK(w->n_entries <= WIRE_ENTRIES_MAX);
    buf_put_byte(out, (char)FORMAT_MESSAGE);
    buf_put_byte(out, (char)w->type);
    varint_put(out, w->group_no);
#define X(field) varint_put(out, w->field);
    WIRE_NUMBERS(X)
#undef X
    varint_put_bytes(out, w->conf);
    varint_put_bytes(out, w->data);
    varint_put(out, w->n_entries);
    for (size_t i = 0; i < w->n_entries; i++) {
        varint_put(out, w->entries[i].term);
        buf_put_byte(out, (char)w->entries[i].type);
        varint_put_bytes(out, w->entries[i].data);
    }
}

enum belay_err peer_message_decode(struct slice in, struct arena *a, struct peer_message *ret_w)
{
    struct reader r = {.left = in};
    struct peer_message w = {0};
    if (reader_byte(&r) != FORMAT_MESSAGE)
        return BELAY_ERR_CORRUPT;
    uint8_t type = reader_byte(&r);
    if (type == WIRE_NONE || type >= WIRE_TYPE_COUNT)
        return BELAY_ERR_CORRUPT;
    w.type = (enum wire_type)type;
    uint64_t group_no = reader_u64(&r);
    if (group_no > UINT16_MAX)
        return BELAY_ERR_CORRUPT;
    w.group_no = (uint16_t)group_no;
#define X(field) w.field = reader_u64(&r);
    WIRE_NUMBERS(X)
#undef X
    w.conf = reader_bytes(&r);
    w.data = reader_bytes(&r);
    uint64_t n = reader_u64(&r);
    if (r.bad || n > WIRE_ENTRIES_MAX || n > r.left.len / 3) /* an entry has 3 bytes at least */
        return BELAY_ERR_CORRUPT;
    struct peer_entry *entries = n ? arena_alloc(a, (size_t)n * sizeof *entries) : NULL;
    for (size_t i = 0; i < n; i++) {
        entries[i].term = reader_u64(&r);
        entries[i].type = reader_byte(&r);
        entries[i].data = reader_bytes(&r);
    }
    if (r.bad || r.left.len != 0)
        return BELAY_ERR_CORRUPT;
    w.entries = entries;
    w.n_entries = (size_t)n;
    *ret_w = w;
    return BELAY_OK;
}

void peer_message_put(const struct peer_message *w, struct buf *frame)
{
    struct buf message = {0};
    peer_message_encode(w, &message);
    BELAY_CHECK(!message.oom);
    varint_put_bytes(frame, buf_slice(&message));
    buf_done(&message);
}

enum belay_err peer_message_next(struct slice *frame, struct arena *a,
                                 struct peer_message *ret_w)
{
    BELAY_CHECK(frame->len > 0);
    struct reader in = {.left = *frame};
    struct slice message = reader_bytes(&in);
    if (in.bad)
        return BELAY_ERR_CORRUPT;
    *frame = in.left;
    return peer_message_decode(message, a, ret_w);
}
