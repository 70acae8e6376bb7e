#include "server/store/pgsql/schema.h"

#include <stdio.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/embed.h"
#include "common/log.h"

/*
 * Theory of operation. Never change the result of a released step: add one. Other daemons work while a step runs. So a
 * step that locks a table takes a moment; it is rolled back and tried again if the table is locked, since all later
 * transactions would queue after one that waits; and indices are made concurrently.
 * Daemons of an earlier version continue, and start, as long as meta.oldest is not above theirs: a step that is not
 * compatible with them sets it.
 */
#define STEP(number) EMBED_TEXT(step_##number, "server/store/pgsql/schema/" #number ".sql")
STEP(12);
STEP(13);

static const char *const twins_indices[] = { "job_content ON job (content) WHERE state = 1", NULL };

static const struct pg_step steps_known[] = { [PG_SCHEMA_FIRST - 1] = { .sql = step_12 },
                                              { step_13, twins_indices } };

const struct pg_step *
pg_schema_steps(size_t *n)
{
    *n = ARRAY_LEN(steps_known);
    return steps_known;
}

#define LOCK "(2004247140)" /* one number for all that change the schema: 0x77766664 */
#define LOCK_LOOK_MS 200
#define LOCK_MS 1000 /* that a table is waited for, and that others then have it */
#define LOCK_TRIES 60

/* oldest: as in meta, or the version itself where that is not there yet. */
static int
read_version(struct pg_link *l, int64_t *version, int64_t *oldest, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc =
        pg_ask(l, "read the schema's version",
               "SELECT version, coalesce((to_jsonb(meta) ->> 'oldest')::int, version) FROM verifierd.meta",
               SQL_NO_VALUES, &row, err);

    if (rc == 0 && PQntuples(row) != 1)
        return error_set(err, ERR_STORE, "verifierd.meta has %d rows instead of one", PQntuples(row));
    if (rc == 0) {
        *version = pg_column_int(row, 0, 0);
        *oldest = pg_column_int(row, 0, 1);
    }
    return rc;
}

static int
check_version(int64_t version, int64_t oldest, size_t n, struct error *err)
{
    if (version > 0 && version < PG_SCHEMA_FIRST)
        return error_set(err, ERR_STORE,
                         "schema version %lld is older than any that was released: begin a new database, or "
                         "keep the verifierd that made it",
                         (long long)version);
    if (version >= 0 && ((uint64_t)version <= n || (oldest >= 0 && (uint64_t)oldest <= n)))
        return 0;
    return error_set(err, ERR_STORE,
                     "schema version %lld, and this program knows versions up to %zu: use a newer verifierd",
                     (long long)version, n);
}

/* Whether what keeps the version is there. */
static int
find_meta(struct pg_link *l, bool *out, struct error *err)
{
    AUTO_RESULT PGresult *found = NULL;
    int rc =
        pg_ask(l, "look for the store",
               "SELECT to_regclass('verifierd.meta') IS NOT NULL, to_regnamespace('verifierd') IS NOT NULL",
               SQL_NO_VALUES, &found, err);

    if (rc < 0)
        return rc;
    *out = pg_column_bool(found, 0, 0);
    if (!*out && pg_column_bool(found, 0, 1))
        return error_set(err, ERR_STORE, "its schema \"verifierd\" is not a verifierd store");
    return 0;
}

int
pg_schema_look(struct pg_link *l, size_t n, int64_t *version, struct error *err)
{
    int64_t oldest = 0;
    bool is_there;
    int rc = find_meta(l, &is_there, err);

    *version = 0;
    if (rc == 0 && is_there)
        rc = read_version(l, version, &oldest, err);
    return rc == 0 ? check_version(*version, oldest, n, err) : rc;
}

/* Once, for as long as it takes. */
static int
run_alone(struct pg_link *l, const char *format, const char *what, struct error *err)
{
    AUTO_BUFFER struct buffer sql = BUFFER_INIT;

    if (buffer_printf(&sql, format, what) < 0)
        return error_set(err, ERR_NOMEM, "no memory for the schema");
    return pg_script(l, sql.data, err);
}

/* In a transaction that is rolled back and repeated if a table that it has to lock is locked. */
static int
run_together(struct pg_link *l, const char *sql, struct error *err)
{
    AUTO_BUFFER struct buffer script = BUFFER_INIT;

    if (buffer_printf(&script, "BEGIN; SET LOCAL lock_timeout = '%dms'; %s COMMIT", LOCK_MS, sql) < 0)
        return error_set(err, ERR_NOMEM, "no memory for the schema");
    for (int i = 1;; i++) {
        l->is_undone = false;
        int rc = pg_script(l, script.data, err);
        if (rc == 0)
            return 0;
        pg_script(l, "ROLLBACK", NULL);
        if (!l->is_undone || i == LOCK_TRIES)
            return rc;
        if (i == 1)
            log_info("store", "the schema waits for a table that somebody holds");
        usleep(LOCK_MS * 1000);
    }
}

/* One that was stopped halfway is there and of no use. */
static int
drop_broken(struct pg_link *l, struct error *err)
{
    AUTO_RESULT PGresult *rows = NULL;
    int rc = pg_ask(l, "look for indices that are not whole",
                    "SELECT indexrelid::regclass FROM pg_index JOIN pg_class c ON c.oid = indexrelid"
                    " WHERE NOT indisvalid AND relnamespace = 'verifierd'::regnamespace",
                    SQL_NO_VALUES, &rows, err);

    for (int i = 0; rc == 0 && i < PQntuples(rows); i++)
        rc = run_alone(l, "DROP INDEX CONCURRENTLY %s", pg_column_text(rows, i, 0), err);
    return rc;
}

/* It waits for all older transactions, and blocks none. */
static int
make_indices(struct pg_link *l, const char *const *indices, struct error *err)
{
    int rc = pg_script(l, "SET lock_timeout = 0", err);

    if (rc == 0)
        rc = drop_broken(l, err);
    for (; rc == 0 && *indices; indices++)
        rc = run_alone(l, "CREATE INDEX CONCURRENTLY IF NOT EXISTS %s", *indices, err);
    return rc == 0 ? pg_script(l, "SET lock_timeout = " PG_LOCK_TIMEOUT, err) : rc;
}

static int
take_step(struct pg_link *l, const struct pg_step *step, size_t version, struct error *err)
{
    AUTO_BUFFER struct buffer sql = BUFFER_INIT;
    char note[64];
    bool is_one = !step->indices;
    int rc = 0;

    snprintf(note, sizeof(note), "UPDATE verifierd.meta SET version = %zu;", version);
    if (buffer_printf(&sql, "%s\n%s", step->sql, is_one ? note : "") < 0)
        return error_set(err, ERR_NOMEM, "no memory for the schema");
    rc = run_together(l, sql.data, err);
    if (rc == 0 && step->indices)
        rc = make_indices(l, step->indices, err);
    if (rc == 0 && !is_one)
        rc = run_together(l, note, err);
    if (rc < 0)
        error_prefix(err, "making schema version %zu", version);
    return rc;
}

static int
take_steps(struct pg_link *l, const struct pg_step *steps, size_t n, struct error *err)
{
    int64_t version = 0;
    int rc = pg_schema_look(l, n, &version, err);

    if (rc == 0 && version == 0)
        rc = pg_script(l,
                       "BEGIN; CREATE SCHEMA IF NOT EXISTS verifierd;"
                       "CREATE TABLE IF NOT EXISTS verifierd.meta (version int NOT NULL);"
                       "INSERT INTO verifierd.meta SELECT 0 WHERE NOT EXISTS (SELECT FROM verifierd.meta);"
                       "COMMIT",
                       err);
    for (size_t i = version ? (size_t)version : PG_SCHEMA_FIRST - 1; rc == 0 && i < n; i++)
        rc = take_step(l, &steps[i], i + 1, err);
    return rc;
}

/*
 * Polls: a statement that waited for the lock would block the making of an index, which waits for older transactions.
 */
static int
lock_schema(struct pg_link *l, struct error *err)
{
    for (bool is_first = true, is_mine = false; !is_mine; is_first = false) {
        AUTO_RESULT PGresult *row = NULL;
        if (!is_first)
            usleep(LOCK_LOOK_MS * 1000);
        int rc = pg_ask(l, "lock the schema", "SELECT pg_try_advisory_lock" LOCK, SQL_NO_VALUES, &row, err);
        if (rc < 0)
            return rc;
        is_mine = pg_column_bool(row, 0, 0);
        if (is_first && !is_mine)
            log_info("store", "another daemon works at the schema: it is waited for");
    }
    return 0;
}

int
pg_schema_migrate(struct pg_link *l, const struct pg_step *steps, size_t n, struct error *err)
{
    int rc = lock_schema(l, err);

    if (rc < 0)
        return rc;
    rc = take_steps(l, steps, n, err);
    if (!l->is_lost)
        pg_script(l, "SELECT pg_advisory_unlock" LOCK, NULL);
    return rc;
}
