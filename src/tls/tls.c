/* tls.c - TLS between memory buffers: sockets belong to the caller. */
#include "tls/tls.h"

#include "base/check.h"
#include "base/mem.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { READ_BYTES = 16 << 10 };

struct tls_context {
    struct tls_files files; /* copies */
    enum tls_use use;
    SSL_CTX *ctx;
    int64_t ends; /* Unix time */
};

struct tls {
    SSL *ssl;
    BIO *in, *out;
    enum tls_use use;
    enum tls_state state;
    char problem[TLS_PROBLEM_MAX];
};

static _Thread_local char problem[TLS_PROBLEM_MAX];

const char *tls_context_problem(void)
{
    return problem;
}

/* --- contexts --- */

static bool wrong(const char *file, const char *what)
{
    snprintf(problem, sizeof problem, "%s: %s", file, what);
    ERR_clear_error();
    return false;
}

static int64_t end_of(const X509 *cert)
{
    struct tm tm = {0};
    if (!ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm))
        return 0;
    return timegm(&tm);
}

static bool is_node(X509 *cert)
{
    const uint32_t both = XKU_SSL_SERVER | XKU_SSL_CLIENT;
    return X509_get_extension_flags(cert) & EXFLAG_XKUSAGE &&
           (X509_get_extended_key_usage(cert) & both) == both;
}

/* A list that is old is better than none; and a CA without one has taken nothing back. */
static int is_list_needed(int ok, X509_STORE_CTX *check)
{
    int code = X509_STORE_CTX_get_error(check);
    if (ok || (code != X509_V_ERR_CRL_HAS_EXPIRED && code != X509_V_ERR_UNABLE_TO_GET_CRL))
        return ok;
    X509_STORE_CTX_set_error(check, X509_V_OK);
    return 1;
}

/* The file of the CA may hold a list of certificates that it has taken back. */
static void use_lists(X509_STORE *store)
{
    STACK_OF(X509_OBJECT) *all = X509_STORE_get0_objects(store);
    for (int i = 0; i < sk_X509_OBJECT_num(all); i++)
        if (X509_OBJECT_get_type(sk_X509_OBJECT_value(all, i)) == X509_LU_CRL)
            X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    X509_STORE_set_verify_cb(store, is_list_needed);
}

static bool use_files(SSL_CTX *ctx, const struct tls_context *c)
{
    const struct tls_files *f = &c->files;
    if (SSL_CTX_load_verify_locations(ctx, f->ca, NULL) != 1)
        return wrong(f->ca, "cannot be read as the certificate of a CA (PEM)");
    use_lists(SSL_CTX_get_cert_store(ctx));
    if (SSL_CTX_use_certificate_chain_file(ctx, f->cert) != 1)
        return wrong(f->cert, "cannot be read as a certificate (PEM)");
    if (SSL_CTX_use_PrivateKey_file(ctx, f->key, SSL_FILETYPE_PEM) != 1)
        return wrong(f->key, "cannot be read as the key of the certificate (PEM)");
    if (SSL_CTX_check_private_key(ctx) != 1)
        return wrong(f->key, "is not the key of the certificate");
    if (c->use == TLS_NODES && !is_node(SSL_CTX_get0_certificate(ctx)))
        return wrong(f->cert, "is not the certificate of a node (belay cert node)");
    return true;
}

/* The CA believes in the own certificate, now; else nobody else would. */
static bool is_believed(SSL_CTX *ctx, const struct tls_context *c, int64_t *ret_ends)
{
    X509 *cert = SSL_CTX_get0_certificate(ctx);
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    BELAY_CHECK(check && X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(ctx), cert, NULL));
    bool ok = X509_verify_cert(check) == 1;
    *ret_ends = end_of(cert);
    if (!ok) {
        wrong(c->files.cert, X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
    } else {
        STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(check);
        for (int i = 0; i < sk_X509_num(chain); i++) {
            int64_t ends = end_of(sk_X509_value(chain, i));
            *ret_ends = ends < *ret_ends ? ends : *ret_ends;
        }
    }
    X509_STORE_CTX_free(check);
    return ok;
}

static enum belay_err load(struct tls_context *c)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    int64_t ends;
    BELAY_CHECK(ctx);
    int oldest = c->use == TLS_NODES ? TLS1_3_VERSION : TLS1_2_VERSION;
    SSL_CTX_set_min_proto_version(ctx, oldest);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_verify(
        ctx, SSL_VERIFY_PEER | (c->use == TLS_NODES ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
        NULL);
    if (!use_files(ctx, c) || !is_believed(ctx, c, &ends)) {
        SSL_CTX_free(ctx);
        return BELAY_ERR_SYNTAX;
    }
    SSL_CTX_free(c->ctx);
    c->ctx = ctx;
    c->ends = ends;
    return BELAY_OK;
}

enum belay_err tls_context_open(const struct tls_files *files, enum tls_use use,
                                struct tls_context **ret)
{
    struct tls_context *c = mem_zalloc(sizeof *c);
    c->use = use;
    c->files.ca = mem_dup(files->ca, strlen(files->ca) + 1);
    c->files.cert = mem_dup(files->cert, strlen(files->cert) + 1);
    c->files.key = mem_dup(files->key, strlen(files->key) + 1);
    enum belay_err err = load(c);
    if (err == BELAY_OK)
        *ret = c;
    else
        tls_context_close(c);
    return err;
}

enum belay_err tls_context_reload(struct tls_context *c)
{
    return load(c);
}

int64_t tls_context_expires_s(const struct tls_context *c)
{
    return c->ends - (int64_t)time(NULL);
}

void tls_context_close(struct tls_context *c)
{
    if (!c)
        return;
    SSL_CTX_free(c->ctx);
    free((void *)(uintptr_t)c->files.ca);
    free((void *)(uintptr_t)c->files.cert);
    free((void *)(uintptr_t)c->files.key);
    free(c);
}

/* --- connections --- */

bool tls_is_believed(struct tls *t, const struct tls_context *c)
{
    X509 *cert = t->state == TLS_OPEN ? SSL_get0_peer_certificate(t->ssl) : NULL;
    if (!cert)
        return true; /* nobody yet */
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    BELAY_CHECK(check && X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(c->ctx), cert,
                                             SSL_get_peer_cert_chain(t->ssl)));
    bool ok = X509_verify_cert(check) == 1;
    if (!ok)
        snprintf(t->problem, sizeof t->problem, "its certificate is not believed: %s",
                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
    X509_STORE_CTX_free(check);
    ERR_clear_error();
    return ok;
}

struct tls *tls_open(const struct tls_context *c, bool was_called)
{
    struct tls *t = mem_zalloc(sizeof *t);
    t->use = c->use;
    t->ssl = SSL_new(c->ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    BELAY_CHECK(t->ssl && t->in && t->out);
    SSL_set_bio(t->ssl, t->in, t->out);
    if (was_called) {
        SSL_set_accept_state(t->ssl);
    } else {
        SSL_set_connect_state(t->ssl);
        (void)SSL_do_handshake(t->ssl); /* there is something to say first */
    }
    return t;
}

void tls_close(struct tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    free(t);
}

enum tls_state tls_state(const struct tls *t)
{
    return t->state;
}

const char *tls_problem(const struct tls *t)
{
    return t->problem;
}

static enum tls_state fail(struct tls *t, const char *why)
{
    unsigned long code = ERR_get_error();
    long verified = SSL_get_verify_result(t->ssl);
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    if (why)
        snprintf(t->problem, sizeof t->problem, "%s", why);
    else if (verified != X509_V_OK)
        snprintf(t->problem, sizeof t->problem, "its certificate is not believed: %s",
                 X509_verify_cert_error_string(verified));
    else if (reason && (strstr(reason, "wrong version") || strstr(reason, "packet length") ||
                        strstr(reason, "http request")))
        snprintf(t->problem, sizeof t->problem,
                 "it does not speak TLS, or not a version that is accepted here");
    else
        snprintf(t->problem, sizeof t->problem, "TLS failed: %s",
                 reason ? reason : "the other side broke off");
    ERR_clear_error();
    return t->state = TLS_FAILED;
}

static enum tls_state shake(struct tls *t)
{
    ERR_clear_error();
    int rv = SSL_do_handshake(t->ssl);
    if (rv != 1) {
        int err = SSL_get_error(t->ssl, rv);
        return err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE ? TLS_SHAKING
                                                                         : fail(t, NULL);
    }
    X509 *cert = SSL_get0_peer_certificate(t->ssl);
    if (t->use == TLS_NODES && (!cert || !is_node(cert)))
        return fail(t, "its certificate is not that of a node");
    return t->state = TLS_OPEN;
}

static enum tls_state take_plain(struct tls *t, struct buf *plain)
{
    for (;;) {
        size_t n = 0;
        if (!buf_reserve(plain, READ_BYTES))
            return fail(t, "out of memory");
        ERR_clear_error();
        int rv = SSL_read_ex(t->ssl, plain->mem + plain->end, READ_BYTES, &n);
        if (rv == 1) {
            plain->end += n;
            continue;
        }
        int err = SSL_get_error(t->ssl, rv);
        if (err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE)
            return t->state;
        if (err == SSL_ERROR_ZERO_RETURN)
            return t->state = TLS_CLOSED;
        return fail(t, NULL);
    }
}

enum tls_state tls_feed(struct tls *t, struct slice bytes, struct buf *plain)
{
    if (t->state == TLS_FAILED || t->state == TLS_CLOSED)
        return t->state;
    size_t n = 0;
    if (bytes.len > 0 && BIO_write_ex(t->in, bytes.data, bytes.len, &n) != 1)
        return fail(t, "out of memory");
    if (t->state == TLS_SHAKING && shake(t) != TLS_OPEN)
        return t->state;
    return take_plain(t, plain);
}

enum tls_state tls_write(struct tls *t, struct slice plain)
{
    BELAY_CHECK(t->state == TLS_OPEN || t->state == TLS_FAILED || t->state == TLS_CLOSED);
    if (t->state != TLS_OPEN || plain.len == 0)
        return t->state;
    size_t n = 0;
    ERR_clear_error();
    if (SSL_write_ex(t->ssl, plain.data, plain.len, &n) != 1 || n != plain.len)
        return fail(t, NULL);
    return t->state;
}

void tls_drain(struct tls *t, struct buf *out)
{
    char *data;
    long n = BIO_get_mem_data(t->out, &data);
    if (n > 0)
        buf_put(out, data, (size_t)n);
    (void)BIO_reset(t->out);
}

bool tls_is(const struct tls *t, const char *name)
{
    const unsigned exactly = X509_CHECK_FLAG_NO_WILDCARDS |
                             X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                             X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
    X509 *cert = t->state == TLS_OPEN ? SSL_get0_peer_certificate(t->ssl) : NULL;
    return cert && *name && X509_check_host(cert, name, strlen(name), exactly, NULL) == 1;
}
