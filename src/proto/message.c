/* message.c - the tree of a reply, whatever protocol shows it. */
#include "proto/message.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct reply *reply_new(struct arena *a, enum reply_kind kind)
{
    struct reply *r = arena_alloc(a, sizeof *r);
    if (r)
        *r = (struct reply){.kind = kind, .key = {"", 0}, .text = {"", 0}};
    return r;
}

struct reply *reply_add(struct reply *parent, struct slice key, struct reply *child)
{
    if (!parent || !child)
        return child;
    child->key = key.data ? key : slice_of("", 0);
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
    return child;
}

struct reply *reply_error(struct arena *a, enum belay_err err, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    struct reply *r = reply_new(a, REPLY_ERROR);
    char *text = n >= 0 ? arena_alloc(a, (size_t)n + 1) : NULL;
    if (r) {
        r->err = err;
        r->text = slice_str(err_text(err)); /* no memory for the words: the plain ones */
        if (text && vsnprintf(text, (size_t)n + 1, format, again) == n)
            r->text = slice_of(text, (size_t)n);
    }
    va_end(again);
    va_end(args);
    return r;
}

static struct reply *add_new(struct arena *a, struct reply *map, struct slice key,
                             enum reply_kind kind)
{
    return reply_add(map, key, reply_new(a, kind));
}

struct reply *reply_text_at(struct arena *a, struct reply *map, struct slice key,
                            struct slice text)
{
    struct reply *r = add_new(a, map, key, REPLY_TEXT);
    if (r && text.data) /* an absent text is an empty one */
        r->text = text;
    return r;
}

struct reply *reply_int_at(struct arena *a, struct reply *map, struct slice key, int64_t v)
{
    struct reply *r = add_new(a, map, key, REPLY_INT);
    if (r)
        r->number = v;
    return r;
}

struct reply *reply_bool_at(struct arena *a, struct reply *map, struct slice key, bool v)
{
    struct reply *r = add_new(a, map, key, REPLY_BOOL);
    if (r)
        r->number = v;
    return r;
}

struct reply *reply_null(struct arena *a, struct reply *map, const char *key)
{
    return add_new(a, map, slice_str(key), REPLY_NULL);
}

struct reply *reply_list(struct arena *a, struct reply *map, const char *key)
{
    return add_new(a, map, slice_str(key), REPLY_LIST);
}

struct reply *reply_map(struct arena *a, struct reply *map, const char *key)
{
    return add_new(a, map, slice_str(key), REPLY_MAP);
}

const struct reply *reply_get(const struct reply *map, const char *key)
{
    if (!map || map->kind != REPLY_MAP)
        return NULL;
    struct slice want = slice_str(key);
    for (const struct reply *r = map->first; r; r = r->next)
        if (slice_eq(r->key, want))
            return r;
    return NULL;
}

/* Numbers of at most three places, which most are: without the search for the shortest digits.
 */
static int put_short(double v, char *space)
{
    enum { PLACES = 1000 };
    static const double most = 1e12; /* times 1000 it is still exact */
    if (!(v > -most && v < most))
        return 0;
    long long thousandths = (long long)(v * PLACES + (v < 0 ? -0.5 : 0.5));
    if ((double)thousandths / PLACES != v || (thousandths == 0 && signbit(v)))
        return 0;
    long long whole = llabs(thousandths) / PLACES, rest = llabs(thousandths) % PLACES;
    int n = snprintf(space, REPLY_REAL_BYTES, "%s%lld", v < 0 ? "-" : "", whole);
    if (rest)
        n += snprintf(space + n, REPLY_REAL_BYTES - (size_t)n, ".%03lld", rest);
    while (rest && space[n - 1] == '0')
        n--;
    return n;
}

struct slice reply_real(double v, char *space)
{
    int n = put_short(v, space);
    if (n)
        return slice_of(space, (size_t)n);
    if (isnan(v))
        n = snprintf(space, REPLY_REAL_BYTES, "nan");
    else if (isinf(v))
        n = snprintf(space, REPLY_REAL_BYTES, v > 0 ? "inf" : "-inf");
    else
        for (int digits = 15; digits <= 17; digits++) {
            n = snprintf(space, REPLY_REAL_BYTES, "%.*g", digits, v);
            if (strtod(space, NULL) == v)
                break;
        }
    return slice_of(space, (size_t)n);
}
