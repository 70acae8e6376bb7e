#include "server/store/pack.h"

#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#define LEVEL 3
#define KEEP (1024 * 1024) /* scratch above this is given back after use */

int
packer_init(struct packer *p, struct error *err)
{
    memset(p, 0, sizeof(*p));
    p->context = ZSTD_createCCtx();
    return p->context ? 0 : error_set(err, ERR_NOMEM, "no memory for compression");
}

void
packer_release(struct packer *p)
{
    ZSTD_freeCCtx(p->context);
    free(p->bytes);
    memset(p, 0, sizeof(*p));
}

int
packer_pack(struct packer *p, const void *bytes, size_t size, const char **out, size_t *out_size,
            struct error *err)
{
    size_t bound = ZSTD_compressBound(size);

    if (bound > p->room) {
        char *grown = realloc(p->bytes, bound);
        if (!grown)
            return error_set(err, ERR_NOMEM, "no memory to compress %zu bytes", size);
        p->bytes = grown;
        p->room = bound;
    }
    *out = p->bytes;
    *out_size = ZSTD_compressCCtx(p->context, p->bytes, p->room, bytes, size, LEVEL);
    if (ZSTD_isError(*out_size))
        return error_set(err, ERR_STORE, "compress %zu bytes: %s", size, ZSTD_getErrorName(*out_size));
    return 0;
}

void
packer_trim(struct packer *p)
{
    if (p->room <= KEEP)
        return;
    free(p->bytes);
    p->bytes = NULL;
    p->room = 0;
}

int
unpack(const void *packed, size_t packed_size, int64_t told, char **out, size_t *size, struct error *err)
{
    size_t got;
    char *bytes;

    *out = NULL;
    if (!packed || told < 0 || ZSTD_getFrameContentSize(packed, packed_size) != (unsigned long long)told)
        return error_set(err, ERR_STORE, "stored bytes are damaged: their size is not %lld", (long long)told);
    bytes = malloc((size_t)told + 1);
    if (!bytes)
        return error_set(err, ERR_NOMEM, "no memory for %lld stored bytes", (long long)told);
    got = ZSTD_decompress(bytes, (size_t)told, packed, packed_size);
    if (ZSTD_isError(got) || got != (size_t)told) {
        free(bytes);
        return error_set(err, ERR_STORE, "stored bytes are damaged: %s",
                         ZSTD_isError(got) ? ZSTD_getErrorName(got) : "too short");
    }
    bytes[got] = '\0';
    *out = bytes;
    *size = got;
    return 0;
}
