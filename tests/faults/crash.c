/* crash.c - runs a program and kills it, SIGKILL, at one of the calls with which it changes a
 * disk.
 *
 *   crash REPORT POINT COMMAND...
 *
 * The calls of all its threads and children are counted from 1; POINT 2k - 1 is before call k,
 * 2k behind it, before the program knows. A filter (seccomp) stops the program at these calls
 * alone, so that everything else goes at full speed. What happened is written into the file
 * REPORT:
 *
 *   killed POINT NAME     or     survived CALLS NAME...
 *
 * The exit status is the program's, or 137. SIGTERM is passed on. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct call {
    const char *name;
    unsigned number;
} calls[] = {
    {"pwrite64", SYS_pwrite64},   {"fdatasync", SYS_fdatasync}, {"fsync", SYS_fsync},
    {"fallocate", SYS_fallocate}, {"renameat", SYS_renameat},   {"renameat2", SYS_renameat2},
    {"unlinkat", SYS_unlinkat},   {"mkdirat", SYS_mkdirat},     {"ftruncate", SYS_ftruncate},
#ifdef SYS_rename
    {"rename", SYS_rename},       {"unlink", SYS_unlink},       {"mkdir", SYS_mkdir},
#endif
};
enum { N_CALLS = sizeof calls / sizeof calls[0] };

static pid_t program;

static void die(const char *what)
{
    perror(what);
    exit(125);
}

/* Stops at the calls above, and at an openat() that makes a file. */
static void install_filter(void)
{
    struct sock_filter f[2 * N_CALLS + 8];
    size_t n = 0;
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                          offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < N_CALLS; i++) {
        f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1);
        f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                          offsetof(struct seccomp_data, args[2]));
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = {(unsigned short)n, f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0)
        die("seccomp");
}

static void start(char **command)
{
    program = fork();
    if (program < 0)
        die("fork");
    if (program == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            die("ptrace");
        (void)raise(SIGSTOP);
        install_filter();
        execv(command[0], command);
        die(command[0]);
    }
    int status;
    if (waitpid(program, &status, 0) != program || !WIFSTOPPED(status))
        die("waitpid");
    uintptr_t options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                        PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL |
                        PTRACE_O_TRACESYSGOOD;
    if (ptrace(PTRACE_SETOPTIONS, program, NULL, (void *)options) != 0)
        die("ptrace options");
    (void)ptrace(PTRACE_CONT, program, NULL, NULL);
}

static const char *name_of(pid_t pid)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0)
        return "?";
    for (size_t i = 0; i < N_CALLS; i++)
        if (info.seccomp.nr == calls[i].number)
            return calls[i].name;
    return info.seccomp.nr == SYS_openat ? "openat" : "?";
}

/* Passed on from here: the program may rest, and then there is nothing to wait for. */
static void on_term(int sig)
{
    int saved = errno;
    (void)kill(program, sig);
    errno = saved;
}

/* The names of all calls so far, for the report of a program that survives. */
static char *names;
static size_t names_len;

static void note_name(const char *name)
{
    size_t n = strlen(name) + 1;
    names = realloc(names, names_len + n + 1);
    if (!names)
        die("realloc");
    snprintf(names + names_len, n + 1, " %s", name);
    names_len += n;
}

/* All of it at once, as when the power goes: EXITKILL ends what is traced with us. */
static void end_all(const char *report, unsigned long point, const char *name)
{
    FILE *f = fopen(report, "w");
    if (!f || fprintf(f, "killed %lu %s\n", point, name) < 0 || fclose(f) != 0)
        die(report);
    (void)kill(program, SIGKILL);
    exit(137);
}

/* Goes on after one stop; false: the program is over and *status says how. */
static bool next(const char *report, unsigned long point, unsigned long *count, int *status)
{
    const char *name;
    static const char *killing; /* the call that it is in */
    static pid_t behind;        /* in the call behind which it is killed */
    pid_t pid = waitpid(-1, status, __WALL);
    if (pid < 0)
        return errno == EINTR;
    if (!WIFSTOPPED(*status))
        return pid != program;
    int sig = WSTOPSIG(*status);
    int event = *status >> 16;
    bool stop_again = false;
    if (event == PTRACE_EVENT_SECCOMP) {
        ++*count;
        name = name_of(pid);
        note_name(name);
        if (point == 2 * *count - 1)
            end_all(report, point, name);
        stop_again = point == 2 * *count;
        behind = stop_again ? pid : behind;
        killing = stop_again ? name : killing;
    } else if (sig == (SIGTRAP | 0x80) && pid == behind) {
        end_all(report, point, killing);
    }
    bool ours = event != 0 || sig == (SIGTRAP | 0x80) || sig == SIGSTOP || sig == SIGTRAP;
    (void)ptrace(stop_again ? PTRACE_SYSCALL : PTRACE_CONT, pid, NULL,
                 (void *)(uintptr_t)(ours ? 0 : sig));
    return true;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: crash REPORT POINT COMMAND...\n");
        return 125;
    }
    unsigned long point = strtoul(argv[2], NULL, 10);
    unsigned long count = 0;
    int status = 0;
    struct sigaction action = {.sa_handler = on_term};
    start(argv + 3);
    (void)sigaction(SIGTERM, &action, NULL);
    while (next(argv[1], point, &count, &status))
        continue;
    FILE *f = fopen(argv[1], "w");
    if (!f || fprintf(f, "survived %lu%s\n", count, names ? names : "") < 0 || fclose(f) != 0)
        die(argv[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
