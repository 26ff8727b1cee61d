/* disk.h - the few things the durable engine asks of a disk, as a table of functions.
 *
 * The real one (disk_file.c) is a directory; the simulator has one that loses and tears what
 * was not yet durable. All functions block, and all that change something are durable when they
 * return BELAY_OK. After any error nothing may be assumed about what is on the disk, and
 * nothing is retried: an fsync that failed once and succeeds later has lost data in between.
 * A disk that is full is no failure where a function says so: reserve(), and put() of up to
 * DISK_SMALL_BYTES over a file that was put twice before, which takes no more space.
 * One caller at a time for one file; different files may be used from different threads, but
 * only one of them is write()'s. */
#ifndef BELAY_STORAGE_DISK_H
#define BELAY_STORAGE_DISK_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_NAME_MAX = 64, DISK_SMALL_BYTES = 4096 };

struct disk;
struct disk_ops {
    /* Every file that is no directory, in no order; `name` is borrowed. */
    enum belay_err (*list)(struct disk *d, void (*each)(void *ctx, const char *name),
                           void *ctx);
    enum belay_err (*read)(struct disk *d, const char *name, struct buf *out);
    enum belay_err (*size)(struct disk *d, const char *name, uint64_t *ret_bytes);
    /* `len` bytes from `at` on, or as many as there are. */
    enum belay_err (*read_at)(struct disk *d, const char *name, uint64_t at, size_t len,
                              struct buf *out);
    /* As read(), without a copy in memory, until unmap(). When the disk fails later, looking at
     * the bytes stops the process. */
    enum belay_err (*map)(struct disk *d, const char *name, struct slice *ret_bytes);
    void (*unmap)(struct disk *d, struct slice bytes);
    /* A new file of `bytes` zeros behind `head`; it has its name only when it is complete.
     * On a full disk the reserve becomes that file, if it is large enough. */
    enum belay_err (*create)(struct disk *d, const char *name, struct slice head,
                             uint64_t bytes);
    /* Overwrites bytes of a file that create() made; behind them are zeros, and stay so. */
    enum belay_err (*write)(struct disk *d, const char *name, uint64_t at, struct slice data);
    /* Replaces a whole file, or makes it: the old bytes or the new ones, never a mixture. */
    enum belay_err (*put)(struct disk *d, const char *name, struct slice data);
    /* A file that grows: `at` is where it ends, 0 makes it or empties it. After a crash its
     * last bytes may be missing or wrong. */
    enum belay_err (*extend)(struct disk *d, const char *name, uint64_t at, struct slice data);
    enum belay_err (*rename)(struct disk *d, const char *from, const char *to);
    /* Sees to it that there is a reserve of `bytes`, for create(). BELAY_ERR_LIMIT: there is no
     * space for it, *ret_free is what there is. Of the thread that calls create(). */
    enum belay_err (*reserve)(struct disk *d, uint64_t bytes, uint64_t *ret_free);
    enum belay_err (*remove)(struct disk *d, const char *name);
    /* A file of create()'s that nothing was written to is not needed: it becomes the reserve if
     * there is none, else it goes. */
    enum belay_err (*recycle)(struct disk *d, const char *name);
    void (*close)(struct disk *d);
};

struct disk {
    const struct disk_ops *ops;
};

/* The directory `path`, made if it is absent, locked against a second process. What a crash
 * left half made in it goes. BELAY_ERR_IN_USE: another process has it. BELAY_ERR_IO: errno says
 * why. */
BELAY_MUST_CHECK enum belay_err disk_file_open(const char *path, struct disk **ret_disk);

/* One that is there, to look at: nothing is made, not even the lock, which is taken if there is
 * one. BELAY_ERR_NOT_FOUND: it is not there. */
BELAY_MUST_CHECK enum belay_err disk_file_look(const char *path, struct disk **ret_disk);

/* The name of a file that was being made when the process ended. */
bool disk_file_is_half_made(const char *name);

/* Closes it, and removes all files in it, also those that list() leaves out; and its directory
 * `path`, if that is not NULL. What cannot be removed stays. */
void disk_file_discard(struct disk *d, const char *path);

/* Looks whether there is a directory `path`, and any file in it, also those that list() leaves
 * out. Changes nothing. */
BELAY_MUST_CHECK enum belay_err disk_file_has_any(const char *path, bool *ret_there,
                                                  bool *ret_any);

/* In a forked child: it must not keep the lock when its parent dies. */
void disk_file_forget_lock(struct disk *d);
#endif
