/* restore.c - see restore.h. */
#include "server/restore.h"

#include "base/check.h"
#include "base/log.h"
#include "raft/member.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Read page by page as it is looked at: it may be larger than the memory. */
static enum belay_err map_file(const char *path, struct slice *ret)
{
    struct stat st;
    void *mem = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* nobody may write into a pipe */
    bool ok = fd >= 0 && fstat(fd, &st) == 0;
    *ret = SLICE("");
    if (ok && !S_ISREG(st.st_mode)) {
        close(fd);
        return BELAY_ERR_TYPE;
    }
    if (ok && st.st_size > 0)
        mem = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mem != MAP_FAILED)
        *ret = slice_of(mem, (size_t)st.st_size);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return ok && (st.st_size == 0 || mem != MAP_FAILED) ? BELAY_OK : BELAY_ERR_IO;
}

static void unmap_file(struct slice file)
{
    int saved = errno;
    if (file.len > 0)
        (void)munmap((void *)(uintptr_t)file.data, file.len);
    errno = saved;
}

enum belay_err restore_look(const char *path, struct backup_found *ret)
{
    struct slice file;
    enum belay_err err = map_file(path, &file);
    if (err == BELAY_OK)
        err = backup_look(file, ret);
    else if (err == BELAY_ERR_TYPE)
        snprintf(ret->problem, sizeof ret->problem, "it is no regular file");
    unmap_file(file);
    return err;
}

uint64_t restore_id(const char *path)
{
    struct slice file, content = SLICE("");
    struct backup_head head = {0};
    enum belay_err err = map_file(path, &file);
    struct slice left = file;
    if (err == BELAY_OK)
        err = backup_part(&left, BACKUP_HEAD, 0, &content);
    bool known = err == BELAY_OK && backup_head_decode(content, &head);
    unmap_file(file);
    return known ? head.id : 0;
}

static uint64_t wall_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Any file counts: if the rest fails, all of them are removed. */
static enum belay_err open_empty(const char *dir, bool *ret_there, struct disk **ret)
{
    bool used;
    enum belay_err err = disk_file_has_any(dir, ret_there, &used);
    if (err == BELAY_OK && used)
        err = BELAY_ERR_EXISTS;
    return err == BELAY_OK ? disk_file_open(dir, ret) : err;
}

enum belay_err restore_make(const char *path, const char *dir, bool keeps, const char *name)
{
    struct restore_plan plan = {.keeps = keeps, .wall_ms = wall_ms(), .name = name};
    struct slice file;
    struct disk *disk = NULL;
    bool was_there;
    if (name && !member_is_name(name))
        return BELAY_ERR_SYNTAX;
    BELAY_CHECK(getrandom(&plan.seed, sizeof plan.seed, 0) == (ssize_t)sizeof plan.seed);
    plan.seed = plan.seed >> 1 | 1;
    enum belay_err err = map_file(path, &file);
    if (err == BELAY_OK)
        err = open_empty(dir, &was_there, &disk);
    if (err == BELAY_OK) {
        err = backup_restore(file, &plan, disk);
        int saved = errno;
        if (err == BELAY_OK)
            disk->ops->close(disk);
        else
            disk_file_discard(disk, was_there ? NULL : dir);
        errno = saved;
    }
    unmap_file(file);
    return err;
}
