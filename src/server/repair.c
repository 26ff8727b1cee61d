/* repair.c - see repair.h. */
#include "server/repair.h"

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/server.h"
#include "server/survivor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 4096, TRIES = 1000 };

struct repair {
    struct disk *disk;
    struct inspection found;
    char dir[PATH_MAX_BYTES], aside[PATH_MAX_BYTES];
};

enum belay_err repair_open(const char *dir, struct repair **ret)
{
    struct repair *r = mem_zalloc(sizeof *r);
    enum belay_err err = BELAY_ERR_TOO_BIG;
    log_set_level(LOG_NONE); /* what is found is told in the report */
    if (snprintf(r->dir, sizeof r->dir, "%s", dir) < (int)sizeof r->dir)
        err = disk_file_look(dir, &r->disk);
    if (err == BELAY_OK)
        err = inspect_open(r->disk, &r->found);
    if (err == BELAY_OK) {
        *ret = r;
        return BELAY_OK;
    }
    int saved = errno;
    repair_close(r);
    errno = saved;
    return err;
}

void repair_close(struct repair *r)
{
    if (!r)
        return;
    inspect_close(&r->found);
    if (r->disk)
        r->disk->ops->close(r->disk);
    free(r);
}

enum belay_err repair_reset_login(const char *dir)
{
    struct disk *disk;
    struct inspection found = {0};
    enum belay_err err = disk_file_look(dir, &disk);
    if (err != BELAY_OK)
        return err;
    err = inspect_list(disk, &found);
    inspect_close(&found);
    if (err == BELAY_OK)
        err = disk->ops->put(disk, LOGIN_RESET_FILE, SLICE(""));
    int saved = errno;
    disk->ops->close(disk);
    errno = saved;
    return err;
}

const struct inspection *repair_found(const struct repair *r)
{
    return &r->found;
}

const char *repair_aside(const struct repair *r)
{
    return r->aside;
}

/* A directory of that name in `dir`, with a number that is free. Names with a dot are not
 * looked at by a server. */
static enum belay_err make_dir(const char *dir, const char *name, char path[PATH_MAX_BYTES])
{
    for (int i = 1; i <= TRIES; i++) {
        if (snprintf(path, PATH_MAX_BYTES, "%s/.%s-%d", dir, name, i) >= PATH_MAX_BYTES)
            return BELAY_ERR_TOO_BIG;
        if (mkdir(path, 0700) == 0)
            return BELAY_OK;
        if (errno != EEXIST)
            return BELAY_ERR_IO;
    }
    return BELAY_ERR_LIMIT;
}

static enum belay_err sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok ? BELAY_OK : BELAY_ERR_IO;
}

static enum belay_err move_file(const char *from, const char *to, const char *name)
{
    char a[PATH_MAX_BYTES + DISK_NAME_MAX];
    char b[PATH_MAX_BYTES + DISK_NAME_MAX];
    snprintf(a, sizeof a, "%s/%s", from, name);
    snprintf(b, sizeof b, "%s/%s", to, name);
    return rename(a, b) == 0 ? BELAY_OK : BELAY_ERR_IO;
}

/* The identity goes last, in both directions: without it no node starts from what is half
 * moved. */
static enum belay_err move_all(const struct inspection *files, const char *from, const char *to)
{
    enum belay_err err = BELAY_OK;
    for (size_t i = files->n_files; i > 0 && err == BELAY_OK; i--)
        if (files->files[i - 1].state != INSPECT_MISSING)
            err = move_file(from, to, files->files[i - 1].name);
    if (err == BELAY_OK)
        err = sync_dir(to);
    return err == BELAY_OK ? sync_dir(from) : err;
}

enum belay_err repair_rejoin(struct repair *r)
{
    enum belay_err err = make_dir(r->dir, "aside", r->aside);
    return err == BELAY_OK ? move_all(&r->found, r->dir, r->aside) : err;
}

/* Is what was made sound? Then it takes the place of what was there. */
static enum belay_err replace(struct repair *r, const char *made, struct disk *disk)
{
    struct inspection in;
    enum belay_err err = inspect_open(disk, &in);
    if (err != BELAY_OK)
        return err;
    if (!in.starts)
        err = BELAY_ERR_CORRUPT;
    if (err == BELAY_OK)
        err = make_dir(r->dir, "aside", r->aside);
    if (err == BELAY_OK)
        err = r->disk->ops->put(r->disk, inspect_replacing, SLICE(""));
    if (err == BELAY_OK)
        err = move_all(&r->found, r->dir, r->aside);
    if (err == BELAY_OK)
        err = move_all(&in, made, r->dir);
    if (err == BELAY_OK)
        (void)r->disk->ops->remove(r->disk, inspect_replacing);
    inspect_close(&in);
    return err;
}

static enum belay_err make(struct repair *r, const char *made, uint64_t seed, bool survives,
                           struct disk **disk)
{
    const struct inspection *in = &r->found;
    if (!survives)
        return inspect_salvage(in, *disk, seed);
    enum belay_err err = inspect_survive(in, *disk, seed);
    if (err == BELAY_OK)
        err = survivor_check(*disk, in->node);
    else
        (*disk)->ops->close(*disk);
    enum belay_err again = disk_file_open(made, disk);
    return err == BELAY_OK ? again : err;
}

static enum belay_err build(struct repair *r, bool survives)
{
    char made[PATH_MAX_BYTES];
    struct disk *disk;
    uint64_t seed;
    BELAY_CHECK(getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed);
    enum belay_err err = make_dir(r->dir, "salvaged", made);
    if (err == BELAY_OK)
        err = disk_file_open(made, &disk);
    if (err != BELAY_OK)
        return err;
    err = make(r, made, seed >> 1 | 1, survives, &disk);
    if (err == BELAY_OK)
        err = replace(r, made, disk);
    int saved = errno;
    disk_file_discard(disk, made); /* what has not taken its place: the reserve, or all of it */
    errno = saved;
    return err;
}

enum belay_err repair_salvage(struct repair *r)
{
    return build(r, false);
}

enum belay_err repair_survive(struct repair *r)
{
    return build(r, true);
}
