/*
 * reader.h - a read-only connection: its statements are prepared once and reset at once, so that no snapshot is held
 * and the log can be reset. One thread at a time.
 */
#ifndef SQLITE_READER_H
#define SQLITE_READER_H

#include "common/error.h"

struct store_reader;

/* The file must have its schema. 0, ERR_STORE or ERR_NOMEM. Given: its own free(). */
int sqlite_reader_new(const char *path, struct store_reader **out, struct error *err);

#endif
