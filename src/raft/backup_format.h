/* backup_format.h - the bytes of a backup.
 *
 *   backup = head | a snapshot of group 0 | of group 1 | ... | end
 *   part   = magic, version, CRC32C of all that follows | kind, number, length | content
 *
 * Parts are numbered from 0 without gaps, and the end is part of it: what is cut off, left out or
 * exchanged is noticed. The content of a part of a group is a snapshot file as in a data
 * directory, with a checksum of its own. */
#ifndef BELAY_RAFT_BACKUP_FORMAT_H
#define BELAY_RAFT_BACKUP_FORMAT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

enum { BACKUP_FRAME = 32 };

enum backup_kind { BACKUP_HEAD, BACKUP_GROUP, BACKUP_END };

struct backup_head {
    uint64_t id, cluster, node, groups;
    uint64_t wall_ms; /* when it was made */
};

void backup_head_encode(const struct backup_head *head, struct buf *out);
BELAY_MUST_CHECK bool backup_head_decode(struct slice content, struct backup_head *ret);

/* The bytes before the content of part `number`. */
void backup_frame(enum backup_kind kind, uint32_t number, struct slice content,
                  char ret[BACKUP_FRAME]);

/* The part at the begin of `left`, which must have that kind and number; takes it away.
 * BELAY_ERR_NO_PROTO: of a later version. BELAY_ERR_CORRUPT: not sound, or not all there. */
BELAY_MUST_CHECK enum belay_err backup_part(struct slice *left, enum backup_kind kind,
                                            uint32_t number, struct slice *ret_content);
#endif
