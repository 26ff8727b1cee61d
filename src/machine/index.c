/* index.c - the locks of a namespace in the order of their names. */
#include "machine/index.h"

#include "base/check.h"
#include "base/mem.h"
#include "machine/txn_wait.h"

#include <stdlib.h>

struct index_bucket {
    uint32_t n;
    bool sorted;
    char *low; /* every name in here is >= this one, and below the next bucket's */
    size_t low_len;
    struct lock *locks[INDEX_BUCKET];
};

static struct slice low_of(const struct index_bucket *b)
{
    return slice_of(b->low, b->low_len);
}

static struct index_bucket *bucket_at(struct index *ix, size_t at, struct slice low)
{
    BELAY_CHECK(at <= ix->n && ix->n <= ix->cap);
    if (ix->n == ix->cap) {
        ix->cap = ix->cap ? ix->cap * 2 : 4;
        ix->buckets = mem_resize(ix->buckets, ix->cap * sizeof(struct index_bucket *));
    }
    memmove(ix->buckets + at + 1, ix->buckets + at,
            (ix->n - at) * sizeof(struct index_bucket *));
    struct index_bucket *b = mem_alloc(sizeof *b);
    b->n = 0;
    b->sorted = true;
    b->low = mem_dup(low.data, low.len);
    b->low_len = low.len;
    ix->buckets[at] = b;
    ix->n++;
    return b;
}

/* The last bucket whose lowest name is not above `name`. The first bucket's is empty. */
static size_t bucket_of(const struct index *ix, struct slice name)
{
    BELAY_DCHECK(ix->n > 0);
    size_t lo = 0, hi = ix->n;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (slice_cmp(low_of(ix->buckets[mid]), name) <= 0)
            lo = mid;
        else
            hi = mid;
    }
    BELAY_DCHECK(lo < ix->n);
    return lo;
}

static int by_name(const void *a, const void *b)
{
    const struct lock *const *x = a;
    const struct lock *const *y = b;
    return slice_cmp(lock_name(*x), lock_name(*y));
}

static void put(struct index_bucket *b, uint32_t slot, struct lock *lock)
{
    BELAY_DCHECK(slot < INDEX_BUCKET);
    b->locks[slot] = lock;
    lock->bucket = b;
    lock->slot = slot;
}

static void sort(struct index_bucket *b)
{
    BELAY_CHECK(b->n <= INDEX_BUCKET);
    if (b->sorted)
        return;
    qsort(b->locks, b->n, sizeof(struct lock *), by_name);
    for (uint32_t i = 0; i < b->n; i++)
        b->locks[i]->slot = i;
    b->sorted = true;
}

static void split(struct index *ix, size_t at)
{
    struct index_bucket *left = ix->buckets[at];
    BELAY_CHECK(left->n == INDEX_BUCKET);
    sort(left);
    uint32_t half = left->n / 2;
    struct index_bucket *right = bucket_at(ix, at + 1, lock_name(left->locks[half]));
    for (uint32_t i = half; i < left->n; i++)
        put(right, right->n++, left->locks[i]);
    left->n = half;
    BELAY_CHECK(left->n + right->n == INDEX_BUCKET && left->n > 0);
}

void index_add(struct index *ix, struct lock *lock)
{
    BELAY_DCHECK(!lock->bucket);
    struct slice name = lock_name(lock);
    if (ix->n == 0)
        (void)bucket_at(ix, 0, slice_of("", 0));
    size_t at = bucket_of(ix, name);
    if (ix->buckets[at]->n == INDEX_BUCKET) {
        split(ix, at);
        at += slice_cmp(low_of(ix->buckets[at + 1]), name) <= 0;
    }
    struct index_bucket *b = ix->buckets[at];
    b->sorted = b->n == 0 || (b->sorted && slice_cmp(lock_name(b->locks[b->n - 1]), name) < 0);
    BELAY_CHECK(b->n < INDEX_BUCKET);
    BELAY_DCHECK(slice_cmp(low_of(b), name) <= 0);
    put(b, b->n, lock);
    b->n++;
}

static void drop_bucket(struct index *ix, struct index_bucket *b)
{
    BELAY_CHECK(b->n == 0 && ix->n > 0);
    size_t at = bucket_of(ix, low_of(b));
    BELAY_CHECK(ix->buckets[at] == b);
    if (at == 0 && ix->n > 1) { /* the first bucket takes every name below the second */
        ix->buckets[1]->low_len = 0;
    } else if (at == 0) {
        return; /* the last bucket stays, empty */
    }
    memmove(ix->buckets + at, ix->buckets + at + 1,
            (ix->n - at - 1) * sizeof(struct index_bucket *));
    ix->n--;
    free(b->low);
    free(b);
}

void index_remove(struct index *ix, struct lock *lock)
{
    struct index_bucket *b = lock->bucket;
    BELAY_CHECK(b && lock->slot < b->n);
    BELAY_CHECK(b->locks[lock->slot] == lock);
    uint32_t last = --b->n;
    if (lock->slot != last) {
        put(b, lock->slot, b->locks[last]);
        b->sorted = false;
    }
    lock->bucket = NULL;
    if (b->n == 0)
        drop_bucket(ix, b);
}

void index_done(struct index *ix)
{
    for (size_t i = 0; i < ix->n; i++) {
        free(ix->buckets[i]->low);
        free(ix->buckets[i]);
    }
    free(ix->buckets);
    *ix = (struct index){0};
}

struct lock *index_next(const struct index *ix, struct index_place *place)
{
    place->at++;
    while (place->bucket < ix->n && place->at >= ix->buckets[place->bucket]->n) {
        place->bucket++;
        place->at = 0;
    }
    if (place->bucket >= ix->n)
        return NULL;
    BELAY_CHECK(place->at < ix->buckets[place->bucket]->n);
    sort(ix->buckets[place->bucket]);
    return ix->buckets[place->bucket]->locks[place->at];
}

struct lock *index_after(const struct index *ix, struct slice name, bool also,
                         struct index_place *ret_place)
{
    if (ix->n == 0)
        return NULL;
    size_t bucket = bucket_of(ix, name);
    struct index_bucket *b = ix->buckets[bucket];
    sort(b);
    size_t lo = 0, hi = b->n; /* the first that is above */
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = slice_cmp(lock_name(b->locks[mid]), name);
        if (c < 0 || (c == 0 && !also))
            lo = mid + 1;
        else
            hi = mid;
    }
    BELAY_CHECK(lo <= b->n);
    *ret_place = (struct index_place){bucket, lo - 1}; /* index_next() steps onto it */
    return index_next(ix, ret_place);
}
