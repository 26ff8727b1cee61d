/* own.c - the certificate of this process: read, read again, and watched. */
#include "tls/own.h"

#include "base/log.h"
#include "base/tally.h"

#include <inttypes.h>
#include <openssl/crypto.h>

enum { DAY_S = 24 * 3600, LOOK_MS = DAY_S * 1000 };

static void say_expiry(struct tls_own *own, uint64_t now_ms)
{
    int64_t left = tls_context_expires_s(own->context);
    own->look_ms = now_ms + LOOK_MS;
    if (left < (int64_t)TLS_WARN_DAYS * DAY_S)
        log_warn("tls.certificate",
                 "file=%s days=%" PRIi64
                 " text=\"the certificate ends soon: make a new one, then send "
                 "SIGHUP\"",
                 own->files.cert, left / DAY_S);
}

bool tls_own_open(struct tls_own *own, const struct tls_files *files, enum tls_use use,
                  uint64_t now_ms)
{
    *own = (struct tls_own){.files = *files};
    if (!files->cert)
        return true;
    if (tls_context_open(files, use, &own->context) != BELAY_OK) {
        log_error("tls.files", "error=\"%s\"", tls_context_problem());
        return false;
    }
    say_expiry(own, now_ms);
    return true;
}

void tls_own_reload(struct tls_own *own, uint64_t now_ms)
{
    if (!own->context)
        return;
    if (tls_context_reload(own->context) != BELAY_OK)
        log_error("tls.files", "error=\"%s\" text=\"the certificate from before stays in use\"",
                  tls_context_problem());
    else
        log_info("tls.files", "text=\"the certificate was read again\"");
    say_expiry(own, now_ms);
}

void tls_own_look(struct tls_own *own, uint64_t now_ms)
{
    if (own->context && now_ms >= own->look_ms)
        say_expiry(own, now_ms);
}

void tls_own_close(struct tls_own *own)
{
    tls_context_close(own->context);
}

static void *allocate(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return tally_malloc(bytes);
}

static void *allocate_again(void *old, size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return tally_realloc(old, bytes);
}

static void give_back(void *block, const char *file, int line)
{
    (void)file, (void)line;
    tally_free(block);
}

void tls_own_count_memory(void)
{
    if (CRYPTO_set_mem_functions(allocate, allocate_again, give_back) != 1)
        log_debug("tls.memory", "text=\"the memory of TLS is not counted\"");
}
