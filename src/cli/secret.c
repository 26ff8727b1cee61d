/* secret.c - what must not be seen by others: passwords in the command line, core dumps. */
#include "cli/secret.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { FILE_BYTES_MAX = 4096 };

/* A copy, and nothing left of it where everybody can read it. Never freed: it is needed until
 * the process ends. */
static char *take(const char *text)
{
    char *copy = strdup(text);
    if (copy)
        memset((char *)(uintptr_t)text, 'x', strlen(text)); /* argv is ours to write */
    return copy;
}

/* systemd gives the user of the service the right to read by an ACL, which stat() shows as a right
 * of the group. */
static bool is_credential(const char *path)
{
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    size_t len = dir ? strlen(dir) : 0;
    return len > 0 && strncmp(path, dir, len) == 0 && path[len] == '/';
}

static int read_secret(const struct cli *c, const char *path, const char **ret)
{
    struct buf text = {0};
    struct stat st;
    int code = CLI_OK;
    enum belay_err err =
        stat(path, &st) == 0 ? buf_read_file(&text, path, FILE_BYTES_MAX) : BELAY_ERR_IO;
    if (err != BELAY_OK)
        code = cli_no_file(c, "postgres-file", path, err, FILE_BYTES_MAX);
    else if (st.st_mode & (is_credential(path) ? S_IRWXO : S_IRWXG | S_IRWXO))
        code = cli_usage(c, "--postgres-file %s may be read by others: chmod 600", path);
    else {
        char *copy = strdup(buf_cstr(&text));
        if (copy)
            copy[strcspn(copy, "\r\n")] = '\0';
        *ret = copy;
        if (!copy || !*copy)
            code = cli_usage(c, "--postgres-file %s is empty", path);
    }
    buf_done(&text);
    return code;
}

int secret_postgres(const struct cli *c, const char **ret)
{
    const char *given = cli_text(c, "postgres", NULL);
    const char *path = cli_text(c, "postgres-file", NULL);
    *ret = NULL;
    if (given && path)
        return cli_usage(c, "--postgres and --postgres-file exclude each other");
    if (path)
        return read_secret(c, path, ret);
    *ret = given ? take(given) : getenv("BELAY_POSTGRES");
    return CLI_OK;
}

void secret_forbid_core(void)
{
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
