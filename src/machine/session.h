/* session.h - sessions, and their guests in shards. */
#ifndef BELAY_MACHINE_SESSION_H
#define BELAY_MACHINE_SESSION_H

#include "machine/state.h"

/* NULL: there is none, or its end has begun. */
struct session *session_find(const struct machine *m, struct slice account, struct slice id);
struct session *session_add(struct machine *m, struct slice account, struct slice id,
                            uint64_t number);
void session_count(struct session *s, struct account *a); /* group 0: it is one of its */
void session_describe(struct session *s, struct slice description);
void session_free(struct machine *m, struct session *s);
void session_keep(struct machine *m, struct session *s);
/* Units of work that it took: of so many, unless the level is an old one. */
uint64_t session_expire(struct machine *m, struct session *s, uint64_t budget,
                        struct effects *fx);
/* Its end begins, and as much of it happens as may in this step. It may be gone afterwards. */
void session_end(struct machine *m, struct session *s, enum reason reason, uint64_t asker,
                 struct effects *fx);
/* The session that op names, if that one is here and may be used; it may be over. */
struct session *session_named(const struct machine *m, const struct op *op);
/* The live session that op names, kept alive by it; NULL with *ret_ok when it names none. */
struct session *session_of(struct machine *m, const struct op *op, bool *ret_ok,
                           struct effects *fx);
void session_open(struct machine *m, const struct op *op, struct effects *fx);
void session_attach(struct machine *m, const struct op *op, struct effects *fx);
void session_detach(struct machine *m, const struct op *op, struct effects *fx);
void session_keepalive(struct machine *m, const struct op *op, struct effects *fx);
void session_close(struct machine *m, const struct op *op, struct effects *fx);
void session_enrol(struct machine *m, const struct op *op, struct effects *fx);
/* Messages: what group 0 says of its sessions to a shard. */
void guest_comes(struct machine *m, const struct op *message);
void guest_goes(struct machine *m, const struct op *message, struct effects *fx);
struct session *guest_of(const struct machine *m, const struct op *message);
void session_tell(struct machine *m, uint64_t shards, const struct op *message);
void session_invite(struct machine *m, struct session *s, uint64_t shard);
#endif
