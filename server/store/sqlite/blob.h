/*
 * blob.h - sources, references and captured output: compressed (zstd), stored
 * once under the hash of their bytes.
 */
#ifndef SQLITE_BLOB_H
#define SQLITE_BLOB_H

#include <stddef.h>

#include <sqlite3.h>

#include "common/error.h"
#include "server/store/pack.h"

/* Writer thread: what putting needs. */
struct blob_writer {
    sqlite3_stmt *find, *insert;
    struct packer packer;
};

/* 0, ERR_STORE or ERR_NOMEM; release it in either case. */
int blob_writer_init(struct blob_writer *w, sqlite3 *db, struct error *err);
void blob_writer_release(struct blob_writer *w);

/* Store bytes under hash unless they are there already. 0, or as db_fail(). */
int blob_put(struct blob_writer *w, const char *hash, const void *bytes, size_t size, struct error *err);

/*
 * Unpack columns (size, data) of the row that stmt stands on.
 *   out   given: free(); a NUL stands after the bytes
 * 0, ERR_NOMEM or ERR_STORE (the stored bytes are damaged).
 */
int blob_column(sqlite3_stmt *stmt, int size_column, char **out, size_t *size, struct error *err);

#endif
