#include "server/store/sqlite/schema.h"

#include <stdio.h>

#include "common/auto.h"
#include "common/embed.h"
#include "server/store/sqlite/db.h"

/* Never change a step that was released: add one. */
EMBED_TEXT(version_first, "server/store/sqlite/schema/13.sql");
EMBED_TEXT(version_answers, "server/store/sqlite/schema/14.sql");

static const struct schema_step steps_known[] = { [SCHEMA_FIRST - 1] = { version_first },
                                                  { version_answers } };

const struct schema_step *
schema_steps(size_t *n)
{
    *n = ARRAY_LEN(steps_known);
    return steps_known;
}

/* A file with tables that are not ours must not be written to. */
static int
check_owner(sqlite3 *db, int64_t version, struct error *err)
{
    int64_t application = 0, tables = 0;
    int rc = db_integer(db, "PRAGMA application_id", &application, err);

    if (rc == 0)
        rc = db_integer(db, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (rc < 0)
        return rc;
    if (version == 0 && application == 0 && tables == 0)
        return 0;
    if (application != SCHEMA_APPLICATION_ID)
        return error_set(err, ERR_STORE, "a database, but not a verifierd store");
    return 0;
}

static int
take_step(sqlite3 *db, const char *sql, size_t version, struct error *err)
{
    char pragma[64];
    int rc = db_exec(db, "BEGIN IMMEDIATE", err);

    if (rc < 0)
        return rc;
    snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %zu", version);
    rc = db_exec(db, sql, err);
    if (rc == 0)
        rc = db_exec(db, pragma, err);
    if (rc == 0)
        rc = db_exec(db, "COMMIT", err);
    if (rc < 0 && !sqlite3_get_autocommit(db))
        db_exec(db, "ROLLBACK", NULL);
    return rc;
}

int
schema_look(sqlite3 *db, size_t n, int64_t *out, struct error *err)
{
    int64_t version = 0;
    int rc = db_integer(db, "PRAGMA user_version", &version, err);

    if (rc == 0)
        rc = check_owner(db, version, err);
    if (rc < 0)
        return rc;
    *out = version;
    if (version < 0 || (uint64_t)version > n)
        return error_set(
            err, ERR_STORE,
            "schema version %lld, and this program knows versions up to %zu: use a newer verifierd",
            (long long)version, n);
    if (version > 0 && version < SCHEMA_FIRST)
        return error_set(
            err, ERR_STORE,
            "schema version %lld is older than any that was released: move the file away and begin "
            "a new one, or keep the verifierd that wrote it",
            (long long)version);
    return 0;
}

int
schema_migrate(sqlite3 *db, const struct schema_step *steps, size_t n, struct error *err)
{
    int64_t version = 0;
    int rc = schema_look(db, n, &version, err);

    if (rc < 0)
        return rc;
    for (size_t i = version ? (size_t)version : SCHEMA_FIRST - 1; i < n; i++) {
        rc = take_step(db, steps[i].sql, i + 1, err);
        if (rc < 0) {
            error_prefix(err, "making schema version %zu", i + 1);
            return rc;
        }
    }
    return 0;
}
