/*
 * blob.h - sources, references and captured output: compressed (zstd), stored
 * once under the hash of their bytes; answers under their submission. The writer's thread.
 */
#ifndef SQLITE_BLOB_H
#define SQLITE_BLOB_H

#include "server/store/sqlite/sqlite.h"

/* Store bytes under hash unless they are there already. 0, or as db_fail(). */
int blob_put(struct sqlite *s, const char *hash, const void *bytes, size_t size, struct error *err);
int answer_put(struct sqlite *s, const char *id, const void *bytes, size_t size, struct error *err);

#endif
