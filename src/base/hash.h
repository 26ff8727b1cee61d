/* hash.h - SipHash-1-3 for tables whose keys come from the network, CRC32C for stored bytes. */
#ifndef BELAY_BASE_HASH_H
#define BELAY_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_key {
    uint64_t k0, k1;
};

uint64_t hash_bytes(const struct hash_key *key, const void *data, size_t n);
uint32_t crc32c(uint32_t crc, const void *data, size_t n); /* start with 0; chains */
#endif
