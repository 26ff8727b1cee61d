/* cluster.c - asks a server about its cluster, and every node of it about itself. */
#include "base/check.h"
#include "base/mem.h"
#include "cli/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

/* The answers of INFO, as they come: the own node first. */
struct look {
    struct doctor *d;
    bool tls;
    struct doctor_node nodes[DOCTOR_NODES_MAX];
    size_t n;
};

static char *copy(const char *text)
{
    return mem_dup(text, strlen(text));
}

static void keep(struct look *l, const char *name, const struct belay_reply *info)
{
    if (l->n == DOCTOR_NODES_MAX)
        return;
    l->nodes[l->n++] = (struct doctor_node){copy(name), copy(belay_text(info, ""))};
}

static void forget(struct look *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->nodes[i].name);
        free(l->nodes[i].info);
    }
    free(l);
}

static const char *text_of(const struct belay_reply *row, const char *key)
{
    return belay_text(belay_get(row, key), "");
}

/* Where this client reaches that node. One that listens on all addresses is asked where its peers
 * call it; a port alone is one of loopback. */
static bool address_of(const struct look *l, const struct belay_reply *m, char *ret, size_t cap)
{
    const char *listen = text_of(m, "listen"), *peer = text_of(m, "peer");
    const char *colon = strrchr(listen, ':'), *peer_colon = strrchr(peer, ':');
    const char *port = colon ? colon + 1 : listen, *host = listen;
    int host_len = colon ? (int)(colon - listen) : 0;
    if (!*port)
        return false;
    if (!colon) {
        host = "127.0.0.1";
        host_len = (int)strlen(host);
    } else if (peer_colon &&
               (strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0)) {
        host = peer;
        host_len = (int)(peer_colon - peer);
    }
    return snprintf(ret, cap, "%s%.*s:%s", l->tls ? "tls://" : "", host_len, host, port) <
           (int)cap;
}

static void say_silent(struct doctor *d, const struct cli *c, int code)
{
    const char *why = belay_error(c->belay), *address = belay_addr(c->belay);
    bool named = strstr(why, address) != NULL;
    bool denied = code == BELAY_E_DENIED;
    bool wrong = strstr(why, "certificate") != NULL;
    doctor_find(d, DOCTOR_ERROR,
                wrong    ? "certificate"
                : denied ? "denied"
                         : "no-answer",
                "%s%s%s", named ? "" : address, named ? "" : ": ", why);
    if (wrong)
        doctor_advise(
            d, "Give the CA with --tls-ca, call it by a name that is in its certificate, or "
               "make one with that name: belay cert node NAME --host HOST.");
    else if (denied)
        doctor_advise(d, "Log in with a token that may see the cluster: --token-file.");
    else
        doctor_advise(d,
                      "Is it started, and is that its address? If it is, look at its log and "
                      "at the network.");
}

static void ask_node(struct look *l, const struct belay_reply *m)
{
    char address[512];
    const struct belay_reply *info;
    l->d->where = text_of(m, "name");
    if (!belay_int(belay_get(m, "up"), 0))
        return; /* the first node has said so */
    if (!address_of(l, m, address, sizeof address)) {
        doctor_find(l->d, DOCTOR_WARNING, "no-address",
                    "it does not say where clients reach it");
        doctor_advise(l->d, "Run belay doctor on its machine, too.");
        return;
    }
    struct cli there = *l->d->c;
    there.belay = NULL;
    there.addrs = address;
    if (cli_connect(&there) == CLI_OK) {
        int err = belay_call(there.belay, &info, "INFO", NULL);
        if (err)
            say_silent(l->d, &there, err);
        else
            keep(l, text_of(m, "name"), info);
    }
    belay_close(there.belay);
}

static void look_all(struct look *l, const struct belay_reply *status)
{
    const char *self = text_of(status, "node");
    doctor_status(l->d, status);
    for (const struct belay_reply *m = belay_at(belay_get(status, "nodes"), 0); m; m = m->next)
        if (strcmp(text_of(m, "name"), self) != 0)
            ask_node(l, m);
    doctor_nodes(l->d, l->nodes, l->n);
}

static bool wants_tls(const struct cli *c)
{
    const char *env = getenv("BELAY_ADDR");
    return strstr(cli_text(c, "addr", env ? env : ""), "tls://") != NULL;
}

static int cannot(struct doctor *d, int err)
{
    d->where = "server";
    say_silent(d, d->c, err);
    return cli_exit_of(err);
}

static int look(struct look *l)
{
    struct doctor *d = l->d;
    struct belay *b = d->c->belay;
    const struct belay_reply *r;
    char engine[16] = "";
    int err = belay_call(b, &r, "INFO", NULL);
    if (err)
        return cannot(d, err);
    (void)doctor_line(belay_text(r, ""), "engine", engine, sizeof engine);
    keep(l, belay_addr(b), r);
    if (strcmp(engine, "memory") == 0) {
        doctor_nodes(d, l->nodes, l->n);
        return CLI_OK;
    }
    err = belay_call(b, &r, "CLUSTER", "STATUS", NULL);
    if (err)
        return cannot(d, err);
    free(l->nodes[0].name);
    l->nodes[0].name = copy(text_of(r, "node"));
    look_all(l, r);
    return CLI_OK;
}

int doctor_cluster(struct doctor *d)
{
    int code = cli_connect(d->c);
    if (code != CLI_OK)
        return code;
    struct look *l = mem_zalloc(sizeof *l);
    l->d = d;
    l->tls = wants_tls(d->c);
    code = look(l);
    forget(l);
    return code;
}
