#include "server/store/sqlite/db.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "server/store/pack.h"

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
    if (err && ((sqlite_code & 0xff) == SQLITE_FULL || sys == ENOSPC))
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

struct db_statement {
    char *sql;
    sqlite3_stmt *stmt;
    UT_hash_handle hh;
};

static int
find_statement(struct db *d, const char *sql, sqlite3_stmt **out, struct error *err)
{
    struct db_statement *s;

    HASH_FIND_STR(d->statements, sql, s);
    if (s) {
        *out = s->stmt;
        return 0;
    }
    if (!(s = calloc(1, sizeof(*s))) || !(s->sql = strdup(sql))) {
        free(s);
        return error_set(err, ERR_NOMEM, "no memory for a statement");
    }
    int rc = db_prepare(d->handle, sql, &s->stmt, err);
    if (rc < 0) {
        free(s->sql);
        free(s);
        return rc;
    }
    HASH_ADD_KEYPTR(hh, d->statements, s->sql, strlen(s->sql), s);
    *out = s->stmt;
    return 0;
}

/* A statement need not name them all. */
static void
bind_values(sqlite3_stmt *stmt, const struct sql_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct sql_value *v = &values[i];
        char name[24];
        snprintf(name, sizeof(name), "$%zu", i + 1);
        int at = sqlite3_bind_parameter_index(stmt, name);
        if (at == 0 || v->kind == SQL_NULL)
            continue; /* unbound is NULL */
        if (v->kind == SQL_INT)
            sqlite3_bind_int64(stmt, at, v->whole);
        else if (v->kind == SQL_REAL)
            sqlite3_bind_double(stmt, at, v->real);
        else if (v->kind == SQL_TEXT)
            sqlite3_bind_text(stmt, at, v->text, -1, SQLITE_STATIC);
        else
            sqlite3_bind_blob64(stmt, at, v->text, v->size, SQLITE_STATIC);
    }
}

static sqlite3_stmt *
stmt_of(const struct sql_row *row)
{
    return (sqlite3_stmt *)(uintptr_t)row->answer;
}

static bool
is_null_at(const struct sql_row *row, int column)
{
    return sqlite3_column_type(stmt_of(row), column) == SQLITE_NULL;
}

static const char *
text_at(struct sql_row *row, int column)
{
    return (const char *)sqlite3_column_text(stmt_of(row), column);
}

static int64_t
whole_at(const struct sql_row *row, int column)
{
    return sqlite3_column_int64(stmt_of(row), column);
}

static double
real_at(const struct sql_row *row, int column)
{
    return sqlite3_column_double(stmt_of(row), column);
}

static int
unpack_at(const struct sql_row *row, int column, char **out, size_t *size, struct error *err)
{
    const void *packed = sqlite3_column_blob(stmt_of(row), column + 1);
    size_t packed_size = (size_t)sqlite3_column_bytes(stmt_of(row), column + 1);

    return unpack(packed, packed_size, whole_at(row, column), out, size, err);
}

static const struct sql_row_ops row_ops = {
    .is_null = is_null_at, .text = text_at, .whole = whole_at, .real = real_at, .unpack = unpack_at
};

int
db_each(struct db *d, const char *what, const char *sql, const struct sql_value *values, size_t nvalues,
        sql_row_cb *row_cb, void *arg, size_t *n, struct error *err)
{
    struct sql_row row = { .ops = &row_ops };
    sqlite3_stmt *stmt = NULL;
    size_t calls = 0;
    int step, rc = find_statement(d, sql, &stmt, err);

    if (rc == 0 && sqlite3_stmt_busy(stmt))
        rc = error_set(err, ERR_STORE, "a list was asked for from its own callback");
    if (rc < 0)
        return rc;
    bind_values(stmt, values, nvalues);
    row.answer = stmt;
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        calls++;
        if (!row_cb || !row_cb(arg, &row) || row.is_short)
            break;
    }
    if (row.is_short)
        rc = error_set(err, ERR_NOMEM, "no memory for a stored row");
    else if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = db_fail(d->handle, err, what);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    if (n)
        *n = calls;
    return rc;
}

int
db_change(struct db *d, const char *what, const char *sql, const struct sql_value *values, size_t nvalues,
          int64_t *changed, struct error *err)
{
    int rc = db_each(d, what, sql, values, nvalues, NULL, NULL, NULL, err);

    if (rc == 0 && changed)
        *changed = sqlite3_changes(d->handle);
    return rc;
}

void
db_close(struct db *d)
{
    struct db_statement *s, *next;

    HASH_ITER(hh, d->statements, s, next)
    {
        HASH_DEL(d->statements, s);
        sqlite3_finalize(s->stmt);
        free(s->sql);
        free(s);
    }
    sqlite3_close(d->handle);
    memset(d, 0, sizeof(*d));
}
