/* hash.h - hashes (libsodium) and random bytes. */
#ifndef COMMON_HASH_H
#define COMMON_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_TEXT_SIZE 72 /* "sha256:" + 64 hex digits + NUL */

void hash_text(const void *bytes, size_t size, char out[HASH_TEXT_SIZE]);
bool hash_is_valid(const char *text); /* whether it has that form */
/*
 * 128 bits of SipHash-2-4 in hex, many times faster: distinguishes versions of one thing, but does not resist forgery.
 */
#define HASH_TAG_SIZE 33
void hash_tag(const void *bytes, size_t size, char out[HASH_TAG_SIZE]);
uint64_t random_u64(void); /* from the kernel's generator; any thread */

#endif
