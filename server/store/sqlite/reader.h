/*
 * reader.h - a read-only connection: its statements are prepared once and reset at once, so that no snapshot is held
 * and the log can be reset. One thread at a time.
 */
#ifndef SQLITE_READER_H
#define SQLITE_READER_H

#include "common/error.h"

struct store_reader;
struct sums_reader;
struct runs_reader;

/* The file must have its schema. 0, ERR_STORE or ERR_NOMEM. Given: its own free(). */
int reader_new(const char *path, struct store_reader **out, struct error *err);

/* Its statements over the sums, views. */
struct sums_reader *reader_sums(struct store_reader *r);
struct runs_reader *reader_runs(struct store_reader *r);

#endif
