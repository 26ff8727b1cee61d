/* route.c - which command an HTTP method and path mean. */
#include "command/route.h"

#include "proto/http.h"

enum { ROUTE_SEGMENTS_MAX = 8 };

struct segments {
    struct slice at[ROUTE_SEGMENTS_MAX];
    size_t n;
};

/* "/a/b" has the segments a and b; "/" has none. False: more than any route has. */
static bool split(struct slice path, struct segments *ret)
{
    const char *p = path.data;
    const char *end = p + path.len;
    ret->n = 0;
    if (p < end && *p == '/')
        p++;
    while (p < end) {
        if (ret->n == ROUTE_SEGMENTS_MAX)
            return false;
        const char *slash = memchr(p, '/', (size_t)(end - p));
        const char *stop = slash ? slash : end;
        ret->at[ret->n++] = slice_of(p, (size_t)(stop - p));
        p = slash ? slash + 1 : end;
        if (slash && p == end) { /* "/a/" is not "/a" */
            if (ret->n == ROUTE_SEGMENTS_MAX)
                return false;
            ret->at[ret->n++] = SLICE("");
        }
    }
    return true;
}

/* Walks the template beside the path: literal segments must be equal, {x} takes any that is not
 * empty. */
static bool matches(const char *template, const struct segments *path)
{
    size_t i = 0;
    for (const char *p = template; *p;) {
        p++; /* the slash */
        size_t len = strcspn(p, "/");
        if (len == 0)
            break;
        if (i == path->n)
            return false;
        bool any = p[0] == '{';
        if (any ? path->at[i].len == 0 : !slice_eq(path->at[i], slice_of(p, len)))
            return false;
        i++;
        p += len;
    }
    return i == path->n;
}

static bool has_method(const char *methods, struct slice method)
{
    for (const char *p = methods; *p;) {
        size_t len = strcspn(p, "|");
        if (slice_eq(method, slice_of(p, len)))
            return true;
        p += p[len] ? len + 1 : len;
    }
    return false;
}

static struct reply *read_path(const struct command *cmd, const struct segments *path,
                               struct arena *a, struct args *ret)
{
    size_t i = 0;
    for (const char *p = cmd->path; *p && i < path->n; i++) {
        p++;
        size_t len = strcspn(p, "/");
        if (p[0] == '{') {
            struct slice text;
            enum param param = args_param_of_path(&cmd->params, slice_of(p + 1, len - 2));
            if (!http_decode(path->at[i], a, &text))
                return reply_error(a, BELAY_ERR_SYNTAX,
                                   "the path is badly percent-encoded at %s",
                                   args_quote(a, path->at[i]));
            struct reply *fail = args_set(param, text, a, ret);
            if (fail)
                return fail;
        }
        p += len;
    }
    return NULL;
}

/* RFC 9110: a 405 names what the path does take. */
static struct reply *fail_method(const struct request *req, struct buf *allowed,
                                 struct arena *a)
{
    struct buf header = {0};
    struct reply *r = reply_error(a, BELAY_ERR_METHOD, "this path takes %s, not %s",
                                  buf_cstr(allowed), args_quote(a, req->verb));
    buf_printf(&header, "Allow: %s\r\n", buf_cstr(allowed));
    r->headers = arena_copy(a, buf_slice(&header));
    buf_done(&header);
    return r;
}

static void put_methods(struct buf *out, const char *methods)
{
    buf_put_str(out, buf_len(out) ? ", " : "");
    for (; *methods; methods++) {
        if (*methods == '|')
            buf_put_str(out, ", ");
        else
            buf_put_byte(out, *methods);
    }
}

const struct command *route_find(const struct request *req, struct arena *a,
                                 struct args *ret_args, struct reply **ret_fail)
{
    struct segments path;
    struct buf allowed = {0};
    const struct command *found = NULL;
    bool known = split(req->path, &path);
    for (int id = 0; known && id < COMMAND_COUNT_ALL && !found; id++) {
        const struct command *cmd = command_get((enum command_id)id);
        if (!cmd->path || !matches(cmd->path, &path))
            continue;
        if (has_method(cmd->method, req->verb))
            found = cmd;
        else
            put_methods(&allowed, cmd->method);
    }
    if (found)
        *ret_fail = read_path(found, &path, a, ret_args);
    else if (buf_len(&allowed))
        *ret_fail = fail_method(req, &allowed, a);
    else
        *ret_fail =
            reply_error(a, BELAY_ERR_UNKNOWN, "no such path: %s", args_quote(a, req->path));
    buf_done(&allowed);
    return *ret_fail ? NULL : found;
}
