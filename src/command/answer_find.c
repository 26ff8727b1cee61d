/* answer_find.c - answers to reads that look for something: locks, long lines, the things of a
 * session. */
#include "command/answer.h"
#include "proto/http.h"

#include <stdio.h>

static struct reply *row(struct arena *a)
{
    struct reply *r = reply_new(a, REPLY_MAP);
    r->flags |= REPLY_ROW;
    return r;
}

static void put_next(struct arena *a, struct reply *r, struct slice next)
{
    if (next.len)
        reply_text(a, r, "next", next);
    else
        reply_null(a, r, "next");
}

/* --- places --- */

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~", c));
}

static void put_encoded(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (is_plain(s.data[i]))
            buf_put_byte(out, s.data[i]);
        else
            buf_printf(out, "%%%02X", (unsigned)(unsigned char)s.data[i]);
    }
}

struct slice answer_place(struct slice ns, struct slice name, struct arena *a)
{
    struct buf text = {0};
    put_encoded(&text, ns);
    buf_put_byte(&text, '/');
    put_encoded(&text, name);
    struct slice place = arena_copy(a, buf_slice(&text));
    buf_done(&text);
    return place;
}

bool answer_read_place(struct slice text, struct arena *a, struct slice *ret_ns,
                       struct slice *ret_name)
{
    const char *slash = text.len ? memchr(text.data, '/', text.len) : NULL;
    if (!slash)
        return false;
    size_t len = (size_t)(slash - text.data);
    return http_decode(slice_of(text.data, len), a, ret_ns) &&
           http_decode(slice_of(slash + 1, text.len - len - 1), a, ret_name) &&
           ret_ns->len > 0 && ret_ns->len <= LIMIT_NAMESPACE_BYTES &&
           ret_name->len <= LIMIT_NAME_BYTES;
}

/* --- locks --- */

struct reply *answer_found(const struct answer_page *page, struct arena *a)
{
    struct reply *r = row(a);
    struct reply *list = reply_list(a, r, "locks");
    for (size_t i = 0; i < page->n; i++) {
        struct reply *m = reply_map(a, list, NULL);
        if (page->rows[i].ns.len)
            reply_text(a, m, "namespace", page->rows[i].ns);
        answer_lock(a, m, &page->rows[i].lock, false);
    }
    put_next(a, r, page->next);
    if (page->stale)
        reply_int(a, r, "stale_ms", (int64_t)page->age_ms);
    return r;
}

struct reply *answer_crowd(const struct event *ev, enum op_kind op, struct arena *a)
{
    const struct lock_row *lock = ev->locks;
    bool holders = op == OP_HOLDERS;
    struct reply *r = row(a);
    struct reply *list = reply_list(a, r, holders ? "holders" : "waiters");
    for (size_t i = 0; i < lock->n_holders; i++)
        answer_holder(a, list, &lock->holders[i]);
    for (size_t i = 0; i < lock->n_waiters; i++)
        answer_waiter(a, list, &lock->waiters[i]);
    if (!ev->more)
        reply_null(a, r, "next");
    else
        reply_int(a, r, "next",
                  (int64_t)(holders ? lock->holders[lock->n_holders - 1].fence : ev->ticket));
    reply_int(a, r, "total", (int64_t)(holders ? lock->holders_total : lock->waiters_total));
    return r;
}

/* --- the things of a session --- */

static void put_item(struct arena *a, struct reply *list, const struct item_row *item)
{
    static const char *const numbers[] = {"fence", "ticket", NULL};
    static const char *const times[] = {"held_ms", "waited_ms", "set_ms_ago"};
    struct reply *m = reply_map(a, list, NULL);
    reply_text(a, m, "namespace", item->ns);
    if (item->kind == ITEM_VARIABLE)
        reply_text(a, m, "table", item->table);
    reply_text(a, m, item->kind == ITEM_VARIABLE ? "key" : "name", item->name);
    if (item->kind != ITEM_VARIABLE) {
        reply_text(a, m, "owner", item->owner);
        reply_text(a, m, "mode", slice_str(lock_mode_word(item->mode)));
        reply_int(a, m, numbers[item->kind], (int64_t)item->number);
    }
    if (item->mode == MODE_SEMAPHORE)
        reply_int(a, m, "permits", (int64_t)item->permits);
    reply_int(a, m, times[item->kind], (int64_t)item->since_ms_ago);
    if (item->forever)
        reply_null(a, m, "expires_in_ms");
    else
        reply_int(a, m, "expires_in_ms", (int64_t)item->expires_in_ms);
}

struct reply *answer_items(const struct event *ev, struct manner manner, struct arena *a)
{
    const char *key = manner.command == CMD_SESSION_HOLDS   ? "holds"
                      : manner.command == CMD_SESSION_WAITS ? "waits"
                                                            : "variables";
    struct reply *r = row(a);
    struct reply *list = reply_list(a, r, key);
    for (size_t i = 0; i < ev->n_rows; i++)
        put_item(a, list, &ev->items[i]);
    char place[48] = "";
    if (ev->more) {
        const struct item_row *last = &ev->items[ev->n_rows - 1];
        (void)snprintf(place, sizeof place, "%llu.%llu", (unsigned long long)last->group,
                       (unsigned long long)last->number);
    }
    put_next(a, r, arena_copy(a, slice_str(place)));
    return r;
}
