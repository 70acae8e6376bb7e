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
#include "server/store/sql.h"

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

struct db_statement;

/* All zero at first. */
struct db {
    sqlite3 *handle;
    struct db_statement *statements; /* by their text; prepared at the first use */
};
void db_close(struct db *d); /* a closed one is fine */

/* As reader_ops.each(). */
int db_each(struct db *d, const char *what, const char *sql, const struct sql_value *values, size_t nvalues,
            sql_row_cb *row_cb, void *arg, size_t *n, struct error *err);
/* A statement whose rows are ignored. changed (may be NULL): the number of rows changed. 0, or as db_fail(). */
int db_change(struct db *d, const char *what, const char *sql, const struct sql_value *values, size_t nvalues,
              int64_t *changed, struct error *err);

#endif
