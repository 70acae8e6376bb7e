#include "server/store/sqlite/blob.h"

#include <stdint.h>
#include <string.h>

#include "server/store/sqlite/db.h"

int
blob_writer_init(struct blob_writer *w, sqlite3 *db, struct error *err)
{
    int rc;

    memset(w, 0, sizeof(*w));
    rc = packer_init(&w->packer, err);
    if (rc == 0)
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
    packer_release(&w->packer);
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

int
blob_put(struct blob_writer *w, const char *hash, const void *bytes, size_t size, struct error *err)
{
    const char *packed;
    size_t packed_size;
    int stored;
    int rc = is_stored(w, hash, &stored, err);

    if (rc < 0 || stored)
        return rc;
    rc = packer_pack(&w->packer, bytes, size, &packed, &packed_size, err);
    if (rc < 0)
        return rc;
    db_bind_text(w->insert, 1, hash);
    sqlite3_bind_int64(w->insert, 2, (sqlite3_int64)size);
    sqlite3_bind_blob64(w->insert, 3, packed, packed_size, SQLITE_STATIC);
    rc = db_run(w->insert, "store bytes", err);
    packer_trim(&w->packer);
    return rc;
}

int
blob_column(sqlite3_stmt *stmt, int size_column, char **out, size_t *size, struct error *err)
{
    const void *packed = sqlite3_column_blob(stmt, size_column + 1);
    size_t packed_size = (size_t)sqlite3_column_bytes(stmt, size_column + 1);

    return unpack(packed, packed_size, sqlite3_column_int64(stmt, size_column), out, size, err);
}
