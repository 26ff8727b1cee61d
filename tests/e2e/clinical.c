/* clinical.c - the worked example of the seed, through libbelay. Prints what each user is told.
 *
 *   clinical ADDRESS
 *
 * Compiled by test_txn with every warning on, as a user of belay_txn.h would. */
#include "belay_txn.h"

#include <stdio.h>
#include <stdlib.h>

static struct belay *user(const char *addr)
{
    struct belay_options o = {.addrs = addr, .ns = "Clinical"};
    struct belay *b = NULL;
    if (belay_open(&o, &b) != BELAY_E_OK ||
        belay_session_open(b, 30000, 0, "a nurse") != BELAY_E_OK) {
        fprintf(stderr, "%s\n", b ? belay_error(b) : "no memory");
        exit(1);
    }
    return b;
}

static void tell(struct belay *b, const char *what, int err, const struct belay_txn_result *r)
{
    static const char *const words[] = {"ok", "error", "timeout"};
    if (err != BELAY_E_OK)
        printf("%s: %s\n", what, belay_error(b));
    else
        printf("%s: %s %s%s\n", what, words[r->status], r->cause, r->failed);
}

static void enter(struct belay *b)
{
    struct belay_txn_result r;
    const struct belay_txn txn = {
        .description = "MDS Entry for Zak Pak@'Cherry Grove'",
        .statements = belay_statements(
            belay_assert(belay_not(belay_exists("Month-End", "CGROVE-35"))),
            belay_assert(belay_not(belay_exists("MDS-Review", "CGROVE-35", "R-45899"))),
            belay_assert(
                belay_set("MDS-Entry", "CGROVE-35", "R-45899", .allow_duplicates = true))),
    };
    int err = belay_txn(b, &txn, &r);
    tell(b, "enter", err, &r);
}

static void review(struct belay *b)
{
    struct belay_txn_result r;
    const struct belay_txn txn = {
        .description = "MDS Review for Zak Pak@'Cherry Grove'",
        .statements = belay_statements(
            belay_assert(belay_not(belay_exists("Month-End", "CGROVE-35"))),
            belay_assert(belay_not(belay_exists("MDS-Entry", "CGROVE-35", "R-45899"))),
            belay_assert(belay_set("MDS-Review", "CGROVE-35", "R-45899"))),
    };
    int err = belay_txn(b, &txn, &r);
    tell(b, "review", err, &r);
}

static void finish(struct belay *b, const char *table)
{
    struct belay_txn_result r;
    const struct belay_txn txn = {
        .description = "done",
        .statements =
            belay_statements(belay_anyway(belay_delete(table, "CGROVE-35", "R-45899"))),
    };
    int err = belay_txn(b, &txn, &r);
    tell(b, "finish", err, &r);
}

/* Every word of the header once. */
static void everything(struct belay *b)
{
    struct belay_txn_result r;
    const struct belay_txn txn = {
        .statements = belay_statements(
            belay_block(belay_if(belay_true(), belay_select_constant("c", "a \"quote\""),
                                 belay_abort()),
                        belay_if(belay_false(), belay_abort(), NULL)),
            belay_select_operator("o", belay_xor(belay_and(belay_true(), belay_false()),
                                                 belay_or(belay_true(), belay_false()))),
            belay_assert(belay_set("T", "k", .json = "{\"n\": 1.50}", .ttl_ms = 5000)),
            belay_select("x", "T", "k", .with_this_session = true),
            belay_assert(belay_lock("facility", .mode = BELAY_SHARED, .into = "fence")),
            belay_assert(belay_lock("beds", .of = 3)), belay_assert(belay_unlock("beds"))),
    };
    int err = belay_txn(b, &txn, &r);
    tell(b, "everything", err, &r);
    if (err == BELAY_E_OK && r.status == BELAY_TXN_OK)
        printf("c=%s o=%s fence is a number: %d\n", belay_txn_value(&r, "c"),
               belay_txn_value(&r, "o"), atoi(belay_txn_value(&r, "fence")) > 0);
    err = belay_txn(b, &(struct belay_txn){.statements = belay_statements(belay_assert(NULL))},
                    &r);
    tell(b, "wrong", err, &r);
    err = belay_txn(b, &(struct belay_txn){.description = "ping"}, &r);
    tell(b, "ping", err, &r);
    err = belay_txn(b, &(struct belay_txn){.min_uptime_s = 1000000}, &r);
    tell(b, "demanding", err, &r);
}

int main(int argc, char **argv)
{
    struct belay *u1 = user(argc > 1 ? argv[1] : NULL);
    struct belay *u2 = user(argc > 1 ? argv[1] : NULL);
    struct belay *u3 = user(argc > 1 ? argv[1] : NULL);
    enter(u1);
    enter(u2);
    review(u3);
    finish(u1, "MDS-Entry");
    review(u3);
    belay_close(u2); /* its session ends with it, and its entry with the session */
    struct belay_txn_result r;
    const struct belay_txn txn = {
        .wait_ms = 10000,
        .statements = belay_statements(
            belay_assert(belay_not(belay_exists("MDS-Entry", "CGROVE-35", "R-45899")))),
    };
    int err = belay_txn(u3, &txn, &r);
    tell(u3, "all gone", err, &r);
    review(u3);
    everything(u3);
    belay_close(u1);
    belay_close(u3);
    return 0;
}
