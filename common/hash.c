#include "common/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <sodium.h>

void
hash_text(const void *bytes, size_t size, char out[HASH_TEXT_SIZE])
{
    unsigned char digest[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(digest, bytes, size);
    memcpy(out, "sha256:", 7);
    sodium_bin2hex(out + 7, HASH_TEXT_SIZE - 7, digest, sizeof(digest));
}

void
hash_tag(const void *bytes, size_t size, char out[HASH_TAG_SIZE])
{
    /* The key of the published test vectors: it is not a secret. */
    static const unsigned char key[crypto_shorthash_siphashx24_KEYBYTES] = { 0, 1, 2,  3,  4,  5,  6,  7,
                                                                             8, 9, 10, 11, 12, 13, 14, 15 };
    unsigned char digest[HASH_TAG_SIZE / 2];

    crypto_shorthash_siphashx24(digest, bytes, size, key);
    sodium_bin2hex(out, HASH_TAG_SIZE, digest, sizeof(digest));
}

bool
hash_is_valid(const char *text)
{
    return strncmp(text, "sha256:", 7) == 0 && strlen(text) == HASH_TEXT_SIZE - 1 &&
           text[7 + strspn(text + 7, "0123456789abcdef")] == '\0';
}

uint64_t
random_u64(void)
{
    uint64_t value = 0;
    ssize_t n;

    /* Eight bytes are never cut short once the generator is seeded; only a signal during early boot interrupts. */
    do
        n = getrandom(&value, sizeof(value), 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(value)) {
        /* Secret seeds depend on this: going on with a guessable value would be worse than stopping. */
        static const char text[] = "getrandom failed: no source of random numbers\n";
        fputs(text, stderr);
        abort();
    }
    return value;
}
