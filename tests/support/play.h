/* play.h - ops given as text to one machine, many of them: for tests with loops. */
#ifndef BELAY_TESTS_PLAY_H
#define BELAY_TESTS_PLAY_H

#include "machine/machine.h"

struct play {
    struct machine *m;
    struct effects fx; /* of the last op */
    struct arena arena;
    uint64_t line;
};

void play_open(struct play *p);
void play_done(struct play *p);
/* printf-like; the words of story.h. The answer to the asker, or the last event when there is
 * no answer, or NULL. */
const struct event *play(struct play *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
size_t play_count(const struct play *p, enum event_kind kind); /* in the last op */
#endif
