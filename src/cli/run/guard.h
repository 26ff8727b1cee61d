/* guard.h - the process between `belay run` and its command: it ends the command's group in
 * time, whatever happens to everybody else.
 *
 *   belay run ──socket──▶ guard ──fork──▶ COMMAND (its own process group)
 *   talks to the server   keeps the deadline, reaps, kills
 *
 *   what happens to the runner        what the guard does
 *   renews                            moves the deadline (CLOCK_BOOTTIME: suspend counts)
 *   is stopped, or the server silent  TERM at kill_at - kill_after, KILL at kill_at
 *   says LOST                         TERM now, KILL after kill_after
 *   dies, even by SIGKILL             KILL now
 *
 * A guard that is stopped itself cannot do this: then the runner kills the group.
 *
 * The guard holds a copy of the runner's connection. The server sees it close only when the
 * guard is gone too, and the guard goes only when the group is dead: so the lock of a killed
 * runner is free milliseconds later, and never while its command lives. */
#ifndef BELAY_CLI_RUN_GUARD_H
#define BELAY_CLI_RUN_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum guard_word {
    GUARD_DEADLINE,  /* to the guard: value = when the group must be dead, ms of CLOCK_BOOTTIME
                      */
    GUARD_LOST,      /* to the guard: the lock is gone, stop */
    GUARD_SIGNAL,    /* to the guard: value = signal for the group */
    GUARD_SOCKET,    /* to the guard: hold this descriptor from now on (passed along) */
    GUARD_STARTED,   /* from it: value = pid of the command, which leads the group */
    GUARD_EXITED,    /* from it: value = wait status; the whole group is dead */
    GUARD_OVERDUE,   /* from it: the deadline has come, the group is being stopped */
    GUARD_UNSTARTED, /* from it: value = errno of the failed exec, or GUARD_TOO_LATE */
};

enum { GUARD_TOO_LATE = -1 }; /* the lease was not proven any more: nothing was executed */

struct guard_message {
    enum guard_word word;
    int64_t value;
};

struct guard_config {
    char *const *command; /* argv, NULL at the end */
    char *const *env;     /* "NAME=value" to add, NULL at the end */
    int64_t kill_after_ms;
    int64_t deadline_ms;       /* the first one */
    const char *on_lost;       /* for sh -c; NULL: none. Has half of kill_after before TERM */
    int socket_fd;             /* the connection, -1: none */
    int tty_fd;                /* the terminal, which the command gets; -1: it stays as it is */
    struct sigaction old_pipe; /* of SIGPIPE, for the command */
    sigset_t old_mask;         /* of signals, for the command */
};

/* Forks. Returns the descriptor to talk over, or -1 (errno). */
int guard_start(const struct guard_config *config, pid_t *ret_guard);
/* Never waits. False: the other side is gone, or has not read for long (it is stopped). */
bool guard_send(int fd, enum guard_word word, int64_t value);
bool guard_send_socket(int fd, int socket_fd);
/* 1: a message, 0: nothing now, -1: the other side is gone. *ret_fd (may be NULL): -1 or taken.
 */
int guard_receive(int fd, struct guard_message *ret, int *ret_fd);
int64_t guard_now_ms(void); /* CLOCK_BOOTTIME */
/* Makes our group the one that the terminal listens to. A background group that does so would
 * be stopped by SIGTTOU: it is ignored meanwhile. */
void guard_take_terminal(int tty_fd);
#endif
