/* index.h - the locks of a namespace in the order of their names, for LIST and snapshots.
 *
 * Two levels: an array of buckets in name order, and in each bucket at most INDEX_BUCKET locks
 * in any order, sorted only when somebody reads. So adding is one search over a small array and
 * removing is a swap (the lock knows its place): a lock that lives for a millisecond pays
 * almost nothing for a listing that comes once a day. */
#ifndef BELAY_MACHINE_INDEX_H
#define BELAY_MACHINE_INDEX_H

#include "base/slice.h"

#include <stddef.h>
#include <stdint.h>

enum { INDEX_BUCKET = 256 };

struct lock;
struct index_bucket;

struct index {
    struct index_bucket **buckets; /* by their lowest possible name */
    size_t n, cap;
};

void index_add(struct index *ix, struct lock *lock);
void index_remove(struct index *ix, struct lock *lock);
void index_done(struct index *ix); /* frees the buckets, not the locks */

/* Walks in name order. index_after() gives the first lock whose name is above `name` (or equal,
 * with `also`), NULL at the end; *ret_bucket and *ret_at are the place for index_next().
 * Sorting a bucket moves locks inside it and changes nothing that a user sees: hence const. */
struct index_place {
    size_t bucket, at;
};
struct lock *index_after(const struct index *ix, struct slice name, bool also,
                         struct index_place *ret_place);
struct lock *index_next(const struct index *ix, struct index_place *place);
#endif
