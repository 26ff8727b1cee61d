/* log.h - one line an event on stderr: time, level, fixed event name, key=value.
 *
 *   2026-11-18T15:41:07.102Z warn peer.down node=2 changes=1 text="not heard of"
 *   {"time":"2026-11-18T15:41:07.102Z","level":"warn","event":"peer.down","node":2,...}
 *
 * Only server/, engine/, queue/ and cli/ log: the layer that decides what to do about a failure
 * logs it, once; the others return it. Values that may hold foreign bytes go through log_bytes(),
 * a value with spaces in it stands in quotes, and no key is "time", "level" or "event": so a
 * line can also be written as JSON. Whatever the values are, a line is one line of printable
 * ASCII, and as JSON it is valid. Never log secrets or client payloads. */
#ifndef BELAY_BASE_LOG_H
#define BELAY_BASE_LOG_H

#include "base/slice.h"

enum log_level { LOG_NONE = -1, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* LOG_INFO at start */
extern enum log_level log_max;            /* what is above it is not written; read it only */
void log_set_json(bool json);             /* lines are JSON from now on; text at start */
const char *log_level_word(enum log_level level);
bool log_level_of(struct slice word, enum log_level *ret); /* false: it is no level */
void log_write(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(event, ...) log_write(LOG_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...)  log_write(LOG_WARN, event, __VA_ARGS__)
#define log_info(event, ...)  log_write(LOG_INFO, event, __VA_ARGS__)
/* Its arguments are evaluated only when it is written. */
#define log_debug(event, ...)                                                                  \
    do {                                                                                       \
        if (log_max >= LOG_DEBUG)                                                              \
            log_write(LOG_DEBUG, event, __VA_ARGS__);                                          \
    } while (0)

/* A line is a pipe's PIPE_BUF at most: it is written whole, or not at all. */
enum { LOG_LINE_MAX = 4096 };
/* `text` ("key=value key=\"more words\"") as members of a JSON object: numbers that a double
 * holds exactly as such, all else as strings, and words without a key as "text". What has no
 * room in `cap` bytes is left out. Returns the length; no NUL. */
size_t log_put_members(char *ret, size_t cap, const char *text);

/* Bytes as they are to stderr, such as a child's own. Here and above: when nobody reads stderr
 * and its pipe is full, they are dropped; a log must not stop what it tells of. */
void log_raw(const char *data, size_t n);

/* At most 160 bytes of `s`, printable, quoted; for %s. One of eight turning buffers: use it in
 * the same call, on one thread. */
const char *log_bytes(struct slice s);
#endif
