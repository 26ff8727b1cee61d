/* args.h - the parameters of a command, read from RESP words or from an HTTP request.
 *
 * params.def says what a parameter is called, its type and its bounds; a row of commands.def
 * says which of them a command takes. From the two, this file reads any request: words by
 * position and then KEYWORD value in any order and any case, or path, query and JSON members by
 * name. What is unknown, doubled, missing, of the wrong type or out of bounds is refused by
 * name. */
#ifndef BELAY_COMMAND_ARGS_H
#define BELAY_COMMAND_ARGS_H

#include "base/arena.h"
#include "base/buf.h"
#include "machine/op.h"
#include "proto/message.h"

enum param {
    P_NONE,
#define P(id, keyword, member, type, min, max, shown) P_##id,
#include "command/params.def"
#undef P
    P_COUNT
};

struct arg {
    struct slice text;
    uint64_t number;
};

struct args {
    uint64_t have[2];       /* bit p: parameter p is given */
    struct arg at[P_COUNT]; /* only those in `have` are written */
    const struct slice *rest;
    size_t n_rest;
};

/* Which parameters: in their order, and by keyword. Both end with P_NONE. */
enum { ARGS_POSITIONS_MAX = 6, ARGS_OPTIONS_MAX = 16 };
struct params {
    uint8_t positions[ARGS_POSITIONS_MAX];
    uint8_t options[ARGS_OPTIONS_MAX];
};

static inline bool args_has(const struct args *a, enum param p)
{
    return a->have[p / 64] >> p % 64 & 1;
}

static inline void args_give(struct args *a, enum param p)
{
    a->have[p / 64] |= UINT64_C(1) << p % 64;
}

static inline void args_clear(struct args *a)
{
    a->have[0] = a->have[1] = 0;
    a->n_rest = 0;
}

static inline struct slice args_text(const struct args *a, enum param p) /* empty: not given */
{
    return args_has(a, p) ? a->at[p].text : SLICE("");
}

static inline uint64_t args_number(const struct args *a, enum param p, uint64_t otherwise)
{
    return args_has(a, p) ? a->at[p].number : otherwise;
}

/* All of these return NULL, or the reply (in `a`) that says what is wrong. `words` are those
 * behind the command's name; `ret` borrows from them. */
struct reply *args_from_words(const struct params *ps, const struct slice *words, size_t n,
                              struct arena *a, struct args *ret);
/* The first `n_query` of the request's fields stood in the query: their values are text. What
 * the path gave is in `ret` already. */
struct reply *args_from_fields(const struct params *ps, const struct request *req,
                               size_t n_query, struct arena *a, struct args *ret);
/* One value, as if it had been a word. */
struct reply *args_set(enum param p, struct slice word, struct arena *a, struct args *ret);

bool args_takes(const struct params *ps, enum param p);
/* The parameter with that name in a path template ("ns"), among those of `ps` first. */
enum param args_param_of_path(const struct params *ps, struct slice name);

/* Its name in JSON, in a query and in a path; and its values as a JSON schema. */
const char *args_member(enum param p);
void args_schema(enum param p, struct buf *out);

/* "name owner [MODE exclusive|shared] [TTL ms]" */
void args_usage(const struct params *ps, struct buf *out);

/* Whole numbers without sign and without overflow; false: it is none. */
bool args_parse_u64(struct slice word, uint64_t *ret);

/* At most 40 bytes of foreign text for an error message: printable and quoted. */
const char *args_quote(struct arena *a, struct slice s);
#endif
