/* peer_frame.c - the bytes of frames and hellos; no sockets. */
#include "base/buf.h"
#include "base/format.h"
#include "base/hash.h"
#include "machine/varint.h"
#include "net/peer.h"
#include "raft/place.h"

#include <string.h>

enum { FRAME_HEAD = 8, REFUSED_OVER = 2 };
static const char HELLO_MAGIC[8] = {'B', 'E', 'L', 'A', 'Y', 'P', 'R', '1'};
static const char REFUSAL_MAGIC[8] = {'B', 'E', 'L', 'A', 'Y', 'N', 'O', '1'};

static uint32_t u32_at(const char *p)
{
    uint32_t v = 0;
    for (int i = 3; i >= 0; i--)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

void peer_frame_put(struct buf *out, struct slice frame)
{
    BELAY_CHECK(frame.len > 0);
    BELAY_CHECK(frame.len <= PEER_FRAME_MAX);
    char head[FRAME_HEAD];
    uint32_t crc = crc32c(0, frame.data, frame.len);
    for (int i = 0; i < 4; i++) {
        head[i] = (char)(frame.len >> (8 * i));
        head[4 + i] = (char)(crc >> (8 * i));
    }
    buf_put(out, head, sizeof head);
    buf_put_slice(out, frame);
}

int peer_frame_next(struct slice in, struct slice *ret_frame, size_t *ret_used)
{
    if (in.len < 4)
        return 0;
    uint32_t len = u32_at(in.data);
    if (len == 0 || len > PEER_FRAME_MAX)
        return -1;
    if (in.len < (size_t)FRAME_HEAD + len)
        return 0;
    *ret_frame = slice_of(in.data + FRAME_HEAD, len);
    *ret_used = (size_t)FRAME_HEAD + len;
    return crc32c(0, ret_frame->data, len) == u32_at(in.data + 4) ? 1 : -1;
}

void peer_hello_encode(const struct peer_hello *h, struct buf *out)
{
    buf_put(out, HELLO_MAGIC, sizeof HELLO_MAGIC);
    buf_put_byte(out, FORMAT_HELLO);
    varint_put(out, h->cluster);
    varint_put(out, h->node);
    varint_put(out, h->start);
    varint_put(out, h->incarnation);
    varint_put(out, h->groups);
    varint_put_bytes(out, slice_str(h->name));
    varint_put_bytes(out, slice_str(h->listen));
    varint_put_bytes(out, slice_str(h->peer));
    if (*h->secret)
        varint_put_bytes(out, slice_str(h->secret));
}

static bool take_text(struct reader *r, char *out, size_t cap)
{
    struct slice s = reader_bytes(r);
    if (r->bad || s.len >= cap || memchr(s.data, 0, s.len))
        return false;
    memcpy(out, s.data, s.len);
    out[s.len] = '\0';
    return true;
}

enum belay_err peer_hello_decode(struct slice in, struct peer_hello *ret)
{
    struct peer_hello h = {0};
    if (in.len < sizeof HELLO_MAGIC || memcmp(in.data, HELLO_MAGIC, sizeof HELLO_MAGIC) != 0)
        return BELAY_ERR_CORRUPT;
    struct reader r = {.left = slice_of(in.data + 8, in.len - 8)};
    if (reader_byte(&r) != FORMAT_HELLO)
        return BELAY_ERR_CORRUPT;
    h.cluster = reader_u64(&r);
    h.node = reader_u64(&r);
    h.start = reader_u64(&r);
    h.incarnation = reader_u64(&r);
    h.groups = reader_u64(&r);
    if (r.bad || place_of(h.node) == 0)
        return BELAY_ERR_CORRUPT;
    if (!take_text(&r, h.name, sizeof h.name) || !take_text(&r, h.listen, sizeof h.listen) ||
        !take_text(&r, h.peer, sizeof h.peer))
        return BELAY_ERR_CORRUPT;
    bool more = r.left.len > 0;
    if (more && (!take_text(&r, h.secret, sizeof h.secret) || !*h.secret || r.left.len > 0))
        return BELAY_ERR_CORRUPT;
    *ret = h;
    return BELAY_OK;
}

void peer_refusal_encode(const struct peer_refusal *r, struct buf *out)
{
    buf_put(out, REFUSAL_MAGIC, sizeof REFUSAL_MAGIC);
    buf_put_byte(out, (char)(r->over ? REFUSED_OVER : r->removed));
    varint_put_bytes(out, slice_str(r->why));
}

enum belay_err peer_refusal_decode(struct slice in, struct peer_refusal *ret)
{
    struct peer_refusal refusal = {0};
    if (in.len < sizeof REFUSAL_MAGIC ||
        memcmp(in.data, REFUSAL_MAGIC, sizeof REFUSAL_MAGIC) != 0)
        return BELAY_ERR_CORRUPT;
    struct reader r = {.left = slice_of(in.data + 8, in.len - 8)};
    uint8_t what = reader_byte(&r);
    if (what > REFUSED_OVER || !take_text(&r, refusal.why, sizeof refusal.why) ||
        r.left.len != 0)
        return BELAY_ERR_CORRUPT;
    refusal.removed = what == 1;
    refusal.over = what == REFUSED_OVER;
    *ret = refusal;
    return BELAY_OK;
}
