/* salvage.c - which piece of a damaged journal is kept, and a new directory made of it. */
#include "base/check.h"
#include "machine/varint.h"
#include "repair/create.h"
#include "repair/inspect_parts.h"

/* A survivor may have been behind for a long time: it skips 2^40 numbers, as a restored backup. */
enum { FLUSH_RECORDS = 256, SURVIVOR_SKIPS = 1024 };

/* --- what can be kept --- */

/* Is everything that a start would need at the beginning of this piece in it? */
static bool is_whole(const struct inspect_parts *p, const struct piece *piece)
{
    uint64_t base = piece->base ? piece->base : 1;
    return p->front && piece->first == p->front && p->gateway_segment <= base;
}

/* The shard has said nothing since that snapshot: the piece has none of its entries, and no
 * batch that could have had one is missing. */
static bool is_quiet(const struct inspect_parts *p, const struct piece *piece,
                     const struct saved *s)
{
    const struct group_part *part = &piece->groups[s->group_no];
    return part->log.n == 0 && part->snapshot == s->snap.index &&
           (part->installed || is_whole(p, piece));
}

/* The newest sound snapshot of the shard that its entries of this piece join, or behind which
 * it has none; or, when there is one group only, one that is newer than all of them. NULL:
 * none. */
static const struct saved *find_snapshot(const struct inspect_parts *p,
                                         const struct piece *piece, size_t group_no)
{
    const struct entry_log *log = &piece->groups[group_no].log;
    const struct saved *best = NULL;
    for (size_t i = 0; i < p->n_snapshots; i++) {
        const struct saved *s = &p->snapshots[i];
        if (s->group_no != group_no)
            continue;
        bool joins = log->n > 0 && log->first <= s->snap.index + 1 &&
                     s->snap.index <= entry_log_last(log);
        bool alone = p->n_groups == 1 && (log->n == 0 || s->snap.index > entry_log_last(log));
        if ((joins || alone || is_quiet(p, piece, s)) &&
            (!best || s->snap.index > best->snap.index))
            best = s;
    }
    return best;
}

/* How far one gets with this piece: the last entries of all groups together. 0: not at all. */
static uint64_t reach(const struct inspect_parts *p, const struct piece *piece)
{
    uint64_t sum = 0;
    for (size_t k = 0; k < p->n_groups; k++) {
        const struct entry_log *log = &piece->groups[k].log;
        const struct saved *s = find_snapshot(p, piece, k);
        uint64_t last = log->n ? entry_log_last(log) : 0;
        if (!s && !(log->n > 0 && log->first == 1))
            return 0;
        sum += s && s->snap.index > last ? s->snap.index : last;
    }
    return sum;
}

/* The piece that gets one farthest; of equals the older one, for what is between them and the
 * younger one counts as lost. */
void inspect_plan(struct inspection *in)
{
    struct inspect_parts *p = in->parts;
    uint64_t best = 0;
    for (size_t i = 0; i < p->n_pieces; i++) {
        uint64_t now = reach(p, &p->pieces[i]);
        if (now > best)
            p->kept = &p->pieces[i];
        best = now > best ? now : best;
    }
    if (!p->kept)
        return;
    in->can_salvage = in->members == 1;
    in->can_survive = in->members > 1 && group_conf_find(&p->conf, in->node);
    in->lost_batches = p->pieces[p->n_pieces - 1].last - p->kept->last;
    for (size_t k = 0; k < p->n_groups; k++) {
        const struct saved *s = find_snapshot(p, p->kept, k);
        if (s && p->kept->groups[k].log.n == 0 && !is_quiet(p, p->kept, s))
            in->lost_more = true; /* nothing says what was behind it */
    }
}

/* --- the new directory --- */

static uint64_t run_in(struct slice entry, uint64_t node)
{
    struct reader in = {.left = entry};
    uint64_t last = 0;
    bool known = reader_byte(&in) == ENTRY_VERSION;
    reader_u64(&in);
    while (known && !in.bad && in.left.len > 0) {
        uint64_t from = reader_u64(&in);
        uint64_t run = reader_u64(&in);
        reader_u64(&in);
        reader_bytes(&in);
        last = from == node && run > last && !in.bad ? run : last;
    }
    return last;
}

/* The last run of this node that anything knows of: the next one must be a new one. */
static uint64_t last_run(const struct inspection *in)
{
    const struct inspect_parts *p = in->parts;
    uint64_t last = p->has_identity ? p->identity->run : 0;
    for (size_t i = 0; i < p->n_snapshots; i++) {
        const struct origin *self = &p->snapshots[i].origins[place_of(in->node)];
        if (self->node == in->node && self->run > last)
            last = self->run;
    }
    for (size_t i = 0; i < p->n_pieces; i++) {
        for (size_t k = 0; k < p->n_groups; k++) {
            const struct entry_log *log = &p->pieces[i].groups[k].log;
            for (uint64_t at = log->first; log->n && at <= entry_log_last(log); at++) {
                uint64_t run = run_in(entry_log_get(log, at)->data, in->node);
                last = run > last ? run : last;
            }
        }
    }
    return last;
}

/* An entry with an op of the next run: it takes the waiters out of their lines, and the counter
 * goes on behind every number that can have been given before. */
static void put_skip(struct journal *j, const struct journal_record *at, uint64_t node,
                     uint64_t run, uint64_t times)
{
    struct op skip = {.kind = OP_TICK, .fence = LIMIT_SKIP};
    struct buf entry = {0};
    struct buf op = {0};
    op_encode(&skip, &op);
    buf_put_byte(&entry, ENTRY_VERSION);
    varint_put(&entry, 0); /* time stands still */
    for (uint64_t i = 1; i <= times; i++) {
        varint_put(&entry, node);
        varint_put(&entry, run);
        varint_put(&entry, i);
        varint_put_bytes(&entry, buf_slice(&op));
    }
    BELAY_CHECK(!entry.oom);
    struct journal_record rec = *at;
    rec.data = buf_slice(&entry);
    journal_append(j, &rec);
    buf_done(&op);
    buf_done(&entry);
}

/* From here on there is no other member. */
static void put_alone(const struct inspection *in, struct journal *j,
                      struct journal_record *rec)
{
    const struct group_server *self = group_conf_find(&in->parts->conf, in->node);
    struct group_conf conf = {.n = 1};
    struct buf bytes = {0};
    BELAY_CHECK(self);
    conf.servers[0] = *self;
    conf.servers[0].voter = true;
    group_conf_encode(&conf, &bytes);
    rec->type = GROUP_ENTRY_CHANGE;
    rec->data = buf_slice(&bytes);
    journal_append(j, rec);
    rec->index++;
    buf_done(&bytes);
}

/* The others are known by their numbers from here on, also those who have said nothing yet: none
 * of these is given to a new member (replica_next_node). */
static void put_former(const struct inspection *in, struct journal *j,
                       struct journal_record *rec)
{
    const struct group_conf *conf = &in->parts->conf;
    struct buf entry = {0};
    buf_put_byte(&entry, ENTRY_VERSION);
    varint_put(&entry, 0); /* time stands still */
    for (size_t i = 0; i < conf->n; i++) {
        if (conf->servers[i].id == in->node)
            continue;
        varint_put(&entry, conf->servers[i].id);
        varint_put(&entry, 0);
        varint_put(&entry, 0);
        varint_put_bytes(&entry, slice_of("", 0));
    }
    BELAY_CHECK(!entry.oom);
    rec->type = GROUP_ENTRY_COMMAND;
    rec->data = buf_slice(&entry);
    journal_append(j, rec);
    rec->index++;
    buf_done(&entry);
}

static enum belay_err copy_file(struct disk *from, struct disk *to, const char *name)
{
    struct buf bytes = {0};
    enum belay_err err = from->ops->read(from, name, &bytes);
    if (err == BELAY_OK)
        err = to->ops->put(to, name, buf_slice(&bytes));
    buf_done(&bytes);
    return err;
}

static enum belay_err save_group(const struct inspection *in, size_t group_no,
                                 struct journal *j, uint64_t run)
{
    const struct inspect_parts *p = in->parts;
    const struct group_part *part = &p->kept->groups[group_no];
    const struct saved *s = find_snapshot(p, p->kept, group_no);
    struct journal_record rec = {.group_no = (uint16_t)group_no, .term = part->term};
    uint64_t next = s ? s->snap.index + 1 : 1;
    uint64_t last = part->log.n ? entry_log_last(&part->log) : 0;
    uint64_t term = last ? entry_log_get(&part->log, last)->term : 0;
    rec.term = term > rec.term ? term : rec.term;
    rec.term = s && s->snap.term > rec.term ? s->snap.term : rec.term;
    rec.kind = JOURNAL_VOTE;
    rec.index = rec.term == part->term ? part->vote : 0;
    journal_append(j, &rec);
    term = rec.term;
    if (s) {
        rec.kind = JOURNAL_INSTALL;
        rec.term = s->snap.term;
        rec.index = s->snap.index;
        rec.data = slice_str(s->name);
        journal_append(j, &rec);
    }
    enum belay_err err = BELAY_OK;
    rec.kind = JOURNAL_ENTRY;
    for (; next <= last && err == BELAY_OK; next++) {
        const struct log_entry *e = entry_log_get(&part->log, next);
        rec.type = e->type;
        rec.term = e->term;
        rec.index = next;
        rec.data = e->data;
        journal_append(j, &rec);
        if (next % FLUSH_RECORDS == 0)
            err = create_flush(j);
    }
    rec.term = term;
    rec.index = next;
    if (in->can_survive) {
        put_alone(in, j, &rec);
        put_former(in, j, &rec);
    }
    rec.type = GROUP_ENTRY_COMMAND;
    put_skip(j, &rec, in->node, run, in->can_survive ? SURVIVOR_SKIPS : 1);
    return err == BELAY_OK ? create_flush(j) : err;
}

static enum belay_err save_journal(const struct inspection *in, struct disk *to, uint64_t run,
                                   uint64_t seed)
{
    struct journal_config config = {.disk = to,
                                    .segment_bytes = in->parts->segment_bytes,
                                    .salt = seed,
                                    .sink = create_no_record};
    struct journal *j = NULL;
    enum belay_err err = journal_open(&config, true, &j);
    for (size_t k = 0; k < in->parts->n_groups && err == BELAY_OK; k++)
        err = save_group(in, k, j, run);
    if (err == BELAY_OK) {
        journal_seal(j);
        err = create_flush(j);
    }
    journal_close(j);
    return err;
}

static enum belay_err save(const struct inspection *in, struct disk *to, uint64_t seed)
{
    const struct inspect_parts *p = in->parts;
    struct replica *o = p->identity; /* what its damaged file said is as good as anything */
    uint64_t run = last_run(in) + 1;
    enum belay_err err = BELAY_OK;
    for (size_t k = 0; k < p->n_groups && err == BELAY_OK; k++) {
        const struct saved *s = find_snapshot(p, p->kept, k);
        err = s ? copy_file(p->disk, to, s->name) : BELAY_OK;
    }
    if (err == BELAY_OK)
        err = save_journal(in, to, run, seed);
    if (err != BELAY_OK)
        return err;
    o->config.disk = to;
    o->config.node = in->node;
    o->base.n_groups = p->n_groups;
    o->run = run;
    o->incarnation = seed;
    memset(o->known, 0, sizeof o->known);
    if (!p->has_identity || o->cluster == 0 || in->can_survive)
        o->cluster = seed;
    return store_write_identity(o);
}

enum belay_err inspect_salvage(const struct inspection *in, struct disk *to, uint64_t seed)
{
    BELAY_CHECK(in->can_salvage);
    return save(in, to, seed);
}

enum belay_err inspect_survive(const struct inspection *in, struct disk *to, uint64_t seed)
{
    BELAY_CHECK(in->can_survive);
    return save(in, to, seed);
}
