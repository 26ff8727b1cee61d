/* sim_digest.c - a number for all that an event says. */
#include "base/hash.h"
#include "sim.h"

static void mix(uint64_t *h, uint64_t v)
{
    *h = (*h ^ v) * 0x9e3779b97f4a7c15u;
    *h ^= *h >> 32;
}

static void mix_slice(uint64_t *h, struct slice s)
{
    static const struct hash_key key = {3, 5};
    mix(h, s.len ? hash_bytes(&key, s.data, s.len) : 1);
}

static void mix_locks(uint64_t *h, const struct event *ev)
{
    for (size_t i = 0; ev->locks && i < ev->n_rows; i++) {
        const struct lock_row *l = &ev->locks[i];
        mix_slice(h, l->name);
        mix_slice(h, l->body);
        mix(h, (uint64_t)l->state << 32 ^ l->of ^ l->closed_ms << 8);
        mix(h, l->holders_total << 32 ^ l->waiters_total);
        for (size_t k = 0; k < l->n_holders; k++) {
            const struct holder_row *r = &l->holders[k];
            mix_slice(h, r->owner);
            mix_slice(h, r->session);
            mix(h, r->fence << 8 ^ r->mode ^ r->permits << 40);
            mix(h, r->held_ms << 24 ^ r->expires_in_ms ^ (uint64_t)r->forever << 60 ^
                       (uint64_t)r->overdue << 61);
        }
        for (size_t k = 0; k < l->n_waiters; k++) {
            const struct waiter_row *r = &l->waiters[k];
            mix_slice(h, r->owner);
            mix_slice(h, r->session);
            mix(h, r->ticket << 8 ^ r->mode ^ r->permits << 40 ^ r->position << 52);
            mix(h, r->waited_ms << 24 ^ r->expires_in_ms);
        }
    }
}

static void mix_record(uint64_t *h, const struct record_row *r)
{
    mix_slice(h, r->session);
    mix_slice(h, r->value);
    mix_slice(h, r->description);
    mix(h, r->set_ms_ago << 24 ^ r->expires_in_ms ^ (uint64_t)r->forever << 60 ^
               (uint64_t)r->exclusive << 61);
}

static void mix_rows(uint64_t *h, const struct event *ev)
{
    mix_locks(h, ev);
    for (size_t i = 0; i < ev->n_rows; i++) {
        if (ev->sessions) {
            const struct session_row *s = &ev->sessions[i];
            mix_slice(h, s->id);
            mix_slice(h, s->description);
            mix(h, s->ttl_ms << 24 ^ s->linger_ms ^ (uint64_t)s->attached << 63);
            mix(h, s->expires_in_ms << 32 ^ s->holds << 20 ^ s->waits << 10 ^ s->variables);
        } else if (ev->namespaces) {
            const struct namespace_row *s = &ev->namespaces[i];
            mix_slice(h, s->name);
            mix_slice(h, s->description);
            mix(h, s->created_ms << 32 ^ s->updated_ms);
            mix(h, s->locks << 40 ^ s->held << 20 ^ s->waiting);
            mix(h, s->tables << 40 ^ s->variables << 20 ^ s->transactions);
        } else if (ev->tables) {
            mix_slice(h, ev->tables[i].name);
            mix(h, ev->tables[i].keys << 32 ^ ev->tables[i].records);
        } else if (ev->variables) {
            mix_slice(h, ev->variables[i].key);
            mix_record(h, &ev->variables[i].record);
        }
    }
}

static void mix_txn(uint64_t *h, const struct event *ev)
{
    mix(h, (uint64_t)ev->status << 8 ^ ev->cause);
    mix_slice(h, ev->failed);
    for (size_t i = 0; i < ev->n_data; i++) {
        const struct txn_row *d = &ev->data[i];
        mix_slice(h, d->name);
        mix(h, (uint64_t)d->kind << 8 ^ d->truth ^ d->fence << 16);
        mix_slice(h, d->json);
        for (size_t k = 0; k < d->n_records; k++)
            mix_record(h, &d->records[k]);
    }
}

uint64_t digest_event(const struct event *ev)
{
    uint64_t h = ev->kind;
    mix(&h, ev->asker);
    mix(&h, (uint64_t)ev->news << 16 ^ (uint64_t)ev->reason << 8 ^ ev->err);
    mix(&h, (uint64_t)ev->mode << 1 ^ ev->forever);
    mix_slice(&h, ev->account);
    mix_slice(&h, ev->ns);
    mix_slice(&h, ev->name);
    mix_slice(&h, ev->owner);
    mix_slice(&h, ev->session);
    mix_slice(&h, ev->text);
    mix(&h, ev->at_ms);
    mix(&h, ev->fence << 32 ^ ev->ticket);
    mix(&h, ev->position << 32 ^ ev->count);
    mix(&h, ev->expires_in_ms << 32 ^ ev->waited_ms);
    for (size_t i = 0; i < ev->n_cycle; i++) {
        mix_slice(&h, ev->cycle[i].owner);
        mix_slice(&h, ev->cycle[i].name);
    }
    mix(&h, ev->n_rows << 1 ^ ev->more);
    mix_rows(&h, ev);
    mix_txn(&h, ev);
    return h;
}
