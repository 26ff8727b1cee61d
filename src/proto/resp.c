/* resp.c - RESP2 and RESP3, requests and replies, both directions. */
#include "proto/resp.h"

/* A place in bytes that may end too early. */
struct cursor {
    const char *at, *end;
    const char *why; /* set with RESP_BAD */
    bool big;        /* and this, when it is sound as far as it goes, but too much */
};

static enum resp_step bad(struct cursor *c, const char *why)
{
    c->why = why;
    return RESP_BAD;
}

static enum resp_step too_big(struct cursor *c, const char *why)
{
    c->big = true;
    return bad(c, why);
}

static inline bool is_line_end(const char *p)
{
    return memcmp(p, "\r\n", 2) == 0;
}

/* The usual word, "$7\r\nACQUIRE\r\n" with a length of one or two digits and all there: the
 * place behind it. NULL: not so; read_word() says what it is. */
static inline const char *read_short_word(const char *p, const char *end, struct slice *ret)
{
    if (end - p < 6 || *p != '$') /* "$0\r\n\r\n" */
        return NULL;
    size_t n = (unsigned char)p[1] - (size_t)'0';
    size_t second = (unsigned char)p[2] - (size_t)'0';
    if (n > 9)
        return NULL;
    if (is_line_end(p + 2)) {
        p += 4;
    } else if (n && second <= 9 && is_line_end(p + 3)) {
        n = n * 10 + second;
        p += 5;
    } else {
        return NULL;
    }
    if ((size_t)(end - p) < n + 2 || !is_line_end(p + n))
        return NULL;
    *ret = slice_of(p, n);
    return p + n + 2;
}

static enum resp_step read_long_length(struct cursor *c, size_t max, size_t *ret_n)
{
    const char *first = c->at, *p = first;
    size_t n = 0;
    for (; p < c->end && *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (size_t)(*p - '0');
        if (n > max)
            return too_big(c, "length over the limit");
        if (*first == '0' && p > first)
            return bad(c, "length is not a plain number");
    }
    if (p == c->end)
        return RESP_MORE;
    if (p == first || *p != '\r')
        return bad(c, "length is not a plain number");
    if (++p == c->end)
        return RESP_MORE;
    if (*p != '\n')
        return bad(c, "CR without LF");
    c->at = p + 1;
    *ret_n = n;
    return RESP_DONE;
}

/* "123\r\n", 0..max (at least 9), as one is written: no sign, no leading zero. */
static inline enum resp_step read_length(struct cursor *c, size_t max, size_t *ret_n)
{
    size_t digit = c->end - c->at >= 3 ? (unsigned char)*c->at - (size_t)'0' : SIZE_MAX;
    if (digit <= 9 && is_line_end(c->at + 1)) {
        c->at += 3;
        *ret_n = digit;
        return RESP_DONE;
    }
    return read_long_length(c, max, ret_n);
}

/* `n` bytes and the line end behind them. */
static enum resp_step read_bytes(struct cursor *c, size_t n, struct slice *ret)
{
    size_t left = (size_t)(c->end - c->at);
    if (left > n && c->at[n] != '\r')
        return bad(c, "no line end behind a bulk string");
    if (left < n + 2)
        return RESP_MORE;
    if (c->at[n + 1] != '\n')
        return bad(c, "no line end behind a bulk string");
    *ret = slice_of(c->at, n);
    c->at += n + 2;
    return RESP_DONE;
}

/* Fills in the request; the word list is copied now that it is known to be there. */
static enum resp_step finish(struct cursor *c, struct arena *a, const struct slice *words,
                             size_t n, struct request *ret_req)
{
    *ret_req = (struct request){.verb = {"", 0}, .keep_alive = true};
    if (n == 0)
        return RESP_DONE;
    if (words[0].len == 0)
        return bad(c, "empty command name");
    ret_req->verb = words[0];
    ret_req->n_words = n - 1;
    if (n == 1)
        return RESP_DONE;
    struct slice *list = arena_alloc(a, (n - 1) * sizeof *list);
    if (!list)
        return bad(c, "out of memory");
    memcpy(list, words + 1, (n - 1) * sizeof *list);
    ret_req->words = list;
    return RESP_DONE;
}

/* Any word, also one that is long, wrong or not all there; `start`: of the request. */
static enum resp_step read_word(struct cursor *c, const char *start, struct slice *ret)
{
    if (c->at == c->end)
        return RESP_MORE;
    if (*c->at != '$')
        return bad(c, "a word is not a bulk string");
    c->at++;
    size_t len = 0;
    enum resp_step step = read_length(c, REQUEST_BYTES_MAX, &len);
    if (step != RESP_DONE)
        return step;
    if ((size_t)(c->at - start) + len + 2 > REQUEST_BYTES_MAX)
        return too_big(c, "request over the limit");
    return read_bytes(c, len, ret);
}

static enum resp_step read_array(struct cursor *c, struct arena *a, struct request *ret_req)
{
    struct slice words[REQUEST_WORDS_MAX];
    const char *start = c->at++;
    size_t n = 0;
    enum resp_step step = read_length(c, REQUEST_WORDS_MAX, &n);
    const char *end = c->end - start < REQUEST_BYTES_MAX ? c->end : start + REQUEST_BYTES_MAX;
    for (size_t i = 0; step == RESP_DONE && i < n; i++) {
        const char *next = read_short_word(c->at, end, &words[i]);
        if (next)
            c->at = next;
        else
            step = read_word(c, start, &words[i]);
    }
    return step == RESP_DONE ? finish(c, a, words, n, ret_req) : step;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One escape of a double-quoted word, `at` behind the backslash; an unknown one is the byte. */
static char read_escape(struct cursor *c)
{
    static const char from[] = "nrtba", to[] = "\n\r\t\b\a";
    if (*c->at == 'x' && c->end - c->at > 2 && hex_digit(c->at[1]) >= 0 &&
        hex_digit(c->at[2]) >= 0) {
        int byte = hex_digit(c->at[1]) * 16 + hex_digit(c->at[2]);
        c->at += 3;
        return (char)byte;
    }
    char byte = *c->at++;
    const char *known = memchr(from, byte, sizeof from - 1);
    if (known)
        return to[known - from];
    return byte;
}

/* A quoted word, unescaped to *space, which moves on; `at` stands on its quote. */
static enum resp_step read_quoted(struct cursor *c, char **space, struct slice *ret)
{
    char quote = *c->at++;
    char *p = *space;
    for (;;) {
        if (c->at == c->end)
            return bad(c, "unbalanced quotes");
        if (*c->at == quote)
            break;
        bool escape = *c->at == '\\' && c->end - c->at > 1;
        if (escape && quote == '"') {
            c->at++;
            *p++ = read_escape(c);
        } else {
            c->at += escape && c->at[1] == '\'';
            *p++ = *c->at++;
        }
    }
    c->at++;
    if (c->at < c->end && *c->at != ' ' && *c->at != '\t')
        return bad(c, "no space behind a closing quote");
    *ret = slice_of(*space, (size_t)(p - *space));
    *space = p;
    return RESP_DONE;
}

static enum resp_step read_words(struct cursor *c, struct arena *a, struct request *ret_req)
{
    struct slice words[REQUEST_WORDS_MAX];
    char *space = NULL; /* for all quoted words together: they only get shorter */
    size_t n = 0;
    for (;;) {
        while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
            c->at++;
        if (c->at == c->end)
            return finish(c, a, words, n, ret_req);
        if (n == REQUEST_WORDS_MAX)
            return too_big(c, "too many words");
        if (*c->at == '"' || *c->at == '\'') {
            space = space ? space : arena_alloc(a, (size_t)(c->end - c->at));
            if (!space)
                return bad(c, "out of memory");
            enum resp_step step = read_quoted(c, &space, &words[n++]);
            if (step != RESP_DONE)
                return step;
            continue;
        }
        const char *start = c->at;
        for (; c->at < c->end && *c->at != ' ' && *c->at != '\t'; c->at++)
            if (*c->at == '"' || *c->at == '\'')
                return bad(c, "a quote inside a word");
        words[n++] = slice_of(start, (size_t)(c->at - start));
    }
}

/* "GET / HTTP/1.1": http_sniff() keeps a browser out at the first bytes; this does behind them.
 */
static bool names_http(struct slice line)
{
    struct slice tail = SLICE(" HTTP/1.");
    return line.len > tail.len &&
           slice_eq(slice_of(line.data + line.len - tail.len - 1, tail.len), tail);
}

/* One line as a person types it. */
static enum resp_step read_inline(struct cursor *c, struct arena *a, struct request *ret_req)
{
    size_t left = (size_t)(c->end - c->at);
    size_t look = left < RESP_INLINE_BYTES_MAX ? left : RESP_INLINE_BYTES_MAX;
    const char *lf = memchr(c->at, '\n', look);
    const char *end = lf ? lf : c->at + look;
    bool cr = lf && lf > c->at && lf[-1] == '\r';
    for (const char *p = c->at; p < end - cr; p++) {
        bool last = !lf && p + 1 == end; /* a CR there may still get its LF */
        if ((unsigned char)*p < ' ' && *p != '\t' && !(*p == '\r' && last))
            return bad(c, "control byte in an inline command");
    }
    if (!lf)
        return look == RESP_INLINE_BYTES_MAX ? too_big(c, "inline command over the limit")
                                             : RESP_MORE;
    struct cursor line = {.at = c->at, .end = end - cr};
    if (names_http(slice_of(line.at, (size_t)(line.end - line.at))))
        return bad(c, "this is HTTP in the middle of RESP");
    enum resp_step step = read_words(&line, a, ret_req);
    c->why = line.why;
    c->big = line.big;
    c->at = lf + 1;
    return step;
}

enum resp_step resp_next(struct slice in, struct arena *a, struct request *ret_req,
                         size_t *ret_used, const char **ret_why)
{
    if (in.len == 0)
        return RESP_MORE;
    struct cursor c = {.at = in.data, .end = in.data + in.len};
    enum resp_step step =
        *in.data == '*' ? read_array(&c, a, ret_req) : read_inline(&c, a, ret_req);
    if (step == RESP_DONE)
        *ret_used = (size_t)(c.at - in.data);
    if (step == RESP_MORE && in.len >= REQUEST_BYTES_MAX)
        step = too_big(&c, "request over the limit");
    if (step == RESP_BAD)
        *ret_why = c.why;
    return step == RESP_BAD && c.big ? RESP_TOO_BIG : step;
}
