/* backup.c - BACKUP START and BACKUP READ: a backup of all groups, and its pieces.
 *
 * The client asks for the next piece when it has stored the last one, however long that takes. So
 * a slow disk holds up nobody but its client. A piece is read from this node's disk on another
 * thread; its room in the output is kept from the beginning. */
#include "base/mem.h"
#include "net/runtime.h"
#include "raft/replica.h"
#include "server/state.h"

#include <stdlib.h>
#include <sys/random.h>

enum { PIECES_AT_ONCE = 4 };

/* A piece that is being read. */
struct backup_piece {
    uv_work_t work;
    struct server *server;
    struct pending_reply *reply; /* NULL: nobody waits for it any more */
    uint64_t id, at;
    struct buf bytes;
    enum belay_err err;
};

static void reply_error_later(struct pending_reply *p, enum belay_err err, const char *text)
{
    struct arena *a = &p->conn->server->reply_arena;
    arena_reset(a);
    pipeline_answer(p, reply_error(a, err, "%s", text));
}

/* --- BACKUP START --- */

static void forget_start(struct pending_reply *p)
{
    replica_backup_forget(runtime_replica(p->conn->server->runtime), p);
}

static const char *why_not(enum belay_err err)
{
    if (err == BELAY_ERR_IN_USE)
        return "another backup of this node is being made or fetched";
    if (err == BELAY_ERR_IO)
        return "the node cannot store it: its log says why";
    return "this node is not up to date, it stops, or its disk is full: try again, or ask "
           "another node";
}

static void on_made(void *ctx, enum belay_err err, uint64_t bytes)
{
    struct pending_reply *p = ctx;
    struct arena *a = &p->conn->server->reply_arena;
    if (err != BELAY_OK) {
        reply_error_later(p, err, why_not(err));
        return;
    }
    arena_reset(a);
    struct reply *r = reply_new(a, REPLY_MAP);
    reply_int(a, r, "id", (int64_t)p->backup_id);
    reply_int(a, r, "bytes", (int64_t)bytes);
    pipeline_answer(p, r);
}

static void start(struct conn *c, const struct call *call, bool close)
{
    struct pending_reply *p = pipeline_defer(c, call, close, forget_start);
    struct backup_wish wish = {.wall_ms = login_wall_ms(), .answer = on_made, .ctx = p};
    BELAY_CHECK(getrandom(&wish.id, sizeof wish.id, 0) == (ssize_t)sizeof wish.id);
    wish.id = wish.id >> 1 | 1;
    p->backup_id = wish.id;
    enum belay_err err = replica_backup_begin(runtime_replica(c->server->runtime), &wish);
    if (err != BELAY_OK)
        reply_error_later(p, err, why_not(err));
}

/* --- BACKUP READ --- */

static void forget_read(struct pending_reply *p)
{
    p->piece->reply = NULL;
}

static void run_read(uv_work_t *w)
{
    struct backup_piece *piece = w->data;
    piece->err = replica_backup_read(runtime_replica(piece->server->runtime), piece->id,
                                     piece->at, &piece->bytes);
}

/* The piece behind the last one is empty: the client has all of it. */
static void after_read(uv_work_t *w, int status)
{
    struct backup_piece *piece = w->data;
    struct server *s = piece->server;
    BELAY_CHECK(status == 0 && s->backup_pieces > 0);
    s->backup_pieces--;
    if (piece->err == BELAY_OK && buf_len(&piece->bytes) == 0)
        replica_backup_drop(runtime_replica(s->runtime), piece->id);
    if (piece->reply && piece->err != BELAY_OK) {
        reply_error_later(piece->reply, piece->err, "the backup cannot be read any more");
    } else if (piece->reply) {
        arena_reset(&s->reply_arena);
        pipeline_answer(piece->reply,
                        reply_text(&s->reply_arena, NULL, NULL, buf_slice(&piece->bytes)));
    }
    buf_done(&piece->bytes);
    free(piece);
}

static struct reply *refuse_read(struct server *s, uint64_t id, uint64_t at)
{
    struct arena *a = &s->request_arena;
    uint64_t bytes;
    if (!replica_backup_find(runtime_replica(s->runtime), id, &bytes))
        return reply_error(a, BELAY_ERR_NOT_FOUND,
                           "this node has no such backup, or not any more: start another one");
    if (at > bytes)
        return reply_error(a, BELAY_ERR_RANGE, "the backup is not that long");
    if (s->backup_pieces >= PIECES_AT_ONCE)
        return reply_error(a, BELAY_ERR_LIMIT, "too many pieces are asked for at once");
    return NULL;
}

static void read_piece(struct conn *c, const struct call *call, bool close)
{
    struct server *s = c->server;
    uint64_t at = args_number(&call->args, P_OFFSET, 0);
    struct reply *no = refuse_read(s, call->number, at);
    if (no) {
        pipeline_reply(c, no, close);
        return;
    }
    struct backup_piece *piece = mem_zalloc(sizeof *piece);
    struct pending_reply *p = pipeline_defer(c, call, close, forget_read);
    *piece = (struct backup_piece){.server = s, .reply = p, .id = call->number, .at = at};
    piece->work.data = piece;
    p->piece = piece;
    p->expected = ORDER_PIECE_BYTES;
    conn_expect(c, 0, p->expected);
    s->backup_pieces++;
    BELAY_CHECK(uv_queue_work(&s->loop, &piece->work, run_read, after_read) == 0);
}

void backup_action(struct conn *c, const struct call *call, bool close)
{
    BELAY_CHECK(c->server->runtime); /* cluster_action() has looked */
    if (call->command == command_get(CMD_BACKUP_START))
        start(c, call, close);
    else
        read_piece(c, call, close);
}
