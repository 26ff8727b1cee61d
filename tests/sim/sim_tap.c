/* sim_tap.c - what the nodes' machines are given and say, seen on the way.
 *
 * The linker puts these functions between the order, the engine and the machine (--wrap), so
 * that nothing in src/ has to know of a judge. Which node is being called is noted when it is
 * entered; there is one thread. */
#include "engine/remaining.h"
#include "machine/state.h"
#include "sim_judge.h"

static struct sim_node *inside;

void sim_enter(struct sim_node *n)
{
    inside = n;
}

enum belay_err __real_engine_decode(size_t n_groups, size_t at, struct slice bytes,
                                    struct machine **ret_m);
enum belay_err __wrap_engine_decode(size_t n_groups, size_t at, struct slice bytes,
                                    struct machine **ret_m);
void __real_engine_adopt(struct engine *e, size_t at, struct machine *m);
void __wrap_engine_adopt(struct engine *e, size_t at, struct machine *m);
bool __real_machine_session(const struct machine *m, struct slice account, struct slice id,
                            struct machine_session *ret);
bool __wrap_machine_session(const struct machine *m, struct slice account, struct slice id,
                            struct machine_session *ret);
uint64_t __real_engine_stamp(struct engine *e, size_t at);
uint64_t __wrap_engine_stamp(struct engine *e, size_t at);
void __real_remaining_tell(const struct remaining *l, uint64_t clock_ms, uint64_t asked_ms,
                           struct event *ev);
void __wrap_remaining_tell(const struct remaining *l, uint64_t clock_ms, uint64_t asked_ms,
                           struct event *ev);
void __wrap_machine_apply(struct machine *m, const struct op *op, struct effects *fx);
void __wrap_machine_query(const struct machine *m, const struct op *op, struct effects *fx);

uint64_t __wrap_engine_stamp(struct engine *e, size_t at)
{
    uint64_t ms = __real_engine_stamp(e, at);
    judge_stamped(inside->w->judge, at, ms);
    return ms;
}

/* Canary: a survivor's numbers go on where they are. */
void sim_tap_apply(const struct sim_world *w, struct machine *m, const struct op *op,
                   struct effects *fx)
{
    struct op seen = *op;
    if (op->kind == OP_TICK && w->options->canaries & CANARY_NO_SKIP)
        seen.fence = 0;
    __real_machine_apply(m, &seen, fx);
}

void __wrap_machine_apply(struct machine *m, const struct op *op, struct effects *fx)
{
    size_t before = fx->n;
    sim_tap_apply(inside->w, m, op, fx);
    judge_apply(inside->w->judge, inside, m->group, op, fx->events + before, fx->n - before);
}

void __wrap_machine_query(const struct machine *m, const struct op *op, struct effects *fx)
{
    size_t before = fx->n;
    __real_machine_query(m, op, fx);
    if (fx->n > before)
        judge_read(inside->w->judge, inside, m, op, &fx->events[before]);
}

/* Canary: what was kept is kept for long. */
bool __wrap_machine_session(const struct machine *m, struct slice account, struct slice id,
                            struct machine_session *ret)
{
    bool lives = __real_machine_session(m, account, id, ret);
    if (lives && inside->w->options->canaries & CANARY_OLD_KEEP)
        ret->ttl_ms *= 100;
    return lives;
}

/* Canary: a snapshot without the counter. What can be seen in the state is all that is left. */
static uint64_t highest_in_use(const struct machine *m)
{
    uint64_t top = 0;
    for (size_t i = 0; i < m->ends.count; i++)
        top = m->ends.slots[i]->seq > top ? m->ends.slots[i]->seq : top;
    list_each (it, &m->session_list) {
        const struct session *s = list_item(it, const struct session, in_machine);
        list_each (at, &s->holds) {
            const struct hold *h = list_item(at, const struct hold, in_session);
            top = h->end.seq > top ? h->end.seq : top;
        }
        list_each (at, &s->records) {
            const struct record *r = list_item(at, const struct record, in_session);
            top = r->end.seq > top ? r->end.seq : top;
        }
    }
    return top;
}

enum belay_err __wrap_engine_decode(size_t n_groups, size_t at, struct slice bytes,
                                    struct machine **ret_m)
{
    enum belay_err err = __real_engine_decode(n_groups, at, bytes, ret_m);
    if (err == BELAY_OK && inside->w->options->canaries & CANARY_NO_COUNTER)
        (*ret_m)->counter = highest_in_use(*ret_m);
    return err;
}

/* Canary: what was left when it was granted is told, however late. */
void __wrap_remaining_tell(const struct remaining *l, uint64_t clock_ms, uint64_t asked_ms,
                           struct event *ev)
{
    if (!(inside->w->options->canaries & CANARY_LATE))
        __real_remaining_tell(l, clock_ms, asked_ms, ev);
}

void __wrap_engine_adopt(struct engine *e, size_t at, struct machine *m)
{
    inside->applied[at] = machine_applied(m);
    judge_adopt(inside->w->judge, inside, at, machine_applied(m));
    __real_engine_adopt(e, at, m);
}
