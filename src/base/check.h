/* check.h - promises that stop the process when they are broken, in release builds too.
 *
 * BELAY_CHECK(cond)   our own promise; one condition, no side effects.
 * BELAY_DCHECK(cond)  the same for walks over everything: debug, model and fuzz builds only.
 * Bad input is never checked with these: it gets an answer. */
#ifndef BELAY_BASE_CHECK_H
#define BELAY_BASE_CHECK_H

/* Cold: what leads here is laid out apart from the code that runs. */
__attribute__((cold)) _Noreturn void check_failed(const char *file, int line, const char *what);

#define BELAY_CHECK(cond)                                                                      \
    do {                                                                                       \
        if (__builtin_expect(!(cond), 0))                                                      \
            check_failed(__FILE__, __LINE__, #cond);                                           \
    } while (0)

/* A place that nothing reaches; `why` says what was promised. */
#define BELAY_UNREACHABLE(why) check_failed(__FILE__, __LINE__, why)

#ifdef BELAY_SLOW_CHECKS
#define BELAY_DCHECK(cond) BELAY_CHECK(cond)
#else
#define BELAY_DCHECK(cond)                                                                     \
    do {                                                                                       \
    } while (0)
#endif

#define BELAY_MUST_CHECK __attribute__((warn_unused_result))
#endif
