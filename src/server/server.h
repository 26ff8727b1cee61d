/* server.h - one port for RESP and HTTP, one loop, one engine. The only place with sockets. */
#ifndef BELAY_SERVER_SERVER_H
#define BELAY_SERVER_SERVER_H

#include "net/node_options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every queue, buffer and time has a name here. */
enum {
    SERVER_CONNECTIONS_DEFAULT = 10000,
    SERVER_MEMORY_MIN = 16 << 20,     /* a server that does nothing needs a part of it */
    SERVER_FEED_EVENTS = 16384,       /* history for watchers that come back */
    SERVER_READ_BYTES = 65536,        /* one read; the buffer is shared by all */
    CONN_PIPELINE_MAX = 1024,         /* requests of a connection without a reply */
    CONN_LATE_MAX = 16384,            /* NOBLOCK waits of a connection that push later */
    CONN_SESSIONS_MAX = 64,           /* sessions attached to a connection */
    CONN_OUT_BYTES_MAX = 1024 * 1024, /* unsent replies; above it requests are not taken */
    CONN_OUT_LOST_BYTES = 16 << 20,   /* unsent replies; above it the connection is closed */
    CONN_IN_PARKED_BYTES_MAX = 64 * 1024, /* bytes kept for a connection that may not go on */
    CONN_SLICE_US = 1000,  /* so long requests of one connection are taken, then others' */
    TURN_SLICE_US = 2000,  /* so long those of all, then the loop looks at everything else */
    WATCH_SLICE_US = 1000, /* so long news are delivered, then requests are taken again */
    FLUSH_SLICE_US = 1000, /* so long answers are written, then what has come is looked at */
    CONN_NAME_BYTES_MAX = 64,
    CONN_HEAD_MS = 10 * 1000, /* defaults of struct server_limits */
    CONN_BODY_MS = 30 * 1000,
    CONN_IDLE_MS = 60 * 1000,
    CONN_RESP_IDLE_MS = 3600 * 1000,
    CONN_EVICT_LOOKS = 64,     /* connections looked at for one that may go */
    CONN_YIELD_MS = 30 * 1000, /* idle for so long: may be closed in favour of a new one */
    SERVER_OPERATORS_MAX =
        16,                  /* connections kept for loopback addresses; of few, a sixteenth */
    SERVER_ADDRESS_PART = 4, /* one address may have one of so many parts of all connections */
    CONN_WRITE_MS = 30 * 1000,
    CONN_LINGER_MS = 1000,            /* after an error: time for the client to read it */
    CONN_HALF_CLOSED_MS = 5000,       /* a client that sends no more: time for its answers */
    CONN_HANDSHAKES_MAX = 1024,       /* of TLS, under way */
    CONN_HANDSHAKES_SLICE_US = 1000,  /* so long a turn; then the others */
    CONN_HANDSHAKE_READ_BYTES = 4096, /* one read, before it is known what it is */
    CONN_SEAL_BYTES = 256 * 1024,     /* one write with TLS */
    CONN_UNWELCOME_MAX = 64,          /* of addresses that have too many: they are told so */
    CONN_UNWELCOME_MS = 1000,         /* and so long they may take to ask */
    CONN_SILENT_MS = 10 * 1000,       /* never spoke: may be closed in favour of a new one */
    STREAM_HEARTBEAT_MS = 15 * 1000,
    SERVER_SHARDS_MAX = 64,
    SERVER_LISTEN_MAX = 16, /* addresses */
    SERVER_STOP_MS = 3000,  /* a graceful stop takes no longer */
    SERVER_DRAIN_MS = 1000, /* what is on its way is waited for, before the others are told */
};

/* In a data directory: when the node starts, nobody has to log in any more (belay auth reset).
 */
#define LOGIN_RESET_FILE "auth-reset"

struct server_config {
    const char *const *listen; /* "127.0.0.1:7117", "[::1]:0", "7117"; one or more, then NULL */
    const char *socket;        /* a path; NULL: none */
    const char *const *socket_users; /* there: "UID=ACCOUNT/TOKEN", then NULL */
    bool insecure;    /* beyond loopback: plain text will do, and nobody has to log in */
    bool reset_frees; /* a connection that is reset counts as closed by its client */
    size_t max_connections;
    size_t max_per_address; /* of them; 0: a quarter, and all for loopback */
    size_t max_requests_per_address, max_requests_per_token; /* in a second; 0: no limit */
    size_t max_connections_per_token;                        /* 0: no limit */
    size_t max_memory;     /* bytes; 0: by what the process may have (budget.h) */
    struct server_limits { /* 0: the default */
        uint64_t head_ms;  /* an HTTP head, a handshake, or the first bytes, must be whole */
        uint64_t body_ms;  /* a body, or a RESP request, must be whole */
        uint64_t idle_ms;  /* HTTP keep-alive without a request */
        uint64_t resp_idle_ms; /* RESP without a request, a session, a watch or a wait */
        uint64_t write_ms;     /* a reader must take something */
    } limits;
    double trust_decay; /* of the norm of calls, in trust_period_ms; 0: trust.h's defaults */
    uint64_t trust_period_ms;
    struct node_options node;
    struct tls_files tls;          /* for clients; cert NULL: plain text only */
    const char *postgres, *schema; /* of the queue; postgres NULL: none */
    uint64_t slow_ms;              /* requests that take longer are logged; 0: none */
    const char *audit;             /* the file of the audit log; NULL: none */
    bool audit_required;           /* what cannot be written there is not done */
    const char *const *hosts; /* more names that are this server, NULL at the end; or NULL */
    const char *const
        *origins; /* of other pages that may ask: "https://ops.example"; as hosts */
    /* Told once, when connections are taken, for each: "127.0.0.1:41234". NULL is allowed. */
    void (*on_listening)(const char *address);
    /* At SIGHUP: the configuration as it is now, valid for as long as the server runs, or NULL: it
     * is wrong, and nothing changes. Limits, hosts, origins, rates and slow_ms are taken over. NULL is
     * allowed. */
    const struct server_config *(*reload)(void);
};

enum server_end {
    SERVER_STOPPED,     /* as asked */
    SERVER_NOT_STARTED, /* the log says why */
    SERVER_REMOVED,     /* its cluster has let it go, for good */
};

/* Serves until SIGTERM or SIGINT, or until its cluster has let it go. */
enum server_end server_run(const struct server_config *config);

/* What is wrong with the text of these options; NULL: nothing. */
const char *server_check_listen(const char *text);
const char *server_check_socket_user(const char *text);
/* The newest level that this program knows (machine/level.h). */
unsigned server_level(void);
const char *server_raft_library(void); /* its version */
#endif
