/* test_txn_json.c - a transaction's JSON: what is understood, and what is said of the rest. */
#include "command/txn_json.h"

#include "machine/op.h"
#include "machine/program.h"
#include "text_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

/* Rows are written with ' for ". */
static struct slice quoted(const char *text, struct arena *a)
{
    struct slice copy = arena_copy(a, slice_str(text));
    char *p = arena_alloc(a, copy.len + 1);
    for (size_t i = 0; i < copy.len; i++)
        p[i] = (char)(copy.data[i] == '\'' ? '"' : copy.data[i]);
    return slice_of(p, copy.len);
}

static enum belay_err read_statements(const char *statements, struct arena *a, struct txn *ret,
                                      const char **ret_what)
{
    struct buf json = {0};
    buf_printf(&json, "{'session':'s','statements':[%s]}", statements);
    struct slice text = quoted(buf_cstr(&json), a);
    buf_done(&json);
    return txn_read(text, a, ret, ret_what);
}

static const struct {
    const char *json, *want; /* in the words of text_txn.c */
} good[] = {
    {"{'assert':{'true':{}}}", "assert(true)"},
    {"{'abort':{}}", "abort"},
    {"{'block':[{'abort':{}},{'anyway':{'false':{}}}]}", "block(abort,anyway(false))"},
    {"{'if':{'cond':{'true':{}},'then':{'abort':{}}}}", "if(true,abort)"},
    {"{'if':{'else':{'abort':{}},'cond':{'true':{}},'then':{'block':[{'abort':{}}]}}}",
     "if(true,block(abort),abort)"},
    {"{'select_constant':{'into':'x','value':[1.0, 'a']}}", "const(x,[1,\"a\"])"},
    {"{'select_operator':{'into':'x','op':{'not':{'false':{}}}}}", "op(x,not(false))"},
    {"{'select':{'into':'x','table':'t','key':'k'}}", "select(x,t,k)"},
    {"{'select':{'into':'x','table':'t','key':'k','ignore_this_session':false,"
     "'abort_if_not_found':true,'many':true}}",
     "select(x,t,k,mine,need,many)"},
    {"{'assert':{'and':[{'true':{}},{'or':[{'true':{}},{'xor':[{'true':{}},{'false':{}},{'true'"
     ":{}}]}]}]}}",
     "assert(and(true,or(true,xor(true,false,true))))"},
    {"{'assert':{'exists':{'table':'t','key':'k'}}}", "assert(exists(t,k))"},
    {"{'assert':{'exists':{'table':'t','key':'k','value':null}}}", "assert(exists(t,k))"},
    {"{'assert':{'exists':{'table':'t','key':'k','value':1.50,'ignore_this_session':false}}}",
     "assert(exists(t,k,1.5,mine))"},
    {"{'assert':{'set':{'table':'t','key':'k','value':{'b':1,'a':2}}}}",
     "assert(set(t,k,{\"a\":2,\"b\":1}))"},
    {"{'assert':{'set':{'table':'t','key':'k'}}}", "assert(set(t,k,null))"},
    {"{'assert':{'set':{'table':'t','key':'k','value':1,'description':'d','ttl_ms':5,"
     "'allow_duplicates':true,'respect_exclusive':true}}}",
     "assert(set(t,k,1,text=d,ttl=5,dup,respect))"},
    {"{'anyway':{'delete':{'table':'t','key':'k','value':'v'}}}", "anyway(delete(t,k,\"v\"))"},
    {"{'assert':{'lock':{'name':'l','owner':'o','mode':'shared','ttl_ms':9,'into':'f'}}}",
     "assert(lock(l,o,shared,ttl=9,into=f))"},
    {"{'assert':{'lock':{'name':'l'}}}", "assert(lock(l,s))"},
    {"{'assert':{'lock':{'name':'l','of':5}}}", "assert(lock(l,s,1/5))"},
    {"{'assert':{'unlock':{'name':'l'}}}", "assert(unlock(l,s))"},
    {"{'assert':{'unlock':{'name':'l','fence':7}}}", "assert(unlock(l,#7))"},
    {"{'assert':{'\\u0074rue':{}}}", "assert(true)"},
};

static void every_statement_and_operator_is_understood(void **state)
{
    (void)state;
    struct arena a = {0};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct txn txn;
        struct buf want = {0};
        const char *what = "";
        if (read_statements(good[i].json, &a, &txn, &what) != BELAY_OK)
            fail_msg("%s: %s", good[i].json, what);
        program_begin(&want, 1);
        text_put_node(&want, slice_str(good[i].want));
        if (!slice_eq(txn.program, buf_slice(&want)))
            fail_msg("%s is not %s", good[i].json, good[i].want);
        assert_int_equal(program_check(txn.program, &what), BELAY_OK);
        buf_done(&want);
        arena_reset(&a);
    }
    arena_done(&a);
}

static const struct {
    const char *json, *what;
} bad_statements[] = {
    {"1", "statements[0]: an object with exactly one member is needed here"},
    {"{}", "statements[0]: an object with exactly one member is needed here"},
    {"{'abort':{},'assert':{'true':{}}}",
     "statements[0]: an object with exactly one member is needed here"},
    {"{'asert':{'true':{}}}", "statements[0]: \"asert\" is no statement or operator"},
    {"{'abort':{}},{'assert':{'tru':{}}}",
     "statements[1].assert: \"tru\" is no statement or operator"},
    {"{'true':{}}",
     "statements[0].true: an operator cannot stand here: put it into \"assert\" or \"anyway\""},
    {"{'assert':{'abort':{}}}",
     "statements[0].assert.abort: a statement cannot stand here, only an operator"},
    {"{'assert':{'and':[{'true':{}}]}}",
     "statements[0].assert.and: an array of 2 to 64 operators is needed here"},
    {"{'assert':{'and':[{'true':{}},{'not':[]}]}}",
     "statements[0].assert.and[1].not: an object with exactly one member is needed here"},
    {"{'assert':{'true':{'x':1}}}",
     "statements[0].assert.true: an empty object is needed here"},
    {"{'assert':{'not':{'exists':{'tabel':'t','key':'k'}}}}",
     "statements[0].assert.not.exists: unknown member \"tabel\""},
    {"{'assert':{'exists':{'key':'k'}}}",
     "statements[0].assert.exists: \"table\" is missing or blank"},
    {"{'assert':{'exists':{'table':' ','key':'k'}}}",
     "statements[0].assert.exists: \"table\" is missing or blank"},
    {"{'assert':{'exists':{'table':5,'key':'k'}}}",
     "statements[0].assert.exists: \"table\" must be a string"},
    {"{'assert':{'exists':{'table':null,'key':'k'}}}",
     "statements[0].assert.exists: \"table\" is null"},
    {"{'assert':{'exists':[]}}", "statements[0].assert.exists: an object is needed here"},
    {"{'assert':{'set':{'table':'t','key':'k','ttl_ms':-1}}}",
     "statements[0].assert.set: \"ttl_ms\" must be a whole number from 0 to 604800000"},
    {"{'assert':{'set':{'table':'t','key':'k','allow_duplicates':1}}}",
     "statements[0].assert.set: \"allow_duplicates\" must be true or false"},
    {"{'block':[]}", "statements[0].block: an array of at least one statement is needed here"},
    {"{'block':[{'abort':{}},{'block':{}}]}",
     "statements[0].block[1].block: an array of at least one statement is needed here"},
    {"{'if':{'then':{'abort':{}}}}", "statements[0].if: \"cond\" is missing"},
    {"{'if':{'cond':{'true':{}}}}", "statements[0].if: \"then\" is missing"},
    {"{'if':{'cond':{'true':{}},'then':{'abort':{}},'otherwise':{'abort':{}}}}",
     "statements[0].if: only \"cond\", \"then\" and \"else\" are known"},
    {"{'if':{'cond':{'true':{}},'then':{'abort':{}},'else':{'assert':{}}}}",
     "statements[0].if.else.assert: an object with exactly one member is needed here"},
    {"{'select_constant':{'into':'x'}}", "statements[0].select_constant: \"value\" is missing"},
    {"{'select_operator':{'op':{'true':{}}}}",
     "statements[0].select_operator: \"into\" is missing or blank"},
    {"{'select':{'into':'x','table':'t','key':'k','value':1}}",
     "statements[0].select: unknown member \"value\""},
    {"{'assert':{'lock':{'name':'l','mode':'both'}}}",
     "statements[0].assert.lock: \"mode\" must be \"exclusive\" or \"shared\""},
    {"{'assert':{'lock':{'name':'l','of':2,'permits':3}}}",
     "statements[0].assert.lock: \"permits\" are more than \"of\""},
    {"{'assert':{'lock':{'name':'l','of':2,'mode':'shared'}}}",
     "statements[0].assert.lock: a semaphore (\"of\") has no \"mode\""},
    {"{'assert':{'unlock':{'name':'l','owner':'o','fence':1}}}",
     "statements[0].assert.unlock: give \"owner\" or \"fence\", not both"},
};

static void what_is_wrong_is_named_with_its_place(void **state)
{
    (void)state;
    struct arena a = {0};
    for (size_t i = 0; i < sizeof bad_statements / sizeof bad_statements[0]; i++) {
        struct txn txn;
        const char *what = "";
        assert_int_not_equal(read_statements(bad_statements[i].json, &a, &txn, &what),
                             BELAY_OK);
        assert_string_equal(what, bad_statements[i].what);
        arena_reset(&a);
    }
    arena_done(&a);
}

static const struct {
    const char *json, *what; /* NULL: a ping */
} heads[] = {
    {"{'session':'s'}", NULL},
    {"{'session':'s','statements':[]}", NULL},
    {"{'session':'s','statements':null,'min_trust':0.5,'min_uptime_s':3,'wait_ms':7}", NULL},
    {"{'session':'s','statements':{}}", "\"statements\" must be an array"},
    {"{}", "\"session\" is missing or blank"},
    {"{'session':' '}", "\"session\" is missing or blank"},
    {"[]", "a transaction is an object"},
    {"{'session':'s','min_trust':1.5}", "\"min_trust\" must be a number from 0 to 1"},
    {"{'session':'s','min_trust':'x'}", "\"min_trust\" must be a number from 0 to 1"},
    {"{'session':'s','min_uptime_s':0.5}",
     "\"min_uptime_s\" must be a whole number from 0 to 1000000000"},
    {"{'session':'s','wait_ms':604800001}",
     "\"wait_ms\" must be a whole number from 0 to 604800000"},
    {"{'session':'s','request':7}", "\"request\" must be a string"},
    {"{'session':'s','request':'12345678901234567890123456789012345678901234567890123456789012345'}",
     "\"request\" is over LIMIT_REQUEST_BYTES (64)"},
    {"{'session':'s','statement':[]}", "unknown member \"statement\""},
    {"{'session':'s'", "the JSON is malformed at byte 14: no comma or } behind a member"},
    {"", "the JSON is malformed at byte 0: a value is missing"},
};

static void the_document_has_a_head(void **state)
{
    (void)state;
    struct arena a = {0};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct txn txn;
        const char *what = NULL;
        enum belay_err err = txn_read(quoted(heads[i].json, &a), &a, &txn, &what);
        if (heads[i].what)
            assert_string_equal(what, heads[i].what);
        assert_true((err == BELAY_OK) == (heads[i].what == NULL));
        if (err == BELAY_OK)
            assert_int_equal(txn.program.len, 0);
        arena_reset(&a);
    }
    struct txn txn;
    const char *what = NULL;
    assert_int_equal(txn_read(quoted(heads[2].json, &a), &a, &txn, &what), BELAY_OK);
    assert_true(txn.min_trust == 0.5 && txn.min_uptime_s == 3 && txn.wait_ms == 7);
    arena_done(&a);
}

/* `n` times `part`, between `before` and `after`. */
static const char *repeated(struct buf *out, const char *before, const char *part, size_t n,
                            const char *after)
{
    buf_clear(out);
    buf_put_str(out, before);
    for (size_t i = 0; i < n; i++)
        buf_put_str(out, part);
    buf_put_str(out, after);
    return buf_cstr(out);
}

static void limits_have_names(void **state)
{
    (void)state;
    struct arena a = {0};
    struct buf text = {0}, tail = {0};
    struct txn txn;
    const char *what = "";
    (void)repeated(&tail, "{'true':{}}", "}", 62, "}");
    assert_int_equal(
        read_statements(repeated(&text, "{'assert':", "{'not':", 62, buf_cstr(&tail)), &a, &txn,
                        &what),
        BELAY_OK);
    (void)repeated(&tail, "{'true':{}}", "}", 63, "}");
    assert_int_equal(
        read_statements(repeated(&text, "{'assert':", "{'not':", 63, buf_cstr(&tail)), &a, &txn,
                        &what),
        BELAY_ERR_RANGE);
    assert_non_null(strstr(what, "LIMIT_TXN_DEPTH (64)"));
    assert_int_equal(read_statements(repeated(&text, "{'abort':{}}", ",{'abort':{}}", 255, ""),
                                     &a, &txn, &what),
                     BELAY_OK);
    assert_int_equal(read_statements(repeated(&text, "{'abort':{}}", ",{'abort':{}}", 256, ""),
                                     &a, &txn, &what),
                     BELAY_ERR_RANGE);
    assert_string_equal(what, "statements[256]: the transaction has more than "
                              "LIMIT_TXN_STATEMENTS (256) statements");
    static const char set[] = "{'assert':{'set':{'table':'t','key':'k','value':'";
    assert_int_equal(read_statements(repeated(&text, set, "x", 65534, "'}}}"), &a, &txn, &what),
                     BELAY_OK);
    assert_int_equal(read_statements(repeated(&text, set, "x", 65535, "'}}}"), &a, &txn, &what),
                     BELAY_ERR_RANGE);
    assert_non_null(strstr(what, "LIMIT_VALUE_BYTES (65536)"));
    static const char key[] = "{'assert':{'delete':{'table':'t','key':'";
    assert_int_equal(read_statements(repeated(&text, key, "x", 513, "'}}}"), &a, &txn, &what),
                     BELAY_ERR_RANGE);
    static const char table[] = "{'assert':{'delete':{'key':'t','table':'";
    assert_int_equal(read_statements(repeated(&text, table, "x", 129, "'}}}"), &a, &txn, &what),
                     BELAY_ERR_RANGE);
    buf_done(&text);
    buf_done(&tail);
    arena_done(&a);
}

/* bytes that are not a program are refused, and never read past their end */
static void broken_programs_are_refused(void **state)
{
    (void)state;
    struct buf out = {0};
    const char *what = "";
    program_begin(&out, 2);
    text_put_node(&out, SLICE("if(exists(t,k,1),block(assert(set(t,k,2,dup))),abort)"));
    text_put_node(&out, SLICE("assert(lock(l,o,2/5))"));
    assert_int_equal(program_check(buf_slice(&out), &what), BELAY_OK);
    for (size_t n = 0; n < buf_len(&out); n++) {
        char *cut = malloc(n ? n : 1);
        memcpy(cut, buf_data(&out), n);
        assert_int_not_equal(program_check(slice_of(cut, n), &what), BELAY_OK);
        free(cut);
    }
    buf_put_byte(&out, 1);
    assert_int_not_equal(program_check(buf_slice(&out), &what), BELAY_OK);
    buf_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_statement_and_operator_is_understood),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
        cmocka_unit_test(the_document_has_a_head),
        cmocka_unit_test(limits_have_names),
        cmocka_unit_test(broken_programs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
