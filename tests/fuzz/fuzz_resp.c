/* RESP: the input is read as a stream of requests and as a reply. Checked: an answer does not
 * depend on what has not arrived, never reaches past the input, and what was read and written
 * again is read as the same. */
#include "base/check.h"
#include "proto/json.h"
#include "proto/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const struct request *req)
{
    struct slice words[REQUEST_WORDS_MAX];
    struct buf wire = {0};
    struct arena a = {0};
    struct request again;
    size_t used = 0;
    const char *why = NULL;
    words[0] = req->verb;
    for (size_t i = 0; i < req->n_words; i++)
        words[i + 1] = req->words[i];
    resp_write_request(&wire, words, req->n_words + 1);
    if (buf_len(&wire) <= REQUEST_BYTES_MAX) {
        BELAY_CHECK(resp_next(buf_slice(&wire), &a, &again, &used, &why) == RESP_DONE);
        BELAY_CHECK(used == buf_len(&wire));
        BELAY_CHECK(again.n_words == req->n_words);
        BELAY_CHECK(slice_eq(again.verb, req->verb));
        for (size_t i = 0; i < req->n_words; i++)
            BELAY_CHECK(slice_eq(again.words[i], req->words[i]));
    }
    arena_done(&a);
    buf_done(&wire);
}

/* With fewer bytes: the same answer, or none yet. */
static void check_prefixes(struct slice in, enum resp_step step, size_t used, const char *why)
{
    size_t stride = in.len / 32 + 1;
    struct arena a = {0};
    for (size_t n = 0; n < in.len; n += stride) {
        struct request req;
        size_t part = 0;
        const char *early = NULL;
        enum resp_step s = resp_next(slice_of(in.data, n), &a, &req, &part, &early);
        if (s == RESP_MORE)
            BELAY_CHECK(step != RESP_DONE || n < used);
        else
            BELAY_CHECK(s == step && part == used && early == why);
        arena_reset(&a);
    }
    arena_done(&a);
}

static void read_requests(struct slice in)
{
    struct arena a = {0};
    while (in.len) {
        struct request req;
        size_t used = 0;
        const char *why = NULL;
        enum resp_step step = resp_next(in, &a, &req, &used, &why);
        check_prefixes(in, step, used, why);
        if (step != RESP_DONE)
            break;
        BELAY_CHECK(used > 0);
        BELAY_CHECK(used <= in.len);
        if (req.verb.len)
            check_request(&req);
        in = slice_of(in.data + used, in.len - used);
        arena_reset(&a);
    }
    arena_done(&a);
}

static void check_json(const struct reply *r, struct arena *a)
{
    struct buf text = {0};
    struct json_token *root;
    struct json_error err = {0, ""};
    json_write(&text, r);
    BELAY_CHECK(json_parse_in(buf_slice(&text), a, &root, &err) ||
                strcmp(err.what, "duplicate member") == 0);
    buf_done(&text);
}

static void read_reply(struct slice in)
{
    struct arena a = {.may_fail = true};
    struct reply *r = NULL;
    size_t used = 0;
    const char *why = NULL;
    if (resp_next_reply(in, &a, &r, &used, &why) == RESP_DONE) {
        BELAY_CHECK(used > 0);
        BELAY_CHECK(used <= in.len);
        check_json(r, &a);
        for (int version = 2; version <= 3; version++) {
            struct buf once = {0}, twice = {0};
            struct reply *again = NULL;
            size_t n = 0;
            resp_write(&once, r, version);
            BELAY_CHECK(resp_next_reply(buf_slice(&once), &a, &again, &n, &why) == RESP_DONE);
            BELAY_CHECK(n == buf_len(&once));
            resp_write(&twice, again, version);
            BELAY_CHECK(slice_eq(buf_slice(&once), buf_slice(&twice)));
            buf_done(&once);
            buf_done(&twice);
        }
        for (size_t n = 0; n < used; n += used / 32 + 1) {
            struct reply *part = NULL;
            size_t m = 0;
            BELAY_CHECK(resp_next_reply(slice_of(in.data, n), &a, &part, &m, &why) ==
                        RESP_MORE);
        }
    }
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in = slice_of((const char *)data, size);
    read_requests(in);
    read_reply(in);
    return 0;
}
