/* console.c - the web console inside of the binary: console/dist, as make console has made it. */
#include "command/command.h"

#ifndef BELAY_NO_CONSOLE
/* The files are read by the assembler while this one is compiled; the Makefile knows of them. */
#define FILE_IN_BINARY(name, path)                                                             \
    __asm__(".pushsection .rodata\n"                                                           \
            ".globl " #name "\n"                                                               \
            ".hidden " #name "\n" #name ":\n"                                                  \
            ".incbin \"" path "\"\n"                                                           \
            ".byte 0\n"                                                                        \
            ".popsection\n");                                                                  \
    /* NOLINTNEXTLINE(bugprone-macro-parentheses): a name */                                   \
    extern const char name[] __attribute__((visibility("hidden")))

FILE_IN_BINARY(console_html, "console/dist/index.html");
FILE_IN_BINARY(console_js, "console/dist/console.js");
FILE_IN_BINARY(console_css, "console/dist/console.css");
#endif

static bool wants_html(const struct request *req)
{
    struct slice html = SLICE("text/html"), accept = req->accept;
    for (size_t at = 0; at + html.len <= accept.len; at++)
        if (slice_eq(slice_of(accept.data + at, html.len), html))
            return true;
    return false;
}

#ifndef BELAY_NO_CONSOLE
/* Scripts and styles come from this server alone, nothing is inline, nobody may frame it. */
static void show(struct call *c, const char *media, const char *text)
{
    struct reply *r = reply_new(c->arena, REPLY_PLAIN);
    r->text = slice_str(text);
    r->media = media;
    r->headers = SLICE(
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'\r\n"
        "Cross-Origin-Opener-Policy: same-origin\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\n"
        "Referrer-Policy: no-referrer\r\n");
    call_answer(c, r);
}

void cmd_console_js(struct call *c)
{
    show(c, "text/javascript; charset=utf-8", console_js);
}

void cmd_console_css(struct call *c)
{
    show(c, "text/css; charset=utf-8", console_css);
}
#else
static void show_nothing(struct call *c)
{
    call_fail(c, BELAY_ERR_UNKNOWN, "this belay was built without the console (CONSOLE=0)");
}

void cmd_console_js(struct call *c)
{
    show_nothing(c);
}

void cmd_console_css(struct call *c)
{
    show_nothing(c);
}
#endif

void cmd_home(struct call *c)
{
#ifndef BELAY_NO_CONSOLE
    if (wants_html(c->request)) {
        show(c, "text/html; charset=utf-8", console_html);
        return;
    }
    struct slice console = SLICE("A browser shows the console here.\n\n");
#else
    bool asked = wants_html(c->request);
    struct slice console =
        asked ? SLICE("The console is left out of this belay (CONSOLE=0).\n\n") : SLICE("");
#endif
    struct reply *r = reply_new(c->arena, REPLY_PLAIN);
    struct buf text = {0};
    buf_put_str(&text, "Belay: a distributed lock and coordination server.\n\n");
    buf_put_slice(&text, console);
    buf_put_str(&text,
                "This port speaks HTTP and RESP (any Redis client). Try:\n\n"
                "  redis-cli -p PORT ACQUIRE my-lock me TTL 30000\n"
                "  curl -d '{\"owner\":\"me\"}' -H 'Content-Type: application/json' \\\n"
                "       http://HOST/v1/namespaces/default/locks/my-lock/acquire\n\n"
                "  GET /v1/namespaces/default/locks    who holds what\n"
                "  GET /v1/namespaces/default/events   what happens, as Server-Sent Events\n"
                "  GET /metrics  /healthz  /readyz     for monitors\n\n"
                "docs/PROTOCOL.md has every command, route and error.\n");
    r->text = arena_copy(c->arena, buf_slice(&text));
    buf_done(&text);
    call_answer(c, r);
}
