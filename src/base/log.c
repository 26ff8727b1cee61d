/* log.c - one line an event, on stderr. */
#include "base/log.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LOG_TEXT_MAX = 2048, LOG_BYTES_MAX = 160, LOG_NUMBER_MAX = 16 };

static const char *const words[] = {"error", "warn", "info", "debug"};
static bool as_json;
enum log_level log_max = LOG_INFO;

void log_set_level(enum log_level level)
{
    log_max = level;
}

void log_set_json(bool json)
{
    as_json = json;
}

const char *log_level_word(enum log_level level)
{
    return words[level];
}

bool log_level_of(struct slice word, enum log_level *ret)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (slice_eq(word, slice_str(words[i]))) {
            *ret = (enum log_level)i;
            return true;
        }
    }
    return false;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* Where members are put. When one has no room, it is taken back, and nothing more comes. */
struct members {
    char *mem;
    size_t n, cap;
    bool full;
};

static void put_byte(struct members *m, char c)
{
    if (m->n == m->cap)
        m->full = true;
    else
        m->mem[m->n++] = c;
}

static void put_string(struct members *m, struct slice s)
{
    put_byte(m, '"');
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] == '"' || s.data[i] == '\\')
            put_byte(m, '\\');
        put_byte(m, s.data[i]);
    }
    put_byte(m, '"');
}

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

/* As JSON writes one, and not so long that a double would round it. */
static bool is_number(struct slice s)
{
    char text[LOG_NUMBER_MAX + 1];
    if (s.len == 0 || s.len >= sizeof text)
        return false;
    memcpy(text, s.data, s.len);
    text[s.len] = '\0';
    const char *at = text + (*text == '-');
    size_t n = digits(at);
    if (n == 0 || (*at == '0' && n > 1))
        return false;
    at += n;
    if (*at == '.') {
        n = digits(at + 1);
        at += n ? n + 1 : 0;
    }
    return *at == '\0' && (s.len < LOG_NUMBER_MAX || *text == '-');
}

static void put_member(struct members *m, struct slice key, struct slice value, bool bare)
{
    size_t before = m->n;
    if (m->full)
        return;
    put_byte(m, ',');
    put_string(m, key);
    put_byte(m, ':');
    if (bare && is_number(value)) {
        for (size_t i = 0; i < value.len; i++)
            put_byte(m, value.data[i]);
    } else {
        put_string(m, value);
    }
    if (m->full)
        m->n = before;
}

/* The length of "key" when "key=" stands here; 0: no. */
static size_t key_length(const char *at)
{
    size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
    return at[n] == '=' ? n : 0;
}

/* The quote that ends the value that begins here: behind it is the next key, or nothing. A
 * system's or a library's words may have quotes of their own in them. */
static const char *value_end(const char *at)
{
    const char *end = at;
    while ((end = strchr(end, '"')) != NULL) {
        if (end[1] == '\0' || (end[1] == ' ' && key_length(end + 2)))
            return end;
        end++;
    }
    return at + strlen(at); /* the line was cut */
}

size_t log_put_members(char *ret, size_t cap, const char *text)
{
    struct members m = {.cap = cap};
    m.mem = ret;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        size_t n = key_length(at);
        if (n == 0) {
            put_member(&m, SLICE("text"), slice_str(at), false);
            break;
        }
        struct slice key = slice_of(at, n);
        at += n + 1;
        bool bare = *at != '"';
        at += !bare;
        const char *end = bare ? at + strcspn(at, " ") : value_end(at);
        put_member(&m, key, slice_of(at, (size_t)(end - at)), bare);
        at = end + (*end == '"' && !bare);
    }
    return m.n;
}

/* ---- lines --------------------------------------------------------------------------------- */

/* What is not printable ASCII is written as \xNN: a line stays one line. In place. */
static void make_printable(char *text, size_t cap)
{
    char raw[LOG_TEXT_MAX];
    size_t n = 0, len = strlen(text);
    memcpy(raw, text, len + 1);
    for (size_t i = 0; i < len && n + 5 < cap; i++) {
        unsigned char c = (unsigned char)raw[i];
        if (c >= ' ' && c < 127)
            text[n++] = (char)c;
        else
            n += (size_t)snprintf(text + n, cap - n, "\\x%02x", c);
    }
    text[n] = '\0';
}

static size_t put_time(char *ret, size_t cap)
{
    struct timespec now;
    struct tm day;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &day);
    size_t n = strftime(ret, cap, "%Y-%m-%dT%H:%M:%S", &day);
    return n + (size_t)snprintf(ret + n, cap - n, ".%03ldZ", now.tv_nsec / 1000000);
}

void log_write(enum log_level level, const char *event, const char *format, ...)
{
    if (level > log_max)
        return;
    char line[LOG_LINE_MAX], text[LOG_TEXT_MAX], time[64];
    va_list args;
    va_start(args, format);
    int m = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (m < 0)
        text[0] = '\0';
    make_printable(text, sizeof text);
    (void)put_time(time, sizeof time);
    size_t n;
    if (as_json) {
        n = (size_t)snprintf(line, sizeof line,
                             "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\"", time,
                             words[level], event);
        n += log_put_members(line + n, sizeof line - n - 2, text);
        line[n++] = '}';
    } else {
        n = (size_t)snprintf(line, sizeof line - 1, "%s %s %s %s", time, words[level], event,
                             text);
    }
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
    static char buffers[8][LOG_BYTES_MAX * 4 + 8];
    static unsigned turn;
    char *out = buffers[turn++ % 8];
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
