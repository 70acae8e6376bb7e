#include "server/http/encoding.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include <zlib.h>
#include <zstd.h>

#define BLOCK 65536
#define ZSTD_WINDOW_LOG_MAX 23 /* 8 MiB */

enum encoding
encoding_find(const char *value)
{
    if (!value || !*value || strcasecmp(value, "identity") == 0)
        return ENCODING_NONE;
    if (strcasecmp(value, "gzip") == 0 || strcasecmp(value, "x-gzip") == 0)
        return ENCODING_GZIP;
    return strcasecmp(value, "zstd") == 0 ? ENCODING_ZSTD : ENCODING_UNKNOWN;
}

static int
append(struct buffer *out, const char *bytes, size_t size, size_t max, struct error *err)
{
    if (size > max - out->size)
        return error_set(err, ERR_FULL, "the body has more than %zu bytes when it is decompressed", max);
    if (size > 0 && buffer_append(out, bytes, size) != 0)
        return error_set(err, ERR_NOMEM, "no memory for the body");
    return 0;
}

static int
malformed(const char *name, struct error *err)
{
    return error_set(err, ERR_INPUT, "the body is not %s, or is cut short", name);
}

/* A gzip file is one member after another. */
static int
undo_gzip(const char *bytes, size_t size, size_t max, struct buffer *out, struct error *err)
{
    char block[BLOCK];
    z_stream z = { .next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)size };
    int code = 0, end = Z_OK;

    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return error_set(err, ERR_NOMEM, "no memory for the body");
    while (code == 0 && (end == Z_OK || z.avail_in > 0)) {
        if (end == Z_STREAM_END)
            inflateReset(&z);
        z.next_out = (Bytef *)block;
        z.avail_out = sizeof(block);
        end = inflate(&z, Z_NO_FLUSH);
        if (end != Z_OK && end != Z_STREAM_END)
            code = malformed("gzip", err);
        else
            code = append(out, block, sizeof(block) - z.avail_out, max, err);
    }
    inflateEnd(&z);
    return code;
}

static int
undo_zstd(const char *bytes, size_t size, size_t max, struct buffer *out, struct error *err)
{
    char block[BLOCK];
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_inBuffer in = { bytes, size, 0 };
    size_t left = 1; /* of the frame; 0: it is whole */
    int code = 0;

    if (!context)
        return error_set(err, ERR_NOMEM, "no memory for the body");
    ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    for (size_t filled = 0; code == 0 && (in.pos < in.size || (left != 0 && filled == sizeof(block)));) {
        ZSTD_outBuffer to = { block, sizeof(block), 0 };
        left = ZSTD_decompressStream(context, &to, &in);
        filled = to.pos;
        if (ZSTD_isError(left))
            code = malformed("zstd with a window of at most 8 MiB", err);
        else
            code = append(out, block, to.pos, max, err);
    }
    ZSTD_freeDCtx(context);
    return code == 0 && left != 0 ? malformed("zstd", err) : code;
}

int
encoding_undo(enum encoding encoding, const char *bytes, size_t size, size_t max, struct buffer *out,
              struct error *err)
{
    return encoding == ENCODING_GZIP ? undo_gzip(bytes, size, max, out, err)
                                     : undo_zstd(bytes, size, max, out, err);
}
