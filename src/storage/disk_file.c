/* disk_file.c - a directory as a disk. */
#include "storage/disk.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK_NAME    "lock"
#define RESERVE_NAME "reserve"
enum { AHEAD_BYTES = 1 << 20, DIRECT_ALIGN = 4096, PIECE_BYTES = 64 << 10 };

struct disk_file {
    struct disk base;
    int dir;
    int lock;
    int open; /* the file that is being written, kept open between writes; -1: none */
    char open_name[DISK_NAME_MAX];
    uint64_t open_bytes; /* its size */
    uint64_t written;    /* how far it is, with zeros at least; 0: not known */
    char *piece;         /* PIECE_BYTES, aligned; shared, for the process forks meanwhile */
};

static struct disk_file *self(struct disk *d)
{
    return (struct disk_file *)(void *)d;
}

static bool write_all(int fd, struct slice data, off_t at)
{
    while (data.len > 0) {
        ssize_t n = pwrite(fd, data.data, data.len, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return false;
        }
        BELAY_CHECK((size_t)n <= data.len);
        data.data += n;
        data.len -= (size_t)n;
        at += n;
    }
    return true;
}

/* Past the page cache, which would only be a copy, and a quarter of the cost of a write. What
 * cannot be written so (the file system, the size of its blocks) goes through it. The memory is
 * aligned. */
static bool write_direct(const struct disk_file *f, struct slice data, uint64_t at)
{
    BELAY_CHECK(data.len > 0);
    if (write_all(f->open, data, (off_t)at))
        return true;
    int saved = errno;
    int flags = fcntl(f->open, F_GETFL);
    if (saved != EINVAL || flags < 0 || !(flags & O_DIRECT) ||
        fcntl(f->open, F_SETFL, flags & ~O_DIRECT) != 0) {
        errno = saved;
        return false;
    }
    return write_all(f->open, data, (off_t)at);
}

static bool write_pieces(struct disk_file *f, struct slice data, uint64_t at)
{
    while (data.len > 0) {
        size_t n = data.len < PIECE_BYTES ? data.len : PIECE_BYTES;
        BELAY_CHECK(n > 0 && n <= PIECE_BYTES);
        memcpy(f->piece, data.data, n);
        if (!write_direct(f, slice_of(f->piece, n), at))
            return false;
        data = slice_of(data.data + n, data.len - n);
        at += n;
    }
    return true;
}

/* The name of a file until it is complete. */
#define HALF_MADE ".new"

static void half_made(const char *name, char ret[DISK_NAME_MAX + 8])
{
    BELAY_CHECK(name[0] && strlen(name) < DISK_NAME_MAX);
    snprintf(ret, DISK_NAME_MAX + 8, "%s" HALF_MADE, name);
}

bool disk_file_is_half_made(const char *name)
{
    size_t len = strlen(name);
    size_t end = strlen(HALF_MADE);
    return len > end && strcmp(name + len - end, HALF_MADE) == 0;
}

static bool is_folder(int dir, const struct dirent *e)
{
    struct stat st;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    return fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static enum belay_err file_list(struct disk *d, void (*each)(void *ctx, const char *name),
                                void *ctx)
{
    int fd = openat(self(d)->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return BELAY_ERR_IO;
    }
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        size_t len = strlen(e->d_name);
        if (e->d_name[0] == '.' || len >= DISK_NAME_MAX || strcmp(e->d_name, LOCK_NAME) == 0 ||
            strcmp(e->d_name, RESERVE_NAME) == 0 || is_folder(fd, e))
            continue;
        each(ctx, e->d_name);
    }
    closedir(dir);
    return BELAY_OK;
}

static enum belay_err file_read(struct disk *d, const char *name, struct buf *out)
{
    int fd = openat(self(d)->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? BELAY_ERR_NOT_FOUND : BELAY_ERR_IO;
    struct stat st;
    enum belay_err err = BELAY_ERR_IO;
    if (fstat(fd, &st) != 0 || !buf_reserve(out, (size_t)st.st_size + 1))
        goto out;
    for (;;) {
        if (!buf_reserve(out, 1))
            goto out;
        ssize_t n = read(fd, out->mem + out->end, out->cap - out->end);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            goto out;
        if (n == 0)
            break;
        out->end += (size_t)n;
        BELAY_CHECK(out->end <= out->cap);
    }
    err = BELAY_OK;
out:
    close(fd);
    return err;
}

static enum belay_err file_size(struct disk *d, const char *name, uint64_t *ret_bytes)
{
    BELAY_CHECK(name[0]);
    struct stat st;
    if (fstatat(self(d)->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? BELAY_ERR_NOT_FOUND : BELAY_ERR_IO;
    *ret_bytes = (uint64_t)st.st_size;
    return BELAY_OK;
}

static enum belay_err file_read_at(struct disk *d, const char *name, uint64_t at, size_t len,
                                   struct buf *out)
{
    int fd = openat(self(d)->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? BELAY_ERR_NOT_FOUND : BELAY_ERR_IO;
    bool ok = buf_reserve(out, len);
    while (ok && len > 0) {
        ssize_t n = pread(fd, out->mem + out->end, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        ok = n >= 0;
        if (n <= 0)
            break;
        BELAY_CHECK((size_t)n <= len);
        out->end += (size_t)n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    close(fd);
    return ok ? BELAY_OK : BELAY_ERR_IO;
}

static enum belay_err file_map(struct disk *d, const char *name, struct slice *ret_bytes)
{
    int fd = openat(self(d)->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? BELAY_ERR_NOT_FOUND : BELAY_ERR_IO;
    struct stat st;
    void *mem = MAP_FAILED;
    *ret_bytes = slice_of("", 0);
    bool ok = fstat(fd, &st) == 0;
    if (ok && st.st_size > 0)
        mem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mem != MAP_FAILED)
        *ret_bytes = slice_of(mem, (size_t)st.st_size);
    ok = ok && (st.st_size == 0 || mem != MAP_FAILED);
    BELAY_CHECK(!ok || ret_bytes->len == (size_t)st.st_size);
    int saved = errno;
    close(fd);
    errno = saved;
    return ok ? BELAY_OK : BELAY_ERR_IO;
}

static void file_unmap(struct disk *d, struct slice bytes)
{
    (void)d;
    BELAY_DCHECK(bytes.len == 0 || (uintptr_t)bytes.data % DIRECT_ALIGN == 0); /* all of it */
    if (bytes.len > 0)
        (void)munmap((void *)(uintptr_t)bytes.data, bytes.len);
}

/* A quota that is used up is a full disk. */
static int cause(void)
{
    return errno == EDQUOT ? ENOSPC : errno;
}

/* Fills `name`.new with data and zeros up to `bytes`, and gives it its name; what cannot be
 * completed gives its space back. */
static enum belay_err make(struct disk_file *f, const char *name, struct slice data,
                           uint64_t bytes)
{
    BELAY_CHECK(bytes == 0 || data.len <= bytes);
    char tmp[DISK_NAME_MAX + 8];
    half_made(name, tmp);
    int fd = openat(f->dir, tmp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return BELAY_ERR_IO;
    int code = bytes ? posix_fallocate(fd, 0, (off_t)bytes) : 0;
    if (code != 0)
        errno = code;
    bool ok = code == 0 && write_all(fd, data, 0) && fsync(fd) == 0 &&
              renameat(f->dir, tmp, f->dir, name) == 0;
    int saved = cause();
    close(fd);
    if (!ok)
        (void)unlinkat(f->dir, tmp, 0);
    errno = saved;
    return ok && fsync(f->dir) == 0 ? BELAY_OK : BELAY_ERR_IO;
}

/* The reserve becomes the file: no other program can take the space in between. It is all
 * zeros, but for what an attempt that was killed has put where `data` goes now. */
static enum belay_err make_of_reserve(struct disk_file *f, const char *name, struct slice data,
                                      uint64_t bytes)
{
    BELAY_CHECK(bytes > 0 && data.len <= bytes);
    struct stat st;
    int fd = openat(f->dir, RESERVE_NAME, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || (uint64_t)st.st_size < bytes) {
        if (fd >= 0)
            close(fd);
        errno = ENOSPC;
        return BELAY_ERR_IO;
    }
    bool ok = ftruncate(fd, (off_t)bytes) == 0 && write_all(fd, data, 0) && fsync(fd) == 0 &&
              renameat(f->dir, RESERVE_NAME, f->dir, name) == 0;
    int saved = errno;
    close(fd);
    errno = saved;
    return ok && fsync(f->dir) == 0 ? BELAY_OK : BELAY_ERR_IO;
}

static enum belay_err file_create(struct disk *d, const char *name, struct slice head,
                                  uint64_t bytes)
{
    BELAY_CHECK(head.len <= bytes);
    enum belay_err err = make(self(d), name, head, bytes);
    if (err == BELAY_ERR_IO && errno == ENOSPC)
        err = make_of_reserve(self(d), name, head, bytes);
    return err;
}

static enum belay_err file_reserve(struct disk *d, uint64_t bytes, uint64_t *ret_free)
{
    BELAY_CHECK(bytes > 0);
    struct disk_file *f = self(d);
    struct statvfs fs;
    struct stat st;
    *ret_free = fstatvfs(f->dir, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    if (fstatat(f->dir, RESERVE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (uint64_t)st.st_size >= bytes)
        return BELAY_OK;
    enum belay_err err = make(f, RESERVE_NAME, slice_of("", 0), bytes);
    return err == BELAY_ERR_IO && errno == ENOSPC ? BELAY_ERR_LIMIT : err;
}

/* A small file that is there changes places with a spare one, which keeps its blocks for the next
 * time: so it can be written on a full disk. */
static enum belay_err replace_small(struct disk_file *f, const char *name, struct slice data)
{
    BELAY_CHECK(data.len <= DISK_SMALL_BYTES);
    char spare[DISK_NAME_MAX + 8];
    snprintf(spare, sizeof spare, ".%s.spare", name);
    int fd = openat(f->dir, spare, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return BELAY_ERR_IO;
    bool ok =
        write_all(fd, data, 0) && ftruncate(fd, (off_t)data.len) == 0 && fsync(fd) == 0 &&
        (renameat2(f->dir, spare, f->dir, name, RENAME_EXCHANGE) == 0 ||
         renameat(f->dir, spare, f->dir, name) == 0); /* the file system cannot exchange */
    int saved = errno;
    close(fd);
    errno = saved;
    return ok && fsync(f->dir) == 0 ? BELAY_OK : BELAY_ERR_IO;
}

static enum belay_err file_put(struct disk *d, const char *name, struct slice data)
{
    BELAY_CHECK(name[0]);
    struct disk_file *f = self(d);
    bool small = data.len <= DISK_SMALL_BYTES && faccessat(f->dir, name, F_OK, 0) == 0;
    return small ? replace_small(f, name, data) : make(f, name, data, 0);
}

static bool open_file(struct disk_file *f, const char *name)
{
    struct stat st;
    if (f->open >= 0 && strcmp(f->open_name, name) == 0)
        return true;
    if (f->open >= 0)
        close(f->open);
    snprintf(f->open_name, sizeof f->open_name, "%s", name);
    f->open = openat(f->dir, name, O_WRONLY | O_CLOEXEC | O_DIRECT);
    if (f->open < 0 && errno == EINVAL)
        f->open = openat(f->dir, name, O_WRONLY | O_CLOEXEC);
    if (f->open < 0 || fstat(f->open, &st) != 0)
        return false;
    BELAY_CHECK(f->open >= 0);
    f->open_bytes = (uint64_t)st.st_size;
    f->written = 0;
    return true;
}

/* What is only reserved has to be noted as used when it is written, and that goes to disk with
 * every fdatasync. So zeros are written ahead, a piece at a time; there is nothing behind `end`
 * yet. */
static bool write_ahead(struct disk_file *f, uint64_t end)
{
    static _Alignas(DIRECT_ALIGN) const char zeros[AHEAD_BYTES];
    if (end <= f->written || end >= f->open_bytes)
        return true;
    uint64_t left = f->open_bytes - end;
    size_t n = left < AHEAD_BYTES ? (size_t)left : AHEAD_BYTES;
    BELAY_CHECK(n > 0 && end + n <= f->open_bytes);
    f->written = end + n;
    return write_direct(f, slice_of(zeros, n), end);
}

static enum belay_err file_write(struct disk *d, const char *name, uint64_t at,
                                 struct slice data)
{
    BELAY_CHECK(data.len > 0);
    struct disk_file *f = self(d);
    if (!open_file(f, name) || !write_ahead(f, at + data.len) || !write_pieces(f, data, at) ||
        fdatasync(f->open) != 0)
        return BELAY_ERR_IO;
    return BELAY_OK;
}

static enum belay_err file_extend(struct disk *d, const char *name, uint64_t at,
                                  struct slice data)
{
    BELAY_CHECK(data.len > 0);
    int dir = self(d)->dir;
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC | (at == 0 ? O_CREAT | O_TRUNC : 0), 0600);
    if (fd < 0)
        return BELAY_ERR_IO;
    bool ok = write_all(fd, data, (off_t)at) && fdatasync(fd) == 0;
    int saved = cause();
    close(fd);
    errno = saved;
    return ok && (at > 0 || fsync(dir) == 0) ? BELAY_OK : BELAY_ERR_IO;
}

static enum belay_err file_rename(struct disk *d, const char *from, const char *to)
{
    BELAY_CHECK(from[0] && to[0]);
    int dir = self(d)->dir;
    bool ok = renameat(dir, from, dir, to) == 0 && fsync(dir) == 0;
    return ok ? BELAY_OK : BELAY_ERR_IO;
}

static enum belay_err file_remove(struct disk *d, const char *name)
{
    BELAY_CHECK(name[0]);
    char tmp[DISK_NAME_MAX + 8];
    half_made(name, tmp); /* of one that was killed while it made the file */
    if ((unlinkat(self(d)->dir, name, 0) != 0 && errno != ENOENT) ||
        (unlinkat(self(d)->dir, tmp, 0) != 0 && errno != ENOENT))
        return BELAY_ERR_IO;
    return fsync(self(d)->dir) == 0 ? BELAY_OK : BELAY_ERR_IO;
}

/* Its space must not be free for a moment: it may be all that this node still has. */
static enum belay_err file_recycle(struct disk *d, const char *name)
{
    BELAY_CHECK(name[0]);
    int dir = self(d)->dir;
    if (renameat2(dir, name, dir, RESERVE_NAME, RENAME_NOREPLACE) != 0)
        return file_remove(d, name);
    return fsync(dir) == 0 ? BELAY_OK : BELAY_ERR_IO;
}

static void file_close(struct disk *d)
{
    struct disk_file *f = self(d);
    BELAY_DCHECK(f->lock < 0 || f->dir >= 0);
    if (f->open >= 0)
        close(f->open);
    if (f->lock >= 0)
        close(f->lock);
    if (f->dir >= 0)
        close(f->dir);
    (void)munmap(f->piece, PIECE_BYTES);
    free(f);
}

static const struct disk_ops file_ops = {.list = file_list,
                                         .read = file_read,
                                         .size = file_size,
                                         .read_at = file_read_at,
                                         .map = file_map,
                                         .unmap = file_unmap,
                                         .create = file_create,
                                         .write = file_write,
                                         .put = file_put,
                                         .extend = file_extend,
                                         .rename = file_rename,
                                         .reserve = file_reserve,
                                         .remove = file_remove,
                                         .recycle = file_recycle,
                                         .close = file_close};

static enum belay_err open_dir(const char *path, int lock_flags, struct disk **ret_disk)
{
    struct disk_file *f = mem_zalloc(sizeof *f);
    f->base.ops = &file_ops;
    f->lock = f->open = -1;
    f->piece =
        mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BELAY_CHECK(f->piece != MAP_FAILED);
    enum belay_err err = BELAY_ERR_IO;
    f->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0) {
        err = errno == ENOENT ? BELAY_ERR_NOT_FOUND : BELAY_ERR_IO;
        goto out;
    }
    f->lock = openat(f->dir, LOCK_NAME, lock_flags | O_CLOEXEC, 0600);
    if (f->lock < 0 && (errno != ENOENT || lock_flags & O_CREAT))
        goto out;
    if (f->lock >= 0 && flock(f->lock, LOCK_EX | LOCK_NB) != 0) {
        err = errno == EWOULDBLOCK ? BELAY_ERR_IN_USE : BELAY_ERR_IO;
        goto out;
    }
    *ret_disk = &f->base;
    return BELAY_OK;
out:;
    int saved = errno;
    file_close(&f->base);
    errno = saved;
    return err;
}

static void remove_half_made(void *ctx, const char *name)
{
    BELAY_DCHECK(name[0] != '.' && strlen(name) < DISK_NAME_MAX);
    struct disk_file *f = ctx;
    if (disk_file_is_half_made(name))
        (void)unlinkat(f->dir, name, 0);
}

/* A user who may write into it could put a link in the place of a file; one who may change a link
 * could put another directory in the place of this one. */
static bool is_private(const char *path)
{
    struct stat st;
    struct buf bare = {0};
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') /* "link/" would be what it points to */
        len--;
    buf_put(&bare, path, len);
    bool sound = lstat(buf_cstr(&bare), &st) == 0 && S_ISDIR(st.st_mode) &&
                 !(st.st_mode & (S_IWGRP | S_IWOTH));
    buf_done(&bare);
    return sound;
}

enum belay_err disk_file_open(const char *path, struct disk **ret_disk)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return BELAY_ERR_IO;
    if (!is_private(path))
        return BELAY_ERR_DENIED;
    enum belay_err err = open_dir(path, O_RDWR | O_CREAT, ret_disk);
    BELAY_DCHECK(err != BELAY_OK || self(*ret_disk)->lock >= 0);
    return err == BELAY_OK ? file_list(*ret_disk, remove_half_made, self(*ret_disk)) : err;
}

enum belay_err disk_file_look(const char *path, struct disk **ret_disk)
{
    return open_dir(path, O_RDONLY, ret_disk);
}

void disk_file_discard(struct disk *d, const char *path)
{
    BELAY_CHECK(d->ops == &file_ops);
    int fd = openat(self(d)->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        (void)unlinkat(fd, e->d_name, 0); /* of "." and ".." nothing comes */
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    file_close(d);
    if (path)
        (void)rmdir(path);
}

enum belay_err disk_file_has_any(const char *path, bool *ret_there, bool *ret_any)
{
    DIR *dir = opendir(path);
    *ret_there = dir != NULL;
    *ret_any = false;
    if (!dir)
        return errno == ENOENT || errno == ENOTDIR ? BELAY_OK : BELAY_ERR_IO;
    for (struct dirent *e = readdir(dir); e && !*ret_any; e = readdir(dir))
        *ret_any = !is_folder(dirfd(dir), e);
    closedir(dir);
    return BELAY_OK;
}

void disk_file_forget_lock(struct disk *d)
{
    struct disk_file *f = self(d);
    BELAY_CHECK(d->ops == &file_ops && f->lock >= 0);
    close(f->lock); /* the parent's own descriptor keeps the lock alive */
    f->lock = -1;
}
