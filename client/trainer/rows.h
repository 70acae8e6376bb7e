/* rows.h - the rows of a data set, one at a time: the file may be larger than memory. */
#ifndef TRAINER_ROWS_H
#define TRAINER_ROWS_H

#include <stddef.h>

#include <jansson.h>

#include "common/error.h"

enum { ROW_MAX = 16 * 1024 * 1024 }; /* bytes of one row; a longer one is a fault */

/*
 * One row, numbered from 1. row is borrowed; NULL: it could not be read, and fault has the reason. Not 0 ends the
 * reading,
 * with err filled.
 */
typedef int rows_cb(void *arg, size_t number, json_t *row, const char *fault, struct error *err);

/*
 * A JSON array or JSON Lines; blank lines are skipped. A row that is not JSON is passed on as a fault, and the next is
 * read.
 * 0, what cb returned, ERR_SYS, ERR_INPUT (the array has no end) or ERR_NOMEM.
 */
int rows_each(const char *path, rows_cb *cb, void *arg, struct error *err);

#endif
