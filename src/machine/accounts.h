/* accounts.h - accounts and tokens in the state, for the files of this folder only. */
#ifndef BELAY_MACHINE_ACCOUNTS_H
#define BELAY_MACHINE_ACCOUNTS_H

#include "auth/token.h"
#include "base/list.h"
#include "base/map.h"
#include "machine/event.h"

struct machine;
struct session;
struct space;

struct account {
    struct map_node by_name;
    char *name;
    size_t name_len;
    struct space **spaces; /* by name */
    size_t n, cap;
    bool gone; /* deleted: it stays until its namespaces and sessions are */
    uint64_t n_doomed;
    char *email, *full_name;
    size_t email_len, full_name_len;
    uint64_t created_ms, updated_ms; /* time of day */
    uint64_t n_tokens;
    uint64_t limits[QUOTA_COUNT]; /* 0: none */
    uint64_t used[QUOTA_COUNT];   /* in this group */
};

/* account.c. A shard knows the numbers, the id and the account. */
struct token {
    struct map_node by_number, by_id;
    struct list in_machine;  /* by number */
    uint32_t number;         /* never given twice */
    uint64_t generation;     /* of the secret */
    uint64_t old_generation; /* the one before it still counts; 0: no */
    struct account *account;
    char id[TOKEN_ID_BYTES];
    unsigned char sum[TOKEN_SUM_BYTES], old_sum[TOKEN_SUM_BYTES];
    uint64_t created_ms, expires_ms, used_ms, overlap_ms; /* times of day; 0: never, none */
    char *description;
    size_t description_len, rules_len;
    char rules[];
};

static inline struct slice account_name(const struct account *a)
{
    return slice_of(a->name, a->name_len);
}

/* account.c */
void account_create(struct machine *m, const struct op *op, struct effects *fx);
void account_update(struct machine *m, const struct op *op, struct effects *fx);
void account_delete(struct machine *m, const struct op *op, struct effects *fx);
void account_message(struct machine *m, const struct op *message, struct effects *fx);
void account_query(const struct machine *m, const struct op *op, struct effects *fx);
void account_free(struct account *a);
void account_left(struct machine *m, const struct account *a); /* something of it is gone */
bool quota_reached(const struct account *a, enum quota quota, uint64_t more);
/* Bytes would take the place of others, and be too many. */
bool quota_outgrown(const struct account *a, uint64_t was, uint64_t is);
struct event *quota_refuse(const struct account *a, enum quota quota, const struct op *op,
                           struct effects *fx);

/* The account that op names, or it has been told that there is none. */
struct account *account_named(const struct machine *m, const struct op *op, struct effects *fx);
/* News about an account or a token, which is true when all shards have it. */
struct event *account_tell(const struct machine *m, const struct op *op, enum event_kind kind,
                           struct effects *fx);
static inline struct slice account_text(const char *text, size_t len) /* NULL: empty */
{
    return slice_of(text ? text : "", len);
}

/* token.c */
void token_init(struct machine *m, const struct op *op, struct effects *fx);
void token_reset(struct machine *m, const struct op *op, struct effects *fx);
void token_create(struct machine *m, const struct op *op, struct effects *fx);
void token_rotate(struct machine *m, const struct op *op, struct effects *fx);
void token_revoke(struct machine *m, const struct op *op, struct effects *fx);
void token_used(struct machine *m, const struct op *op, struct effects *fx);
void token_message(struct machine *m, const struct op *message);
void token_remove_all(struct machine *m, const struct account *a); /* of it; NULL: all */
void token_query(const struct machine *m, const struct op *op, struct effects *fx);
/* Empty: nobody had to log in, or it is gone. */
struct slice token_id(const struct machine *m, uint64_t number);
bool token_lives(const struct machine *m, uint64_t number); /* 0: nobody had to log in */
/* Its token does not count here, or not any more: it has been answered. */
bool token_refuses(const struct machine *m, const struct op *op, struct effects *fx);
/* It names what another token took, without the right to break: it has been answered. */
/* It names what another token took, with the right to break: that is for the audit log. */
bool token_overrides(const struct machine *m, const struct op *op);
bool token_guards(const struct machine *m, const struct op *op, struct effects *fx);
/* May the client use this session? Its id is no secret: every reader of a lock sees it. */
bool token_owns_session(const struct op *op, const struct session *s);
bool token_is_foreign(uint64_t asks, uint64_t took);
#endif
