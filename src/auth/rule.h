/* rule.h - what a token may do: rules, and which of them decides.
 *
 *   read,lock team/db*     in the namespace "team", locks whose names begin with "db"
 *   admin team*            in every namespace whose name begins with "team", whatever the lock
 *   cluster,accounts       an operator's rights, without a namespace
 *
 * A rule names a namespace, or the beginning of one with '*' behind it, and behind a slash a
 * lock name in the same way; without a slash every lock is meant. Names are raw bytes; '%',
 * '*',
 * '/' and what cannot be typed is written %XX. Of the rules that match, the most exact one
 * decides alone, for all verbs: first by its namespace, then by its lock name; a whole name is
 * more exact than the beginning of one, and a longer beginning than a shorter one. Rules for
 * the same names count together.
 *
 * Rules are kept as bytes, one behind the other, and read where they stand: nothing here
 * allocates, and a check is a walk over a few dozen bytes. Pure. */
#ifndef BELAY_AUTH_RULE_H
#define BELAY_AUTH_RULE_H

#include "base/buf.h"
#include "base/slice.h"

#include <stdbool.h>

enum {
    RULES_MAX = 64, /* of one token */
    RULE_NAMESPACE_BYTES = 128,
    RULE_NAME_BYTES = 512,
    RULE_TEXT_BYTES = 4096, /* as it is typed */
    RULES_BYTES_MAX = 65536,
};

/* X(ID, bit, word). The bits are part of the state. */
#define VERB_MAP(X)                                                                            \
    X(READ, 1, "read")   /* look, list, watch */                                               \
    X(LOCK, 2, "lock")   /* take, and give back what this token took */                        \
    X(BREAK, 4, "break") /* take from others */                                                \
    X(ADMIN, 8, "admin") /* namespaces themselves */                                           \
    X(CLUSTER, 16, "cluster")                                                                  \
    X(ACCOUNTS, 32, "accounts")

enum verb {
    VERB_NOBODY, /* no verb: no rule gives it */
#define X(id, bit, word) VERB_##id = (bit),
    VERB_MAP(X)
#undef X
        VERBS_OF_NAMES = VERB_READ | VERB_LOCK | VERB_BREAK | VERB_ADMIN,
    VERBS_OF_OPERATORS = VERB_CLUSTER | VERB_ACCOUNTS,
};

struct rule {
    unsigned verbs;
    bool ns_open, name_open; /* a beginning: any bytes may follow */
    struct slice ns, name;   /* raw bytes */
};

const char *verb_word(enum verb verb);  /* "read"; "" when it is none */
enum verb verb_find(struct slice word); /* VERB_NOBODY: there is none */

/* Reads one rule as it is typed and appends its bytes. NULL, or what is wrong with it. */
const char *rule_read(struct slice text, struct buf *out);
/* The same rule in its one usual spelling. */
void rule_write(const struct rule *rule, struct buf *out);

/* Takes the first rule off *left. False: there is none, or these are not the bytes of one. */
bool rules_next(struct slice *left, struct rule *ret);
/* Are these the bytes of at most RULES_MAX rules, in their one form? */
bool rules_check(struct slice rules);

/* May it? For what concerns a namespace as a whole the name is empty, and only a rule for all
 * its locks matches; an operator's verb has neither. *ret_rule (may be NULL) is the rule that
 * decides, either way, with the verbs of all that count with it; verbs 0: none matches. */
bool rules_can(struct slice rules, enum verb verb, struct slice ns, struct slice name,
               struct rule *ret_rule);
/* Is there any name in it, or any namespace, for which it has the verb? */
bool rules_can_somewhere(struct slice rules, enum verb verb, const struct slice *ns);

/* For listings: where to go on behind a name that may not be read. What lies between the two
 * may not be read either; at most a few places for each rule. False: nothing behind it may. */
struct rules_place {
    char bytes[RULE_NAME_BYTES];
    size_t len;
    bool itself; /* from this name on; else behind it */
};
bool rules_skip(struct slice rules, struct slice ns, struct slice name,
                struct rules_place *ret);
#endif
