/*
 * db.h - the few SQLite calls that everything in the store shares: open,
 * prepare, run, bind, and what SQLite's refusals are called here. A connection
 * and its statements belong to one thread at a time.
 */
#ifndef SQLITE_DB_H
#define SQLITE_DB_H

#include <stdint.h>

#include <sqlite3.h>

#include "common/error.h"

/*
 * Fill err from the connection's last failure; what names the operation.
 * Returns ERR_CONFLICT for a key that exists already, ERR_NOMEM, or ERR_STORE.
 */
int db_fail(sqlite3 *db, struct error *err, const char *what);

/* Run statements that give no rows. 0, or as db_fail(). */
int db_exec(sqlite3 *db, const char *sql, struct error *err);

/* The one integer that sql gives. 0, ERR_STORE (no row too) or ERR_NOMEM. */
int db_integer(sqlite3 *db, const char *sql, int64_t *out, struct error *err);

/* A statement to keep. Given: sqlite3_finalize(). 0, ERR_STORE or ERR_NOMEM; *out is NULL then. */
int db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct error *err);

/* Run a bound statement that gives no rows, then reset it and drop its bindings. 0, or as db_fail(). */
int db_run(sqlite3_stmt *stmt, const char *what, struct error *err);

/* Reset a statement and drop its bindings; NULL is fine. */
void db_reset(sqlite3_stmt *stmt);

/* Bind text that outlives the statement's run; NULL binds NULL. */
void db_bind_text(sqlite3_stmt *stmt, int index, const char *text);

/* As above, but an empty text binds NULL too. */
void db_bind_name(sqlite3_stmt *stmt, int index, const char *text);

#endif
