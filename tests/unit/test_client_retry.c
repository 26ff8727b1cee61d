/* test_client_retry.c - what libbelay sends again follows from what a command takes: one that takes
 * a request id gets one, one that takes STALE only looks, and of the others only those are sent
 * twice that do the same when they are done twice. So the column `again` of the table fits the
 * parameters beside it, and libbelay reads both as the server does. */
#include "client/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct row {
    const char *name, *positions, *options;
} rows[] = {
#define CMD(id, name, fn, flags, need, again, method, path, positions, options, summary)       \
    {name, #positions, #options},
#include "command/commands.def"
#undef CMD
};

/* Done twice, these do the same as once. RENEW takes a request id, and does without. */
static const char *const harmless[] = {
    "RENEW", "CHECK", "SESSION ATTACH", "SESSION KEEPALIVE", "CLUSTER STATUS", "PING", "INFO",
};

static bool takes(const char *list, const char *parameter)
{
    size_t len = strlen(parameter);
    for (const char *at = strstr(list, parameter); at; at = strstr(at + 1, parameter))
        if (strchr(",)", at[len]))
            return true;
    return false;
}

static bool is_harmless(const char *name)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(harmless[i], name) == 0)
            return true;
    return false;
}

static struct belay_bytes bytes(const char *text, size_t len)
{
    return (struct belay_bytes){.data = text, .len = len};
}

/* The command with a word for each of its positions. */
static size_t words_of(const struct row *row, struct belay_bytes words[BELAY_WORDS_MAX])
{
    size_t n = 0;
    for (const char *at = row->name; *at; at += *at == ' ') {
        size_t len = strcspn(at, " ");
        words[n++] = bytes(at, len);
        at += len;
    }
    for (const char *at = strstr(row->positions, "P_"); at; at = strstr(at + 1, "P_"))
        if (strncmp(at, "P_NONE", 6) != 0)
            words[n++] = bytes("7", 1);
    return n;
}

static void what_may_be_sent_again_is_what_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct belay_bytes words[BELAY_WORDS_MAX];
        size_t n = words_of(&rows[i], words);
        bool looks = takes(rows[i].options, "P_STALE");
        bool has_id = takes(rows[i].options, "P_REQUEST");
        enum again want = looks || is_harmless(rows[i].name) ? AGAIN_AS_IT_IS
                          : has_id                           ? AGAIN_WITH_ID
                                                             : AGAIN_NEVER;
        if (rows[i].name[0] == '/') /* over HTTP alone */
            want = AGAIN_NEVER;
        if (retry_kind(words, n) != want || retry_looks(words, n) != looks)
            fail_msg("%s: %d where the table says %d", rows[i].name, retry_kind(words, n),
                     want);
        words[n] = bytes("REQUEST", 7);
        words[n + 1] = bytes("mine", 4);
        if (want == AGAIN_WITH_ID) /* the caller's own: behind the positions it is an option */
            assert_int_equal(retry_kind(words, n + 2), AGAIN_AS_IT_IS);
    }
}

/* `prompt`: it is answered at once. */
static const struct saying {
    const char *text;
    enum again want;
    bool prompt;
} sayings[] = {
    {"ACQUIRE n o WAIT 0", AGAIN_WITH_ID, false},
    {"CONVERT n 7 MODE shared", AGAIN_WITH_ID, false},
    {"TXN {}", AGAIN_WITH_ID, false},
    {"session open", AGAIN_WITH_ID, true},
    {"session", AGAIN_NEVER, false},
    {"SESSION NAMESPACE", AGAIN_NEVER, false},
    {"ping", AGAIN_AS_IT_IS, true},
    {"PIN", AGAIN_NEVER, false},
    {"PINGS", AGAIN_NEVER, false},
    {"CLUSTER STATUS", AGAIN_AS_IT_IS, true},
    {"CLUSTER ADD n h:1", AGAIN_NEVER, false},
    {"RELEASE REQUEST 7", AGAIN_WITH_ID, true}, /* a lock of that name */
    {"RELEASE n OWNER REQUEST 7", AGAIN_WITH_ID, true},
    {"RELEASE n owner o REQUEST mine", AGAIN_AS_IT_IS, true},
    {"RELEASE n 7 request mine", AGAIN_AS_IT_IS, true},
    {"BODY n OWNER o REQUEST text", AGAIN_WITH_ID, true},
    {"BODY n OWNER o text REQUEST mine", AGAIN_AS_IT_IS, true},
};

static void a_request_id_is_told_from_other_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sayings / sizeof *sayings; i++) {
        const struct saying *s = &sayings[i];
        struct belay_bytes words[BELAY_WORDS_MAX];
        size_t n = 0;
        for (const char *at = s->text; *at; at += strspn(at, " ")) {
            words[n] = bytes(at, strcspn(at, " "));
            at += words[n++].len;
        }
        if (retry_kind(words, n) != s->want || retry_is_prompt(words, n) != s->prompt)
            fail_msg("%s: %d, prompt %d", s->text, retry_kind(words, n),
                     retry_is_prompt(words, n));
    }
    struct belay_bytes one = bytes("SESSION OPEN", 12);
    assert_int_equal(retry_kind(&one, 1), AGAIN_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_be_sent_again_is_what_the_table_says),
        cmocka_unit_test(a_request_id_is_told_from_other_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
