/* rule.c - what a token may do: reads the text of rules, and finds the rule that decides. */
#include "auth/rule.h"

enum { FLAG_NS_OPEN = 1, FLAG_NAME_OPEN = 2, HEAD_BYTES = 5, BYTE_BITS = 8, BYTE_MASK = 255 };

static const struct {
    enum verb verb;
    struct slice word;
} words[] = {
#define X(id, bit, word) {VERB_##id, {word, sizeof(word) - 1}},
    VERB_MAP(X)
#undef X
};
enum { WORDS = sizeof words / sizeof *words };

const char *verb_word(enum verb verb)
{
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].verb == verb)
            return words[i].word.data;
    return "";
}

enum verb verb_find(struct slice word)
{
    for (size_t i = 0; i < WORDS; i++)
        if (slice_eq(words[i].word, word))
            return words[i].verb;
    return VERB_NOBODY;
}

/* --- typed --- */

static const char *read_verbs(struct slice text, unsigned *ret)
{
    *ret = 0;
    for (const char *p = text.data, *end = p + text.len;;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;
        enum verb verb = verb_find(slice_of(p, (size_t)(stop - p)));
        if (verb == VERB_NOBODY)
            return "a rule begins with verbs: read, lock, break, admin, cluster, accounts";
        if (*ret & verb)
            return "a verb is in the rule twice";
        *ret |= verb;
        if (!comma)
            return NULL;
        p = comma + 1;
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | ' ');
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

struct pattern {
    char bytes[RULE_NAME_BYTES];
    size_t len;
    bool open;
};

/* "db%2A*": raw bytes, and whether a star stands behind them. */
static const char *read_pattern(struct slice text, size_t max, struct pattern *ret)
{
    ret->len = 0;
    ret->open = text.len && text.data[text.len - 1] == '*';
    size_t n = text.len - ret->open;
    for (size_t i = 0; i < n; i++) {
        char c = text.data[i];
        if (c == '*')
            return "'*' stands only behind a name; write %2A for a star in it";
        if (c == '%') {
            int high = i + 2 < n ? hex_digit(text.data[i + 1]) : -1;
            int low = i + 2 < n ? hex_digit(text.data[i + 2]) : -1;
            if (high < 0 || low < 0)
                return "'%' needs two hexadecimal digits behind it";
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (ret->len == max)
            return "a name in the rule is too long: a namespace has at most 128 bytes, a lock "
                   "name 512";
        ret->bytes[ret->len++] = c;
    }
    return ret->len || ret->open ? NULL : "a name in the rule is empty; write * for all";
}

static void put_rule(struct buf *out, unsigned verbs, const struct pattern *ns,
                     const struct pattern *name)
{
    buf_put_byte(out, (char)verbs);
    buf_put_byte(out,
                 (char)((ns->open ? FLAG_NS_OPEN : 0) | (name->open ? FLAG_NAME_OPEN : 0)));
    buf_put_byte(out, (char)ns->len);
    buf_put_byte(out, (char)(name->len & BYTE_MASK));
    buf_put_byte(out, (char)(name->len >> BYTE_BITS));
    buf_put(out, ns->bytes, ns->len);
    buf_put(out, name->bytes, name->len);
}

const char *rule_read(struct slice text, struct buf *out)
{
    struct pattern ns = {.len = 0}, name = {.open = true};
    unsigned verbs;
    if (text.len == 0)
        return "a rule is empty";
    if (text.len > RULE_TEXT_BYTES)
        return "a rule has more than 4096 bytes";
    const char *space = memchr(text.data, ' ', text.len);
    size_t n = space ? (size_t)(space - text.data) : text.len;
    const char *what = read_verbs(slice_of(text.data, n), &verbs);
    if (what)
        return what;
    if (verbs & VERBS_OF_OPERATORS) {
        if (space || verbs & VERBS_OF_NAMES)
            return "cluster and accounts need a rule of their own, without a namespace";
        name.open = false;
        put_rule(out, verbs, &ns, &name);
        return NULL;
    }
    if (!space)
        return "a namespace is missing behind the verbs: 'read,lock NAMESPACE/PREFIX*'";
    struct slice names = slice_of(space + 1, text.len - n - 1);
    const char *slash = names.len ? memchr(names.data, '/', names.len) : NULL;
    size_t ns_len = slash ? (size_t)(slash - names.data) : names.len;
    what = read_pattern(slice_of(names.data, ns_len), RULE_NAMESPACE_BYTES, &ns);
    if (!what && slash)
        what =
            read_pattern(slice_of(slash + 1, names.len - ns_len - 1), RULE_NAME_BYTES, &name);
    if (!what)
        put_rule(out, verbs, &ns, &name);
    return what;
}

static void write_pattern(struct slice bytes, bool open, struct buf *out)
{
    for (size_t i = 0; i < bytes.len; i++) {
        unsigned char c = (unsigned char)bytes.data[i];
        bool plain = c > ' ' && c < 0x7f && c != '%' && c != '*' && c != '/';
        if (plain)
            buf_put_byte(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
    if (open)
        buf_put_byte(out, '*');
}

void rule_write(const struct rule *rule, struct buf *out)
{
    const char *comma = "";
    for (size_t i = 0; i < WORDS; i++) {
        if (!(rule->verbs & words[i].verb))
            continue;
        buf_printf(out, "%s%s", comma, words[i].word.data);
        comma = ",";
    }
    if (rule->verbs & VERBS_OF_OPERATORS)
        return;
    buf_put_byte(out, ' ');
    write_pattern(rule->ns, rule->ns_open, out);
    if (rule->name.len == 0 && rule->name_open)
        return;
    buf_put_byte(out, '/');
    write_pattern(rule->name, rule->name_open, out);
}

/* --- kept --- */

bool rules_next(struct slice *left, struct rule *ret)
{
    const unsigned char *p = (const unsigned char *)left->data;
    if (left->len < HEAD_BYTES)
        return false;
    size_t ns_len = p[2], name_len = p[3] | (size_t)p[4] << BYTE_BITS;
    if (left->len < HEAD_BYTES + ns_len + name_len)
        return false;
    const char *ns = left->data + HEAD_BYTES;
    *ret = (struct rule){.verbs = p[0],
                         .ns_open = p[1] & FLAG_NS_OPEN,
                         .name_open = p[1] & FLAG_NAME_OPEN,
                         .ns = slice_of(ns, ns_len),
                         .name = slice_of(ns + ns_len, name_len)};
    left->data = ns + ns_len + name_len;
    left->len -= HEAD_BYTES + ns_len + name_len;
    return true;
}

static bool rule_is_sound(const struct rule *r, unsigned char flags)
{
    bool of_operator = r->verbs & VERBS_OF_OPERATORS;
    if (r->verbs == 0 || r->verbs & ~(unsigned)(VERBS_OF_NAMES | VERBS_OF_OPERATORS) ||
        flags & ~(FLAG_NS_OPEN | FLAG_NAME_OPEN))
        return false;
    if (of_operator)
        return !(r->verbs & VERBS_OF_NAMES) && flags == 0 && r->ns.len == 0 && r->name.len == 0;
    return r->ns.len <= RULE_NAMESPACE_BYTES && r->name.len <= RULE_NAME_BYTES &&
           (r->ns.len || r->ns_open) && (r->name.len || r->name_open);
}

bool rules_check(struct slice rules)
{
    struct rule r;
    size_t n = 0;
    while (rules.len) {
        unsigned char flags = rules.len > 1 ? (unsigned char)rules.data[1] : 0;
        if (!rules_next(&rules, &r) || !rule_is_sound(&r, flags) || ++n > RULES_MAX)
            return false;
    }
    return true;
}

static bool matches(struct slice pattern, bool open, struct slice name)
{
    return open ? slice_starts(name, pattern) : slice_eq(name, pattern);
}

/* How exact it is: a whole name above every beginning. */
static size_t exactness(struct slice pattern, bool open)
{
    return open ? pattern.len : RULE_NAME_BYTES + 1;
}

/* Positive: `a` is the more exact of two rules that match. */
static int more_exact(const struct rule *a, const struct rule *b)
{
    size_t x = exactness(a->ns, a->ns_open), y = exactness(b->ns, b->ns_open);
    if (x == y) {
        x = exactness(a->name, a->name_open);
        y = exactness(b->name, b->name_open);
    }
    return x > y ? 1 : x < y ? -1 : 0;
}

bool rules_can(struct slice rules, enum verb verb, struct slice ns, struct slice name,
               struct rule *ret_rule)
{
    struct rule best = {0}, r;
    bool of_operator = verb & VERBS_OF_OPERATORS;
    while (rules_next(&rules, &r)) {
        bool is_operators = r.verbs & VERBS_OF_OPERATORS;
        if (of_operator != is_operators)
            continue;
        if (!of_operator &&
            (!matches(r.ns, r.ns_open, ns) || !matches(r.name, r.name_open, name)))
            continue;
        int order = best.verbs ? more_exact(&r, &best) : 1;
        if (order > 0)
            best = r;
        else if (order == 0)
            best.verbs |= r.verbs;
    }
    if (ret_rule)
        *ret_rule = best;
    return best.verbs & verb;
}

bool rules_can_somewhere(struct slice rules, enum verb verb, const struct slice *ns)
{
    struct rule r;
    struct slice all = rules;
    while (rules_next(&rules, &r)) {
        if (!(r.verbs & verb))
            continue;
        if (!ns)
            return true;
        /* a rule gives what it says at its own name, unless a more exact one takes that away */
        if (matches(r.ns, r.ns_open, *ns) && rules_can(all, verb, *ns, r.name, NULL))
            return true;
    }
    return false;
}

static bool place_at(struct slice name, bool itself, struct rules_place *ret)
{
    ret->len = name.len;
    ret->itself = itself;
    if (name.len)
        memcpy(ret->bytes, name.data, name.len);
    return true;
}

/* The first name behind all that begin with `prefix`. False: there is none. */
static bool place_past(struct slice prefix, struct rules_place *ret)
{
    while (prefix.len && (unsigned char)prefix.data[prefix.len - 1] == BYTE_MASK)
        prefix.len--;
    if (prefix.len == 0)
        return false;
    (void)place_at(prefix, true, ret);
    ret->bytes[prefix.len - 1]++;
    return true;
}

bool rules_skip(struct slice rules, struct slice ns, struct slice name, struct rules_place *ret)
{
    struct rule by, r;
    struct slice next = slice_of("", 0);
    (void)rules_can(rules, VERB_READ, ns, name, &by);
    if (by.verbs && !by.name_open)
        return place_at(name, false, ret);
    /* In the range of the rule that decides (all names, when there is none), only a rule for a
     * longer beginning can say otherwise. */
    while (rules_next(&rules, &r)) {
        if (r.verbs & VERB_READ && matches(r.ns, r.ns_open, ns) &&
            slice_starts(r.name, by.name) && slice_cmp(r.name, name) > 0 &&
            (next.len == 0 || slice_cmp(r.name, next) < 0))
            next = r.name;
    }
    return next.len ? place_at(next, true, ret) : place_past(by.name, ret);
}
