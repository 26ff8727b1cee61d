/* connect.c - the way to the server, and who asks. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* The first line of a file. */
static bool read_token(const char *file, char *ret)
{
    errno = 0;
    FILE *f = fopen(file, "re");
    bool read = f && fgets(ret, CLI_TOKEN_BYTES, f);
    if (f)
        (void)fclose(f);
    if (read)
        ret[strcspn(ret, " \t\r\n")] = '\0';
    return read && ret[0];
}

static const char *file_of(const struct cli *c, const char *option, const char *variable)
{
    const char *env = getenv(variable);
    return cli_text(c, option, env && env[0] ? env : NULL);
}

struct tls_files cli_tls_files(const struct cli *c)
{
    return (struct tls_files){.ca = file_of(c, "tls-ca", "BELAY_TLS_CA"),
                              .cert = file_of(c, "tls-cert", "BELAY_TLS_CERT"),
                              .key = file_of(c, "tls-key", "BELAY_TLS_KEY")};
}

/* Files that are named are read, even if no address wants them: a wrong one is told at once. */
static int use_tls(struct cli *c)
{
    struct tls_files f = cli_tls_files(c);
    if (!f.ca && !f.cert && !f.key)
        return CLI_OK;
    int code = belay_use_tls(c->belay, &(struct belay_tls){f.ca, f.cert, f.key});
    return code == BELAY_E_OK ? CLI_OK : cli_usage(c, "%s", belay_error(c->belay));
}

int cli_token(const struct cli *c, char *ret)
{
    const char *given = getenv("BELAY_TOKEN"), *path = cli_text(c, "token-file", NULL);
    *ret = '\0';
    if (!path && given && given[0]) {
        snprintf(ret, CLI_TOKEN_BYTES, "%s", given);
        return CLI_OK;
    }
    path = file_of(c, "token-file", "BELAY_TOKEN_FILE");
    if (!path || read_token(path, ret))
        return CLI_OK;
    return cli_error(CLI_FAILED, "the file of the token, %s: %s", path,
                     errno ? strerror(errno) : "there is no token in it");
}

int cli_connect(struct cli *c)
{
    const char *env_ns = getenv("BELAY_NAMESPACE");
    struct belay_options o = {
        .addrs = c->addrs ? c->addrs : cli_text(c, "addr", NULL),
        .ns = cli_text(c, "namespace", env_ns && env_ns[0] ? env_ns : NULL),
        .timeout_ms = cli_number(c, "timeout", c->patience_ms),
        .stale = cli_has_option(c, "stale") && cli_given(c, "stale"),
    };
    if (cli_given(c, "timeout") && !o.timeout_ms)
        return cli_usage(c, "--timeout is at least 1ms");
    char token[CLI_TOKEN_BYTES];
    int code = cli_token(c, token);
    if (code != CLI_OK)
        return code;
    o.token = token;
    code = belay_open(&o, &c->belay);
    explicit_bzero(token, sizeof token);
    if (code == BELAY_E_OK)
        return use_tls(c);
    if (code == BELAY_E_USAGE)
        return cli_usage(c,
                         "\"%s\" is not an address (HOST:PORT, tls://HOST:PORT, unix:///PATH), "
                         "nor several with commas between them",
                         o.addrs ? o.addrs : getenv("BELAY_ADDR"));
    return cli_error(CLI_FAILED, "%s", belay_code_text(code));
}

/* On a connection of its own: on the other one an answer is waited for. */
void cli_put_problem(const struct cli *c, struct buf *out)
{
    enum { ASK_MS = 500 };
    static const struct belay_bytes words[] = {{"CLUSTER", 7}, {"STATUS", 6}};
    const struct belay_reply *r = NULL;
    struct cli other = *c;
    other.belay = NULL;
    if (cli_connect(&other) == CLI_OK &&
        belay_callv(other.belay, words, 2, ASK_MS, &r) == BELAY_E_OK) {
        const char *self = belay_text(belay_get(r, "node"), "");
        const struct belay_reply *n = belay_at(belay_get(r, "nodes"), 0);
        while (n && strcmp(belay_text(belay_get(n, "name"), ""), self) != 0)
            n = n->next;
        const struct belay_reply *problem = belay_get(n, "problem");
        if (problem && problem->len) {
            buf_put_str(out, ": ");
            cli_put_safe(out, problem->text, problem->len);
        }
    }
    belay_close(other.belay);
}

const char *cli_unique_owner(char *space)
{
    char host[65] = "localhost";
    uint64_t random = 0;
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "localhost");
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)getpid();
    snprintf(space, CLI_OWNER_BYTES, "%s:%ld:%08" PRIx64, host, (long)getpid(),
             random & 0xffffffff);
    return space;
}
