/* log.h - one line an event on stderr: time, level, fixed event name, key=value.
 *
 * Only server/, engine/, queue/ and cli/ log: the layer that decides what to do about a failure
 * logs it, once; the others return it. Values that may hold foreign bytes go through
 * LOG_BYTES(slice), which escapes them. Never log secrets or client payloads. */
#ifndef BELAY_BASE_LOG_H
#define BELAY_BASE_LOG_H

#include "base/slice.h"

enum log_level { LOG_NONE = -1, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* LOG_INFO at start */
extern enum log_level log_max;            /* what is above it is not written; read it only */
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

/* Bytes as they are to stderr, such as a child's own. Here and above: when nobody reads stderr
 * and its pipe is full, they are dropped; a log must not stop what it tells of. */
void log_raw(const char *data, size_t n);

/* At most 64 bytes of `s`, printable, quoted; for %s. One of four turning buffers: use it in
 * the same call, on one thread. */
const char *log_bytes(struct slice s);
#endif
