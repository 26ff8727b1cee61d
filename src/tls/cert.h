/* cert.h - makes the certificates of a cluster: EC P-256, signed by a CA of its own.
 *
 * A node's certificate says that it may call and be called, and carries its name; a client's
 * that it may call, and perhaps the token that it stands for, as belay:token:ACCOUNT/ID. Files
 * that exist are never written over, but for ca.crt, which is replaced when a certificate is
 * taken back. */
#ifndef BELAY_TLS_CERT_H
#define BELAY_TLS_CERT_H

#include "base/err.h"

#include <stddef.h>

enum {
    CERT_CA_DAYS = 3650,
    CERT_DAYS = 825,
    CERT_DAYS_MAX = 36500,
    CERT_NAME_MAX = 63, /* bytes of a name: that of a label in DNS */
    CERT_HOSTS_MAX = 16,
};

enum cert_kind { CERT_NODE, CERT_CLIENT };

struct cert_wish {
    enum cert_kind kind;
    const char *name;
    const char
        *account;    /* of a client: NAME is a token of it, and it stands for that; or NULL */
    const char *ca;  /* directory with ca.crt and ca.key */
    const char *out; /* directory; it is made if need be */
    const char *const *hosts;
    size_t n_hosts; /* of a node: DNS names and addresses beside its name */
    int days;
};

/* out/ca.crt and out/ca.key. What went wrong: cert_problem(). */
BELAY_MUST_CHECK enum belay_err cert_make_ca(const char *out, int days);
/* out/NAME.crt and out/NAME.key. */
BELAY_MUST_CHECK enum belay_err cert_make(const struct cert_wish *wish);
/* From now on the CA does not stand for the certificate in this file any more: the list of such
 * certificates, behind its own in ca/ca.crt, is written anew. BELAY_ERR_EXISTS: it is there. */
BELAY_MUST_CHECK enum belay_err cert_revoke(const char *file, const char *ca);
const char *cert_problem(void);
#endif
