/* backup_format.c - see backup_format.h. */
#include "raft/backup_format.h"

#include "base/check.h"
#include "base/format.h"
#include "base/hash.h"
#include "machine/varint.h"

#include <string.h>

static const char MAGIC[8] = {'B', 'E', 'L', 'A', 'Y', 'B', 'K', '1'};
enum { AT_VERSION = 8, AT_CRC = 12, AT_KIND = 16, AT_NUMBER = 20, AT_LENGTH = 24 };

void backup_head_encode(const struct backup_head *head, struct buf *out)
{
    BELAY_CHECK(head->id != 0 && head->groups > 0);
    varint_put(out, head->id);
    varint_put(out, head->cluster);
    varint_put(out, head->node);
    varint_put(out, head->groups);
    varint_put(out, head->wall_ms);
}

bool backup_head_decode(struct slice content, struct backup_head *ret)
{
    struct reader in = {.left = content};
    *ret = (struct backup_head){.id = reader_u64(&in)};
    ret->cluster = reader_u64(&in);
    ret->node = reader_u64(&in);
    ret->groups = reader_u64(&in);
    ret->wall_ms = reader_u64(&in);
    return !in.bad && in.left.len == 0 && ret->id != 0 && ret->groups > 0;
}

static void put_at(char *p, size_t bytes, uint64_t v)
{
    BELAY_DCHECK(bytes == sizeof v || v >> (8 * bytes) == 0);
    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)(v >> (8 * i));
}

static uint64_t get_at(const char *p, size_t bytes)
{
    uint64_t v = 0;
    BELAY_DCHECK(bytes <= sizeof v);
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static uint32_t sum(const char *frame, struct slice content)
{
    uint32_t crc = crc32c(0, frame + AT_KIND, BACKUP_FRAME - AT_KIND);
    return crc32c(crc, content.data, content.len);
}

void backup_frame(enum backup_kind kind, uint32_t number, struct slice content,
                  char ret[BACKUP_FRAME])
{
    BELAY_CHECK((kind == BACKUP_HEAD) == (number == 0));
    memcpy(ret, MAGIC, sizeof MAGIC);
    put_at(ret + AT_VERSION, 4, FORMAT_BACKUP);
    put_at(ret + AT_KIND, 4, kind);
    put_at(ret + AT_NUMBER, 4, number);
    put_at(ret + AT_LENGTH, 8, content.len);
    put_at(ret + AT_CRC, 4, sum(ret, content));
}

enum belay_err backup_part(struct slice *left, enum backup_kind kind, uint32_t number,
                           struct slice *ret_content)
{
    BELAY_DCHECK((kind == BACKUP_HEAD) == (number == 0));
    const char *frame = left->data;
    if (left->len < BACKUP_FRAME || memcmp(frame, MAGIC, sizeof MAGIC) != 0)
        return BELAY_ERR_CORRUPT;
    uint64_t version = get_at(frame + AT_VERSION, 4);
    if (version > FORMAT_BACKUP)
        return BELAY_ERR_NO_PROTO;
    if (version < FORMAT_BACKUP_OLDEST)
        return BELAY_ERR_CORRUPT;
    uint64_t len = get_at(frame + AT_LENGTH, 8);
    if (get_at(frame + AT_KIND, 4) != (uint64_t)kind ||
        get_at(frame + AT_NUMBER, 4) != number || len > left->len - BACKUP_FRAME)
        return BELAY_ERR_CORRUPT;
    struct slice content = slice_of(frame + BACKUP_FRAME, (size_t)len);
    if (get_at(frame + AT_CRC, 4) != sum(frame, content))
        return BELAY_ERR_CORRUPT;
    *left = slice_of(content.data + len, left->len - BACKUP_FRAME - (size_t)len);
    *ret_content = content;
    return BELAY_OK;
}
