/*
 * writes.h - what a write does: the statements of the writer's connection.
 */
#ifndef STORE_WRITES_H
#define STORE_WRITES_H

#include <sqlite3.h>

#include "common/error.h"

struct write_kit;

/* Prepare every statement. 0, ERR_STORE or ERR_NOMEM. Given: write_kit_free(). */
int write_kit_new(sqlite3 *db, struct write_kit **out, struct error *err);
void write_kit_free(struct write_kit *kit); /* NULL is fine */

#endif
