/* sim_disk.h - a disk in memory that can break in the middle of anything.
 *
 * `crash_in` counts down with every change; the one that makes it 0 happens in part (a write
 * keeps a random choice of its sectors, a rename happens or not), and from then on everything
 * fails, as for a process that is dead. sim_disk_revive() is the next start. Copies are cheap
 * enough to keep. */
#ifndef BELAY_TESTS_SIM_DISK_H
#define BELAY_TESTS_SIM_DISK_H

#include "base/mem.h"
#include "storage/disk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIM_DISK_FILES = 1024, SIM_DISK_SECTOR = 512 };

struct sim_file {
    char name[DISK_NAME_MAX];
    struct buf bytes;
    bool used;
};

struct sim_disk {
    struct disk base;
    struct sim_file files[SIM_DISK_FILES];
    uint64_t changes;  /* so far */
    uint64_t crash_in; /* 0: never */
    int fail_errno;    /* not 0: the crash point is an error instead */
    unsigned rolls; /* not 0: of so many new segments one is the last thing before an error */
    bool dead;
    bool full;         /* nothing new fits */
    uint64_t reserved; /* bytes of the reserve */
    uint64_t random;
};

static inline struct sim_disk *sim_disk_of(struct disk *d)
{
    return (struct sim_disk *)(void *)d;
}

static inline uint64_t sim_disk_random(struct sim_disk *d)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return d->random;
}

static inline struct sim_file *sim_disk_find(struct sim_disk *d, const char *name, bool make)
{
    struct sim_file *free_slot = NULL;
    for (size_t i = 0; i < SIM_DISK_FILES; i++) {
        struct sim_file *f = &d->files[i];
        if (f->used && strcmp(f->name, name) == 0)
            return f;
        if (!f->used && !free_slot)
            free_slot = f;
    }
    if (!make)
        return NULL;
    BELAY_CHECK(free_slot);
    snprintf(free_slot->name, sizeof free_slot->name, "%s", name);
    free_slot->used = true;
    return free_slot;
}

enum sim_fate { SIM_FINE, SIM_PART, SIM_NOTHING };

static inline enum sim_fate sim_disk_change(struct sim_disk *d)
{
    if (d->dead) {
        errno = EIO;
        return SIM_NOTHING;
    }
    d->changes++;
    if (d->crash_in == 0 || --d->crash_in > 0)
        return SIM_FINE;
    d->dead = true;
    errno = d->fail_errno ? d->fail_errno : EIO;
    return SIM_PART;
}

static inline enum belay_err sim_disk_list(struct disk *base,
                                           void (*each)(void *ctx, const char *name), void *ctx)
{
    struct sim_disk *d = sim_disk_of(base);
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        if (d->files[i].used)
            each(ctx, d->files[i].name);
    return BELAY_OK;
}

static inline enum belay_err sim_disk_read(struct disk *base, const char *name, struct buf *out)
{
    struct sim_file *f = sim_disk_find(sim_disk_of(base), name, false);
    if (!f)
        return BELAY_ERR_NOT_FOUND;
    buf_put_slice(out, buf_slice(&f->bytes));
    return BELAY_OK;
}

static inline enum belay_err sim_disk_map(struct disk *base, const char *name,
                                          struct slice *ret_bytes)
{
    struct sim_file *f = sim_disk_find(sim_disk_of(base), name, false);
    if (!f)
        return BELAY_ERR_NOT_FOUND;
    *ret_bytes = buf_slice(&f->bytes);
    return BELAY_OK;
}

static inline void sim_disk_unmap(struct disk *base, struct slice bytes)
{
    (void)base, (void)bytes;
}

static inline enum belay_err sim_disk_size(struct disk *base, const char *name,
                                           uint64_t *ret_bytes)
{
    struct sim_file *f = sim_disk_find(sim_disk_of(base), name, false);
    if (!f)
        return BELAY_ERR_NOT_FOUND;
    *ret_bytes = buf_len(&f->bytes);
    return BELAY_OK;
}

static inline enum belay_err sim_disk_read_at(struct disk *base, const char *name, uint64_t at,
                                              size_t len, struct buf *out)
{
    struct sim_file *f = sim_disk_find(sim_disk_of(base), name, false);
    if (!f)
        return BELAY_ERR_NOT_FOUND;
    struct slice all = buf_slice(&f->bytes);
    if (at < all.len)
        buf_put(out, all.data + at, all.len - at < len ? (size_t)(all.len - at) : len);
    return BELAY_OK;
}

static inline enum belay_err sim_disk_replace(struct disk *base, const char *name,
                                              struct slice data, uint64_t bytes)
{
    struct sim_disk *d = sim_disk_of(base);
    enum sim_fate fate = sim_disk_change(d);
    if (fate == SIM_NOTHING || (fate == SIM_PART && sim_disk_random(d) % 2))
        return BELAY_ERR_IO;
    struct sim_file *f = sim_disk_find(d, name, true);
    buf_clear(&f->bytes);
    buf_put_slice(&f->bytes, data);
    while (buf_len(&f->bytes) < bytes) {
        static const char zeros[4096];
        uint64_t left = bytes - buf_len(&f->bytes);
        buf_put(&f->bytes, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros);
    }
    return fate == SIM_FINE ? BELAY_OK : BELAY_ERR_IO;
}

static inline enum belay_err sim_disk_no_space(void)
{
    errno = ENOSPC;
    return BELAY_ERR_IO;
}

static inline enum belay_err sim_disk_create(struct disk *base, const char *name,
                                             struct slice head, uint64_t bytes)
{
    struct sim_disk *d = sim_disk_of(base);
    if (d->full && d->reserved < bytes)
        return sim_disk_no_space();
    enum belay_err err = sim_disk_replace(base, name, head, bytes);
    if (d->full && sim_disk_find(d, name, false))
        d->reserved = 0; /* it has become the file */
    if (err == BELAY_OK && d->rolls && d->crash_in == 0 && sim_disk_random(d) % d->rolls == 0) {
        d->crash_in = 1 + sim_disk_random(d) % 3;
        d->fail_errno = EIO;
    }
    return err;
}

static inline enum belay_err sim_disk_reserve(struct disk *base, uint64_t bytes,
                                              uint64_t *ret_free)
{
    struct sim_disk *d = sim_disk_of(base);
    *ret_free = d->full ? 0 : UINT64_MAX;
    if (d->full && d->reserved < bytes)
        return BELAY_ERR_LIMIT;
    if (d->reserved < bytes && sim_disk_change(d) != SIM_FINE)
        return BELAY_ERR_IO;
    d->reserved = bytes;
    return BELAY_OK;
}

static inline enum belay_err sim_disk_put(struct disk *base, const char *name,
                                          struct slice data)
{
    if (sim_disk_of(base)->full && data.len > DISK_SMALL_BYTES)
        return sim_disk_no_space();
    return sim_disk_replace(base, name, data, 0);
}

static inline enum belay_err sim_disk_write(struct disk *base, const char *name, uint64_t at,
                                            struct slice data)
{
    struct sim_disk *d = sim_disk_of(base);
    enum sim_fate fate = sim_disk_change(d);
    struct sim_file *f = sim_disk_find(d, name, false);
    if (fate == SIM_NOTHING || !f)
        return BELAY_ERR_IO;
    BELAY_CHECK(at + data.len <= buf_len(&f->bytes));
    char *to = f->bytes.mem + f->bytes.start + at;
    for (size_t i = 0; i < data.len; i += SIM_DISK_SECTOR) {
        size_t n = data.len - i < SIM_DISK_SECTOR ? data.len - i : SIM_DISK_SECTOR;
        if (fate == SIM_FINE || sim_disk_random(d) % 2)
            memcpy(to + i, data.data + i, n);
    }
    return fate == SIM_FINE ? BELAY_OK : BELAY_ERR_IO;
}

static inline enum belay_err sim_disk_extend(struct disk *base, const char *name, uint64_t at,
                                             struct slice data)
{
    struct sim_disk *d = sim_disk_of(base);
    if (d->full)
        return sim_disk_no_space();
    enum sim_fate fate = sim_disk_change(d);
    if (fate == SIM_NOTHING)
        return BELAY_ERR_IO;
    struct sim_file *f = sim_disk_find(d, name, at == 0);
    BELAY_CHECK(f);
    if (at == 0)
        buf_clear(&f->bytes);
    BELAY_CHECK(at == buf_len(&f->bytes));
    buf_put(&f->bytes, data.data,
            fate == SIM_FINE ? data.len : (size_t)(sim_disk_random(d) % data.len));
    return fate == SIM_FINE ? BELAY_OK : BELAY_ERR_IO;
}

static inline enum belay_err sim_disk_rename(struct disk *base, const char *from,
                                             const char *to)
{
    struct sim_disk *d = sim_disk_of(base);
    enum sim_fate fate = sim_disk_change(d);
    struct sim_file *f = sim_disk_find(d, from, false);
    struct sim_file *old = sim_disk_find(d, to, false);
    if (fate == SIM_NOTHING || !f || (fate == SIM_PART && sim_disk_random(d) % 2))
        return BELAY_ERR_IO;
    if (old) {
        buf_done(&old->bytes);
        old->used = false;
    }
    snprintf(f->name, sizeof f->name, "%s", to);
    return fate == SIM_FINE ? BELAY_OK : BELAY_ERR_IO;
}

static inline enum belay_err sim_disk_remove(struct disk *base, const char *name)
{
    struct sim_disk *d = sim_disk_of(base);
    enum sim_fate fate = sim_disk_change(d);
    struct sim_file *f = sim_disk_find(d, name, false);
    if (fate == SIM_NOTHING || (fate == SIM_PART && sim_disk_random(d) % 2))
        return BELAY_ERR_IO;
    if (f) {
        buf_done(&f->bytes);
        f->used = false;
    }
    return fate == SIM_FINE ? BELAY_OK : BELAY_ERR_IO;
}

static inline enum belay_err sim_disk_recycle(struct disk *base, const char *name)
{
    struct sim_disk *d = sim_disk_of(base);
    const struct sim_file *f = sim_disk_find(d, name, false);
    uint64_t bytes = f ? buf_len(&f->bytes) : 0;
    enum belay_err err = sim_disk_remove(base, name);
    if (!sim_disk_find(d, name, false) && d->reserved == 0)
        d->reserved = bytes;
    return err;
}

static inline void sim_disk_wipe(struct sim_disk *d)
{
    for (size_t i = 0; i < SIM_DISK_FILES; i++) {
        buf_done(&d->files[i].bytes);
        d->files[i].used = false;
    }
    d->full = false;
    d->reserved = 0;
}

static inline void sim_disk_keep(struct disk *base) /* a node's end is not the disk's end */
{
    (void)base;
}

static inline void sim_disk_init(struct sim_disk *d, uint64_t seed)
{
    static const struct disk_ops ops = {.list = sim_disk_list,
                                        .read = sim_disk_read,
                                        .size = sim_disk_size,
                                        .read_at = sim_disk_read_at,
                                        .map = sim_disk_map,
                                        .unmap = sim_disk_unmap,
                                        .create = sim_disk_create,
                                        .write = sim_disk_write,
                                        .put = sim_disk_put,
                                        .extend = sim_disk_extend,
                                        .rename = sim_disk_rename,
                                        .remove = sim_disk_remove,
                                        .recycle = sim_disk_recycle,
                                        .reserve = sim_disk_reserve,
                                        .close = sim_disk_keep};
    memset(d, 0, sizeof *d);
    d->base.ops = &ops;
    d->random = seed | 1;
}

static inline void sim_disk_revive(struct sim_disk *d)
{
    d->dead = false;
    d->crash_in = 0;
    d->fail_errno = 0;
}

static inline void sim_disk_copy(struct sim_disk *to, const struct sim_disk *from)
{
    sim_disk_wipe(to);
    for (size_t i = 0; i < SIM_DISK_FILES; i++)
        if (from->files[i].used)
            buf_put_slice(&sim_disk_find(to, from->files[i].name, true)->bytes,
                          buf_slice(&from->files[i].bytes));
}
#endif
