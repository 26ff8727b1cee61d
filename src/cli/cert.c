/* cert.c - `belay cert`: the certificates of a cluster and of its clients. */
#include "tls/cert.h"

#include "cli/cli.h"

#include <string.h>

static int report(const struct cli *c, enum belay_err err)
{
    if (err == BELAY_OK)
        return cli_done(c, BELAY_E_OK);
    return cli_error(err == BELAY_ERR_SYNTAX ? CLI_USAGE : CLI_FAILED, "%s", cert_problem());
}

static int revoke(struct cli *c)
{
    if (c->n_words != 2 || !cli_given(c, "ca") || cli_given(c, "out") || cli_given(c, "host") ||
        cli_given(c, "days"))
        return cli_usage(c, "cert revoke takes the file of a certificate, and --ca DIR");
    return report(c, cert_revoke(c->words[1], cli_text(c, "ca", NULL)));
}

static int cert(struct cli *c)
{
    const char *what = c->words[0];
    bool is_ca = strcmp(what, "ca") == 0;
    bool is_node = strcmp(what, "node") == 0;
    if (strcmp(what, "revoke") == 0)
        return revoke(c);
    if (!is_ca && !is_node && strcmp(what, "client") != 0)
        return cli_usage(c, "\"%s\" is none of ca, node, client, revoke", what);
    if (c->n_words != (is_ca ? 1 : 2))
        return cli_usage(c, "cert %s takes %s", what, is_ca ? "no more words" : "one name");
    int64_t days = cli_number(c, "days", is_ca ? CERT_CA_DAYS : CERT_DAYS);
    if (days < 1 || days > CERT_DAYS_MAX)
        return cli_usage(c, "--days is 1 to %d", CERT_DAYS_MAX);
    if (!cli_given(c, "out"))
        return cli_usage(c, "--out says where the files go");
    if (cli_given(c, "ca") == is_ca)
        return cli_usage(c, is_ca ? "--ca is for a node or a client"
                                  : "--ca names the directory of ca.crt and ca.key");
    struct cert_wish wish = {.kind = is_node ? CERT_NODE : CERT_CLIENT,
                             .out = cli_text(c, "out", NULL),
                             .ca = cli_text(c, "ca", NULL),
                             .days = (int)days};
    wish.hosts = cli_texts(c, "host", &wish.n_hosts);
    if (wish.n_hosts && !is_node)
        return cli_usage(c, "--host is for a node");
    wish.account = cli_text(c, "account", NULL);
    if (wish.account && (is_ca || is_node))
        return cli_usage(c, "--account is for a client");
    if (is_ca)
        return report(c, cert_make_ca(wish.out, wish.days));
    wish.name = c->words[1];
    return report(c, cert_make(&wish));
}

static const struct cli_option cert_options[] = {
    {"out", 'o', CLI_TEXT, "DIR", "where the files go; a file that exists is not touched"},
    {"ca", 0, CLI_TEXT, "DIR", "node, client, revoke: where ca.crt and ca.key are"},
    {"host", 0, CLI_TEXTS, "NAME|IP", "node: a name or an address of its machine; repeatable"},
    {"account", 0, CLI_TEXT, "ID",
     "client: its account (default, or 16 digits); it logs in as the token NAME"},
    {"days", 0, CLI_NUMBER, "N", "how long it is valid (825; a CA: 3650)"},
    {0},
};

const struct cli_command cli_cmd_cert = {
    .name = "cert",
    .args = "ca | node NAME | client NAME | revoke FILE",
    .summary = "make the certificates of a cluster, and take them back",
    .about =
        "ca makes DIR/ca.crt and DIR/ca.key. node makes DIR/NAME.crt and DIR/NAME.key for\n"
        "the node of that name; other nodes accept the certificate for this name only. client\n"
        "makes both for a program; such a certificate is not valid between nodes. With\n"
        "--account, NAME is the id of a token: a client with the certificate needs no AUTH and\n"
        "has the rights of that token, as long as the token is valid. Only the owner can read\n"
        "the keys. Keep ca.key away from the nodes: they do not need it. revoke writes\n"
        "DIR/ca.crt anew, with a list of revoked certificates: copy it to the nodes, and send\n"
        "them SIGHUP.",
    .examples = "  belay cert ca --out tls\n"
                "  belay cert node n1 --ca tls --out tls --host 10.0.0.1\n"
                "  belay cert client 0123456789abcdef --account default --ca tls --out tls\n"
                "  belay cert revoke tls/n1.crt --ca tls",
    .options = cert_options,
    .min_words = 1,
    .max_words = 2,
    .run = cert,
    .words = "ca node client revoke",
};
