/* backup.c - `belay backup` and `belay restore`. */
#include "cli/cli.h"
#include "proto/json.h"
#include "server/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MAKE_MS = 30 * 60 * 1000, /* so long the node may take to write it */
    AGAIN_MAX = 60,           /* a piece is asked for so often, one second apart */
    PART_PATH_MAX = 4096,
};

/* --- from a server to a file --- */

struct fetching {
    struct cli *c;
    int fd;
    uint64_t id, at, bytes; /* bytes 0: not known, it is resumed */
    bool shows;             /* how far it is, on stderr */
};

static void show_progress(const struct fetching *f, bool end)
{
    if (!f->shows)
        return;
    if (f->bytes)
        fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " KB, %" PRIu64 " %%", f->at / 1024,
                f->bytes / 1024, f->bytes ? f->at * 100 / f->bytes : 0);
    else
        fprintf(stderr, "\r%" PRIu64 " KB", f->at / 1024);
    if (end)
        fputc('\n', stderr);
}

static int write_all(struct fetching *f, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(f->fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return cli_error(CLI_FAILED, "cannot write the backup: %s", strerror(errno));
        data += n;
        len -= (size_t)n;
        f->at += (uint64_t)n;
    }
    return CLI_OK;
}

static int start(struct fetching *f)
{
    static const struct belay_bytes words[] = {{"BACKUP", 6}, {"START", 5}};
    const struct belay_reply *r = NULL;
    if (f->shows)
        fprintf(stderr, "the server makes the backup ...\n");
    int err = belay_callv(f->c->belay, words, 2, MAKE_MS, &r);
    if (err)
        return cli_fail(f->c, err);
    f->id = (uint64_t)belay_int(belay_get(r, "id"), 0);
    f->bytes = (uint64_t)belay_int(belay_get(r, "bytes"), 0);
    return CLI_OK;
}

/* One piece, whatever happens to the connection meanwhile. */
static int ask(struct fetching *f, const struct belay_reply **ret)
{
    char id[32];
    char at[32];
    snprintf(id, sizeof id, "%" PRIu64, f->id);
    snprintf(at, sizeof at, "%" PRIu64, f->at);
    int err = BELAY_E_OK;
    for (int i = 0; i < AGAIN_MAX; i++) {
        err = belay_call(f->c->belay, ret, "BACKUP", "READ", id, at, NULL);
        bool lost = err == BELAY_E_CLOSED || err == BELAY_E_CONNECT || err == BELAY_E_DEADLINE;
        if (!lost)
            break;
        (void)sleep(1);
    }
    return err;
}

static int fetch(struct fetching *f)
{
    const struct belay_reply *r = NULL;
    for (;;) {
        show_progress(f, false);
        int err = ask(f, &r);
        bool is_all = f->bytes && f->at == f->bytes; /* only the good-bye was lost */
        if (err && !is_all) {
            show_progress(f, true);
            return cli_fail(f->c, err);
        }
        if (err || r->len == 0)
            break;
        int code = write_all(f, r->text, r->len);
        if (code != CLI_OK)
            return code;
    }
    show_progress(f, true);
    return CLI_OK;
}

/* An earlier run was cut off: it goes on if the server still has that backup. */
static bool resume(struct fetching *f, const char *part)
{
    const struct belay_reply *r = NULL;
    off_t end = lseek(f->fd, 0, SEEK_END);
    f->id = restore_id(part);
    f->at = end > 0 ? (uint64_t)end : 0;
    if (f->id == 0 || ask(f, &r) != BELAY_E_OK) {
        f->id = f->at = 0;
        return false;
    }
    if (f->shows)
        fprintf(stderr, "%s goes on from %" PRIu64 " KB\n", part, f->at / 1024);
    return true;
}

static int fetch_to(struct fetching *f, const char *part)
{
    f->fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0)
        return cli_error(CLI_FAILED, "%s: %s", part, strerror(errno));
    int code = CLI_OK;
    if (!resume(f, part)) {
        code = start(f);
        if (code == CLI_OK && (ftruncate(f->fd, 0) != 0 || lseek(f->fd, 0, SEEK_SET) != 0))
            code = cli_error(CLI_FAILED, "%s: %s", part, strerror(errno));
    }
    if (code == CLI_OK)
        code = fetch(f);
    if (code == CLI_OK && fsync(f->fd) != 0)
        code = cli_error(CLI_FAILED, "%s: %s", part, strerror(errno));
    close(f->fd);
    return code;
}

static int backup_file(struct fetching *f, const char *path)
{
    char part[PART_PATH_MAX];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return cli_usage(f->c, "the name of the file is too long");
    int code = fetch_to(f, part);
    if (code != CLI_OK)
        return code;
    if (rename(part, path) != 0)
        return cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
    printf("%s: %" PRIu64 " bytes; check it with belay backup verify\n", path, f->at);
    return CLI_OK;
}

/* --- a file --- */

static int cannot_use(const char *path, enum belay_err err, const char *problem)
{
    if (err == BELAY_ERR_IO)
        return cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
    return cli_error(CLI_NOT, "%s: %s", path, problem);
}

static void print_found(const struct cli *c, const struct backup_found *found)
{
    char when[32] = "?";
    time_t at = (time_t)(found->head.wall_ms / 1000);
    struct tm tm;
    if (gmtime_r(&at, &tm))
        (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (c->json)
        printf("{\"sound\":true,\"made\":\"%s\",\"shards\":%" PRIu64 ",\"locks\":%" PRIu64
               ",\"sessions\":%" PRIu64 ",\"level\":%" PRIu64 "}\n",
               when, found->head.groups == 1 ? 1 : found->head.groups - 1, found->locks,
               found->sessions, found->level);
    else
        printf("sound: made %s by node %" PRIu64 ", %" PRIu64 " locks, %" PRIu64
               " sessions, level %" PRIu64 "\n",
               when, found->head.node, found->locks, found->sessions, found->level);
}

static int verify(const struct cli *c, const char *path)
{
    struct backup_found found = {0};
    enum belay_err err = restore_look(path, &found);
    if (err == BELAY_OK) {
        print_found(c, &found);
        return CLI_OK;
    }
    if (c->json && err != BELAY_ERR_IO) {
        struct buf out = {0};
        buf_put_str(&out, "{\"sound\":false,\"problem\":");
        json_put_string(&out, slice_str(found.problem));
        buf_put_str(&out, "}\n");
        (void)cli_flush(&out);
        return CLI_NOT;
    }
    return cannot_use(path, err, found.problem);
}

static int backup(struct cli *c)
{
    struct fetching f = {.c = c, .fd = STDOUT_FILENO};
    f.shows = cli_given(c, "progress") || isatty(STDERR_FILENO);
    bool is_verify = strcmp(c->words[0], "verify") == 0;
    if (is_verify != (c->n_words == 2))
        return cli_usage(c, "backup takes a file or -, or verify and a file");
    if (is_verify)
        return verify(c, c->words[1]);
    bool to_stdout = strcmp(c->words[0], "-") == 0;
    if (to_stdout && isatty(STDOUT_FILENO))
        return cli_usage(c, "a backup is no text: send stdout into a file or a pipe");
    int code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    if (!to_stdout)
        return backup_file(&f, c->words[0]);
    code = start(&f);
    return code == CLI_OK ? fetch(&f) : code;
}

static const struct cli_option backup_options[] = {
    {"progress", 0, CLI_FLAG, NULL, "show how far it is, also when stderr is no terminal"},
    {0},
};

const struct cli_command cli_cmd_backup = {
    .name = "backup",
    .args = "FILE|- | verify FILE",
    .summary = "save the state of a running server or cluster in a file",
    .about =
        "The server goes on meanwhile. Everything is in the file that was answered before the\n"
        "command began. Any node can be asked; it stores the backup in its data directory until\n"
        "the command has fetched it, so it needs as much free space.\n\n"
        "FILE.part grows until all of it is there, then it becomes FILE. If the command is cut\n"
        "off, the same command goes on from there, within ten minutes.\n\n"
        "verify reads all of FILE and says whether a cluster can be made of it. The file holds\n"
        "everything that the cluster knows: keep it as secret as the data directory.",
    .examples = "  belay backup /backup/belay-monday\n"
                "  belay backup verify /backup/belay-monday\n"
                "  belay backup - --addr 10.0.0.1:7117 | zstd > belay.zst",
    .options = backup_options,
    .min_words = 1,
    .max_words = 2,
    .run = backup,
    .words = "verify",
    .exit_text = "  0  done    1  the file is not sound    2  wrong usage\n"
                 "  3  no server reached    5  refused    6  a file cannot be read or written",
};

/* --- a new cluster --- */

static int restore(struct cli *c)
{
    struct backup_found found = {0};
    const char *file = c->words[0];
    const char *dir = cli_text(c, "data", NULL);
    const char *name = cli_text(c, "node", NULL);
    bool drops = cli_given(c, "drop-leases");
    if (!dir)
        return cli_usage(c, "--data is missing");
    enum belay_err err = restore_look(file, &found);
    if (err != BELAY_OK)
        return cannot_use(file, err, found.problem);
    err = restore_make(file, dir, !drops, name);
    if (err == BELAY_ERR_EXISTS)
        return cli_error(CLI_NOT, "%s: it is not empty; nothing has changed", dir);
    if (err == BELAY_ERR_DENIED)
        return cli_error(CLI_FAILED,
                         "%s: it is a symbolic link, or no directory, or others may "
                         "write into it",
                         dir);
    if (err == BELAY_ERR_SYNTAX)
        return cli_usage(c, "--node is not a name of a node");
    if (err != BELAY_OK)
        return cli_error(CLI_FAILED, "%s: %s", dir,
                         err == BELAY_ERR_IO ? strerror(errno) : err_text(err));
    printf(
        "A new cluster of one node, with %" PRIu64 " locks and %" PRIu64 " sessions%s.\n"
        "Fences go on so much higher that none is given twice. Start it:\n"
        "  belay serve --data %s%s%s\n"
        "To add nodes (belay cluster add), give it a name, a peer port and certificates, too:\n"
        "--node, --peer-listen, --tls-ca, --tls-cert, --tls-key.\n",
        found.locks, found.sessions,
        drops ? ", which end when it starts" : ", each with its whole time to live", dir,
        name ? " --node " : "", name ? name : "");
    return CLI_OK;
}

static const struct cli_option restore_options[] = {
    {"data", 'd', CLI_TEXT, "DIR", "the data directory to make: empty, or not there"},
    {"node", 0, CLI_TEXT, "NAME", "the name of its node (n1)"},
    {"drop-leases", 0, CLI_FLAG, NULL, "end all holds and sessions, instead of keeping them"},
    {0},
};

const struct cli_command cli_cmd_restore = {
    .name = "restore",
    .args = "FILE --data DIR",
    .summary = "make a new cluster of a backup",
    .about =
        "The cluster begins with one node; others are added to it. It is another cluster than\n"
        "the old one: members of the old one are refused. What was answered after the backup is\n"
        "lost, but no fence is given twice.\n\n"
        "Holds and sessions are kept, each with its whole time to live from the start of the\n"
        "server on, so that their clients can go on. With --drop-leases all of them end when\n"
        "the server starts. A token that was revoked after the backup counts again.",
    .examples = "  belay restore /backup/belay-monday --data /var/lib/belay\n"
                "  belay serve --data /var/lib/belay",
    .options = restore_options,
    .min_words = 1,
    .max_words = 1,
    .run = restore,
    .exit_text =
        "  0  done    1  the file is not sound, or DIR is not empty    2  wrong usage\n"
        "  6  a file cannot be read or written",
};
