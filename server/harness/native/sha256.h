/* sha256.h - SHA-256 (FIPS 180-4) of bytes in memory: the library links nothing that has it. Pure. */
#ifndef HARNESS_SHA256_H
#define HARNESS_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

void harness_sha256(const void *data, size_t size, uint8_t out[SHA256_BYTES]);

#endif
