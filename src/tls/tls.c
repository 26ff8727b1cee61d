/* tls.c - TLS between memory buffers: sockets belong to the caller. */
#include "tls/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 16 << 10, OUT_KEPT_BYTES = 4 << 10 };

struct tls_context {
    struct tls_files files; /* copies */
    enum tls_use use;
    SSL_CTX *ctx;
    BIO_METHOD *method;
    int64_t ends; /* Unix time */
};

struct tls {
    SSL *ssl;
    struct slice in; /* what is being fed, and not taken yet */
    struct buf out;
    enum tls_use use;
    enum tls_state state;
    size_t shaken; /* bytes of the handshake */
    unsigned idle; /* messages that carried nothing, since one that did */
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

/* A file that OpenSSL does not take: it cannot be opened, or has something else in it. */
static bool wrong_file(const char *file, const char *what)
{
    return wrong(file, access(file, R_OK) == 0 ? what : strerror(errno));
}

static bool believe(SSL_CTX *ctx, const struct tls_context *c)
{
    if (!c->files.ca && c->use == TLS_NODES)
        return wrong("TLS", "nodes need the certificate of their CA");
    if (!c->files.ca)
        return c->use == TLS_CLIENTS || SSL_CTX_set_default_verify_paths(ctx) == 1 ||
               wrong("the system's certificates", "cannot be read");
    if (SSL_CTX_load_verify_locations(ctx, c->files.ca, NULL) != 1)
        return wrong_file(c->files.ca, "cannot be read as the certificate of a CA (PEM)");
    return true;
}

static bool use_files(SSL_CTX *ctx, const struct tls_context *c)
{
    const struct tls_files *f = &c->files;
    if (!believe(ctx, c))
        return false;
    use_lists(SSL_CTX_get_cert_store(ctx));
    if (!f->cert)
        return true;
    if (SSL_CTX_use_certificate_chain_file(ctx, f->cert) != 1)
        return wrong_file(f->cert, "cannot be read as a certificate (PEM)");
    if (SSL_CTX_use_PrivateKey_file(ctx, f->key, SSL_FILETYPE_PEM) != 1)
        return wrong_file(f->key,
                          ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH
                              ? "is not the key of the certificate"
                              : "cannot be read as the key of the certificate (PEM)");
    if (c->use == TLS_NODES && !is_node(SSL_CTX_get0_certificate(ctx)))
        return wrong(f->cert, "is not the certificate of a node (belay cert node)");
    return true;
}

/* The CA believes in the own certificate, now; else nobody else would. */
static bool is_believed(SSL_CTX *ctx, const struct tls_context *c, int64_t *ret_ends)
{
    X509 *cert = SSL_CTX_get0_certificate(ctx);
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    bool ok = check &&
              X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(ctx), cert, NULL) == 1 &&
              X509_verify_cert(check) == 1;
    if (!check) {
        wrong(c->files.cert, "out of memory");
    } else if (!ok) {
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

/* The certificate that clients see may be of any CA; but it has not ended. */
static bool is_sound(SSL_CTX *ctx, const struct tls_context *c, int64_t *ret_ends)
{
    if (!c->files.cert)
        return true;
    *ret_ends = end_of(SSL_CTX_get0_certificate(ctx));
    if (c->use == TLS_NODES)
        return is_believed(ctx, c, ret_ends);
    return *ret_ends > (int64_t)time(NULL) || wrong(c->files.cert, "certificate has expired");
}

/* --- what OpenSSL reads and writes --- */

static int bio_read(BIO *bio, char *to, int cap)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    bool may_read = t->idle <= TLS_IDLE_MESSAGES_MAX && t->shaken <= TLS_HANDSHAKE_BYTES_MAX;
    if (t->in.len == 0 || !may_read) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t n = t->in.len < (size_t)cap ? t->in.len : (size_t)cap;
    memcpy(to, t->in.data, n);
    t->in = slice_of(t->in.data + n, t->in.len - n);
    if (t->state == TLS_SHAKING)
        t->shaken += n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *from, int n)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    buf_put(&t->out, from, (size_t)n);
    return t->out.oom ? -1 : n;
}

static long bio_ctrl(BIO *bio, int what, long number, void *more)
{
    (void)bio, (void)number, (void)more;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *new_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "buffers of struct tls");
    if (!m || !BIO_meth_set_read(m, bio_read) || !BIO_meth_set_write(m, bio_write) ||
        !BIO_meth_set_ctrl(m, bio_ctrl)) {
        BIO_meth_free(m);
        return NULL;
    }
    return m;
}

/* Messages of the handshake that come when it is over. */
/* NOLINTNEXTLINE(readability-function-size): OpenSSL's parameters */
static void on_message(int sent, int version, int type, const void *bytes, size_t n, SSL *ssl,
                       void *arg)
{
    struct tls *t = arg;
    (void)version, (void)bytes, (void)n, (void)ssl;
    if (!sent && type == SSL3_RT_HANDSHAKE && t->state == TLS_OPEN)
        t->idle++;
}

static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                           const unsigned char *offered, unsigned n, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, ret_len, ours, sizeof ours - 1, offered, n) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *ret = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static void set_nodes(SSL_CTX *ctx)
{
    SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

/* A ticket saves a client that comes back the costly part of the handshake. It counts as long
 * as the context: with new files there are new keys. */
static void set_clients(SSL_CTX *ctx, bool may_prove)
{
    static const unsigned char id[] = "belay";
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_session_id_context(ctx, id, sizeof id - 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    SSL_CTX_set_verify(ctx, may_prove ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
}

static void set_caller(SSL_CTX *ctx)
{
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
}

static enum belay_err load(struct tls_context *c)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    int64_t ends = INT64_MAX;
    if (!ctx)
        return BELAY_ERR_NO_MEMORY;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    if (c->use == TLS_NODES)
        set_nodes(ctx);
    else if (c->use == TLS_CLIENTS)
        set_clients(ctx, c->files.ca != NULL);
    else
        set_caller(ctx);
    if (!use_files(ctx, c) || !is_sound(ctx, c, &ends)) {
        SSL_CTX_free(ctx);
        return BELAY_ERR_SYNTAX;
    }
    SSL_CTX_free(c->ctx);
    c->ctx = ctx;
    c->ends = ends;
    return BELAY_OK;
}

static bool copy(const char **at, const char *path)
{
    *at = path ? strdup(path) : NULL;
    return *at || !path;
}

enum belay_err tls_context_open(const struct tls_files *files, enum tls_use use,
                                struct tls_context **ret)
{
    struct tls_context *c = calloc(1, sizeof *c);
    enum belay_err err = BELAY_ERR_NO_MEMORY;
    wrong("TLS", err_text(err));
    if (!c)
        return err;
    c->use = use;
    c->method = new_method();
    if (c->method && copy(&c->files.ca, files->ca) && copy(&c->files.cert, files->cert) &&
        copy(&c->files.key, files->key))
        err = load(c);
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
    BIO_meth_free(c->method);
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
        snprintf(t->problem, sizeof t->problem, "its certificate is not accepted: %s",
                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
    X509_STORE_CTX_free(check);
    ERR_clear_error();
    return ok;
}

static struct tls *new_connection(const struct tls_context *c)
{
    struct tls *t = calloc(1, sizeof *t);
    BIO *bio = BIO_new(c->method);
    if (t)
        t->ssl = SSL_new(c->ctx);
    if (!t || !bio || !t->ssl) {
        BIO_free(bio);
        tls_close(t);
        return NULL;
    }
    t->use = c->use;
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_msg_callback(t->ssl, on_message);
    SSL_set_msg_callback_arg(t->ssl, t);
    return t;
}

/* There is something to say first. */
static struct tls *begin_call(struct tls *t)
{
    SSL_set_connect_state(t->ssl);
    (void)SSL_do_handshake(t->ssl);
    return t;
}

struct tls *tls_open(const struct tls_context *c, bool was_called)
{
    struct tls *t = new_connection(c);
    if (t && !was_called)
        return begin_call(t);
    if (t)
        SSL_set_accept_state(t->ssl);
    return t;
}

/* OpenSSL's macro drops a const, which clang does not take. */
static bool set_sni(SSL *ssl, const char *host)
{
    return SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    (void *)(uintptr_t)host) == 1;
}

struct tls *tls_call(const struct tls_context *c, const char *host)
{
    struct tls *t = new_connection(c);
    if (!t)
        return NULL;
    X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    bool is_address = X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1;
    bool set = is_address || (SSL_set1_host(t->ssl, host) == 1 && set_sni(t->ssl, host));
    ERR_clear_error();
    if (set)
        return begin_call(t);
    tls_close(t);
    return NULL;
}

void tls_close(struct tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    buf_done(&t->out);
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

/* What OpenSSL calls it, and what it means for a reader. */
static const char *explain(const char *reason)
{
    static const struct {
        const char *part, *means;
    } rows[] = {
        {"wrong version", "it does not speak TLS, or not a version that is accepted here"},
        {"packet length", "it does not speak TLS, or not a version that is accepted here"},
        {"http request", "it does not speak TLS, or not a version that is accepted here"},
        {"unsupported protocol", "it does not speak a version of TLS that is accepted here"},
        {"alert protocol version", "it accepts no version of TLS that is supported here"},
        {"alert unknown ca", "it does not accept our certificate: unknown CA"},
        {"alert certificate expired", "it does not accept our certificate: expired"},
        {"alert bad certificate", "it does not accept our certificate"},
        {"alert certificate unknown", "it does not accept our certificate"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strstr(reason, rows[i].part))
            return rows[i].means;
    return NULL;
}

static enum tls_state fail(struct tls *t, const char *why)
{
    unsigned long code = ERR_get_error();
    long verified = SSL_get_verify_result(t->ssl);
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    if (!why && reason)
        why = explain(reason);
    if (t->state == TLS_SHAKING && verified != X509_V_OK)
        snprintf(t->problem, sizeof t->problem, "its certificate is not accepted: %s",
                 X509_verify_cert_error_string(verified));
    else if (why)
        snprintf(t->problem, sizeof t->problem, "%s", why);
    else
        snprintf(t->problem, sizeof t->problem, "TLS failed: %s",
                 reason ? reason : "the other side broke off");
    ERR_clear_error();
    return t->state = TLS_FAILED;
}

/* It needs more to go on: does it get it? */
static enum tls_state wants_more(struct tls *t)
{
    if (t->out.oom)
        return fail(t, "out of memory");
    if (t->shaken > TLS_HANDSHAKE_BYTES_MAX)
        return fail(t, "its handshake is too long");
    if (t->idle > TLS_IDLE_MESSAGES_MAX)
        return fail(t, "too many messages that carry nothing");
    return t->state;
}

static enum tls_state shake(struct tls *t)
{
    ERR_clear_error();
    int rv = SSL_do_handshake(t->ssl);
    if (rv != 1) {
        int err = SSL_get_error(t->ssl, rv);
        bool waits = err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE;
        return waits ? wants_more(t) : fail(t, NULL);
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
            t->idle = 0;
            if (t->in.len == 0 && !SSL_has_pending(t->ssl))
                return t->state;
            continue;
        }
        int err = SSL_get_error(t->ssl, rv);
        if (err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE)
            return wants_more(t);
        if (err == SSL_ERROR_ZERO_RETURN)
            return t->state = TLS_CLOSED;
        return fail(t, NULL);
    }
}

enum tls_state tls_feed(struct tls *t, struct slice bytes, struct buf *plain)
{
    if (t->state == TLS_FAILED || t->state == TLS_CLOSED)
        return t->state;
    t->in = bytes;
    if (t->state == TLS_OPEN || shake(t) == TLS_OPEN)
        (void)take_plain(t, plain);
    t->in = (struct slice){0};
    return t->state;
}

enum tls_state tls_write(struct tls *t, struct slice plain)
{
    if ((t->state != TLS_OPEN && t->state != TLS_CLOSED) || plain.len == 0)
        return t->state;
    size_t n = 0;
    ERR_clear_error();
    if (SSL_write_ex(t->ssl, plain.data, plain.len, &n) != 1 || n != plain.len)
        return fail(t, NULL);
    return t->state;
}

void tls_drain(struct tls *t, struct buf *out)
{
    buf_put_slice(out, buf_slice(&t->out));
    buf_clear(&t->out);
    if (t->out.cap > OUT_KEPT_BYTES)
        buf_done(&t->out);
}

bool tls_has_output(const struct tls *t)
{
    return buf_len(&t->out) > 0;
}

void tls_end(struct tls *t)
{
    if (t->state == TLS_OPEN || t->state == TLS_CLOSED)
        (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
}

bool tls_is(const struct tls *t, const char *name)
{
    const unsigned exactly = X509_CHECK_FLAG_NO_WILDCARDS |
                             X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                             X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
    X509 *cert = t->state == TLS_OPEN ? SSL_get0_peer_certificate(t->ssl) : NULL;
    return cert && *name && X509_check_host(cert, name, strlen(name), exactly, NULL) == 1;
}

bool tls_uri(const struct tls *t, const char *prefix, char *ret, size_t cap)
{
    X509 *cert = t->state == TLS_OPEN ? SSL_get0_peer_certificate(t->ssl) : NULL;
    GENERAL_NAMES *names =
        cert ? X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL) : NULL;
    size_t skip = strlen(prefix);
    bool found = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        size_t len = (size_t)ASN1_STRING_length(name->d.uniformResourceIdentifier);
        const char *text =
            (const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier);
        found = len > skip && len - skip < cap && memcmp(text, prefix, skip) == 0 &&
                !memchr(text, '\0', len);
        if (found)
            snprintf(ret, cap, "%.*s", (int)(len - skip), text + skip);
    }
    GENERAL_NAMES_free(names);
    return found;
}

const char *tls_library(void)
{
    return OpenSSL_version(OPENSSL_VERSION_STRING);
}
