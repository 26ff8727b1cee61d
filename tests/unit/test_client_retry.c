/* test_client_retry.c - what libbelay sends again is what the server's one table allows: a command
 * that takes a request id gets one, one that takes STALE only looks, and of the others only those
 * are sent twice that do the same when they are done twice. */
#include "client/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct row {
    const char *name, *positions, *options;
} rows[] = {
#define CMD(id, name, function, flags, need, method, path, positions, options, summary)        \
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_be_sent_again_is_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
