/*
 * blob.h - sources, references and captured output in PostgreSQL: packed, stored once under the hash of their bytes; answers
 * under their submission.
 */
#ifndef PGSQL_BLOB_H
#define PGSQL_BLOB_H

#include "server/store/pgsql/pgsql.h"

/*
 * Store bytes under hash unless they are there already. Until the transaction ends nobody else's sweep_blobs() takes
 * them. 0, or as pg_ask().
 */
int pg_blob_put(struct pgsql *p, const char *hash, const void *bytes, size_t size, struct error *err);
int pg_answer_put(struct pgsql *p, const char *id, const void *bytes, size_t size, struct error *err);

#endif
