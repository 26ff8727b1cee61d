/* entry_log.h - the entries of one Raft group that are still needed, in memory.
 *
 * Indexes are contiguous: first .. first + n - 1. Entries own their bytes. */
#ifndef BELAY_RAFT_ENTRY_LOG_H
#define BELAY_RAFT_ENTRY_LOG_H

#include "base/slice.h"

#include <stddef.h>
#include <stdint.h>

struct log_entry {
    uint64_t term;
    uint64_t lsn; /* the journal batch that makes it durable */
    struct slice data;
    uint8_t type;
};

/* Zero-initialised is empty and valid. */
struct entry_log {
    struct log_entry *slots;
    size_t start, n, cap; /* a ring: cap is 0 or a power of 2 */
    uint64_t first; /* index of the first entry; with n == 0 the next one to come, 0: any */
    uint64_t bytes; /* of data in all */
};

const struct log_entry *entry_log_get(const struct entry_log *l, uint64_t index); /* or NULL */
uint64_t entry_log_last(const struct entry_log *l); /* first - 1 when empty, 0 at first */
/* Adds `e` at `index`, dropping what is there and behind; copies its data. index may be at most
 * one behind the last, or anything when nothing was ever there. */
void entry_log_put(struct entry_log *l, uint64_t index, const struct log_entry *e);
void entry_log_truncate(struct entry_log *l, uint64_t index); /* drops index and behind */
void entry_log_drop_to(struct entry_log *l, uint64_t index);  /* drops up to and with index */
void entry_log_reset(struct entry_log *l, uint64_t next);     /* drops all; `next` comes next */
void entry_log_done(struct entry_log *l);
#endif
