/* inspect.c - see inspect.h; what is saved is salvage.c. */
#include "repair/inspect.h"

#include "base/mem.h"
#include "machine/machine.h"
#include "raft/member.h"
#include "repair/inspect_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char inspect_replacing[] = INCOMING_PREFIX "repair";

/* --- a disk that takes no change --- */

struct dry {
    struct disk base;
    struct disk *under;
};

static struct disk *under(struct disk *d)
{
    return ((struct dry *)(void *)d)->under;
}

static enum belay_err dry_list(struct disk *d, void (*each)(void *ctx, const char *name),
                               void *ctx)
{
    return under(d)->ops->list(under(d), each, ctx);
}

static enum belay_err dry_read(struct disk *d, const char *name, struct buf *out)
{
    return under(d)->ops->read(under(d), name, out);
}

static enum belay_err dry_create(struct disk *d, const char *name, struct slice head,
                                 uint64_t bytes)
{
    (void)d, (void)name, (void)head, (void)bytes;
    return BELAY_OK;
}

static enum belay_err dry_write(struct disk *d, const char *name, uint64_t at,
                                struct slice data)
{
    (void)d, (void)name, (void)at, (void)data;
    return BELAY_OK;
}

static enum belay_err dry_put(struct disk *d, const char *name, struct slice data)
{
    (void)d, (void)name, (void)data;
    return BELAY_OK;
}

static enum belay_err dry_remove(struct disk *d, const char *name)
{
    (void)d, (void)name;
    return BELAY_OK;
}

static enum belay_err dry_reserve(struct disk *d, uint64_t bytes, uint64_t *ret_free)
{
    (void)d, (void)bytes;
    *ret_free = 0;
    return BELAY_OK;
}

static void dry_close(struct disk *d)
{
    (void)d; /* it is borrowed */
}

static const struct disk_ops dry_ops = {.list = dry_list,
                                        .read = dry_read,
                                        .create = dry_create,
                                        .write = dry_write,
                                        .put = dry_put,
                                        .remove = dry_remove,
                                        .recycle = dry_remove,
                                        .reserve = dry_reserve,
                                        .close = dry_close}; /* no node runs on it */

/* --- files --- */

static struct inspect_file *add_file(struct inspection *in, const char *name)
{
    in->files = mem_resize(in->files, (in->n_files + 1) * sizeof *in->files);
    struct inspect_file *f = &in->files[in->n_files++];
    *f = (struct inspect_file){.state = INSPECT_UNUSED, .text = "not Belay's"};
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

static void note_file(void *ctx, const char *name)
{
    add_file(ctx, name);
}

static int by_name(const void *a, const void *b)
{
    const struct inspect_file *x = a;
    const struct inspect_file *y = b;
    return strcmp(x->name, y->name);
}

__attribute__((format(printf, 3, 4))) static void
say(struct inspect_file *f, enum inspect_state state, const char *format, ...)
{
    va_list args;
    f->state = state;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 misreads va_start */
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
}

static void look_at_identity(struct inspection *in, struct inspect_file *f, struct slice bytes)
{
    struct inspect_parts *p = in->parts;
    uint64_t node;
    uint64_t groups;
    if (!store_read_identity(p->identity, bytes, &node, &groups)) {
        say(f, INSPECT_DAMAGED, "the checksum is wrong");
        return;
    }
    p->has_identity = true;
    p->n_groups = (size_t)groups;
    in->node = node;
    say(f, INSPECT_SOUND, "node %" PRIu64 ", start number %" PRIu64, node, p->identity->run);
}

/* --- the journal --- */

static struct piece *piece_of(struct inspect_parts *p, uint64_t seq)
{
    struct piece *last = p->n_pieces ? &p->pieces[p->n_pieces - 1] : NULL;
    if (last && (seq == last->last || seq == last->last + 1)) {
        last->last = seq;
        return last;
    }
    p->pieces = mem_resize(p->pieces, (p->n_pieces + 1) * sizeof *p->pieces);
    last = &p->pieces[p->n_pieces++];
    *last = (struct piece){.first = seq, .last = seq};
    last->groups = mem_zalloc(JOURNAL_GROUPS_MAX * sizeof *last->groups);
    return last;
}

static void note_members(struct inspect_parts *p, uint64_t index, const struct group_conf *conf)
{
    if (index < p->conf_index)
        return;
    p->conf_index = index;
    p->conf = *conf;
}

static void put_entry(struct inspect_parts *p, struct entry_log *log,
                      const struct journal_record *rec, uint64_t seq)
{
    struct group_conf conf;
    if (rec->index == 0)
        return;
    if (rec->index < log->first || (log->first && rec->index > entry_log_last(log) + 1))
        entry_log_reset(log, rec->index);
    entry_log_put(log, rec->index, &(struct log_entry){rec->term, seq, rec->data, rec->type});
    if (rec->group_no == 0 && rec->type == GROUP_ENTRY_CHANGE &&
        group_conf_decode(rec->data, &conf) == BELAY_OK)
        note_members(p, rec->index, &conf);
}

static enum belay_err take_record(void *ctx, const struct journal_record *rec, uint64_t seq)
{
    struct inspect_parts *p = ctx;
    struct piece *piece = piece_of(p, seq);
    struct group_part *s = &piece->groups[rec->group_no];
    if (rec->kind == JOURNAL_BASE)
        piece->base = rec->index;
    if (rec->kind > JOURNAL_INSTALL)
        return BELAY_OK;
    if (!p->has_identity && rec->group_no >= p->n_groups)
        p->n_groups = rec->group_no + (size_t)1;
    if (rec->kind == JOURNAL_VOTE) {
        s->term = rec->term;
        s->vote = rec->index;
    } else if (rec->kind == JOURNAL_ENTRY) {
        put_entry(p, &s->log, rec, seq);
    } else {
        snprintf(p->in_use[rec->group_no], sizeof p->in_use[rec->group_no], "%.*s",
                 (int)rec->data.len, rec->data.data);
        s->installed =
            rec->kind == JOURNAL_INSTALL || (s->installed && rec->index == s->snapshot);
        s->snapshot = rec->index;
        if (rec->kind == JOURNAL_INSTALL)
            entry_log_reset(&s->log, rec->index + 1);
    }
    return BELAY_OK;
}

static void look_at_segment(struct inspection *in, struct inspect_file *f, struct slice bytes,
                            struct journal_scan *look)
{
    (void)journal_scan(f->name, bytes, take_record, in->parts, look);
    if (look->size)
        in->parts->segment_bytes = look->size;
    const char *full = look->full ? ", full" : look->torn ? ", and one half written" : "";
    if (look->problem[0])
        say(f, INSPECT_DAMAGED, "%s", look->problem);
    else if (look->damaged_at)
        say(f, INSPECT_DAMAGED, "at byte %" PRIu64 "; %" PRIu64 " sound batch%s behind it",
            look->damaged_at, look->behind, look->behind == 1 ? "" : "es");
    else if (look->first == 0)
        say(f, INSPECT_SOUND, "not used yet");
    else
        say(f, INSPECT_SOUND, "batches %" PRIu64 " to %" PRIu64 "%s", look->first, look->last,
            full);
}

static void missing(struct inspection *in, uint64_t number, const char *why)
{
    char name[DISK_NAME_MAX];
    snprintf(name, sizeof name, "journal-%016" PRIx64, number);
    say(add_file(in, name), INSPECT_MISSING, "%s", why);
}

/* --- snapshots --- */

static void look_at_snapshot(struct inspection *in, struct inspect_file *f, struct slice bytes)
{
    struct inspect_parts *p = in->parts;
    struct machine *m;
    struct slice state;
    struct saved s = {0};
    static const char prefix[] = "snapshot-";
    char *end = NULL;
    bool named = strncmp(f->name, prefix, strlen(prefix)) == 0;
    unsigned long group_no = named ? strtoul(f->name + strlen(prefix), &end, 10) : 0;
    if (!named || end == f->name + strlen(prefix) || *end != '-' ||
        group_no >= JOURNAL_GROUPS_MAX) {
        say(f, INSPECT_UNUSED, "not Belay's");
        return;
    }
    s.group_no = (uint16_t)group_no;
    snprintf(s.name, sizeof s.name, "%s", f->name);
    if (!store_decode(bytes, s.group_no, &s.snap, s.origins, &state) ||
        engine_decode(p->n_groups, group_no, state, &m) != BELAY_OK) {
        say(f, INSPECT_DAMAGED, "the checksum is wrong, or the state is not sound");
        return;
    }
    struct machine_counts counts;
    machine_counts(m, &counts);
    machine_close(m);
    say(f, INSPECT_SOUND, "up to entry %" PRIu64 ": %" PRIu64 " locks, %" PRIu64 " sessions",
        s.snap.index, counts.locks, counts.sessions);
    p->snapshots = mem_resize(p->snapshots, (p->n_snapshots + 1) * sizeof *p->snapshots);
    p->snapshots[p->n_snapshots++] = s;
    if (group_no == 0)
        note_members(p, s.snap.conf_index, &s.snap.conf);
}

/* One that was being made when the process died is nobody's; a journal without damage says so.
 */
static void name_unused(struct inspection *in)
{
    const struct inspect_parts *p = in->parts;
    for (size_t i = 0; i < in->n_files; i++) {
        struct inspect_file *f = &in->files[i];
        bool used = strncmp(f->name, "snapshot-", 9) != 0;
        for (size_t k = 0; k < p->n_groups && !used; k++)
            used = strcmp(p->in_use[k], f->name) == 0;
        if (!used)
            f->state = INSPECT_UNUSED;
    }
}

/* --- all of it --- */

/* Reads the file and looks at it. A segment says in `look` how it ends. */
static void look_at(struct inspection *in, size_t i, struct journal_scan *look)
{
    struct disk *disk = in->parts->disk;
    struct inspect_file *f = &in->files[i];
    struct buf bytes = {0};
    bool segment = strncmp(f->name, "journal-", 8) == 0;
    if (disk_file_is_half_made(f->name))
        say(f, INSPECT_UNUSED, "was being made; the next start deletes it");
    else if (disk->ops->read(disk, f->name, &bytes) != BELAY_OK)
        say(f, INSPECT_DAMAGED, "cannot be read");
    else if (strcmp(f->name, IDENTITY_NAME) == 0)
        look_at_identity(in, f, buf_slice(&bytes));
    else if (segment)
        look_at_segment(in, f, buf_slice(&bytes), look);
    else if (strncmp(f->name, "snapshot-", 9) == 0)
        look_at_snapshot(in, f, buf_slice(&bytes));
    else if (store_is_passing(f->name))
        say(f, INSPECT_UNUSED, "was being fetched; the next start deletes it");
    buf_done(&bytes);
}

static void look_at_all(struct inspection *in)
{
    struct journal_scan last = {0};
    size_t n = in->n_files; /* what is missing is added behind them */
    bool identity = false;
    for (size_t i = 0; i < n; i++) { /* by name: identity, journal, snapshots */
        struct journal_scan look = {0};
        identity |= strcmp(in->files[i].name, IDENTITY_NAME) == 0;
        look_at(in, i, &look);
        if (look.number == 0)
            continue;
        if (last.number && look.number > last.number + 1)
            missing(in, last.number + 1, "others follow it");
        if (last.number == 0) {
            in->parts->gateway_segment = look.number;
            in->parts->front = look.damaged_at == JOURNAL_SECTOR ? 0 : look.first;
        }
        last = look;
    }
    if (!identity)
        say(add_file(in, IDENTITY_NAME), INSPECT_MISSING, "every directory has one");
    /* a next one is missing, or this one may have been cut */
    in->lost_more = last.number == 0 || last.full || last.problem[0];
    if (last.number == 0)
        missing(in, 1, "there is no journal");
    else if (last.full)
        missing(in, last.number + 1, "the one before it is full");
    qsort(in->files, in->n_files, sizeof *in->files, by_name);
}

/* The first start was not complete: what is there counts for nothing and is made anew. */
static void name_unborn(struct inspection *in)
{
    in->starts = true;
    for (size_t i = 0; i < in->n_files; i++)
        if (strcmp(in->files[i].name, IDENTITY_NAME) != 0)
            say(&in->files[i], INSPECT_UNUSED, "the first start was not complete");
}

/* Does it start? */
static void judge(struct inspection *in)
{
    struct inspect_parts *p = in->parts;
    if (p->has_identity && p->identity->run == 0) {
        name_unborn(in);
        return;
    }
    struct dry dry = {.base = {&dry_ops}, .under = p->disk};
    struct order *order;
    struct replica_config config = {
        .disk = &dry.base, .node = in->node ? in->node : 1, .groups = 1, .seed = 1};
    enum belay_err err = replica_open(&config, &order);
    in->starts = err == BELAY_OK;
    in->too_new = err == BELAY_ERR_NO_PROTO;
    if (in->starts) {
        order->ops->close(order);
        name_unused(in);
        return;
    }
    snprintf(in->problem, sizeof in->problem, "%s", replica_problem());
}

static void name_node(struct inspection *in)
{
    struct inspect_parts *p = in->parts;
    in->members = p->conf.n; /* 0: no configuration is left */
    if (in->node == 0 && p->conf.n == 1)
        in->node = p->conf.servers[0].id;
    const struct group_server *self = group_conf_find(&p->conf, in->node);
    if (self) {
        struct member m;
        member_parse(self->address, &m);
        snprintf(in->name, sizeof in->name, "%s", m.name);
        snprintf(in->peer, sizeof in->peer, "%s", m.peer);
    }
    /* It may have lost its journal and still know whether it has ever met others. */
    size_t others = 0;
    for (size_t i = 0; i < NODE_PLACES && p->has_identity; i++)
        others += p->identity->known[i].node != 0 && p->identity->known[i].node != in->node;
    if (p->has_identity && p->conf.n == 0)
        in->members = 1 + others;
}

enum belay_err inspect_list(struct disk *disk, struct inspection *ret)
{
    *ret = (struct inspection){0};
    enum belay_err err = disk->ops->list(disk, note_file, ret);
    bool ours = false;
    for (size_t i = 0; i < ret->n_files; i++)
        ours |= strcmp(ret->files[i].name, IDENTITY_NAME) == 0 ||
                strncmp(ret->files[i].name, "journal-", 8) == 0;
    if (err == BELAY_OK && !ours)
        err = BELAY_ERR_NOT_FOUND;
    if (err != BELAY_OK)
        inspect_close(ret);
    return err;
}

enum belay_err inspect_open(struct disk *disk, struct inspection *ret)
{
    enum belay_err err = inspect_list(disk, ret);
    if (err != BELAY_OK)
        return err;
    ret->parts = mem_zalloc(sizeof *ret->parts);
    ret->parts->disk = disk;
    ret->parts->n_groups = 1;
    ret->parts->identity = mem_zalloc(sizeof *ret->parts->identity);
    qsort(ret->files, ret->n_files, sizeof *ret->files, by_name);
    look_at_all(ret);
    name_node(ret);
    judge(ret);
    if (!ret->too_new)
        inspect_plan(ret);
    return BELAY_OK;
}

void inspect_close(struct inspection *in)
{
    struct inspect_parts *p = in->parts;
    for (size_t i = 0; p && i < p->n_pieces; i++) {
        for (size_t k = 0; k < JOURNAL_GROUPS_MAX; k++)
            entry_log_done(&p->pieces[i].groups[k].log);
        free(p->pieces[i].groups);
    }
    if (p) {
        free(p->pieces);
        free(p->snapshots);
        free(p->identity);
        free(p);
    }
    free(in->files);
    *in = (struct inspection){0};
}
