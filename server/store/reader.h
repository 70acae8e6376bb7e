/*
 * reader.h - the read-only connection of the loop's thread: prepared once,
 * reset at once, so that no snapshot is held and the log can be reset.
 */
#ifndef STORE_READER_H
#define STORE_READER_H

#include "common/error.h"

struct reader;
struct sums_reader;

/* The file must have its schema. 0, ERR_STORE or ERR_NOMEM. Given: reader_free(). */
int reader_new(const char *path, struct reader **out, struct error *err);
void reader_free(struct reader *r); /* NULL is fine */

/* Its statements over the sums, view. */
struct sums_reader *reader_sums(struct reader *r);

#endif
