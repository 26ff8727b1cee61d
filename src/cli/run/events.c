/* events.c - what a run tells: JSON lines for programs, one status line for a person. */
#include "cli/run/run.h"
#include "proto/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool run_events_open(struct run *r)
{
    const char *format = cli_text(r->c, "events", NULL),
               *to = cli_text(r->c, "events-to", NULL);
    int64_t number = 0;
    r->events_fd = -1;
    if (format && strcmp(format, "json") != 0) {
        cli_usage(r->c, "--events knows json, not \"%s\"", format);
        return false;
    }
    if (!format && to)
        cli_usage(r->c, "--events-to needs --events json");
    if (!format)
        return !to;
    if (!to || cli_parse_number(to, &number) == NULL) {
        r->events_fd = to ? (int)number : STDERR_FILENO;
        if (fcntl(r->events_fd, F_GETFD) >= 0)
            return true;
        cli_usage(r->c, "descriptor %d is not open", r->events_fd);
        return false;
    }
    r->events_fd = open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (r->events_fd < 0)
        cli_usage(r->c, "%s: %s", to, strerror(errno));
    r->events_opened = r->events_fd >= 0;
    return r->events_opened;
}

static void put_head(struct buf *out, const char *event)
{
    struct timespec now = {0};
    struct tm day = {0};
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &day);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &day);
    buf_printf(out, "{\"event\":\"%s\",\"at\":\"%s.%03ldZ\"", event, text,
               now.tv_nsec / 1000000);
}

/* One write a line: lines of several writers do not mix. A reader that is gone, or that does
 * not read, misses it: the run goes on. (A pipe that can be written to takes PIPE_BUF bytes at
 * once.) */
static void flush_line(const struct run *r, struct buf *out)
{
    struct pollfd p = {.fd = r->events_fd, .events = POLLOUT};
    buf_put_str(out, "}\n");
    bool takes = !out->oom && buf_len(out) <= PIPE_BUF && poll(&p, 1, 0) == 1;
    if (takes && write(r->events_fd, buf_data(out), buf_len(out)) < 0)
        errno = 0;
    buf_done(out);
}

void run_event(struct run *r, const char *event, const char *format, ...)
{
    struct buf out = {0};
    va_list args;
    if (r->events_fd < 0)
        return;
    put_head(&out, event);
    va_start(args, format);
    buf_vprintf(&out, format, args);
    va_end(args);
    flush_line(r, &out);
}

void run_event_lock(struct run *r, const char *event, const char *name, const char *format, ...)
{
    struct buf out = {0};
    va_list args;
    if (r->events_fd < 0)
        return;
    put_head(&out, event);
    buf_put_str(&out, ",\"name\":");
    json_put_string(&out, slice_str(name));
    va_start(args, format);
    buf_vprintf(&out, format, args);
    va_end(args);
    flush_line(r, &out);
}

static void put_word(struct buf *out, const char *key, const char *text)
{
    if (!text[0])
        return;
    buf_printf(out, ",\"%s\":", key);
    json_put_string(out, slice_str(text));
}

void run_event_lost(struct run *r, const struct belay_lost *lost)
{
    struct buf out = {0};
    if (r->events_fd < 0)
        return;
    put_head(&out, "lost");
    put_word(&out, "why", belay_code_text(lost->why));
    put_word(&out, "reason", lost->reason);
    put_word(&out, "by", lost->by);
    put_word(&out, "text", lost->text);
    buf_printf(&out, ",\"left_ms\":%" PRId64, lost->left_ms);
    flush_line(r, &out);
}

/* ---- the status line ------------------------------------------------------------------- */

/* waiting for deploy: place 2 of 3; ci-7 has it for 1m20s */
void run_status(struct run *r, const struct belay_reply *lock, const char *name)
{
    const struct belay_reply *waiters = belay_get(lock, "waiters");
    const struct belay_reply *holder = belay_at(belay_get(lock, "holders"), 0);
    const struct belay_reply *owner = belay_get(holder, "owner");
    struct buf line = {0};
    int64_t place = 0;
    for (const struct belay_reply *w = belay_at(waiters, 0); w && !place; w = w->next)
        if (strcmp(belay_text(belay_get(w, "owner"), ""), r->owner) == 0)
            place = belay_int(belay_get(w, "position"), 0);
    run_event_lock(r, "waiting", name, ",\"position\":%" PRId64 ",\"line\":%zu", place,
                   waiters ? waiters->count : 0);
    if (!r->is_tty)
        return;
    buf_put_str(&line, "\r\033[Kwaiting for ");
    cli_put_safe(&line, name, strlen(name));
    if (place)
        buf_printf(&line, ": place %" PRId64 " of %zu", place, waiters ? waiters->count : 0);
    if (owner) {
        buf_put_str(&line, "; ");
        cli_put_safe(&line, owner->text, owner->len);
        buf_put_str(&line, " has it for ");
        cli_put_duration(&line, belay_int(belay_get(holder, "held_ms"), -1));
    }
    fprintf(stderr, "%s", buf_cstr(&line));
    r->status_shown = true;
    buf_done(&line);
}

void run_status_clear(struct run *r)
{
    if (r->status_shown)
        fprintf(stderr, "\r\033[K");
    r->status_shown = false;
}
