/* top.c - `belay top`: the loop and the terminal. What is shown is top_view.c. */
#include "cli/top.h"

#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE = 500,
    INTERVAL_MS = 1000,
    INTERVAL_MIN_MS = 100,
    COLUMNS = 80,
    LINES = 24,
    PATIENCE_MS = 1000 /* of a person who looks on */
};

struct terminal {
    struct termios before;
    int signal_fd;
    sigset_t mask;
};

/* ---- the terminal ---------------------------------------------------------------------- */

static void put(const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(STDOUT_FILENO, text, len);
        if (n < 0 && errno != EINTR)
            return; /* the terminal is gone: the next read says so, too */
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        }
    }
}

static void put_str(const char *text)
{
    put(text, strlen(text));
}

/* Keys at once and unseen, the alternate screen without a cursor. */
static bool terminal_enter(struct terminal *t)
{
    if (tcgetattr(STDIN_FILENO, &t->before) != 0)
        return false;
    struct termios raw = t->before;
    raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0)
        return false;
    put_str("\033[?1049h\033[?25l");
    return true;
}

static void terminal_leave(const struct terminal *t)
{
    put_str("\033[?25h\033[?1049l");
    if (tcsetattr(STDIN_FILENO, TCSANOW, &t->before) != 0)
        errno = 0;
}

/* Every signal that a key sends, and those that end us: the terminal is put back first. */
static bool terminal_open(struct terminal *t)
{
    static const int polled[] = {SIGWINCH, SIGINT, SIGQUIT, SIGTSTP, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof polled / sizeof polled[0]; i++)
        sigaddset(&set, polled[i]);
    sigprocmask(SIG_BLOCK, &set, &t->mask);
    t->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return t->signal_fd >= 0 && terminal_enter(t);
}

static void terminal_close(const struct terminal *t)
{
    terminal_leave(t);
    close(t->signal_fd);
    sigprocmask(SIG_SETMASK, &t->mask, NULL);
}

/* Ctrl-Z: back at the shell, until it brings us to the foreground again. */
static bool terminal_suspend(struct terminal *t)
{
    terminal_leave(t);
    kill(getpid(), SIGSTOP);
    return terminal_enter(t);
}

static void measure(struct top_view *v)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        size.ws_col = COLUMNS;
        size.ws_row = LINES;
    }
    v->columns = size.ws_col;
    v->lines = size.ws_row;
}

/* ---- the server ------------------------------------------------------------------------ */

/* Reads every page. A failure keeps the rows of before. */
static int read_locks(struct cli *c, struct top_view *v, int64_t timeout_ms)
{
    struct top_view fresh = *v;
    struct cli_pages pages = {
        .prefix = c->n_words ? c->words[0] : NULL, .limit = PAGE, .timeout_ms = timeout_ms};
    int err = BELAY_E_OK;
    fresh.rows = NULL;
    fresh.n_rows = fresh.cap = 0;
    fresh.cut = false;
    for (bool more = true; more;) {
        const struct belay_reply *lock = NULL;
        err = cli_page(c, &pages, &lock);
        while (lock && !err && top_add(&fresh, lock))
            lock = lock->next;
        more = !err && !pages.end && !lock;
    }
    buf_done(&pages.after);
    if (err != BELAY_E_OK) {
        top_view_done(&fresh);
        return err;
    }
    top_view_done(v);
    *v = fresh;
    v->addr = belay_addr(c->belay);
    return BELAY_E_OK;
}

static int read_lock(struct cli *c, struct top_view *v, int64_t timeout_ms)
{
    const struct belay_bytes words[] = {{"SHOW", 4}, {v->chosen, v->chosen_len}};
    const struct belay_reply *lock = NULL;
    int err = belay_callv(c->belay, words, 2, timeout_ms, &lock);
    if (err == BELAY_E_OK) {
        struct buf text = {0};
        cli_put_lock(&text, lock, false);
        free(v->detail);
        v->detail = strdup(buf_cstr(&text));
        buf_done(&text);
    }
    return err;
}

static int64_t now_ms(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What is on the screen, anew. *seen_ms: when that was possible the last time. A connection on
 * which nothing is answered is given up, so that questions do not pile up on it. */
static void look(struct cli *c, struct top_view *v, int64_t *seen_ms)
{
    int64_t timeout_ms = cli_number(c, "timeout", PATIENCE_MS);
    int err = v->page == TOP_LOCK ? read_lock(c, v, timeout_ms) : read_locks(c, v, timeout_ms);
    v->error[0] = '\0';
    if (err == BELAY_E_OK) {
        *seen_ms = now_ms();
        return;
    }
    struct buf text = {0};
    buf_put_str(&text, "no news for ");
    cli_put_duration(&text, now_ms() - *seen_ms);
    buf_printf(&text, ": %s", err == BELAY_E_DEADLINE ? "no answer" : belay_error(c->belay));
    snprintf(v->error, sizeof v->error, "%s", buf_cstr(&text));
    buf_done(&text);
    if (err != BELAY_E_DEADLINE)
        return;
    belay_close(c->belay);
    c->belay = NULL;
    v->addr = cli_connect(c) == CLI_OK ? belay_addr(c->belay) : "";
}

/* ---- the loop -------------------------------------------------------------------------- */

static void paint(struct top_view *v)
{
    struct buf out = {0};
    top_order(v);
    top_stay_within(v);
    buf_put_str(&out, "\033[H");
    top_draw(v, &out);
    buf_put_str(&out, "\033[J");
    put(buf_cstr(&out), buf_len(&out));
    buf_done(&out);
}

/* What was typed; an arrow is an Escape and two bytes more. False: leave. */
static bool read_keys(struct top_view *v)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    for (ssize_t i = 0; i < n; i++) {
        if (keys[i] == '\033' && i + 2 < n && keys[i + 1] == '[') {
            char arrow = keys[i + 2];
            i += 2;
            if (!top_key(v, (char)(arrow == 'A' ? 'k' : arrow == 'B' ? 'j' : '\0')))
                return false;
            continue;
        }
        if (!top_key(v, keys[i]))
            return false;
    }
    return true;
}

static bool read_signals(struct terminal *t, struct top_view *v)
{
    struct signalfd_siginfo info;
    bool stay = true;
    while (read(t->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            stay = terminal_suspend(t) && stay;
        else if (info.ssi_signo != SIGWINCH)
            stay = false;
        measure(v); /* it may have another size, also after it was away */
    }
    return stay;
}

static void loop(struct cli *c, struct top_view *v, struct terminal *t, int64_t interval_ms)
{
    int64_t due = now_ms(), seen = due;
    bool stay = true;
    while (stay && c->belay) {
        enum top_page page = v->page;
        if (now_ms() >= due) {
            look(c, v, &seen);
            due = now_ms() + interval_ms;
        }
        paint(v);
        int64_t left = due - now_ms();
        struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = t->signal_fd, .events = POLLIN}};
        if (poll(p, 2, left > 0 ? (int)left : 0) < 0 && errno != EINTR)
            return;
        if (p[1].revents) /* first: what is typed behind Ctrl-C is for the shell */
            stay = read_signals(t, v);
        else if (p[0].revents)
            stay = read_keys(v);
        if (v->page != page)
            due = now_ms(); /* what it shows is of now */
    }
}

static int once(struct cli *c, struct top_view *v)
{
    struct buf out = {0};
    int err = read_locks(c, v, 0);
    if (err)
        return cli_fail(c, err);
    v->lines = v->n_rows + 3;
    v->color = false;
    top_order(v);
    if (v->json) {
        top_put_json(v, &out);
    } else {
        top_draw(v, &out);
        buf_put_byte(&out, '\n');
    }
    return cli_flush(&out);
}

static int sort_of(const struct cli *c, struct top_view *v)
{
    static const char *const names[] = {"name", "held", "expires", "line", "wait"};
    const char *sort = cli_text(c, "sort", "wait");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(sort, names[i]) == 0) {
            v->sort = (enum top_sort)i;
            return CLI_OK;
        }
    }
    return cli_usage(c, "--sort is name, held, expires, line or wait, not \"%s\"", sort);
}

static int top(struct cli *c)
{
    const char *env_ns = getenv("BELAY_NAMESPACE");
    struct top_view v = {.color = c->color, .addr = "", .json = c->json};
    struct terminal t;
    int64_t interval = cli_number(c, "interval", INTERVAL_MS);
    int code = sort_of(c, &v);
    if (code == CLI_OK && interval < INTERVAL_MIN_MS)
        code = cli_usage(c, "--interval is at least 100ms");
    if (code == CLI_OK)
        code = cli_connect(c);
    if (code != CLI_OK)
        return code;
    v.ns = cli_text(c, "namespace", env_ns && env_ns[0] ? env_ns : "default");
    v.addr = belay_addr(c->belay);
    snprintf(v.filter, sizeof v.filter, "%s", cli_text(c, "filter", ""));
    measure(&v);
    if (c->json || cli_given(c, "once") || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        code = once(c, &v);
    } else if (!terminal_open(&t)) {
        code = cli_error(CLI_FAILED, "the terminal: %s", strerror(errno));
    } else {
        v.marks = true;
        loop(c, &v, &t, interval);
        terminal_close(&t);
    }
    top_view_done(&v);
    free(v.detail);
    return code;
}

static const struct cli_option top_options[] = {
    {"sort", 's', CLI_TEXT, "KEY", "name, held, expires, line or wait (wait)"},
    {"filter", 'f', CLI_TEXT, "TEXT", "only names or holders that contain it"},
    {"interval", 'i', CLI_DURATION, "D", "look so often (1s)"},
    {"once", '1', CLI_FLAG, NULL,
     "print it once and end; also with --json, and when it is no terminal"},
    {"stale", 0, CLI_FLAG, NULL,
     "answer at once from what this node knows, even without a majority"},
    {0},
};

const struct cli_command cli_cmd_top = {
    .name = "top",
    .args = "[PREFIX]",
    .summary = "a live view of locks, holders and lines",
    .about =
        "One row a lock: its first holder, for how long, what is left of the lease, how many\n"
        "wait, and the longest wait. Keys: n h e l w sort by name, held, expires, line, wait;\n"
        "r reverses; / filters (Enter keeps it, Escape drops it); j k or arrows move the mark;\n"
        "Enter shows all of the marked lock; ? explains the keys; q ends it. When the server\n"
        "does not answer, the first line says for how long. 80 columns are enough.",
    .examples = "  belay top\n"
                "  belay top db/ --sort line\n"
                "  belay top --once --sort held | head",
    .options = top_options,
    .max_words = 1,
    .run = top,
    .words = "@lock",
};
