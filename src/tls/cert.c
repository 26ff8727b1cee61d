/* cert.c - makes the CA and the certificates of a cluster. */
#include "tls/cert.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_MAX_BYTES = 4096,
    TEXT_MAX = 4096,
    SERIAL_BYTES = 16,
    DAY_S = 24 * 3600,
    EARLY_S = 3600, /* the clocks of others may be behind */
};

static char problem[PATH_MAX_BYTES + 256];

const char *cert_problem(void)
{
    return problem;
}

static enum belay_err fail(enum belay_err err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum belay_err fail(enum belay_err err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 misreads va_start */
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    ERR_clear_error();
    return err;
}

/* --- files --- */

static enum belay_err path_of(char path[PATH_MAX_BYTES], const char *dir, const char *name,
                              const char *end)
{
    if (snprintf(path, PATH_MAX_BYTES, "%s/%s%s", dir, name, end) >= PATH_MAX_BYTES)
        return fail(BELAY_ERR_LIMIT, "%s: the path is too long", dir);
    return BELAY_OK;
}

static enum belay_err make_dir(const char *dir)
{
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        return fail(BELAY_ERR_IO, "%s: cannot be made: %s", dir, strerror(errno));
    return BELAY_OK;
}

static enum belay_err is_free(const char *path)
{
    struct stat st;
    if (lstat(path, &st) == 0)
        return fail(BELAY_ERR_EXISTS, "%s: exists already, and is not written over", path);
    return BELAY_OK;
}

/* Made anew, whole or not at all. */
static enum belay_err write_pem(const char *path, mode_t mode, X509 *cert, EVP_PKEY *key)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool ok = f && fchmod(fd, mode) == 0;
    if (ok)
        ok = cert ? PEM_write_X509(f, cert) == 1
                  : PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1;
    ok = ok && fflush(f) == 0 && fsync(fd) == 0;
    int code = errno;
    if (f)
        ok = fclose(f) == 0 && ok;
    if (ok)
        return BELAY_OK;
    if (fd >= 0)
        (void)unlink(path);
    return fail(BELAY_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
}

static enum belay_err write_pair(const char *dir, const char *name, X509 *cert, EVP_PKEY *key)
{
    char crt_path[PATH_MAX_BYTES];
    char key_path[PATH_MAX_BYTES];
    enum belay_err err = path_of(crt_path, dir, name, ".crt");
    if (err == BELAY_OK)
        err = path_of(key_path, dir, name, ".key");
    if (err == BELAY_OK)
        err = make_dir(dir);
    if (err == BELAY_OK)
        err = is_free(crt_path);
    if (err == BELAY_OK)
        err = is_free(key_path);
    if (err == BELAY_OK)
        err = write_pem(key_path, 0600, NULL, key);
    if (err != BELAY_OK)
        return err;
    err = write_pem(crt_path, 0644, cert, NULL);
    if (err != BELAY_OK)
        (void)unlink(key_path);
    return err;
}

/* --- certificates --- */

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    BELAY_CHECK(ext && X509_add_ext(cert, ext, -1));
    X509_EXTENSION_free(ext);
}

static X509 *new_cert(const char *name, EVP_PKEY *key, int days)
{
    X509 *cert = X509_new();
    unsigned char serial[SERIAL_BYTES];
    BELAY_CHECK(cert && RAND_bytes(serial, sizeof serial) == 1);
    serial[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(serial, sizeof serial, NULL);
    X509_NAME *subject = X509_get_subject_name(cert);
    BELAY_CHECK(number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)));
    BN_free(number);
    BELAY_CHECK(X509_set_version(cert, X509_VERSION_3) && X509_set_pubkey(cert, key));
    BELAY_CHECK(X509_gmtime_adj(X509_getm_notBefore(cert), -EARLY_S));
    BELAY_CHECK(X509_gmtime_adj(X509_getm_notAfter(cert), (long)days * DAY_S));
    BELAY_CHECK(X509_NAME_add_entry_by_txt(
        subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, (int)strlen(name), -1, 0));
    return cert;
}

enum belay_err cert_make_ca(const char *out, int days)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BELAY_CHECK(key);
    X509 *cert = new_cert("Belay CA", key, days);
    BELAY_CHECK(X509_set_issuer_name(cert, X509_get_subject_name(cert)));
    add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
    add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
    add_extension(cert, cert, NID_subject_key_identifier, "hash");
    BELAY_CHECK(X509_sign(cert, key, EVP_sha256()));
    enum belay_err err = write_pair(out, "ca", cert, key);
    X509_free(cert);
    EVP_PKEY_free(key);
    return err;
}

/* A name that means the same in a file's name, in a certificate and in a configuration. */
static bool is_name(const char *name)
{
    static const char fit[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t len = strlen(name);
    return len > 0 && len <= CERT_NAME_MAX && strspn(name, fit) == len && name[0] != '.' &&
           name[0] != '-' && strcmp(name, "ca") != 0;
}

static bool is_token(const char *id)
{
    return strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16;
}

/* The token that a client's certificate stands for. */
static enum belay_err token_of(const struct cert_wish *wish, char text[TEXT_MAX])
{
    text[0] = '\0';
    if (!wish->account)
        return BELAY_OK;
    if (!is_token(wish->name) || !is_name(wish->account))
        return fail(BELAY_ERR_SYNTAX,
                    "\"%s\" of \"%s\" is no token: an id has 16 hexadecimal "
                    "digits, and belay token ls shows it",
                    wish->name, wish->account);
    (void)snprintf(text, TEXT_MAX, "URI:belay:token:%s/%s", wish->account, wish->name);
    return BELAY_OK;
}

static enum belay_err names_of(const struct cert_wish *wish, char text[TEXT_MAX])
{
    if (wish->kind == CERT_CLIENT)
        return token_of(wish, text);
    size_t at = (size_t)snprintf(text, TEXT_MAX, "DNS:%s", wish->name);
    for (size_t i = 0; i < wish->n_hosts; i++) {
        const char *host = wish->hosts[i];
        ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
        bool is_address = address;
        ASN1_OCTET_STRING_free(address);
        if (!is_address && (strlen(host) > 253 || strpbrk(host, ",:* \n\"") || !*host))
            return fail(BELAY_ERR_SYNTAX, "\"%s\" is neither a host's name nor an address",
                        host);
        at += (size_t)snprintf(text + at, TEXT_MAX - at, ",%s:%s", is_address ? "IP" : "DNS",
                               host);
        if (at >= TEXT_MAX)
            return fail(BELAY_ERR_LIMIT, "the hosts are too long");
    }
    ERR_clear_error();
    return BELAY_OK;
}

struct ca {
    X509 *cert;
    EVP_PKEY *key;
};

static void ca_free(struct ca *ca)
{
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
}

static X509 *read_cert(const char *path)
{
    FILE *f = fopen(path, "re");
    X509 *cert = f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
    if (f)
        (void)fclose(f);
    return cert;
}

static enum belay_err read_ca(const char *dir, struct ca *ret)
{
    char path[PATH_MAX_BYTES];
    *ret = (struct ca){0};
    enum belay_err err = path_of(path, dir, "ca", ".crt");
    if (err == BELAY_OK)
        ret->cert = read_cert(path);
    if (!ret->cert)
        return fail(BELAY_ERR_NOT_FOUND,
                    "%s: cannot be read as a certificate (belay cert ca "
                    "makes it)",
                    path);
    err = path_of(path, dir, "ca", ".key");
    FILE *f = err == BELAY_OK ? fopen(path, "re") : NULL;
    ret->key = f ? PEM_read_PrivateKey(f, NULL, NULL, NULL) : NULL;
    if (f)
        (void)fclose(f);
    if (!ret->key || X509_check_private_key(ret->cert, ret->key) != 1)
        return fail(BELAY_ERR_NOT_FOUND, "%s: cannot be read, or is not the key of ca.crt",
                    path);
    return BELAY_OK;
}

static void sign(X509 *cert, const struct ca *ca, const struct cert_wish *wish,
                 const char *names)
{
    bool is_node = wish->kind == CERT_NODE;
    BELAY_CHECK(X509_set_issuer_name(cert, X509_get_subject_name(ca->cert)));
    add_extension(cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(cert, ca->cert, NID_key_usage, "critical,digitalSignature");
    add_extension(cert, ca->cert, NID_ext_key_usage,
                  is_node ? "serverAuth,clientAuth" : "clientAuth");
    if (names[0])
        add_extension(cert, ca->cert, NID_subject_alt_name, names);
    add_extension(cert, ca->cert, NID_authority_key_identifier, "keyid");
    BELAY_CHECK(X509_sign(cert, ca->key, EVP_sha256()));
}

enum belay_err cert_make(const struct cert_wish *wish)
{
    char names[TEXT_MAX];
    struct ca ca = {0};
    if (!is_name(wish->name))
        return fail(BELAY_ERR_SYNTAX,
                    "a name has 1 to %d letters, digits, '-', '_' and '.', and is not \"ca\"",
                    CERT_NAME_MAX);
    enum belay_err err = names_of(wish, names);
    if (err == BELAY_OK)
        err = read_ca(wish->ca, &ca);
    if (err == BELAY_OK) {
        EVP_PKEY *key = EVP_EC_gen("P-256");
        BELAY_CHECK(key);
        X509 *cert = new_cert(wish->name, key, wish->days);
        sign(cert, &ca, wish, names);
        err = write_pair(wish->out, wish->name, cert, key);
        X509_free(cert);
        EVP_PKEY_free(key);
    }
    ca_free(&ca);
    return err;
}

/* --- what is taken back --- */

/* The list behind the certificate of the CA, or an empty one. */
static X509_CRL *read_list(const char *path, const struct ca *ca)
{
    FILE *f = fopen(path, "re");
    X509_CRL *list = f ? PEM_read_X509_CRL(f, NULL, NULL, NULL) : NULL;
    if (f)
        (void)fclose(f);
    if (!list) {
        list = X509_CRL_new();
        BELAY_CHECK(list && X509_CRL_set_version(list, X509_CRL_VERSION_2));
        BELAY_CHECK(X509_CRL_set_issuer_name(list, X509_get_subject_name(ca->cert)));
    }
    return list;
}

static void add_to_list(X509_CRL *list, X509 *cert, const struct ca *ca)
{
    X509_REVOKED *row = X509_REVOKED_new();
    ASN1_TIME *now = X509_gmtime_adj(NULL, 0);
    ASN1_TIME *end = X509_gmtime_adj(NULL, (long)CERT_CA_DAYS * DAY_S);
    BELAY_CHECK(row && now && end);
    BELAY_CHECK(X509_REVOKED_set_serialNumber(row, X509_get_serialNumber(cert)));
    BELAY_CHECK(X509_REVOKED_set_revocationDate(row, now));
    BELAY_CHECK(X509_CRL_add0_revoked(list, row) && X509_CRL_sort(list));
    BELAY_CHECK(X509_CRL_set1_lastUpdate(list, now) && X509_CRL_set1_nextUpdate(list, end));
    BELAY_CHECK(X509_CRL_sign(list, ca->key, EVP_sha256()));
    ASN1_TIME_free(now);
    ASN1_TIME_free(end);
}

/* Beside the old one, and then in its place. */
static enum belay_err write_ca(const char *dir, const char *path, const struct ca *ca,
                               X509_CRL *list)
{
    char beside[PATH_MAX_BYTES];
    enum belay_err err = path_of(beside, dir, "ca", ".crt.new");
    if (err == BELAY_OK)
        err = write_pem(beside, 0644, ca->cert, NULL);
    if (err != BELAY_OK)
        return err;
    FILE *f = fopen(beside, "ae");
    bool ok = f && PEM_write_X509_CRL(f, list) == 1 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    if (f)
        ok = fclose(f) == 0 && ok;
    if (ok && rename(beside, path) == 0)
        return BELAY_OK;
    (void)unlink(beside);
    return fail(BELAY_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

enum belay_err cert_revoke(const char *file, const char *dir)
{
    struct ca ca = {0};
    X509_REVOKED *row;
    char path[PATH_MAX_BYTES];
    X509_CRL *list = NULL;
    X509 *cert = read_cert(file);
    enum belay_err err = path_of(path, dir, "ca", ".crt");
    if (!cert)
        err = fail(BELAY_ERR_NOT_FOUND, "%s: cannot be read as a certificate (PEM)", file);
    if (err == BELAY_OK)
        err = read_ca(dir, &ca);
    if (err == BELAY_OK && X509_verify(cert, X509_get0_pubkey(ca.cert)) != 1)
        err = fail(BELAY_ERR_SYNTAX, "%s: is not of this CA", file);
    if (err == BELAY_OK) {
        list = read_list(path, &ca);
        if (X509_CRL_get0_by_cert(list, &row, cert) == 1)
            err = fail(BELAY_ERR_EXISTS, "%s: has been taken back already", file);
    }
    if (err == BELAY_OK) {
        add_to_list(list, cert, &ca);
        err = write_ca(dir, path, &ca, list);
    }
    X509_CRL_free(list);
    X509_free(cert);
    ca_free(&ca);
    ERR_clear_error();
    return err;
}
