/* log.c - one line an event, on stderr. */
#include "base/log.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINE_MAX = 2048, LOG_BYTES_MAX = 160 };

enum log_level log_max = LOG_INFO;

void log_set_level(enum log_level level)
{
    log_max = level;
}

void log_write(enum log_level level, const char *event, const char *format, ...)
{
    static const char *const words[] = {"error", "warn", "info", "debug"};
    if (level > log_max)
        return;
    char line[LOG_LINE_MAX];
    struct timespec now;
    struct tm day;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &day);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &day);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s %s ", now.tv_nsec / 1000000,
                          words[level], event);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    if (m > 0)
        n += (size_t)m < sizeof line - n - 1 ? (size_t)m : sizeof line - n - 2;
    line[n++] = '\n';
    log_raw(line, n);
}

/* A pipe that is ready takes PIPE_BUF bytes without waiting. */
void log_raw(const char *data, size_t n)
{
    while (n > 0) {
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT))
            return;
        ssize_t done = write(STDERR_FILENO, data, n < PIPE_BUF ? n : PIPE_BUF);
        if (done <= 0)
            return;
        data += done;
        n -= (size_t)done;
    }
}

const char *log_bytes(struct slice s)
{
    static char buffers[4][LOG_BYTES_MAX * 4 + 8];
    static unsigned turn;
    char *out = buffers[turn++ % 4];
    char *p = out;
    *p++ = '"';
    for (size_t i = 0; i < s.len && i < LOG_BYTES_MAX; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c >= ' ' && c < 127 && c != '"' && c != '\\')
            *p++ = (char)c;
        else
            p += sprintf(p, "\\x%02x", c);
    }
    if (s.len > LOG_BYTES_MAX)
        *p++ = '~';
    *p++ = '"';
    *p = '\0';
    return out;
}
