/* err.c - the words and HTTP statuses of the one error space. */
#include "base/err.h"

#include <stddef.h>

static const struct {
    const char *word;
    const char *text;
    int status;
} table[] = {
#define X(id, word, status, text) [id] = {word, text, status},
    BELAY_ERR_MAP(X)
#undef X
};

static size_t row(enum belay_err err)
{
    return (size_t)err < BELAY_ERR_COUNT ? (size_t)err : (size_t)BELAY_ERR_INTERNAL;
}

const char *err_word(enum belay_err err)
{
    return table[row(err)].word;
}

const char *err_text(enum belay_err err)
{
    return table[row(err)].text;
}

int err_status(enum belay_err err)
{
    return table[row(err)].status;
}
