/* test_machine_account.c - accounts, tokens and quotas in the machine, and in several groups:
 * stories in which a revoked token does nothing, nowhere. */
#include "router_fixture.h"

#include "auth/rule.h"
#include "auth/token.h"
#include "machine/account.h"
#include "machine/program.h"

static const struct hash_key key = {1, 2};
static const char sum_a[] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                  sum_b[] = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";
static struct buf all_rules;

static struct op token_op(enum op_kind kind, const char *id, const char *sum)
{
    struct op op = {.kind = kind, .name = slice_str(id), .wall_ms = 1000};
    if (sum)
        op.owner = slice_of(sum, TOKEN_SUM_BYTES);
    if (kind == OP_TOKEN_CREATE || kind == OP_AUTH_INIT)
        op.body = buf_slice(&all_rules);
    return op;
}

/* --- one machine --- */

struct world {
    struct machine *m;
    struct effects fx;
    uint64_t now_ms;
    uint64_t token, rights; /* of the last op that had some: again() looks with them */
};

/* The event for who asked: the only asker is 7. */
static const struct event *doing(struct world *w, struct op op)
{
    const char *what;
    op.asker = 7;
    op.now_ms = ++w->now_ms;
    op.index = machine_applied(w->m) + 1;
    assert_int_equal(op_validate(&op, &what), BELAY_OK);
    effects_reset(&w->fx);
    if (op.token == 1) {
        w->token = op.token;
        w->rights = op.rights;
    }
    if (op_is_read(op.kind))
        machine_query(w->m, &op, &w->fx);
    else
        machine_apply(w->m, &op, &w->fx);
    for (size_t i = 0; i < w->fx.n; i++)
        if (w->fx.events[i].asker == 7)
            return &w->fx.events[i];
    return NULL;
}

static void fails(const struct event *ev, enum belay_err err)
{
    assert_non_null(ev);
    assert_int_equal(ev->kind, EVENT_FAILED);
    assert_string_equal(err_word(ev->err), err_word(err));
    assert_int_equal(ev->err, err);
}

static void is(const struct event *ev, enum event_kind kind)
{
    assert_non_null(ev);
    if (ev->kind == EVENT_FAILED)
        fail_msg("%s %.*s", err_word(ev->err), (int)ev->text.len, ev->text.data);
    assert_int_equal(ev->kind, kind);
}

static struct op take(uint64_t token, uint64_t rights, const char *name, const char *owner)
{
    return (struct op){.kind = OP_ACQUIRE,
                       .name = slice_str(name),
                       .owner = slice_str(owner),
                       .mode = MODE_EXCLUSIVE,
                       .ttl_ms = 100000,
                       .token = token,
                       .rights = rights};
}

static struct op as(struct op op, uint64_t token, uint64_t rights)
{
    op.token = token;
    op.rights = rights;
    return op;
}

/* As a snapshot says it is, to the byte. */
static void again(struct world *w)
{
    struct buf bytes = {0}, twice = {0};
    struct machine *m;
    machine_encode(w->m, &bytes);
    assert_int_equal(machine_decode(buf_slice(&bytes), (struct hash_key){8, 9}, &m), BELAY_OK);
    machine_encode(m, &twice);
    assert_true(slice_eq(buf_slice(&bytes), buf_slice(&twice)));
    struct op list = {.kind = OP_ACCOUNT_LIST, .token = w->token, .rights = w->rights};
    struct effects x = {0}, y = {0};
    machine_query(w->m, &list, &x);
    machine_query(m, &list, &y);
    assert_int_equal(x.events[0].n_rows, y.events[0].n_rows);
    for (size_t i = 0; i < x.events[0].n_rows; i++) /* counts are not in the bytes */
        assert_memory_equal(x.events[0].accounts[i].used, y.events[0].accounts[i].used,
                            sizeof x.events[0].accounts[i].used);
    effects_done(&x);
    effects_done(&y);
    machine_close(w->m);
    w->m = m;
    buf_done(&bytes);
    buf_done(&twice);
}

static struct world begin(void)
{
    struct world w = {.m = machine_open(key)};
    return w;
}

static void end(struct world *w)
{
    again(w);
    machine_close(w->m);
    effects_done(&w->fx);
}

#define ID_A "aaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbb"

static void from_init_on_all_must_have_a_token(void **state)
{
    (void)state;
    struct world w = begin();
    is(doing(&w, take(0, 0, "early", "me")), EVENT_GRANTED);
    is(doing(&w, token_op(OP_AUTH_INIT, ID_A, sum_a)), EVENT_TOKEN_CREATED);
    assert_true(machine_closed(w.m));
    fails(doing(&w, token_op(OP_AUTH_INIT, ID_B, sum_b)), BELAY_ERR_EXISTS);
    fails(doing(&w, take(0, 0, "x", "me")), BELAY_ERR_LOGIN);
    fails(doing(&w, (struct op){.kind = OP_SHOW, .name = SLICE("x")}), BELAY_ERR_LOGIN);
    fails(doing(&w, (struct op){.kind = OP_LIST}), BELAY_ERR_LOGIN);
    fails(doing(&w, take(2, 1, "x", "me")), BELAY_ERR_LOGIN); /* no such token */
    fails(doing(&w, take(1, 2, "x", "me")), BELAY_ERR_LOGIN); /* no such generation */
    is(doing(&w, take(1, 1, "x", "me")), EVENT_GRANTED);
    again(&w);
    fails(doing(&w, take(0, 0, "x", "me")), BELAY_ERR_LOGIN);
    struct op old = {.kind = OP_RELEASE, .name = SLICE("early"), .owner = SLICE("me")};
    is(doing(&w, as(old, 1, 1)), EVENT_RELEASED); /* taken before: nobody's */
    end(&w);
}

/* An op that came from another node: whatever it says, no token comes of it without an account
 * and a secret. */
static void a_token_needs_an_account_and_a_sum(void **state)
{
    (void)state;
    struct world w = begin();
    struct op init = token_op(OP_AUTH_INIT, ID_A, sum_a);
    init.account = SLICE("0000000000000bad");
    fails(doing(&w, init), BELAY_ERR_NOT_FOUND);
    init.account = slice_of("", 0);
    init.owner = slice_of("", 0);
    init.fence = 1; /* as in a message to a shard */
    fails(doing(&w, init), BELAY_ERR_SYNTAX);
    assert_false(machine_closed(w.m));
    is(doing(&w, token_op(OP_AUTH_INIT, ID_A, sum_a)), EVENT_TOKEN_CREATED);
    struct op rotate = token_op(OP_TOKEN_ROTATE, ID_A, NULL);
    rotate.fence = 1;
    rotate.token = rotate.rights = 1;
    fails(doing(&w, rotate), BELAY_ERR_SYNTAX);
    struct op create = token_op(OP_TOKEN_CREATE, ID_B, NULL);
    create.fence = 2;
    create.token = create.rights = 1;
    fails(doing(&w, create), BELAY_ERR_SYNTAX);
    is(doing(&w, as((struct op){.kind = OP_AUTH_RESET}, 1, 1)), EVENT_AUTH_RESET);
    fails(doing(&w, token_op(OP_AUTH_INIT, ID_A, sum_b)), BELAY_ERR_EXISTS);
    end(&w);
}

static void a_login_takes_the_secret_and_its_time(void **state)
{
    (void)state;
    struct world w = begin();
    is(doing(&w, token_op(OP_AUTH_INIT, ID_A, sum_a)), EVENT_TOKEN_CREATED);
    struct op create = as(token_op(OP_TOKEN_CREATE, ID_B, sum_b), 1, 1);
    create.until_ms = 5000;
    is(doing(&w, create), EVENT_TOKEN_CREATED);
    struct op login = token_op(OP_LOGIN, ID_B, sum_b);
    is(doing(&w, login), EVENT_ROWS);
    login.wall_ms = 4999;
    is(doing(&w, login), EVENT_ROWS);
    login.wall_ms = 5000; /* over */
    fails(doing(&w, login), BELAY_ERR_LOGIN);
    fails(doing(&w, token_op(OP_LOGIN, ID_B, sum_a)), BELAY_ERR_LOGIN);
    fails(doing(&w, token_op(OP_LOGIN, "cccccccccccccccc", sum_b)), BELAY_ERR_LOGIN);
    struct op zero = token_op(OP_LOGIN, "cccccccccccccccc", sum_b);
    zero.owner = slice_of("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32);
    fails(doing(&w, zero), BELAY_ERR_LOGIN); /* what nobody has is no key */
    zero.name = SLICE(ID_A);                 /* nor an old secret that there never was */
    fails(doing(&w, zero), BELAY_ERR_LOGIN);
    end(&w);
}

static void a_rotated_token_has_two_secrets_for_a_while(void **state)
{
    (void)state;
    struct world w = begin();
    is(doing(&w, token_op(OP_AUTH_INIT, ID_A, sum_a)), EVENT_TOKEN_CREATED);
    struct op rotate = as(token_op(OP_TOKEN_ROTATE, ID_A, sum_b), 1, 1);
    rotate.until_ms = 3000;
    is(doing(&w, rotate), EVENT_TOKEN_ROTATED);
    again(&w);
    is(doing(&w, token_op(OP_LOGIN, ID_A, sum_a)), EVENT_ROWS);
    is(doing(&w, token_op(OP_LOGIN, ID_A, sum_b)), EVENT_ROWS);
    is(doing(&w, take(1, 1, "x", "me")), EVENT_GRANTED);
    is(doing(&w, take(1, 2, "x", "me")), EVENT_GRANTED); /* the same token: its own hold */
    struct op late = token_op(OP_LOGIN, ID_A, sum_a);
    late.wall_ms = 3000;
    fails(doing(&w, late), BELAY_ERR_LOGIN);
    rotate = as(token_op(OP_TOKEN_ROTATE, ID_A, sum_a), 1, 2); /* without overlap: at once */
    is(doing(&w, rotate), EVENT_TOKEN_ROTATED);
    fails(doing(&w, take(1, 2, "x", "me")), BELAY_ERR_LOGIN);
    fails(doing(&w, token_op(OP_LOGIN, ID_A, sum_b)), BELAY_ERR_LOGIN);
    is(doing(&w, take(1, 3, "x", "me")), EVENT_GRANTED);
    end(&w);
}

static void two_tokens(struct world *w)
{
    is(doing(w, token_op(OP_AUTH_INIT, ID_A, sum_a)), EVENT_TOKEN_CREATED);
    is(doing(w, as(token_op(OP_TOKEN_CREATE, ID_B, sum_b), 1, 1)), EVENT_TOKEN_CREATED);
}

static void what_a_token_took_is_its_own(void **state)
{
    (void)state;
    struct world w = begin();
    two_tokens(&w);
    is(doing(&w, take(1, 1, "db", "ann")), EVENT_GRANTED);
    static const enum op_kind kinds[] = {OP_RELEASE, OP_RENEW, OP_BODY, OP_CONVERT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct op op = {.kind = kinds[i], .name = SLICE("db"), .fence = 1};
        if (kinds[i] == OP_CONVERT)
            op.mode = MODE_SHARED;
        fails(doing(&w, as(op, 2, 1)), BELAY_ERR_DENIED);
        op.fence = 0;
        op.owner = SLICE("ann");
        fails(doing(&w, as(op, 2, 1)), BELAY_ERR_DENIED);
    }
    fails(doing(&w, take(2, 1, "db", "ann")), BELAY_ERR_DENIED); /* not by its name either */
    struct op anyone = {.kind = OP_RELEASE, .name = SLICE("db"), .flags = OP_ANYONE};
    fails(doing(&w, as(anyone, 2, 1)), BELAY_ERR_DENIED);
    struct slice more[] = {SLICE("db")};
    struct op two = {
        .kind = OP_RELEASE, .name = SLICE("other"), .owner = SLICE("ann"), .more = {more, 1}};
    fails(doing(&w, as(two, 2, 1)), BELAY_ERR_DENIED);
    anyone.flags |= OP_MAY_BREAK;
    is(doing(&w, as(anyone, 2, 1)), EVENT_RELEASED);
    end(&w);
}

static void a_session_is_its_tokens(void **state)
{
    (void)state;
    struct world w = begin();
    two_tokens(&w);
    struct op open = {.kind = OP_SESSION_OPEN, .session = SLICE("s"), .ttl_ms = 60000};
    struct op in_it = take(1, 1, "db", "ann");
    in_it.session = SLICE("s");
    is(doing(&w, as(open, 1, 1)), EVENT_SESSION_OPENED);
    is(doing(&w, in_it), EVENT_GRANTED);
    again(&w);
    struct op ops[] = {{.kind = OP_SESSION_CLOSE, .session = SLICE("s")},
                       {.kind = OP_SESSION_ATTACH, .session = SLICE("s"), .target = 7},
                       {.kind = OP_SESSION_ENROL, .session = SLICE("s"), .target = 1},
                       {.kind = OP_SESSION_SHOW, .session = SLICE("s")},
                       {.kind = OP_TXN, .session = SLICE("s")},
                       in_it};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        fails(doing(&w, as(ops[i], 2, 1)), BELAY_ERR_DENIED);
    struct op keep = {.kind = OP_SESSION_KEEPALIVE, .session = SLICE("s")};
    assert_int_equal(doing(&w, as(keep, 2, 1))->count, 0);
    assert_int_equal(doing(&w, as(keep, 1, 1))->count, 1);
    fails(doing(&w, as(open, 2, 1)), BELAY_ERR_EXISTS);
    ops[0].flags = OP_SEES_ALL;
    is(doing(&w, as(ops[0], 2, 1)), EVENT_SESSION_ENDED);
    end(&w);
}

static void a_revoked_token_is_granted_nothing(void **state)
{
    (void)state;
    struct world w = begin();
    two_tokens(&w);
    is(doing(&w, take(1, 1, "db", "ann")), EVENT_GRANTED);
    struct op wait = take(2, 1, "db", "bob");
    wait.wait_ms = 10000;
    assert_null(doing(&w, wait));
    struct op next = take(1, 1, "db", "cid");
    next.wait_ms = 10000;
    assert_null(doing(&w, next));
    is(doing(&w, as(token_op(OP_TOKEN_REVOKE, ID_B, NULL), 1, 1)), EVENT_TOKEN_REVOKED);
    fails(doing(&w, as(token_op(OP_TOKEN_REVOKE, ID_B, NULL), 1, 1)), BELAY_ERR_NOT_FOUND);
    fails(doing(&w, take(2, 1, "other", "bob")), BELAY_ERR_LOGIN);
    again(&w);
    struct op release = {.kind = OP_RELEASE, .name = SLICE("db"), .owner = SLICE("ann")};
    (void)doing(&w, as(release, 1, 1));
    bool left = false, granted = false;
    for (size_t i = 0; i < w.fx.n; i++) {
        const struct event *ev = &w.fx.events[i];
        left |= ev->kind == EVENT_LEFT && ev->reason == REASON_REVOKED;
        granted |= ev->kind == EVENT_GRANTED && slice_eq(ev->owner, SLICE("cid"));
        assert_false(ev->kind == EVENT_GRANTED && slice_eq(ev->owner, SLICE("bob")));
    }
    assert_true(left && granted);
    end(&w);
}

static struct op account_op(enum op_kind kind, const char *id, const char *email)
{
    return (struct op){.kind = kind,
                       .account = slice_str(id),
                       .ns = SLICE("default"),
                       .name = slice_str(email),
                       .owner = SLICE("Full Name"),
                       .wall_ms = 1000};
}

static void accounts_are_apart(void **state)
{
    (void)state;
    struct world w = begin();
    is(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_A, "a@x")), EVENT_ACCOUNT_CREATED);
    fails(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_A, "b@x")), BELAY_ERR_EXISTS);
    fails(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_B, "a@x")), BELAY_ERR_EXISTS);
    is(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_B, "b@x")), EVENT_ACCOUNT_CREATED);
    static const char *const ids[] = {ID_A, ID_B, "default"};
    for (size_t i = 0; i < 3; i++) { /* the same names in each of them */
        struct op op = take(0, 0, "db", "me");
        op.account = slice_str(ids[i]);
        is(doing(&w, op), EVENT_GRANTED);
        struct op open = {.kind = OP_SESSION_OPEN,
                          .account = slice_str(ids[i]),
                          .session = SLICE("s"),
                          .ttl_ms = 1000};
        is(doing(&w, open), EVENT_SESSION_OPENED);
        struct op list = {.kind = OP_SESSION_LIST, .account = slice_str(ids[i])};
        assert_int_equal(doing(&w, list)->n_rows, 1);
    }
    again(&w);
    struct op close = {.kind = OP_SESSION_CLOSE, .account = SLICE(ID_A), .session = SLICE("s")};
    is(doing(&w, close), EVENT_SESSION_ENDED);
    struct op show = {.kind = OP_SESSION_SHOW, .account = SLICE(ID_B), .session = SLICE("s")};
    is(doing(&w, show), EVENT_ROWS);
    end(&w);
}

static void a_deleted_account_leaves_nothing(void **state)
{
    (void)state;
    struct world w = begin();
    is(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_A, "a@x")), EVENT_ACCOUNT_CREATED);
    struct op op = take(0, 0, "db", "me");
    op.account = SLICE(ID_A);
    is(doing(&w, op), EVENT_GRANTED);
    struct op open = {
        .kind = OP_SESSION_OPEN, .account = SLICE(ID_A), .session = SLICE("s"), .ttl_ms = 1000};
    is(doing(&w, open), EVENT_SESSION_OPENED);
    fails(doing(&w, account_op(OP_ACCOUNT_DELETE, ID_A, "")), BELAY_ERR_IN_USE);
    struct op force = account_op(OP_ACCOUNT_DELETE, ID_A, "");
    force.flags = OP_FORCE;
    is(doing(&w, force), EVENT_ACCOUNT_DELETED);
    fails(doing(&w, force), BELAY_ERR_NOT_FOUND);
    again(&w);
    fails(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_A, "a@x")), BELAY_ERR_EXISTS);
    fails(doing(&w, op), BELAY_ERR_NO_NAMESPACE);
    w.now_ms += 5000; /* its session ends; then it may be made again */
    (void)doing(&w, (struct op){.kind = OP_TICK});
    (void)doing(&w, (struct op){.kind = OP_TICK});
    is(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_A, "a@x")), EVENT_ACCOUNT_CREATED);
    fails(doing(&w, account_op(OP_ACCOUNT_DELETE, "default", "")), BELAY_ERR_IN_USE);
    end(&w);
}

static void limited(struct op *op, enum quota quota, uint64_t limit, struct buf *space)
{
    struct limits limits = {0};
    limits.given[quota] = true;
    limits.at[quota] = limit;
    buf_clear(space);
    limits_put(&limits, space);
    op->body = buf_slice(space);
}

static void an_account_has_no_more_than_its_limit(void **state)
{
    (void)state;
    struct world w = begin();
    struct buf space = {0};
    struct op update = account_op(OP_ACCOUNT_UPDATE, "default", "");
    is(doing(&w, take(0, 0, "a", "me")), EVENT_GRANTED);
    limited(&update, QUOTA_LOCKS, 2, &space);
    is(doing(&w, update), EVENT_ACCOUNT_UPDATED);
    is(doing(&w, take(0, 0, "b", "me")), EVENT_GRANTED);
    const struct event *ev = doing(&w, take(0, 0, "c", "me"));
    fails(ev, BELAY_ERR_QUOTA);
    assert_true(slice_eq(ev->text, SLICE("the account may have 2 locks and has 2")));
    again(&w);
    fails(doing(&w, take(0, 0, "c", "me")), BELAY_ERR_QUOTA);
    is(doing(&w, take(0, 0, "a", "me")), EVENT_GRANTED); /* no new one */
    struct op release = {.kind = OP_RELEASE, .name = SLICE("a"), .owner = SLICE("me")};
    is(doing(&w, release), EVENT_RELEASED);
    is(doing(&w, take(0, 0, "c", "me")), EVENT_GRANTED);
    limited(&update, QUOTA_WAITERS, 1, &space);
    is(doing(&w, update), EVENT_ACCOUNT_UPDATED);
    struct op wait = take(0, 0, "b", "bob");
    wait.wait_ms = 1000;
    assert_null(doing(&w, wait));
    wait.owner = SLICE("cid");
    fails(doing(&w, wait), BELAY_ERR_QUOTA);
    limited(&update, QUOTA_NAMESPACES, 1, &space);
    is(doing(&w, update), EVENT_ACCOUNT_UPDATED);
    fails(doing(&w, of_namespace(OP_NAMESPACE_CREATE, "n")), BELAY_ERR_QUOTA);
    limited(&update, QUOTA_SESSIONS, 1, &space);
    is(doing(&w, update), EVENT_ACCOUNT_UPDATED);
    is(doing(&w, of_session(OP_SESSION_OPEN, "s")), EVENT_SESSION_OPENED);
    fails(doing(&w, of_session(OP_SESSION_OPEN, "t")), BELAY_ERR_QUOTA);
    limited(&update, QUOTA_BYTES, 3, &space);
    is(doing(&w, update), EVENT_ACCOUNT_UPDATED);
    struct op body = {
        .kind = OP_BODY, .name = SLICE("b"), .owner = SLICE("me"), .body = SLICE("1234")};
    fails(doing(&w, body), BELAY_ERR_QUOTA);
    body.body = SLICE("123");
    is(doing(&w, body), EVENT_BODY_SET);
    buf_done(&space);
    end(&w);
}

static void limit(struct world *w, enum quota quota, uint64_t n)
{
    struct buf space = {0};
    struct op update = account_op(OP_ACCOUNT_UPDATE, "default", "");
    limited(&update, quota, n, &space);
    is(doing(w, update), EVENT_ACCOUNT_UPDATED);
    buf_done(&space);
}

static void says(const struct event *ev, const char *text)
{
    fails(ev, BELAY_ERR_QUOTA);
    if (!slice_eq(ev->text, slice_str(text)))
        fail_msg("%.*s", (int)ev->text.len, ev->text.data);
}

static struct op body_of(const char *name, const char *body)
{
    return (struct op){.kind = OP_BODY,
                       .name = slice_str(name),
                       .owner = SLICE("me"),
                       .body = slice_str(body)};
}

static struct op take_with(const char *name, const char *owner, const char *body)
{
    struct op op = take(0, 0, name, owner);
    op.flags = OP_SET_BODY;
    op.body = slice_str(body);
    return op;
}

static void bodies_are_counted_however_they_come(void **state)
{
    (void)state;
    struct world w = begin();
    limit(&w, QUOTA_BYTES, 4);
    is(doing(&w, take_with("a", "me", "123")), EVENT_GRANTED);
    says(doing(&w, take_with("b", "me", "12")), "the account may have 4 bytes and has 3");
    is(doing(&w, take(0, 0, "b", "me")), EVENT_GRANTED);
    fails(doing(&w, take_with("b", "me", "12")), BELAY_ERR_QUOTA); /* again */
    is(doing(&w, take_with("a", "me", "1234")), EVENT_GRANTED); /* instead of what was there */
    is(doing(&w, body_of("a", "abcd")), EVENT_BODY_SET);
    fails(doing(&w, body_of("a", "abcde")), BELAY_ERR_QUOTA);
    is(doing(&w, body_of("a", "ab")), EVENT_BODY_SET);
    struct op wait = take_with("b", "bob", "123");
    wait.wait_ms = 1000;
    fails(doing(&w, wait), BELAY_ERR_QUOTA);
    wait.body = SLICE("1");
    assert_null(doing(&w, wait)); /* it waits, and what it brings is kept */
    again(&w);
    fails(doing(&w, body_of("a", "abcd")), BELAY_ERR_QUOTA);
    wait.body = SLICE("123"); /* asked again */
    fails(doing(&w, wait), BELAY_ERR_QUOTA);
    struct op release = {.kind = OP_RELEASE, .name = SLICE("b"), .owner = SLICE("me")};
    is(doing(&w, release), EVENT_RELEASED);
    is(doing(&w, body_of("a", "abc")), EVENT_BODY_SET);
    says(doing(&w, body_of("a", "abcd")), "the account may have 4 bytes and has 4");
    end(&w);
}

static void whoever_wants_to_convert_waits_too(void **state)
{
    (void)state;
    struct world w = begin();
    struct op mine = take(0, 0, "a", "me"), other = take(0, 0, "a", "bob");
    mine.mode = other.mode = MODE_SHARED;
    is(doing(&w, mine), EVENT_GRANTED);
    is(doing(&w, other), EVENT_GRANTED);
    is(doing(&w, take(0, 0, "b", "bob")), EVENT_GRANTED);
    limit(&w, QUOTA_WAITERS, 1);
    struct op wait = take(0, 0, "b", "cid");
    wait.wait_ms = 1000;
    assert_null(doing(&w, wait));
    struct op convert = {.kind = OP_CONVERT,
                         .name = SLICE("a"),
                         .owner = SLICE("me"),
                         .mode = MODE_EXCLUSIVE,
                         .wait_ms = 1000};
    says(doing(&w, convert), "the account may have 1 waiters and has 1");
    end(&w);
}

/* --- transactions of the session "s" --- */

static const struct event *transact(struct world *w, struct buf *program, uint64_t wait_ms)
{
    struct op op = of_session(OP_TXN, "s");
    op.program = buf_slice(program);
    op.wait_ms = wait_ms;
    const struct event *ev = doing(w, op);
    buf_done(program);
    return ev;
}

static void put_set(struct buf *program, const char *name, const char *value)
{
    struct program_var v = {.flags = VAR_HAS_VALUE,
                            .table = SLICE("t"),
                            .key = slice_str(name),
                            .value = slice_str(value)};
    program_put(program, NODE_ASSERT);
    program_put_var(program, NODE_SET, &v);
}

static const struct event *set_two(struct world *w, const char *a, const char *b,
                                   const char *value)
{
    struct buf program = {0};
    program_begin(&program, 2);
    put_set(&program, a, value);
    put_set(&program, b, value);
    return transact(w, &program, 0);
}

static const struct event *lock_two(struct world *w, const char *a, const char *b)
{
    const char *const names[] = {a, b};
    struct buf program = {0};
    program_begin(&program, 2);
    for (size_t i = 0; i < 2; i++) {
        struct program_lock l = {.name = slice_str(names[i]),
                                 .owner = SLICE("me"),
                                 .into = SLICE("f"),
                                 .mode = MODE_EXCLUSIVE,
                                 .ttl_ms = 100000};
        program_put(&program, NODE_ASSERT);
        program_put_lock(&program, NODE_LOCK, &l);
    }
    return transact(w, &program, 0);
}

static void a_transaction_has_the_limits_of_its_account(void **state)
{
    (void)state;
    struct world w = begin();
    is(doing(&w, of_session(OP_SESSION_OPEN, "s")), EVENT_SESSION_OPENED);
    limit(&w, QUOTA_VARIABLES, 3);
    assert_int_equal(set_two(&w, "a", "b", "1")->status, TXN_OK);
    says(set_two(&w, "c", "d", "1"), "the account may have 3 variables and has 2");
    assert_int_equal(set_two(&w, "c", "a", "1")->kind, EVENT_TXN); /* refused, but no quota */
    limit(&w, QUOTA_VARIABLES, 0);
    limit(&w, QUOTA_BYTES, 8);
    fails(set_two(&w, "e", "f", "\"123\""), BELAY_ERR_QUOTA);
    again(&w);
    assert_int_equal(set_two(&w, "e", "f", "12")->status, TXN_OK);
    limit(&w, QUOTA_BYTES, 0);
    limit(&w, QUOTA_LOCKS, 1);
    says(lock_two(&w, "x", "y"), "the account may have 1 locks and has 0");
    limit(&w, QUOTA_LOCKS, 2);
    assert_int_equal(lock_two(&w, "x", "y")->status, TXN_OK);
    assert_int_equal(lock_two(&w, "x", "y")->status, TXN_OK); /* again: no new ones */
    limit(&w, QUOTA_TRANSACTIONS, 1);
    for (int i = 0; i < 2; i++) {
        struct buf program = {0};
        program_begin(&program, 1);
        program_put(&program, NODE_ASSERT);
        program_put(&program, NODE_FALSE);
        const struct event *ev = transact(&w, &program, 1000);
        if (i == 0)
            assert_null(ev); /* it waits */
        else
            says(ev, "the account may have 1 transactions and has 1");
    }
    end(&w);
}

static void a_level_0_machine_makes_no_tokens(void **state)
{
    (void)state;
    struct world w = {.m = machine_open(key)};
    machine_set_level(w.m, 0);
    fails(doing(&w, token_op(OP_AUTH_INIT, ID_A, sum_a)), BELAY_ERR_UNAVAILABLE);
    fails(doing(&w, account_op(OP_ACCOUNT_CREATE, ID_A, "a@x")), BELAY_ERR_UNAVAILABLE);
    is(doing(&w, take(0, 0, "x", "me")), EVENT_GRANTED);
    end(&w);
}

static void a_listing_shows_what_may_be_read(void **state)
{
    (void)state;
    struct world w = begin();
    struct buf rules = {0};
    static const char *const names[] = {"a", "db", "db1", "db2", "dbx", "e", "secret", "z"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is(doing(&w, take(0, 0, names[i], "me")), EVENT_GRANTED);
    assert_null(rule_read(SLICE("read default/db*"), &rules));
    assert_null(rule_read(SLICE("lock default/db2"), &rules));
    assert_null(rule_read(SLICE("read default/z"), &rules));
    struct op list = {.kind = OP_LIST, .limit = 2, .body = buf_slice(&rules)};
    const struct event *ev = doing(&w, list);
    assert_int_equal(ev->n_rows, 2);
    assert_true(ev->more && slice_eq(ev->locks[1].name, SLICE("db1")));
    list.text = SLICE("db1");
    ev = doing(&w, list);
    assert_int_equal(ev->n_rows, 2);
    assert_true(!ev->more && slice_eq(ev->locks[0].name, SLICE("dbx")));
    assert_true(slice_eq(ev->locks[1].name, SLICE("z")));
    buf_done(&rules);
    end(&w);
}

/* --- several groups --- */

static void revocation_is_answered_when_all_groups_have_it(void **state)
{
    struct fixture *f = *state;
    struct client c = {0}, d = {0};
    assert_int_equal(done(f, &c, token_op(OP_AUTH_INIT, ID_A, sum_a))->ev.kind,
                     EVENT_TOKEN_CREATED);
    assert_int_equal(done(f, &c, as(token_op(OP_TOKEN_CREATE, ID_B, sum_b), 1, 1))->ev.kind,
                     EVENT_TOKEN_CREATED);
    for (size_t g = 1; g < GROUPS; g++) {
        struct op op = as(acquire(f->ns[g], "", 0), 2, 1);
        op.ttl_ms = 1000;
        assert_int_equal(done(f, &d, op)->ev.kind, EVENT_GRANTED);
        op.token = op.rights = 0;
        assert_int_equal(done(f, &d, op)->ev.err, BELAY_ERR_LOGIN); /* closed everywhere */
    }
    ask(f, &c, as(token_op(OP_TOKEN_REVOKE, ID_B, NULL), 1, 1));
    while (step(f, 0))
        ;
    assert_int_equal(c.answers, 0); /* group 0 has it, the shards do not */
    struct op op = as(acquire(f->ns[1], "", 0), 2, 1);
    op.name = SLICE("while");
    ask(f, &d, op);
    while (step(f, 1))
        ;
    assert_int_equal(d.ev.kind, EVENT_GRANTED); /* not yet true there, and not yet said */
    assert_int_equal(c.answers, 0);
    settle(f);
    assert_int_equal(c.answers, 1);
    assert_int_equal(c.ev.kind, EVENT_TOKEN_REVOKED);
    for (size_t g = 1; g < GROUPS; g++) {
        op = as(acquire(f->ns[g], "", 0), 2, 1);
        op.name = SLICE("after");
        assert_int_equal(done(f, &d, op)->ev.err, BELAY_ERR_LOGIN);
        struct op show = as((struct op){.kind = OP_SHOW, .name = SLICE("db")}, 2, 1);
        show.ns = slice_str(f->ns[g]);
        assert_int_equal(done(f, &d, show)->ev.err, BELAY_ERR_LOGIN);
    }
}

static void sessions_of_accounts_in_shards(void **state)
{
    struct fixture *f = *state;
    struct client c = {0};
    static const char *const ids[] = {ID_A, ID_B};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(
            done(f, &c, account_op(OP_ACCOUNT_CREATE, ids[i], i ? "a@x" : "b@x"))->ev.kind,
            EVENT_ACCOUNT_CREATED);
        struct op open = of_session(OP_SESSION_OPEN, "s");
        open.account = slice_str(ids[i]);
        assert_int_equal(done(f, &c, open)->ev.kind, EVENT_SESSION_OPENED);
        struct op op = acquire("default", "s", 0);
        op.account = slice_str(ids[i]);
        assert_int_equal(done(f, &c, op)->ev.kind, EVENT_GRANTED);
    }
    struct op close = of_session(OP_SESSION_CLOSE, "s");
    close.account = slice_str(ids[0]);
    assert_int_equal(done(f, &c, close)->ev.kind, EVENT_SESSION_ENDED);
    assert_int_equal(c.ev.count, 1);
    struct op show = {.kind = OP_SHOW, .account = slice_str(ids[1]), .name = SLICE("db")};
    done(f, &c, show);
    struct op release = {.kind = OP_RELEASE,
                         .account = slice_str(ids[1]),
                         .name = SLICE("db"),
                         .owner = SLICE("me")};
    assert_int_equal(done(f, &c, release)->ev.count, 1); /* the other one's is untouched */
}

static int make_rules(void **state)
{
    (void)state;
    return rule_read(SLICE("read,lock,break,admin *"), &all_rules) != NULL;
}

static int drop_rules(void **state)
{
    (void)state;
    buf_done(&all_rules);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_init_on_all_must_have_a_token),
        cmocka_unit_test(a_token_needs_an_account_and_a_sum),
        cmocka_unit_test(a_login_takes_the_secret_and_its_time),
        cmocka_unit_test(a_rotated_token_has_two_secrets_for_a_while),
        cmocka_unit_test(what_a_token_took_is_its_own),
        cmocka_unit_test(a_session_is_its_tokens),
        cmocka_unit_test(a_revoked_token_is_granted_nothing),
        cmocka_unit_test(accounts_are_apart),
        cmocka_unit_test(a_deleted_account_leaves_nothing),
        cmocka_unit_test(an_account_has_no_more_than_its_limit),
        cmocka_unit_test(bodies_are_counted_however_they_come),
        cmocka_unit_test(whoever_wants_to_convert_waits_too),
        cmocka_unit_test(a_transaction_has_the_limits_of_its_account),
        cmocka_unit_test(a_level_0_machine_makes_no_tokens),
        cmocka_unit_test(a_listing_shows_what_may_be_read),
        cmocka_unit_test_setup_teardown(revocation_is_answered_when_all_groups_have_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(sessions_of_accounts_in_shards, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, make_rules, drop_rules);
}
