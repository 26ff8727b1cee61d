/* group_library.c - which libraft this program was built with. */
#include "raft/group_core.h"

#include <stdio.h>

const char *group_library(void)
{
    static char text[32];
    int n = RAFT_VERSION_NUMBER;
    snprintf(text, sizeof text, "%d.%d.%d", n / 10000, n / 100 % 100, n % 100);
    return text;
}
