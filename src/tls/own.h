/* own.h - the certificate of this process: read at the start, read again when it is told to,
 * and watched: the log says when it is about to end. */
#ifndef BELAY_TLS_OWN_H
#define BELAY_TLS_OWN_H

#include "tls/tls.h"

struct tls_own {
    struct tls_files files;      /* borrowed; all NULL: no TLS */
    struct tls_context *context; /* NULL: no TLS */
    uint64_t look_ms;            /* when to look again how long it lasts */
};

/* False, and a line in the log: the files are no good. */
BELAY_MUST_CHECK bool tls_own_open(struct tls_own *own, const struct tls_files *files,
                                   enum tls_use use, uint64_t now_ms);
void tls_own_reload(struct tls_own *own, uint64_t now_ms);
void tls_own_look(struct tls_own *own, uint64_t now_ms); /* now and then */
void tls_own_close(struct tls_own *own);
/* OpenSSL's memory is counted as the program's (base/tally.h). Before it has allocated any. */
void tls_own_count_memory(void);
#endif
