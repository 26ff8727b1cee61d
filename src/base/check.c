/* check.c - what a broken promise does: it says where, and stops the process. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "belay: assertion failed at %s:%d: %s\n", file, line, what);
    abort();
}
