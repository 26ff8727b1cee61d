/* utf8.h - bytes that may be UTF-8, and may not. */
#ifndef BELAY_BASE_UTF8_H
#define BELAY_BASE_UTF8_H

#include <stddef.h>

/* The length of the UTF-8 sequence at s: 1 to 4, or 0 when it is not one. */
size_t utf8_len(const char *s, size_t left);
#endif
