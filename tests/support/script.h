/* script.h - ops given as text to one machine, many of them: for tests with loops. */
#ifndef BELAY_TESTS_SCRIPT_H
#define BELAY_TESTS_SCRIPT_H

#include "machine/machine.h"

struct script {
    struct machine *m;
    struct effects fx; /* of the last op */
    struct arena arena;
    uint64_t line;
};

void script_open(struct script *p);
void script_done(struct script *p);
/* printf-like; the words of text_format.h. The answer to the asker, or the last event when
 * there is no answer, or NULL. */
const struct event *play(struct script *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void script_store(
    const struct script *p); /* its snapshot is accepted, and gives the same bytes */
size_t script_count(const struct script *p, enum event_kind kind); /* in the last op */
#endif
