/* data.c - a data directory: who may use it, what space there is, and whether a server starts from
 * it. */
#include "cli/doctor/doctor.h"
#include "server/repair.h"

#include "base/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { MEASURE_WRITES = 32, MEASURE_BYTES = 4096 };

/* --- who may use it --- */

/* The server refuses what the first two say. False: it cannot be looked at. */
static bool look_rights(struct doctor *d, const char *dir, struct stat *ret)
{
    char bare[4096];
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') /* "link/" would be what it points to */
        len--;
    if (snprintf(bare, sizeof bare, "%.*s", (int)len, dir) >= (int)sizeof bare ||
        lstat(bare, ret) != 0) {
        doctor_find(d, DOCTOR_ERROR, "no-directory", "it cannot be looked at: %s",
                    strerror(len < sizeof bare ? errno : ENAMETOOLONG));
        doctor_advise(d, "Name the directory that the server has as --data, as a user who may "
                         "read it.");
        return false;
    }
    if (S_ISLNK(ret->st_mode)) {
        doctor_find(d, DOCTOR_ERROR, "link", "it is a symbolic link: a server refuses it");
        doctor_advise(d, "Give --data the directory itself, or mount it there (mount --bind).");
        return stat(dir, ret) == 0 && S_ISDIR(ret->st_mode);
    }
    if (!S_ISDIR(ret->st_mode)) {
        doctor_find(d, DOCTOR_ERROR, "no-directory", "it is no directory");
        doctor_advise(d, "Name the directory that the server has as --data.");
        return false;
    }
    if (ret->st_mode & (S_IWGRP | S_IWOTH)) {
        doctor_find(d, DOCTOR_ERROR, "rights",
                    "others may write into it (%04o): a server refuses it",
                    (unsigned)ret->st_mode & 07777);
        doctor_advise(d, "chmod 700 %s", dir);
    } else if (ret->st_mode & S_IRWXO) {
        doctor_find(d, DOCTOR_WARNING, "rights", "others may look into it (%04o)",
                    (unsigned)ret->st_mode & 07777);
        doctor_advise(d, "chmod 700 %s", dir);
    }
    return true;
}

/* A server that was once started as another user leaves files that the right one cannot open. */
static void look_files(struct doctor *d, const char *dir, uid_t owner)
{
    DIR *list = opendir(dir);
    struct stat st;
    for (struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(dirfd(list), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISLNK(st.st_mode)) {
            doctor_find(d, DOCTOR_ERROR, "link", "%s in it is a symbolic link", e->d_name);
            doctor_advise(d, "Put the file itself in its place.");
        } else if (st.st_uid != owner) {
            doctor_find(d, DOCTOR_ERROR, "owner",
                        "%s belongs to the user %u, and the directory to %u", e->d_name,
                        (unsigned)st.st_uid, (unsigned)owner);
            doctor_advise(d,
                          "chown -R --reference=%s %s, and start the server as that user only.",
                          dir, dir);
            break; /* the others will be the same */
        }
    }
    if (list)
        (void)closedir(list);
}

/* --- the disk --- */

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

static uint64_t now_us(void)
{
    struct timespec t;
    BELAY_CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* What one commit costs: 4 KiB over and over at the same place, which must be on the disk. */
static bool measure(int fd, uint64_t us[MEASURE_WRITES])
{
    static const char block[MEASURE_BYTES];
    for (size_t i = 0; i < MEASURE_WRITES; i++) {
        uint64_t before = now_us();
        if (pwrite(fd, block, sizeof block, 0) != (ssize_t)sizeof block || fdatasync(fd) != 0)
            return false;
        us[i] = now_us() - before;
    }
    qsort(us, MEASURE_WRITES, sizeof us[0], by_size);
    return true;
}

/* The file has no name from the moment when it is open: whatever happens, nothing is left. */
static void look_disk(struct doctor *d, const char *dir)
{
    char path[4096];
    uint64_t us[MEASURE_WRITES];
    int fd = -1;
    errno = ENAMETOOLONG;
    if (snprintf(path, sizeof path, "%s/.doctor-XXXXXX", dir) < (int)sizeof path)
        fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    if (fd >= 0 && measure(fd, us)) {
        d->write_us = us[MEASURE_WRITES / 2];
        d->write_slowest_us = us[MEASURE_WRITES - 1];
        doctor_writes(d, d->write_us, d->write_slowest_us);
    } else {
        doctor_find(d, DOCTOR_ERROR, "no-write", "it cannot be written: %s", strerror(errno));
        doctor_advise(d, "Run it as the user of the server; else look at the disk (dmesg).");
    }
    if (fd >= 0)
        close(fd);
}

static void look_space(struct doctor *d, const char *dir)
{
    struct statvfs fs;
    if (statvfs(dir, &fs) == 0)
        doctor_space(d, (uint64_t)fs.f_bavail * fs.f_frsize,
                     (uint64_t)fs.f_blocks * fs.f_frsize);
}

/* --- what is in it --- */

static void look_inside(struct doctor *d, const char *dir, const struct inspection *in)
{
    size_t bad = 0;
    for (size_t i = 0; i < in->n_files; i++)
        bad += in->files[i].state == INSPECT_DAMAGED || in->files[i].state == INSPECT_MISSING;
    if (in->starts)
        return;
    if (in->too_new) {
        doctor_find(d, DOCTOR_ERROR, "too-new", "a server does not start from it: %s",
                    in->problem);
        doctor_advise(d, "Start it with the newer belay that wrote it, or with a later one.");
        return;
    }
    doctor_find(d, DOCTOR_ERROR, "damaged",
                "a server does not start from it (%zu file%s damaged or missing): %s", bad,
                bad == 1 ? "" : "s", in->problem);
    doctor_advise(d, "belay repair --data %s says what can be saved, and how.", dir);
}

/* CLI_OK, or that nothing could be said. `ret_running`: a server has it. */
static int look_contents(struct doctor *d, const char *dir, bool *ret_running)
{
    struct repair *r = NULL;
    enum belay_err err = repair_open(dir, &r);
    *ret_running = err == BELAY_ERR_IN_USE;
    if (err == BELAY_OK) {
        look_inside(d, dir, repair_found(r));
        repair_close(r);
    } else if (err == BELAY_ERR_NOT_FOUND) {
        doctor_find(d, DOCTOR_ERROR, "empty", "there is no data of a node in it");
        doctor_advise(d,
                      "If it is that of a server, look at what is mounted there; a server that "
                      "starts from an empty one begins with nothing.");
    } else if (err != BELAY_ERR_IN_USE) {
        doctor_find(d, DOCTOR_ERROR, "no-directory", "it cannot be read: %s",
                    err == BELAY_ERR_IO ? strerror(errno) : err_text(err));
        doctor_advise(d, "Run it as the user of the server; else look at the disk (dmesg).");
        return CLI_FAILED;
    }
    return CLI_OK;
}

int doctor_data(struct doctor *d, const char *dir)
{
    struct stat st;
    struct buf seen = {0};
    bool running = false;
    d->where = dir;
    if (!look_rights(d, dir, &st))
        return CLI_FAILED;
    look_files(d, dir, st.st_uid);
    look_space(d, dir);
    if (cli_given(d->c, "measure-disk"))
        look_disk(d, dir);
    int code = look_contents(d, dir, &running);
    buf_printf(&seen, "%s%s", dir,
               running ? " (a server runs on it: ask it, too, with belay doctor --addr)" : "");
    doctor_saw(d, buf_cstr(&seen));
    buf_done(&seen);
    return code;
}
