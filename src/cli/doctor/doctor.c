/* doctor.c - `belay doctor`: what is wrong with a cluster or a directory, and what to do. */
#include "cli/doctor/doctor.h"

#include "base/check.h"
#include "proto/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static const char *const severities[] = {"warning", "error"};

static void __attribute__((format(printf, 2, 0)))
put_text(struct doctor *d, const char *format, va_list args)
{
    struct buf text = {0};
    char line[1024];
    int n = vsnprintf(line, sizeof line, format, args);
    BELAY_CHECK(n >= 0);
    size_t len = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    if (d->c->json)
        json_put_string(&text, slice_of(line, len));
    else
        cli_put_safe(&text, line, len);
    buf_put_slice(&d->found, buf_slice(&text));
    buf_done(&text);
}

static void put_head(struct doctor *d, enum doctor_severity severity, const char *code)
{
    struct buf *out = &d->found;
    enum cli_color color = severity == DOCTOR_ERROR ? CLI_RED : CLI_YELLOW;
    if (!d->c->json) {
        buf_printf(out, "%s%s%s: ", cli_color(d->c->color, color), severities[severity],
                   cli_color(d->c->color, CLI_PLAIN));
        cli_put_safe(out, d->where, strlen(d->where));
        buf_put_str(out, ": ");
        return;
    }
    buf_printf(out, "%s{\"severity\":\"%s\",\"code\":\"%s\",\"where\":",
               d->errors + d->warnings > 1 ? "," : "", severities[severity], code);
    json_put_string(out, slice_str(d->where));
    buf_put_str(out, ",\"what\":");
}

void doctor_find(struct doctor *d, enum doctor_severity severity, const char *code,
                 const char *format, ...)
{
    va_list args;
    BELAY_CHECK(d->where);
    *(severity == DOCTOR_ERROR ? &d->errors : &d->warnings) += 1;
    put_head(d, severity, code);
    va_start(args, format);
    put_text(d, format, args);
    va_end(args);
    buf_put_str(&d->found, d->c->json ? ",\"do\":" : "\n    ");
}

void doctor_advise(struct doctor *d, const char *format, ...)
{
    va_list args;
    BELAY_CHECK(d->errors + d->warnings > 0);
    va_start(args, format);
    put_text(d, format, args);
    va_end(args);
    buf_put_str(&d->found, d->c->json ? "}" : "\n");
}

void doctor_saw(struct doctor *d, const char *what)
{
    buf_put_str(&d->seen, d->n_seen++ ? (d->c->json ? "," : ", ") : "");
    if (d->c->json)
        json_put_string(&d->seen, slice_str(what));
    else
        cli_put_safe(&d->seen, what, strlen(what));
}

/* --- what a directory and a node have in common --- */

void doctor_space(struct doctor *d, uint64_t free, uint64_t all)
{
    uint64_t mb = free >> 20;
    bool enough = mb >= DOCTOR_FREE_ENOUGH_MB || free / DOCTOR_FREE_PERCENT >= all / 100;
    if (mb >= DOCTOR_FREE_MIN_MB && enough)
        return;
    doctor_find(d, DOCTOR_WARNING, "disk-space",
                "the disk is nearly full: %" PRIu64 " of %" PRIu64 " MB are free", mb,
                all >> 20);
    doctor_advise(d,
                  "Make room on it, or enlarge it: on a full disk a node only answers reads.");
}

void doctor_writes(struct doctor *d, uint64_t median_us, uint64_t slowest_us)
{
    if (median_us < UINT64_C(1000) * DOCTOR_WRITE_MS)
        return;
    doctor_find(d, DOCTOR_WARNING, "disk-slow",
                "the disk is slow: half of the last writes took %" PRIu64
                " ms or more, the slowest %" PRIu64 " ms",
                median_us / 1000, slowest_us / 1000);
    doctor_advise(d,
                  "Every answer waits for such a write: look at what else uses this disk, or "
                  "put --data on a faster one.");
}

/* --- the command --- */

static void put_json(struct doctor *d, struct buf *out)
{
    size_t n = d->errors + d->warnings;
    buf_printf(out, "{\"ok\":%s,\"errors\":%zu,\"warnings\":%zu,\"seen\":[",
               n ? "false" : "true", d->errors, d->warnings);
    buf_put_slice(out, buf_slice(&d->seen));
    buf_put_str(out, "],\"findings\":[");
    buf_put_slice(out, buf_slice(&d->found));
    buf_put_byte(out, ']');
    if (d->write_us)
        buf_printf(out, ",\"write_median_us\":%" PRIu64 ",\"write_slowest_us\":%" PRIu64,
                   d->write_us, d->write_slowest_us);
    buf_put_str(out, "}\n");
}

static void put_lines(struct doctor *d, struct buf *out)
{
    size_t n = d->errors + d->warnings;
    buf_put_slice(out, buf_slice(&d->found));
    if (n && d->n_seen)
        buf_put_byte(out, '\n');
    if (d->write_us)
        buf_printf(
            out, "Half of the writes to the disk took %.2f ms or less, the slowest %.2f ms.\n",
            (double)d->write_us / 1e3, (double)d->write_slowest_us / 1e3);
    if (!d->n_seen)
        return;
    buf_put_str(out, "Looked at ");
    buf_put_slice(out, buf_slice(&d->seen));
    if (n == 0)
        buf_put_str(out, ": nothing is wrong.\n");
    else
        buf_printf(out, ": %zu error%s, %zu warning%s.\n", d->errors, d->errors == 1 ? "" : "s",
                   d->warnings, d->warnings == 1 ? "" : "s");
}

static int print(struct doctor *d, int code)
{
    struct buf out = {0};
    if (d->c->json)
        put_json(d, &out);
    else
        put_lines(d, &out);
    int written = cli_flush(&out);
    if (written != CLI_OK)
        return written;
    return code == CLI_OK && d->errors + d->warnings ? CLI_NOT : code;
}

static int doctor(struct cli *c)
{
    struct doctor d = {.c = c};
    const char *data = cli_text(c, "data", NULL);
    if (!data && cli_given(c, "measure-disk"))
        return cli_usage(c, "--measure-disk goes with --data");
    if (data && cli_given(c, "addr"))
        return cli_usage(c, "--data and --addr exclude each other");
    c->patience_ms = DOCTOR_ASK_MS;
    int code = data ? doctor_data(&d, data) : doctor_cluster(&d);
    code = print(&d, code);
    buf_done(&d.found);
    buf_done(&d.seen);
    return code;
}

static const struct cli_option doctor_options[] = {
    {"data", 'd', CLI_TEXT, "DIR", "look at this data directory instead of at a server"},
    {"measure-disk", 0, CLI_FLAG, NULL,
     "with --data: also write, to measure how long it takes"},
    {0},
};

const struct cli_command cli_cmd_doctor = {
    .name = "doctor",
    .args = "[--data DIR [--measure-disk]]",
    .summary = "say what is wrong with a cluster or a directory, and what to do",
    .about = "Asks a server and every other node of its cluster, at the address where\n"
             "clients reach it: majority, members that are not connected or behind, versions,\n"
             "levels, clocks, certificates, memory, connections, open files, the disk,\n"
             "snapshots, the audit log. With --data it looks at a directory of this\n"
             "machine: rights, space, and, when no server runs on it, every file (as belay\n"
             "repair does). It changes nothing.\n\n"
             "Each finding has a line that says what is wrong and a line that says what to\n"
             "do. An error is wrong now; a warning will be one, or takes a safety away. A\n"
             "node has 3s to answer (--timeout).",
    .examples = "  belay doctor --addr 10.0.0.1:7117\n"
                "  belay doctor --data /var/lib/belay --measure-disk\n"
                "  belay doctor --json",
    .options = doctor_options,
    .run = doctor,
    .exit_text = "  0  nothing is wrong    1  something is wrong    2  wrong usage\n"
                 "  3  no server could be reached    4  it did not answer in time\n"
                 "  5  it refused    6  the directory cannot be looked at",
};
