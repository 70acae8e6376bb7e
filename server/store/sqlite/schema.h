/*
 * schema.h - the store's tables, their version, and how an older file becomes
 * a present one. Called while the store is opened, on the loop thread.
 */
#ifndef SQLITE_SCHEMA_H
#define SQLITE_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

#include <sqlite3.h>

#include "common/error.h"

/* Marks the file as a verifierd store (PRAGMA application_id): "vfrd". */
#define SCHEMA_APPLICATION_ID 0x76667264

/* The first version that was released. */
#define SCHEMA_FIRST 13

/* Row i takes a file from version i to version i + 1. Row SCHEMA_FIRST - 1 makes an empty file a store; before it are none. */
struct schema_step {
    const char *sql;
};

/* The steps of this program, and how many there are: the version that it reads and writes. */
const struct schema_step *schema_steps(size_t *n);

/*
 * Bring the database to version n by the steps it lacks, each in a transaction
 * of its own, so that a crash in between leaves a file that can be migrated again.
 * Returns 0, ERR_STORE (of a newer program, older than SCHEMA_FIRST, not a store, a failing step) or ERR_NOMEM.
 */
int schema_migrate(sqlite3 *db, const struct schema_step *steps, size_t n, struct error *err);

/* The version, 0 in an empty file, and nothing is changed. The same errors. */
int schema_look(sqlite3 *db, size_t n, int64_t *version, struct error *err);

#endif
