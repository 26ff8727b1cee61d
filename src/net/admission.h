/* admission.h - how a new member is let in: what CLUSTER ADD answers and --join takes.
 *
 *   4:<number of the cluster, 16 hex digits>:<secret, 32 hex digits>
 *
 * The new node listens only to nodes of that cluster, and shows them the secret. The
 * configuration keeps the sum of it, until the node votes: then it is worth nothing any more. A
 * member that is let in already, or by an earlier version, needs none; one of 0.1.0 is started
 * with its number alone. */
#ifndef BELAY_NET_ADMISSION_H
#define BELAY_NET_ADMISSION_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct peer_hello;
struct peer_refusal;
struct replica;

enum {
    ADMISSION_SECRET_MAX = 33, /* with its end */
    ADMISSION_TEXT_MAX = 20 + 1 + 16 + 1 + ADMISSION_SECRET_MAX,
};

struct admission {
    uint64_t node;
    uint64_t cluster;                  /* 0: not said */
    char secret[ADMISSION_SECRET_MAX]; /* empty: none */
};

/* BELAY_ERR_SYNTAX: it is none. */
BELAY_MUST_CHECK enum belay_err admission_parse(const char *text, struct admission *ret);
void admission_format(const struct admission *a, char ret[ADMISSION_TEXT_MAX]);
void admission_draw(char ret_secret[ADMISSION_SECRET_MAX]);
/* Half of its SHA-256; never 0, but of an empty one. */
void admission_sum(const char *secret, uint64_t ret[2]);

/* It is no member, as far as anybody here has heard. It may have been added a moment ago. */
bool admission_is_stranger(struct replica *o, const struct peer_hello *hello);
/* A node that proves its name speaks for itself only, and a new member knows its secret. True:
 * the caller is not the member that it says; *ret_no says why. */
bool admission_is_impostor(const struct replica *o, const struct peer_hello *hello,
                           struct peer_refusal *ret_no);
#endif
