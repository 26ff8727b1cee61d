/* create.c - see create.h. */
#include "repair/create.h"

#include "base/check.h"
#include "base/mem.h"
#include "machine/machine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_NODE = 1 };

struct create {
    struct create_plan plan;
    struct journal *journal;
    uint16_t next;
    uint64_t run; /* the last one of this number that any state knows of */
};

enum belay_err create_flush(struct journal *j)
{
    struct journal_job *job;
    while ((job = journal_job_take(j)) != NULL) {
        int code;
        journal_job_run(job);
        enum belay_err err = journal_job_done(j, job, &code);
        if (err != BELAY_OK) {
            errno = code;
            return err;
        }
    }
    return BELAY_OK;
}

enum belay_err create_no_record(void *ctx, const struct journal_record *rec, uint64_t lsn)
{
    (void)ctx, (void)rec, (void)lsn;
    return BELAY_ERR_CORRUPT; /* the journal is new */
}

enum belay_err create_open(const struct create_plan *plan, struct create **ret)
{
    BELAY_CHECK(plan->cluster != 0 && plan->n_groups > 0 && plan->name);
    struct create *c = mem_zalloc(sizeof *c);
    c->plan = *plan;
    struct journal_config config = {
        .disk = plan->to, .salt = plan->cluster, .sink = create_no_record};
    enum belay_err err = journal_open(&config, true, &c->journal);
    if (err != BELAY_OK) {
        free(c);
        return err;
    }
    *ret = c;
    return BELAY_OK;
}

/* Alone. What others have said and done before, the states keep: they are no members any more,
 * so their clients leave the lines (raft/replica_run.c). */
static void only_member(const struct create *c, struct group_snapshot *snap)
{
    snap->conf = (struct group_conf){.n = 1};
    snap->conf.servers[0] = (struct group_server){.id = FIRST_NODE, .voter = true};
    snprintf(snap->conf.servers[0].address, sizeof snap->conf.servers[0].address, "%s@",
             c->plan.name);
    snap->conf_index = snap->index;
}

static enum belay_err put_records(struct create *c, const struct group_snapshot *snap,
                                  const char *name)
{
    struct journal_record rec = {.kind = JOURNAL_VOTE, .group_no = c->next, .term = snap->term};
    journal_append(c->journal, &rec);
    rec.kind = JOURNAL_INSTALL;
    rec.index = snap->index;
    rec.data = slice_str(name);
    journal_append(c->journal, &rec);
    return create_flush(c->journal);
}

/* Whoever had its place in the old cluster is over: behind the number of a later one, nothing
 * that this node says would count. */
static void take_place(struct create *c, struct origin *self)
{
    BELAY_DCHECK(self->node == 0 || place_of(self->node) == place_of(FIRST_NODE));
    if (self->node)
        self->node = FIRST_NODE;
    c->run = self->run > c->run ? self->run : c->run;
}

enum belay_err create_group(struct create *c, struct judged *state)
{
    BELAY_CHECK(c->next < c->plan.n_groups && state->state && state->snap.index > 0);
    struct group_snapshot snap = state->snap;
    struct buf bytes = {0};
    char name[DISK_NAME_MAX];
    only_member(c, &snap);
    take_place(c, &state->origins[place_of(FIRST_NODE)]);
    store_begin(c->next, &snap, state->origins, &bytes);
    machine_encode(state->state, &bytes);
    store_end(&bytes);
    snprintf(name, sizeof name, "snapshot-%u-%" PRIu64 "-%" PRIu64, c->next, snap.index,
             snap.term);
    enum belay_err err = c->plan.to->ops->put(c->plan.to, name, buf_slice(&bytes));
    buf_done(&bytes);
    if (err == BELAY_OK)
        err = put_records(c, &snap, name);
    c->next++;
    return err;
}

static enum belay_err put_identity(const struct create *c)
{
    struct replica *o = mem_zalloc(sizeof *o);
    o->config.disk = c->plan.to;
    o->config.node = FIRST_NODE;
    o->base.n_groups = c->plan.n_groups;
    o->cluster = o->incarnation = c->plan.cluster;
    o->run = c->run + 1;
    enum belay_err err = store_write_identity(o);
    free(o);
    return err;
}

enum belay_err create_close(struct create *c, enum belay_err err)
{
    if (!c)
        return err;
    BELAY_CHECK(err != BELAY_OK || c->next == c->plan.n_groups);
    if (err == BELAY_OK) {
        journal_seal(c->journal);
        err = create_flush(c->journal);
    }
    journal_close(c->journal);
    if (err == BELAY_OK)
        err = put_identity(c); /* last: without it no node starts from the directory */
    free(c);
    return err;
}
