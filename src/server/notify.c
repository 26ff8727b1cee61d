/* notify.c - tells the service manager how this server is doing: systemd's Type=notify.
 *
 * NOTIFY_SOCKET names a socket of datagrams. READY=1 goes there when the server can serve for the
 * first time, WATCHDOG=1 once a second from the loop: a loop that stands still says nothing, and
 * the manager starts the server again. */
#include "server/state.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_MAX = 512 };

void notify_open(struct server *s)
{
    struct notify *n = &s->notify;
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;
    n->fd = -1;
    if (len < 2 || len >= sizeof n->to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    n->to.sun_family = AF_UNIX;
    memcpy(n->to.sun_path, path, len);
    if (path[0] == '@')
        n->to.sun_path[0] = '\0'; /* an abstract name */
    n->to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    n->watchdog = getenv("WATCHDOG_USEC") != NULL;
    (void)unsetenv("NOTIFY_SOCKET"); /* not for the commands that this process starts */
}

void notify_close(struct server *s)
{
    if (s->notify.fd >= 0)
        close(s->notify.fd);
    s->notify.fd = -1;
}

/* Nobody waits for it: a manager that does not read misses a line. */
static void tell(struct notify *n, const char *words)
{
    if (n->fd >= 0)
        (void)sendto(n->fd, words, strlen(words), MSG_NOSIGNAL, (const struct sockaddr *)&n->to,
                     n->to_bytes);
}

void notify_state(struct server *s, const char *why_not)
{
    struct notify *n = &s->notify;
    char words[WORDS_MAX];
    if (why_not) {
        (void)snprintf(words, sizeof words, "STATUS=not ready: %s", why_not);
        words[strcspn(words, "\n")] = '\0';
        tell(n, words);
        return;
    }
    tell(n, n->ready ? "STATUS=ready" : "READY=1\nSTATUS=ready");
    n->ready = true;
}

void notify_second(struct server *s)
{
    if (s->notify.watchdog)
        tell(&s->notify, "WATCHDOG=1");
}

void notify_stopping(struct server *s)
{
    tell(&s->notify, "STOPPING=1\nSTATUS=stopping");
}

void notify_reload(struct server *s, bool done)
{
    struct timespec now;
    char words[WORDS_MAX];
    if (done) {
        tell(&s->notify, "READY=1");
        return;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)snprintf(words, sizeof words, "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
                   (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    tell(&s->notify, words);
}
