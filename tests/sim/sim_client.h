/* sim_client.h - what a client of the simulated cluster is, has and believes. */
#ifndef BELAY_TESTS_SIM_CLIENT_H
#define BELAY_TESTS_SIM_CLIENT_H

#include "base/buf.h"
#include "engine/engine.h"

enum {
    SIM_GROUPS = 4,
    SIM_CLIENTS = 12,
    SIM_SPACES = 3,  /* the first is "default" and is never deleted */
    SIM_LOCKS = 5,   /* of each */
    SIM_SEVERAL = 3, /* names in one op, at most */
    SIM_HOLDS = 6,   /* of one client */
    SIM_GATES = 3,   /* variables that one session may have set at a time */
    SIM_GONE = 32,   /* fences per lock that are remembered as given back */
    SIM_SESSIONS = 8192,
    SIM_BANK = 100, /* what the two accounts of a session have together */
};

/* What clients do besides taking, showing, renewing and releasing exclusive locks. */
enum sim_habit {
    HABIT_SHARED = 1,
    HABIT_SEMAPHORE = 2,
    HABIT_CONVERT = 4,
    HABIT_BREAK = 8,
    HABIT_OPTIONS = 16, /* bodies, grace, delay, policies, "queued" */
    HABIT_SEVERAL = 32, /* several names in one op */
    HABIT_SESSION = 64,
    HABIT_TXN = 128,
    HABIT_NAMESPACE = 256,
    HABIT_GO = 512,    /* goes away while it waits */
    HABIT_LONG = 1024, /* waits longer than the run lasts */
    HABIT_LIST = 2048,
    HABIT_STALE = 4096, /* some reads ask one node alone */
    HABIT_AGAIN = 8192, /* asks again under the same request id */
    HABIT_ALL = 16383,
};

/* A hold, as a client was told. */
struct sim_hold {
    bool used;
    bool sure; /* nothing has been asked that may have ended it, but time */
    int ns, lock;
    enum lock_mode mode;
    uint64_t permits, of;
    uint64_t fence;    /* 0: was not told; the owner names it */
    uint64_t near;     /* the fence, or that of the last name of the same op */
    uint64_t told;     /* the moment of the answer */
    uint64_t since_ms; /* when it was asked for: the lease cannot have begun before */
    uint64_t ttl_ms;   /* 0: as long as its session */
    uint64_t session;  /* number; 0: none */
    char owner[24];
};

/* The session that a client has, and what it has set in it. */
struct sim_session {
    uint64_t number; /* 0: none; its id is "s" and this number */
    bool sure;       /* as in sim_hold */
    uint64_t ttl_ms, linger_ms, kept_ms;
    uint64_t target; /* the connection it is attached to; 0: none */
    enum { BANK_NONE, BANK_KNOWN, BANK_LOST } bank; /* lost: an outcome is not known */
    uint64_t x, y;                                  /* the two accounts */
    uint64_t bank_told;                             /* the moment of the answer */
    bool gates[SIM_GATES];                          /* set by it, for sure */
};

enum sim_deal {
    DEAL_NONE,
    DEAL_FOUND,   /* opens the two accounts */
    DEAL_MOVE,    /* from one to the other */
    DEAL_BAD,     /* the same, but the last assert fails */
    DEAL_GATE_IN, /* sets a variable that only one may have, and waits for it */
    DEAL_GATE_OUT,
    DEAL_LOCK,
    DEAL_UNLOCK,
};

/* An answer, for whoever asks again. */
struct sim_heard {
    enum event_kind kind;
    enum belay_err err;
    enum reason reason;
    enum txn_status status;
    uint64_t fence, count;
};

/* What a client asks now. */
struct sim_call {
    enum op_kind kind; /* OP_TICK: nothing */
    enum sim_deal deal;
    uint64_t asker, node;
    uint64_t invoked, invoked_ms; /* moment and time */
    uint64_t known[SIM_GROUPS];   /* ops that anybody had applied then */
    uint64_t wait_ms;
    int ns, lock, names;  /* names: how many, from `lock` on */
    int hold;             /* which of its own, -1: none */
    bool again;           /* asks for what it holds */
    bool was_sure;        /* its hold or session, before this was asked */
    bool shaken;          /* a break or a forced delete may have hit it meanwhile */
    bool in_space;        /* its namespace was known to be there */
    uint64_t goes;        /* as in its sim_space, when it was asked */
    struct sim_hold want; /* what it has when it is granted */
    uint64_t session;
    uint64_t x, y; /* the accounts afterwards */
    int gate;
    uint64_t fence; /* CHECK */
    bool stale;     /* a read of what its node knows */
    unsigned times; /* that it was asked, under one request id */
    bool back;      /* nobody is asked now: it comes back */
    bool told;      /* and has been answered before */
    struct sim_heard heard;
};

struct sim_client {
    struct sim_world *w;
    int no;
    struct ask ask;
    uint64_t nonce; /* events of an earlier turn are void */
    struct sim_call call;
    struct op op; /* of the call, as it was first asked */
    struct sim_hold holds[SIM_HOLDS];
    struct sim_session session;
    uint64_t old_session; /* one that it had before */
    bool drained;         /* after the healing: it has given everything back */
    struct {
        char ns[8], names[SIM_SEVERAL][24], owner[24], session[24], body[16], request[24];
        char ids[2][24];
        struct slice more[SIM_SEVERAL];
        struct buf program;
    } words; /* of the op that is being made */
};

/* What is known about a lock from answers alone. */
struct sim_lock {
    uint64_t acked_fence;  /* the largest that anybody was granted */
    uint64_t acked_moment; /* when it was answered */
    struct {
        uint64_t fence, moment;
    } gone[SIM_GONE]; /* given back, and it was answered */
    size_t n_gone;
    struct {
        uint64_t fence, ms;
    } ended[SIM_GONE]; /* by themselves; when the first node knew */
    size_t n_ended;
    int breaking; /* breaks that are under way, or whose outcome is not known */
};

struct sim_space {
    struct sim_lock locks[SIM_LOCKS];
    int deleting;  /* forced deletes, likewise */
    bool is_there; /* it was made, and nobody has asked since that it goes */
    int leaving;   /* deletes of any kind, under way or unknown */
    uint64_t goes; /* how often somebody has asked that it goes */
};

struct sim_past {
    uint64_t sessions;             /* numbers that were used */
    uint64_t closed[SIM_SESSIONS]; /* the moment a close was answered; 0: it was not */
};

/* sim_client.c */
void sim_client_act(struct sim_world *w, int no);
void sim_client_go(struct sim_world *w, int no);
void sim_client_keep(struct sim_world *w, int no, uint64_t target);
void sim_client_lost(struct sim_world *w, uint64_t node); /* its node died */
void sim_client_attached(struct sim_client *c); /* its server keeps its session from now on */
void sim_client_idle(struct sim_client *c, uint64_t in_ms);
void sim_client_wake(struct sim_client *c, uint64_t in_ms); /* what it does, it goes on with */
uint64_t sim_client_ttl(struct sim_client *c);              /* of a lease */
bool sim_clients_done(const struct sim_world *w);
void sim_clients_done_all(struct sim_world *w); /* frees */
void sim_client_describe(const struct sim_world *w);

/* sim_again.c: request ids. */
void sim_again_name(struct sim_client *c, struct op *op);          /* gives it one, perhaps */
bool sim_again_lost(struct sim_client *c);                         /* true: it will ask again */
bool sim_again_told(struct sim_client *c, const struct event *ev); /* likewise, after this */
void sim_again_heard(struct sim_client *c, const struct event *ev);

/* sim_deal.c: transactions. False: not now. */
bool sim_deal_start(struct sim_client *c, struct op *op);
void sim_deal_answered(struct sim_client *c, const struct event *ev);
int sim_deal_space(const struct sim_client *c); /* where the variables of its session are */
void sim_deal_audit(struct sim_client *c, const struct event *ev);

/* sim_promise.c: what must be so, from answers alone. */
bool promise_session(const struct sim_client *c); /* it must live */
bool promise_hold(const struct sim_client *c, const struct sim_hold *h);
void promise_granted(struct sim_client *c, const struct sim_hold *h, uint64_t invoked);
void promise_gone(struct sim_world *w, const struct sim_hold *h);
void promise_rows(struct sim_client *c, const struct event *ev);
void promise_check(struct sim_client *c, const struct event *ev);
void promise_shake(struct sim_world *w, int ns, int lock); /* -1: every lock of it */
void promise_forget_session(struct sim_client *c);
struct sim_hold *promise_slot(struct sim_client *c); /* NULL: has all it can */

/* sim_answer.c */
void sim_answer(struct ask *ask, const struct event *ev);
void sim_answer_unknown(struct sim_client *c); /* whatever was asked may have happened or not */
#endif
