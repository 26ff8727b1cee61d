/* args.c - the parameters of a command, read by commands.def and params.def. */
#include "command/args.h"

#include "machine/event.h"
#include "proto/json.h"

#include <assert.h>

enum param_type { BYTES, INT, WORD, FLAG, OFF, HOLD, REST };

static const struct param_info {
    struct slice keyword;
    const char *member;
    enum param_type type;
    uint64_t min, max;
    const char *shown;
} infos[P_COUNT] = {
#define P(id, keyword, member, type, min, max, shown)                                          \
    [P_##id] = {{keyword, sizeof(keyword) - 1}, member, type, min, max, shown},
#include "command/params.def"
#undef P
};
static_assert(P_COUNT <= 128, "struct args keeps one bit for each parameter");

static const struct {
    enum param param;
    struct slice word;
    uint64_t value;
} words_of[] = {
#define W(param, word, value)                                                                  \
    {                                                                                          \
        param, {word, sizeof(word) - 1}, value                                                 \
    }
    W(P_MODE, "exclusive", MODE_EXCLUSIVE),
    W(P_MODE, "shared", MODE_SHARED),
    W(P_POLICY, "hard", POLICY_HARD),
    W(P_POLICY, "soft", POLICY_SOFT),
    W(P_POLICY, "timed", POLICY_TIMED),
    W(P_STATE, "unlocked", LOCK_UNLOCKED),
    W(P_STATE, "shared", LOCK_SHARED),
    W(P_STATE, "exclusive", LOCK_EXCLUSIVE),
    W(P_STATE, "semaphore", LOCK_SEMAPHORE),
    W(P_STATE, "closed", LOCK_CLOSED),
    W(P_SORT, "name", SORT_NAME),
    W(P_SORT, "age", SORT_AGE),
    W(P_SORT, "waiters", SORT_WAITERS),
    W(P_SORT, "waited", SORT_WAITED),
    W(P_SORT, "expires", SORT_EXPIRES),
#undef W
};

enum { QUOTE_BYTES_MAX = 40 };

const char *args_quote(struct arena *a, struct slice s)
{
    size_t n = s.len < QUOTE_BYTES_MAX ? s.len : QUOTE_BYTES_MAX;
    char *out = arena_alloc(a, n + 6);
    char *p = out;
    *p++ = '\'';
    for (size_t i = 0; i < n; i++) {
        char c = s.data[i];
        *p++ = (char)(c >= ' ' && c <= '~' ? c : '?');
    }
    if (s.len > n)
        p = (char *)memcpy(p, "...", 3) + 3;
    *p++ = '\'';
    *p = '\0';
    return out;
}

bool args_parse_u64(struct slice word, uint64_t *ret)
{
    uint64_t v = 0;
    if (word.len == 0)
        return false;
    for (size_t i = 0; i < word.len; i++) {
        unsigned digit = (unsigned char)word.data[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, digit, &v))
            return false;
    }
    *ret = v;
    return true;
}

static struct slice shown_name(enum param p, bool http)
{
    return http && infos[p].member[0] ? slice_str(infos[p].member) : infos[p].keyword;
}

static struct reply *fail_word(enum param p, bool http, struct slice word, struct arena *a)
{
    struct buf known = {0};
    for (size_t i = 0; i < sizeof words_of / sizeof *words_of; i++) {
        if (words_of[i].param == p)
            buf_printf(&known, "%s%s", buf_len(&known) ? ", " : "", words_of[i].word.data);
    }
    struct reply *r =
        reply_error(a, BELAY_ERR_SYNTAX, "%s must be one of %s, not %s",
                    shown_name(p, http).data, buf_cstr(&known), args_quote(a, word));
    buf_done(&known);
    return r;
}

/* What read_value() did not take. Apart, so that nothing of it burdens those that are right. */
static __attribute__((cold)) struct reply *fail_value(enum param p, bool http,
                                                      struct slice word, struct arena *a)
{
    const struct param_info *info = &infos[p];
    unsigned long long min = info->min, max = info->max;
    if (info->type == WORD)
        return fail_word(p, http, word, a);
    if (info->type == INT)
        return reply_error(a, BELAY_ERR_RANGE,
                           "%s must be a whole number from %llu to %llu, not %s",
                           shown_name(p, http).data, min, max, args_quote(a, word));
    return reply_error(a, BELAY_ERR_RANGE, "%s must have %llu to %llu bytes, not %zu",
                       shown_name(p, http).data, min, max, word.len);
}

static bool find_word(enum param p, struct slice word, uint64_t *ret)
{
    for (size_t i = 0; i < sizeof words_of / sizeof *words_of; i++) {
        if (words_of[i].param == p && slice_eq_nocase(word, words_of[i].word)) {
            *ret = words_of[i].value;
            return true;
        }
    }
    return false;
}

/* A word or a text for p: is it right? Stores it. */
static bool read_value(enum param p, struct slice word, struct arg *ret)
{
    const struct param_info *info = &infos[p];
    ret->text = word;
    ret->number = 0;
    if (info->type == INT)
        return args_parse_u64(word, &ret->number) && ret->number >= info->min &&
               ret->number <= info->max;
    if (info->type == WORD)
        return find_word(p, word, &ret->number);
    return word.len >= info->min && word.len <= info->max;
}

static struct reply *set_text(enum param p, bool http, struct slice word, struct arena *a,
                              struct args *ret)
{
    if (!read_value(p, word, &ret->at[p]))
        return fail_value(p, http, word, a);
    args_give(ret, p);
    return NULL;
}

struct reply *args_set(enum param p, struct slice word, struct arena *a, struct args *ret)
{
    return set_text(p, true, word, a, ret);
}

void args_usage(const struct params *ps, struct buf *out)
{
    for (const uint8_t *p = ps->positions; *p != P_NONE; p++)
        buf_printf(out, "%s%s", p == ps->positions ? "" : " ", infos[*p].shown);
    for (const uint8_t *p = ps->options; *p != P_NONE; p++)
        buf_printf(out, "%s[%s%s%s]", buf_len(out) ? " " : "", infos[*p].keyword.data,
                   infos[*p].shown[0] ? " " : "", infos[*p].shown);
}

const char *args_member(enum param p)
{
    return infos[p].member;
}

void args_schema(enum param p, struct buf *out)
{
    const struct param_info *info = &infos[p];
    const char *comma = "";
    switch (info->type) {
    case BYTES:
        buf_printf(out, "{\"type\":\"string\",\"minLength\":%llu,\"maxLength\":%llu}",
                   (unsigned long long)info->min, (unsigned long long)info->max);
        break;
    case INT:
        buf_printf(out, "{\"type\":\"integer\",\"minimum\":%llu,\"maximum\":%llu}",
                   (unsigned long long)info->min, (unsigned long long)info->max);
        break;
    case WORD:
        buf_put_str(out, "{\"type\":\"string\",\"enum\":[");
        for (size_t i = 0; i < sizeof words_of / sizeof *words_of; i++)
            if (words_of[i].param == p) {
                buf_printf(out, "%s\"%s\"", comma, words_of[i].word.data);
                comma = ",";
            }
        buf_put_str(out, "]}");
        break;
    case FLAG:
    case OFF:
        buf_put_str(out, "{\"type\":\"boolean\"}");
        break;
    case HOLD:
    case REST:
        buf_put_str(out, "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}");
        break;
    }
}

/* fence | OWNER owner: one word or two; returns how many, 0: *ret_fail says why. */
static size_t set_hold(const struct slice *words, size_t n, struct arena *a, struct args *ret,
                       struct reply **ret_fail)
{
    if (!slice_eq_nocase(words[0], SLICE("OWNER"))) {
        *ret_fail = set_text(P_FENCE, false, words[0], a, ret);
        return *ret_fail ? 0 : 1;
    }
    if (n < 2) {
        *ret_fail = reply_error(a, BELAY_ERR_SYNTAX, "OWNER needs an owner behind it");
        return 0;
    }
    *ret_fail = set_text(P_OWNER, false, words[1], a, ret);
    return *ret_fail ? 0 : 2;
}

static struct reply *fail_few(const struct params *ps, enum param missing, struct arena *a)
{
    struct buf usage = {0};
    args_usage(ps, &usage);
    struct reply *r = reply_error(a, BELAY_ERR_SYNTAX, "%s is missing; it takes: %s",
                                  infos[missing].shown, buf_cstr(&usage));
    buf_done(&usage);
    return r;
}

/* Words by position. *ret_used: how many were taken. */
static struct reply *read_positions(const struct params *ps, const struct slice *words,
                                    size_t n, struct arena *a, struct args *ret,
                                    size_t *ret_used)
{
    size_t at = 0;
    struct reply *fail = NULL;
    for (const uint8_t *p = ps->positions; *p != P_NONE && !fail; p++) {
        const struct param_info *info = &infos[*p];
        if (info->type == REST) {
            if (n - at < info->min)
                return fail_few(ps, *p, a);
            if (n - at > info->max)
                return reply_error(a, BELAY_ERR_LIMIT, "at most %llu of %s, not %zu",
                                   (unsigned long long)info->max, info->shown, n - at);
            ret->rest = at ? words + at : words;
            ret->n_rest = n - at;
            args_give(ret, (enum param) * p);
            at = n;
        } else if (at == n) {
            return fail_few(ps, *p, a);
        } else if (info->type == HOLD) {
            at += set_hold(words + at, n - at, a, ret, &fail);
        } else {
            fail = set_text(*p, false, words[at++], a, ret);
        }
    }
    *ret_used = at;
    return fail;
}

static enum param find_keyword(const struct params *ps, struct slice word)
{
    for (const uint8_t *p = ps->options; *p != P_NONE; p++) {
        if (slice_eq_nocase(word, infos[*p].keyword))
            return *p;
    }
    return P_NONE;
}

static struct reply *fail_unknown(const struct params *ps, struct slice word, struct arena *a)
{
    struct buf usage = {0};
    args_usage(ps, &usage);
    struct reply *r =
        reply_error(a, BELAY_ERR_SYNTAX, "unknown word %s; it takes: %s", args_quote(a, word),
                    buf_len(&usage) ? buf_cstr(&usage) : "nothing");
    buf_done(&usage);
    return r;
}

static struct reply *fail_twice(enum param p, struct arena *a)
{
    return reply_error(a, BELAY_ERR_SYNTAX, "%s is given twice", infos[p].keyword.data);
}

struct reply *args_from_words(const struct params *ps, const struct slice *words, size_t n,
                              struct arena *a, struct args *ret)
{
    size_t at = 0;
    args_clear(ret);
    struct reply *fail = read_positions(ps, words, n, a, ret, &at);
    while (!fail && at < n) {
        enum param p = find_keyword(ps, words[at]);
        if (p == P_NONE)
            return fail_unknown(ps, words[at], a);
        if (args_has(ret, p))
            return fail_twice(p, a);
        at++;
        if (infos[p].type == FLAG || infos[p].type == OFF) {
            args_give(ret, p);
            continue;
        }
        if (at == n)
            return reply_error(a, BELAY_ERR_SYNTAX, "%s needs a value behind it: %s",
                               infos[p].keyword.data, infos[p].shown);
        fail = set_text(p, false, words[at++], a, ret);
        /* "POLICY timed 500" is short for "POLICY timed QUIET 500" */
        if (!fail && p == P_POLICY && ret->at[p].number == POLICY_TIMED && at < n &&
            words[at].len && words[at].data[0] >= '0' && words[at].data[0] <= '9')
            fail = args_has(ret, P_QUIET) ? fail_twice(P_QUIET, a)
                                          : set_text(P_QUIET, false, words[at++], a, ret);
    }
    return fail;
}

bool args_takes(const struct params *ps, enum param p)
{
    for (const uint8_t *q = ps->positions; *q != P_NONE; q++) {
        if (*q == p || (*q == P_HOLD && (p == P_FENCE || p == P_OWNER)))
            return true;
    }
    for (const uint8_t *q = ps->options; *q != P_NONE; q++) {
        if (*q == p)
            return true;
    }
    return false;
}

static enum param find_member(const struct params *ps, struct slice key)
{
    for (enum param p = P_NONE + 1; p < P_COUNT; p++) {
        if (infos[p].type != HOLD && slice_eq(key, slice_str(infos[p].member)) &&
            args_takes(ps, p))
            return p;
    }
    return P_NONE;
}

enum param args_param_of_path(const struct params *ps, struct slice name)
{
    enum param p = find_member(ps, name);
    for (enum param q = P_NONE + 1; p == P_NONE && q < P_COUNT; q++) {
        if (slice_eq(name, slice_str(infos[q].member)))
            p = q;
    }
    return p;
}

static const char *json_type_of(enum param_type type)
{
    switch (type) {
    case INT:
        return "a whole number";
    case FLAG:
    case OFF:
        return "true or false";
    case REST:
        return "an array of strings";
    case BYTES:
    case WORD:
    case HOLD:
        break;
    }
    return "a string";
}

static struct reply *fail_type(enum param p, struct arena *a)
{
    return reply_error(a, BELAY_ERR_SYNTAX, "\"%s\" must be %s", infos[p].member,
                       json_type_of(infos[p].type));
}

static struct reply *set_switch(enum param p, const struct field *f, struct arena *a,
                                struct args *ret)
{
    bool digits = f->type == FIELD_TEXT && infos[p].max == 1;
    bool on = slice_eq(f->value, SLICE("true")) || (digits && slice_eq(f->value, SLICE("1")));
    bool off = slice_eq(f->value, SLICE("false")) || (digits && slice_eq(f->value, SLICE("0")));
    if (!on && !off)
        return fail_type(p, a);
    if (on == (infos[p].type == FLAG))
        args_give(ret, p);
    return NULL;
}

static struct reply *set_json_number(enum param p, struct slice raw, struct arena *a,
                                     struct args *ret)
{
    uint64_t number = 0;
    if (!json_u64(raw, &number) || number < infos[p].min || number > infos[p].max)
        return fail_value(p, true, raw, a);
    args_give(ret, p);
    ret->at[p] = (struct arg){raw, number};
    return NULL;
}

static struct reply *set_field(enum param p, const struct field *f, bool query, struct arena *a,
                               struct args *ret)
{
    if (f->type == FIELD_NULL)
        return NULL; /* null is absent */
    switch (infos[p].type) {
    case INT:
        if (f->type == FIELD_NUMBER)
            return set_json_number(p, f->value, a, ret);
        return query ? set_text(p, true, f->value, a, ret) : fail_type(p, a);
    case FLAG:
    case OFF:
        if (f->type != FIELD_BOOL && !(query && f->type == FIELD_TEXT))
            return fail_type(p, a);
        return set_switch(p, f, a, ret);
    case BYTES:
    case WORD:
        if (f->type != FIELD_TEXT)
            return fail_type(p, a);
        return set_text(p, true, f->value, a, ret);
    case REST:
    case HOLD:
        break;
    }
    return fail_type(p, a);
}

/* What the positions promise must be there, from whichever door. */
static struct reply *require(const struct params *ps, struct arena *a, const struct args *got)
{
    for (const uint8_t *p = ps->positions; *p != P_NONE; p++) {
        if (infos[*p].type == HOLD) {
            if (args_has(got, P_FENCE) == args_has(got, P_OWNER))
                return reply_error(a, BELAY_ERR_SYNTAX,
                                   "give either \"fence\" or \"owner\", and not both");
        } else if (infos[*p].type != REST && !args_has(got, *p)) {
            return reply_error(a, BELAY_ERR_SYNTAX, "\"%s\" is missing", infos[*p].member);
        }
    }
    return NULL;
}

struct reply *args_from_fields(const struct params *ps, const struct request *req,
                               size_t n_query, struct arena *a, struct args *ret)
{
    for (size_t i = 0; i < req->n_fields; i++) {
        const struct field *f = &req->fields[i];
        enum param p = find_member(ps, f->key);
        if (p == P_NONE)
            return reply_error(a, BELAY_ERR_SYNTAX, "unknown %s %s",
                               i < n_query ? "query parameter" : "member",
                               args_quote(a, f->key));
        if (args_has(ret, p))
            return reply_error(a, BELAY_ERR_SYNTAX, "\"%s\" is given twice", infos[p].member);
        struct reply *fail = set_field(p, f, i < n_query, a, ret);
        if (fail)
            return fail;
    }
    return require(ps, a, ret);
}
