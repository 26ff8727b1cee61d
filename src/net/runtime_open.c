/* runtime_open.c - the first steps of the runtime: which node of which cluster this is, its data
 * directory, and joining a cluster that does not know this node's directory yet. */
#include "net/runtime_core.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { STRANGER_MS = 10000 };

void runtime_say_stranger(struct runtime *h, const struct peer_hello *hello, const char *event,
                          const char *what)
{
    if (uv_now(h->loop) < h->stranger_ms)
        return;
    h->stranger_ms = uv_now(h->loop) + STRANGER_MS;
    log_warn(event, "node=%" PRIu64 " name=%s error=\"%s\"", hello->node,
             log_bytes(slice_str(hello->name)), what);
}

static uint64_t random_u64(void)
{
    uint64_t v;
    BELAY_CHECK(getrandom(&v, sizeof v, 0) == (ssize_t)sizeof v);
    return v >> 1 | 1;
}

static bool find_self(struct runtime *h, const struct group_conf *conf)
{
    for (size_t i = 0; i < conf->n; i++) {
        struct member m;
        member_parse(conf->servers[i].address, &m);
        if (h->config.node.name && strcmp(m.name, h->config.node.name) == 0) {
            h->id = conf->servers[i].id;
            return true;
        }
    }
    return false;
}

static bool plan(struct runtime *h, struct replica_config *oc)
{
    static const struct hash_key fixed = {0x62656c61792d7065, 0x6572732d31};
    const struct node_options *c = &h->config.node;
    if (c->name && !member_is_name(c->name)) {
        log_error("engine.node",
                  "node=%s error=\"a name has at most %d bytes without spaces, "
                  "quotes, control characters, @, comma and =\"",
                  log_bytes(slice_str(c->name)), MEMBER_NAME_MAX - 1);
        return false;
    }
    if (c->join) {
        if (admission_parse(c->join, &h->admission) != BELAY_OK) {
            log_error("engine.join",
                      "error=\"--join takes the text that CLUSTER ADD printed\"");
            return false;
        }
        h->id = h->admission.node;
        return c->name && c->peer_listen;
    }
    if (!c->peers) {
        struct group_server *s = &oc->members.servers[0];
        h->id = 1;
        h->cluster = random_u64();
        oc->members.n = 1;
        *s = (struct group_server){.id = 1, .voter = true};
        snprintf(s->address, sizeof s->address, "%s@%s", c->name ? c->name : "n1",
                 c->peer_listen ? c->peer_listen : "");
        return true;
    }
    const char *wrong = members_of_peers(c->peers, &oc->members);
    if (!wrong && !find_self(h, &oc->members))
        wrong = "--node is not among --peers";
    if (wrong) {
        log_error("engine.peers", "error=\"%s\"", wrong);
        return false;
    }
    h->has_peers = oc->members.n > 1;
    struct buf all = {0};
    group_conf_encode(&oc->members, &all);
    h->cluster = hash_bytes(&fixed, buf_data(&all), buf_len(&all)) >> 1 | 1;
    buf_done(&all);
    return true;
}

/* --- joining: a new node must first be told what the cluster is --- */

static bool on_caller(void *ctx, const struct peer_hello *hello, struct peer_refusal *ret_no)
{
    struct runtime *h = ctx;
    (void)ret_no; /* it will call again */
    if (hello->cluster == 0 || hello->groups == 0 || hello->groups > JOURNAL_GROUPS_MAX)
        return false; /* it waits as well */
    if (h->admission.cluster && hello->cluster != h->admission.cluster) {
        runtime_say_stranger(h, hello, "engine.join",
                             "it belongs to another cluster than --join says");
        return false;
    }
    h->cluster = hello->cluster;
    h->groups = (size_t)hello->groups;
    peers_stop(h->peers);
    return false;
}

static enum belay_err await_member(struct runtime *h)
{
    struct peers_config pc = {.loop = h->loop,
                              .self = {.node = h->id},
                              .listen = h->config.node.peer_listen,
                              .insecure = h->config.insecure,
                              .tls = h->tls.context,
                              .ctx = h,
                              .accept = on_caller};
    enum belay_err err = peers_open(&pc, &h->peers);
    log_info("engine.join", "waiting=\"for a member to call at %s\"",
             h->config.node.peer_listen);
    if (err != BELAY_OK)
        peers_stop(h->peers);
    (void)uv_run(h->loop, UV_RUN_DEFAULT);
    peers_close(h->peers);
    h->peers = NULL;
    return err;
}

/* The directory knows which node it is: --join is needed once. */
static void remember(struct runtime *h, struct replica_config *oc)
{
    uint64_t node = replica_node_of(h->disk);
    BELAY_CHECK(oc->members.n == 1);
    if (node != 0)
        h->id = oc->members.servers[0].id = node;
}

/* errno is that of the failure, where `err` says no more. */
static const char *directory_problem(enum belay_err err)
{
    if (err == BELAY_ERR_IN_USE)
        return "another process uses it: a server that runs, or belay repair";
    if (err == BELAY_ERR_DENIED)
        return "it must be a directory that nobody else may write (chmod go-w), not a link";
    switch (errno) {
    case ENOENT:
        return "it cannot be made: the directory above it does not exist";
    case EACCES:
        return "permission denied: the user who starts the server must be able to make, read and "
               "write it";
    default:
        return strerror(errno);
    }
}

/* The directory, and how many groups are in it or will be. */
static enum belay_err open_disk(struct runtime *h, struct replica_config *oc)
{
    const struct node_options *c = &h->config.node;
    bool used = false;
    enum belay_err err = disk_file_open(c->data, &h->disk);
    if (err == BELAY_OK)
        err = replica_is_used(h->disk, &used);
    if (err != BELAY_OK) {
        log_error("engine.data", "path=%s error=\"%s\"", c->data, directory_problem(err));
        return err;
    }
    if (err == BELAY_OK && used && !c->peers && !c->join)
        remember(h, oc);
    oc->groups_fixed = c->shards != 0;
    size_t usual = c->peers ? RUNTIME_SHARDS_CLUSTER : 1;
    oc->groups = order_groups(c->shards ? c->shards : usual);
    if (used || !c->join)
        return BELAY_OK;
    if (c->tls.ca && !h->admission.cluster) {
        log_error(
            "engine.join",
            "error=\"a new node must know its cluster: --join takes the whole text that CLUSTER ADD "
            "printed, not only the number\"");
        return BELAY_ERR_SYNTAX;
    }
    err = await_member(h);
    if (err == BELAY_OK && c->shards && h->groups != oc->groups) {
        log_error("engine.join", "error=\"the cluster has %zu shards, not %zu\"",
                  order_shards(h->groups), c->shards);
        err = BELAY_ERR_SYNTAX;
    }
    oc->groups = h->groups;
    return err;
}

enum belay_err runtime_open_order(struct runtime *h, const struct replica_env *env,
                                  struct order **ret_order)
{
    const struct node_options *c = &h->config.node;
    struct replica_config oc = {.env = env,
                                .env_ctx = h,
                                .seed = random_u64(),
                                .priority = c->priority,
                                .level_manual = c->level_manual,
                                .drains = h->config.removed != NULL,
                                .silence_ms = c->silence_ms,
                                .segment_bytes = c->segment_bytes,
                                .snapshot_bytes = c->snapshot_bytes,
                                .env_writes = true};
    oc.election_ms = c->fast_failover ? RUNTIME_FAST_ELECTION_MS : RUNTIME_ELECTION_MS;
    oc.heartbeat_ms = c->fast_failover ? RUNTIME_FAST_HEARTBEAT_MS : RUNTIME_HEARTBEAT_MS;
    if (!plan(h, &oc))
        return BELAY_ERR_SYNTAX;
    enum belay_err err = open_disk(h, &oc);
    if (err != BELAY_OK)
        return err;
    oc.node = h->id;
    oc.cluster = h->cluster;
    oc.disk = h->disk;
    oc.path = c->data;
    err = replica_open(&oc, ret_order);
    if (err == BELAY_ERR_CORRUPT)
        log_error("engine.data", "path=%s error=\"%s\" repair=\"belay repair --data %s\"",
                  c->data, replica_problem(), c->data);
    else if (err != BELAY_OK)
        log_error("engine.data", "path=%s error=\"%s\"", c->data, replica_problem());
    return err;
}
