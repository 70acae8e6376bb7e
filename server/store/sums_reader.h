/* sums_reader.h - the reader's statements over the sums (sums.h); the functions that use them are in store.h. */
#ifndef STORE_SUMS_READER_H
#define STORE_SUMS_READER_H

#include <sqlite3.h>

#include "common/error.h"

#define SUMS_NQUERIES 9

struct sums_reader {
    sqlite3_stmt *queries[SUMS_NQUERIES];
};

/* 0, ERR_STORE or ERR_NOMEM; release it in either case. */
int sums_reader_init(struct sums_reader *r, sqlite3 *db, struct error *err);
void sums_reader_release(struct sums_reader *r);

#endif
