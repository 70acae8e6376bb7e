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
 * transactions would queue after one that waits; rows are changed a batch at a time; and indices are made concurrently.
 * Daemons of an earlier version continue, and start, as long as meta.oldest is not above theirs: a step that is not
 * compatible with them sets it.
 */
#define STEP(number) EMBED_TEXT(step_##number, "server/store/pgsql/schema/" #number ".sql")
STEP(01);
STEP(02);
STEP(03);
STEP(04);
STEP(05);
STEP(06);
STEP(07);
STEP(08);
STEP(10);
STEP(11);
STEP(12);
STEP(13);

/* Of a request, its run and step: pg_temp.metadata() is of step 4. */
#define LABELS_OF(table)                                                                                  \
    "WITH page AS MATERIALIZED (SELECT id, request FROM " table " WHERE id > $1 ORDER BY id LIMIT 1000)," \
    " labelled AS (SELECT id, pg_temp.metadata(request) AS m FROM page"                                   \
    "   WHERE request LIKE '%\"run\"%'),"                                                                 \
    " old AS (SELECT id, m ->> 'run' AS run, m -> 'step' AS step FROM labelled"                           \
    "   WHERE jsonb_typeof(m -> 'run') = 'string' AND length(m ->> 'run') BETWEEN 1 AND 200),"            \
    " done AS (UPDATE " table " SET run = old.run,"                                                       \
    "   step = CASE WHEN old.step::text ~ '^[0-9]{1,15}$' THEN old.step::text::bigint END"                \
    "   FROM old WHERE old.id = " table ".id)"                                                            \
    " SELECT max(id) FROM page"
#define LABELS_INDICES(table)                                  \
    table "_run ON " table " (run, id) WHERE run IS NOT NULL", \
        table "_run_step ON " table " (run, step, id) WHERE run IS NOT NULL"
static const char *const runs_batches[] = { LABELS_OF("submission"), LABELS_OF("submission_group"), NULL };
static const char *const runs_indices[] = { LABELS_INDICES("submission"), LABELS_INDICES("submission_group"),
                                            NULL };

/* Waiting submissions by the GPU that they ask for, and those that were handed on (claims.c). */
static const char *const waiting_indices[] = {
    "job_gpu ON job (coalesce(gpu, ''), priority, id) WHERE state = 0",
    "job_handed ON job (id) WHERE state = 0 AND handed_on", NULL
};
static const char *const shares_indices[] = {
    "job_flow ON job (coalesce(gpu, ''), priority, client, id) WHERE state = 0",
    "job_client ON job (client, state)", NULL
};
static const char *const twins_indices[] = { "job_content ON job (content) WHERE state = 1", NULL };

static const struct pg_step steps_known[] = { { .sql = step_01 },
                                              { .sql = step_02 },
                                              { .sql = step_03 },
                                              { step_04, runs_batches, runs_indices },
                                              { .sql = step_05 },
                                              { .sql = step_06 },
                                              { .sql = step_07 },
                                              { .sql = step_08 },
                                              { .sql = "", .indices = waiting_indices },
                                              { .sql = step_10 },
                                              { step_11, NULL, shares_indices },
                                              { .sql = step_12 },
                                              { step_13, NULL, twins_indices } };

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

/* The version; makes the table that keeps it if there is none. */
static int
find_version(struct pg_link *l, size_t n, int64_t *version, struct error *err)
{
    int64_t oldest = 0;
    bool is_there;
    int rc = find_meta(l, &is_there, err);

    if (rc == 0 && !is_there)
        rc = pg_script(l,
                       "BEGIN; CREATE SCHEMA verifierd; CREATE TABLE verifierd.meta (version int NOT NULL);"
                       "INSERT INTO verifierd.meta VALUES (0); COMMIT",
                       err);
    if (rc == 0)
        rc = read_version(l, version, &oldest, err);
    return rc == 0 ? check_version(*version, oldest, n, err) : rc;
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

/* Each in a transaction of its own, from the id on that the one before gave; no batch reads the table from end to end. */
static int
run_batches(struct pg_link *l, const char *sql, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL, *before = NULL;
    const char *at = "";
    int rc = 0;

    while (rc == 0 && at) {
        PQclear(before);
        before = row;
        rc = pg_ask(l, "change old rows", sql, SQL_VALUES(sql_text(at)), &row, err);
        at = rc == 0 ? pg_column_text(row, 0, 0) : NULL;
    }
    return rc;
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
    bool is_one = !step->batches && !step->indices;
    int rc = 0;

    snprintf(note, sizeof(note), "UPDATE verifierd.meta SET version = %zu;", version);
    if (buffer_printf(&sql, "%s\n%s", step->sql, is_one ? note : "") < 0)
        return error_set(err, ERR_NOMEM, "no memory for the schema");
    rc = run_together(l, sql.data, err);
    for (const char *const *one = step->batches; rc == 0 && one && *one; one++)
        rc = run_batches(l, *one, err);
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
    int rc = find_version(l, n, &version, err);

    for (size_t i = (size_t)version; rc == 0 && i < n; i++)
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
