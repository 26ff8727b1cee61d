/* admission.c - the text that lets a new node in; strangers, and nodes under a wrong name. */
#include "net/admission.h"

#include "base/check.h"
#include "net/peer.h"
#include "raft/replica.h"

#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { CLUSTER_DIGITS = 16, SECRET_BYTES = (ADMISSION_SECRET_MAX - 1) / 2 };

static const char digits[] = "0123456789abcdef";

/* So many hex digits, and then `end`. */
static bool is_hex(const char *text, size_t n, char end)
{
    return strspn(text, digits) == n && text[n] == end;
}

enum belay_err admission_parse(const char *text, struct admission *ret)
{
    struct admission a = {0};
    char *at;
    if (*text < '1' || *text > '9')
        return BELAY_ERR_SYNTAX;
    a.node = strtoull(text, &at, 10);
    if (a.node > INT64_MAX)
        return BELAY_ERR_SYNTAX;
    if (*at == ':') {
        const char *cluster = at + 1;
        at = (char *)(uintptr_t)cluster + strspn(cluster, digits);
        if (!is_hex(cluster, CLUSTER_DIGITS, *at))
            return BELAY_ERR_SYNTAX;
        a.cluster = strtoull(cluster, NULL, 16);
        if (*at == ':') {
            if (!is_hex(at + 1, ADMISSION_SECRET_MAX - 1, '\0'))
                return BELAY_ERR_SYNTAX;
            memcpy(a.secret, at + 1, ADMISSION_SECRET_MAX);
            at += ADMISSION_SECRET_MAX;
        }
    }
    if (*at != '\0')
        return BELAY_ERR_SYNTAX;
    *ret = a;
    return BELAY_OK;
}

void admission_format(const struct admission *a, char ret[ADMISSION_TEXT_MAX])
{
    snprintf(ret, ADMISSION_TEXT_MAX, "%" PRIu64 ":%016" PRIx64 "%s%s", a->node, a->cluster,
             *a->secret ? ":" : "", a->secret);
}

void admission_draw(char ret_secret[ADMISSION_SECRET_MAX])
{
    unsigned char bytes[SECRET_BYTES];
    BELAY_CHECK(getrandom(bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        ret_secret[2 * i] = digits[bytes[i] >> 4];
        ret_secret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret_secret[ADMISSION_SECRET_MAX - 1] = '\0';
}

void admission_sum(const char *secret, uint64_t ret[2])
{
    unsigned char sum[SHA256_DIGEST_LENGTH];
    ret[0] = ret[1] = 0;
    if (!*secret)
        return;
    BELAY_CHECK(SHA256((const unsigned char *)secret, strlen(secret), sum) == sum);
    for (size_t i = 0; i < 2 * sizeof ret[0]; i++)
        ret[i / sizeof ret[0]] = ret[i / sizeof ret[0]] << 8 | sum[i];
    ret[0] |= ret[0] == 0 && ret[1] == 0;
}

bool admission_is_stranger(struct replica *o, const struct peer_hello *hello)
{
    struct group_conf conf;
    struct member m;
    group_conf(replica_group(o, 0), &conf);
    return conf.n > 0 && !replica_find_member(o, hello->node, &m) &&
           !replica_was_removed(o, hello->node); /* of that it is told */
}

bool admission_is_impostor(const struct replica *o, const struct peer_hello *hello,
                           struct peer_refusal *ret_no)
{
    struct member m;
    uint64_t sum[2];
    if (!hello->proven || !replica_find_member(o, hello->node, &m))
        return false;
    admission_sum(hello->secret, sum);
    if (strcmp(m.name, hello->name) != 0)
        snprintf(ret_no->why, sizeof ret_no->why,
                 "its certificate is that of %.60s, and the member of this number is %.60s",
                 hello->name, m.name);
    else if (!member_is_let_in(&m) && memcmp(sum, m.join, sizeof sum) != 0)
        snprintf(
            ret_no->why, sizeof ret_no->why,
            "it does not have the secret of the last cluster add of %.60s: --join takes all that "
            "was printed",
            m.name);
    return ret_no->why[0] != '\0';
}
