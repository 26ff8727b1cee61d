/* scripts.h - the Lua scripts of the well-known Redis lock clients, recognised by what they do.
 *
 * There is no Lua here. A script is brought into a normal form (comments and white space gone,
 * one kind of quotes, locals numbered, names for KEYS[n] and ARGV[n] put in their place) and
 * compared with a table of such forms. What is recognised is remembered by its SHA-1, as
 * EVALSHA expects. */
#ifndef BELAY_COMMAND_SCRIPTS_H
#define BELAY_COMMAND_SCRIPTS_H

#include "base/slice.h"

#include <stdint.h>

enum {
    SCRIPT_BYTES_MAX = 4096,  /* longer ones are not looked at */
    SCRIPT_SHA_BYTES = 40,    /* in hex */
    SCRIPTS_KNOWN_MAX = 1024, /* the oldest is forgotten */
};

enum script_does {
    SCRIPT_ACQUIRE,   /* all of the keys, or none */
    SCRIPT_RELEASE,   /* those keys that the owner holds */
    SCRIPT_RENEW,     /* all of the keys, or none */
    SCRIPT_EXTEND,    /* as RENEW; ARGV[3] "0": the time is added to what remains */
    SCRIPT_SEMAPHORE, /* permits of a semaphore */
};

/* What a script does, and which of its ARGV (from 1; 0: none) say how. */
struct script {
    enum script_does does;
    uint8_t owner, ttl, limit, permits;
    bool all_keys; /* all of KEYS; else KEYS[1] only */
    bool seconds;  /* ttl counts seconds */
    const char *lua;
};

struct scripts;                        /* fields live in scripts.c */
struct scripts *scripts_open(void);    /* never NULL; none is known yet */
void scripts_close(struct scripts *s); /* NULL is allowed */

/* What the script does, remembering it; NULL: not one that is known. The hash is written in any
 * case. */
const struct script *scripts_learn(struct scripts *s, struct slice text,
                                   char ret_sha[SCRIPT_SHA_BYTES]);
const struct script *scripts_find(const struct scripts *s,
                                  struct slice sha); /* NULL: not known */
void scripts_forget(struct scripts *s);
#endif
