/* txn_json.h - a transaction in JSON becomes a program for the machine.
 *
 *   {"session":"id","description":"…","request":"…","wait_ms":0,"min_uptime_s":0,"min_trust":0.5,
 *    "statements":[{"assert":{"not":{"exists":{"table":"Month-End","key":"CGROVE-35"}}}},…]}
 *
 * docs/TRANSACTIONS.md has every statement and operator. What is wrong is refused with the path
 * to it: `statements[1].assert.not.exists: "table" is missing`. */
#ifndef BELAY_COMMAND_TXN_JSON_H
#define BELAY_COMMAND_TXN_JSON_H

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

#include <stdint.h>

struct txn {
    struct slice session, description;
    struct slice request; /* its id; empty: none */
    struct slice program; /* empty: a ping */
    uint64_t wait_ms;
    uint64_t min_uptime_s; /* what this node must be able to say of itself: server/trust.h */
    double min_trust;
};

/* Reads the whole document; everything in *ret borrows from `json` or is in `a`. Not BELAY_OK:
 * *ret_what says what is wrong and where, in `a`. */
BELAY_MUST_CHECK enum belay_err txn_read(struct slice json, struct arena *a, struct txn *ret,
                                         const char **ret_what);
#endif
