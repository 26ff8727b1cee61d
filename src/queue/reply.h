/* reply.h - the one line of JSON with which a long-lived command answers a group.
 *
 *   {"status": "complete", "outcome": ANY}
 *   {"status": "error", "error": "TEXT"}
 *   {"status": "retry", "error": "TEXT"}
 *
 * Other members are allowed and ignored. The line must be one strict JSON object. */
#ifndef BELAY_QUEUE_REPLY_H
#define BELAY_QUEUE_REPLY_H

#include "base/buf.h"

enum { REPLY_DEPTH_MAX = 64 };

enum verdict_kind {
    VERDICT_COMPLETE,
    VERDICT_ERROR,
    VERDICT_RETRY,    /* this attempt counts; later again */
    VERDICT_UNTOUCHED /* never begun: it goes back as if it had not been taken */
};

/* How a group ended. The texts are borrowed; data NULL means none. */
struct verdict {
    enum verdict_kind kind;
    struct slice outcome, error;
};

/* Reads a line. A string outcome is stored as its text, anything else as its JSON; unescaped
 * text goes into `store`, whose bytes *ret borrows. False: it is not such a line, and *ret_why
 * says what is wrong with it. */
bool reply_parse(struct slice line, struct buf *store, struct verdict *ret,
                 const char **ret_why);
#endif
