#include "server/store/sqlite/db.h"

#include <errno.h>
#include <string.h>

static enum err_code
code_of(int sqlite_code)
{
    switch (sqlite_code) {
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_UNIQUE:
        return ERR_CONFLICT;
    case SQLITE_NOMEM:
        return ERR_NOMEM;
    default:
        return ERR_STORE;
    }
}

int
db_fail(sqlite3 *db, struct error *err, const char *what)
{
    int sqlite_code = sqlite3_extended_errcode(db);
    int sys = sqlite3_system_errno(db);

    if ((sqlite_code & 0xff) != SQLITE_IOERR && (sqlite_code & 0xff) != SQLITE_CANTOPEN &&
        (sqlite_code & 0xff) != SQLITE_FULL)
        sys = 0; /* left over from an earlier call */
    int rc = error_set(err, code_of(sqlite_code), "%s: %s (SQLite code %d)%s%s", what, sqlite3_errmsg(db),
                       sqlite_code, sys != 0 ? ": " : "", sys != 0 ? strerror(sys) : "");
    if (err && (sqlite_code & 0xff) == SQLITE_FULL)
        err->sys_errno = ENOSPC;
    return rc;
}

int
db_exec(sqlite3 *db, const char *sql, struct error *err)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return db_fail(db, err, sql);
}

int
db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out, struct error *err)
{
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) == SQLITE_OK)
        return 0;
    *out = NULL;
    return db_fail(db, err, sql);
}

int
db_integer(sqlite3 *db, const char *sql, int64_t *out, struct error *err)
{
    sqlite3_stmt *stmt;
    int rc = db_prepare(db, sql, &stmt, err);

    if (rc < 0)
        return rc;
    if (sqlite3_step(stmt) == SQLITE_ROW)
        *out = sqlite3_column_int64(stmt, 0);
    else
        rc = db_fail(db, err, sql);
    sqlite3_finalize(stmt);
    return rc;
}

void
db_reset(sqlite3_stmt *stmt)
{
    sqlite3_reset(stmt);
    if (stmt)
        sqlite3_clear_bindings(stmt);
}

int
db_run(sqlite3_stmt *stmt, const char *what, struct error *err)
{
    int rc = 0;

    if (sqlite3_step(stmt) != SQLITE_DONE)
        rc = db_fail(sqlite3_db_handle(stmt), err, what);
    db_reset(stmt);
    return rc;
}

void
db_bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
    if (!text)
        sqlite3_bind_null(stmt, index);
    else
        sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC);
}

void
db_bind_name(sqlite3_stmt *stmt, int index, const char *text)
{
    db_bind_text(stmt, index, text && text[0] != '\0' ? text : NULL);
}
