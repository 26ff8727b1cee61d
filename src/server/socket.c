/* socket.c - the Unix socket: for programs of this machine, and those of its users that may.
 *
 * Its file has mode 0660, so the right to connect is decided by its directory, its owner and its
 * group. A connected client counts as one from this machine. Beyond that the peer's uid decides:
 * the server's own and root may make the first token, and a user that is named with its token
 * (--socket-user) is logged in.
 *
 * A file that a server which was killed has left is removed: nobody listens there. Anything else
 * that is there stays, and the server does not start. */
#include "auth/token.h"
#include "base/log.h"
#include "server/state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { SOCKET_MODE = 0660 };

static bool is_silent(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool refused =
        fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

/* NULL: the path is free. */
static const char *make_room(const char *path)
{
    struct stat st;
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return "the path is too long for a socket (107 bytes)";
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? NULL : strerror(errno);
    if (!S_ISSOCK(st.st_mode))
        return "this is there already, and is no socket";
    if (!is_silent(path))
        return "another process listens there, or left it and belongs to another user";
    log_info("server.socket", "path=%s text=\"left by a server that is gone: removed\"",
             log_bytes(slice_str(path)));
    return unlink(path) == 0 ? NULL : strerror(errno);
}

const char *socket_bind(uv_pipe_t *pipe, const char *path)
{
    const char *why = make_room(path);
    if (why)
        return why;
    int err = uv_pipe_bind(pipe, path);
    if (err == UV_EACCES) /* libuv says so for both */
        return "its directory is not there, or may not be written";
    if (err != 0)
        return uv_strerror(err);
    return chmod(path, SOCKET_MODE) == 0 ? NULL
                                         : strerror(errno); /* before anybody may connect */
}

/* --- users --- */

static bool peer_uid(const struct conn *c, uid_t *ret)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return false;
    *ret = peer.uid;
    return true;
}

bool socket_may_init(const struct conn *c)
{
    uid_t uid;
    return peer_uid(c, &uid) && (uid == 0 || uid == geteuid());
}

/* "1000=default/6d7a6a24fdc4e9a8"; NULL: it is not like that. */
static const char *read_user(const char *text, uid_t *ret)
{
    char *end;
    unsigned long uid = strtoul(text, &end, 10);
    const char *slash = strchr(text, '/');
    bool whole = *text >= '0' && *text <= '9' && *end == '=' && uid < UINT32_MAX;
    if (!whole || !slash || slash == end + 1 || !token_is_id(slice_str(slash + 1)))
        return NULL;
    *ret = (uid_t)uid;
    return end + 1;
}

const char *server_check_socket_user(const char *text)
{
    uid_t uid;
    return read_user(text, &uid) ? NULL
                                 : "must be UID=ACCOUNT/TOKEN, such as "
                                   "1000=default/6d7a6a24fdc4e9a8";
}

const char *socket_token(const struct conn *c)
{
    const char *const *users = c->server->config->socket_users;
    uid_t uid, asks;
    for (; users && *users && peer_uid(c, &asks); users++) {
        const char *token = read_user(*users, &uid);
        if (token && uid == asks)
            return token;
    }
    return NULL;
}
