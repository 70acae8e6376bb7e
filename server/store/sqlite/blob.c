#include "server/store/sqlite/blob.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "server/store/sqlite/db.h"

#define BLOB_LEVEL 3
#define BLOB_KEEP (1024 * 1024) /* scratch above this is given back after use */

int
blob_writer_init(struct blob_writer *w, sqlite3 *db, struct error *err)
{
    int rc;

    memset(w, 0, sizeof(*w));
    w->context = ZSTD_createCCtx();
    if (!w->context)
        return error_set(err, ERR_NOMEM, "no memory for compression");
    rc = db_prepare(db, "SELECT 1 FROM blob WHERE hash = ?1", &w->find, err);
    if (rc == 0)
        rc = db_prepare(db, "INSERT INTO blob (hash, size, data) VALUES (?1, ?2, ?3)", &w->insert, err);
    return rc;
}

void
blob_writer_release(struct blob_writer *w)
{
    sqlite3_finalize(w->find);
    sqlite3_finalize(w->insert);
    ZSTD_freeCCtx(w->context);
    free(w->packed);
    memset(w, 0, sizeof(*w));
}

static int
is_stored(struct blob_writer *w, const char *hash, int *stored, struct error *err)
{
    int step;

    db_bind_text(w->find, 1, hash);
    step = sqlite3_step(w->find);
    *stored = step == SQLITE_ROW;
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        int rc = db_fail(sqlite3_db_handle(w->find), err, "look for stored bytes");
        db_reset(w->find);
        return rc;
    }
    db_reset(w->find);
    return 0;
}

static int
pack(struct blob_writer *w, const void *bytes, size_t size, size_t *packed, struct error *err)
{
    size_t bound = ZSTD_compressBound(size);

    if (bound > w->packed_size) {
        char *grown = realloc(w->packed, bound);
        if (!grown)
            return error_set(err, ERR_NOMEM, "no memory to compress %zu bytes", size);
        w->packed = grown;
        w->packed_size = bound;
    }
    *packed = ZSTD_compressCCtx(w->context, w->packed, w->packed_size, bytes, size, BLOB_LEVEL);
    if (ZSTD_isError(*packed))
        return error_set(err, ERR_STORE, "compress %zu bytes: %s", size, ZSTD_getErrorName(*packed));
    return 0;
}

int
blob_put(struct blob_writer *w, const char *hash, const void *bytes, size_t size, struct error *err)
{
    size_t packed = 0;
    int stored;
    int rc = is_stored(w, hash, &stored, err);

    if (rc < 0 || stored)
        return rc;
    rc = pack(w, bytes, size, &packed, err);
    if (rc < 0)
        return rc;
    db_bind_text(w->insert, 1, hash);
    sqlite3_bind_int64(w->insert, 2, (sqlite3_int64)size);
    sqlite3_bind_blob64(w->insert, 3, w->packed, packed, SQLITE_STATIC);
    rc = db_run(w->insert, "store bytes", err);
    if (w->packed_size > BLOB_KEEP) {
        free(w->packed);
        w->packed = NULL;
        w->packed_size = 0;
    }
    return rc;
}

int
blob_column(sqlite3_stmt *stmt, int size_column, char **out, size_t *size, struct error *err)
{
    const void *packed = sqlite3_column_blob(stmt, size_column + 1);
    size_t packed_size = (size_t)sqlite3_column_bytes(stmt, size_column + 1);
    sqlite3_int64 told = sqlite3_column_int64(stmt, size_column);
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
