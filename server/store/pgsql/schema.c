#include "server/store/pgsql/schema.h"

#include <stdio.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/log.h"

/*
 * Theory of operation. What waits or runs has a narrow row in `job`, which claims change; `submission` is written when it
 * is made and when it ends, so that no claim rewrites its texts and its indices. Its state is 0 until then, and the job's
 * says whether it runs.
 *
 * What every verdict adds to (tally, trend, failure, task_sum) has a row for each node: nodes that write the same row
 * would wait for each other's commit, or for each other. Who reads adds them up.
 *
 * Ids are compared byte by byte (COLLATE "C"). Never change what a released step comes to: add one.
 *
 * Other daemons work while a step is taken. So what it locks a table for takes a moment, and is given up and tried again
 * where somebody holds the table, since all others queue behind whoever waits for it; rows are changed a batch at a time;
 * and indices are made concurrently. Daemons of the version before go on, and start, as long as meta.oldest is not above
 * theirs: a step that they cannot live with sets it.
 */
static const char version_1[] =
    "CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS"
    "  'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';"
    "CREATE TABLE blob ("
    "  hash text COLLATE \"C\" PRIMARY KEY,"
    "  size bigint NOT NULL,"
    "  data bytea NOT NULL"
    ");"
    "ALTER TABLE blob ALTER data SET STORAGE EXTERNAL;" /* it is compressed */
    "CREATE TABLE task ("
    "  id text COLLATE \"C\" PRIMARY KEY,"
    "  name text,"
    "  entry_point text,"
    "  level int NOT NULL,"
    "  dynamic_shapes bool NOT NULL,"
    "  created_ms bigint NOT NULL,"
    "  reference_hash text COLLATE \"C\" NOT NULL,"
    "  metadata text,"
    "  spec text"
    ");"
    "CREATE INDEX task_name ON task (name, id);"
    "CREATE INDEX task_reference ON task (reference_hash);"
    "CREATE TABLE task_alias ("
    "  client text COLLATE \"C\" NOT NULL,"
    "  name text COLLATE \"C\" NOT NULL,"
    "  task_id text COLLATE \"C\" NOT NULL,"
    "  created_ms bigint NOT NULL,"
    "  PRIMARY KEY (client, name)"
    ");"
    "CREATE INDEX task_alias_oldest ON task_alias (name, created_ms);"
    "CREATE INDEX task_alias_task ON task_alias (task_id);"
    "CREATE TABLE submission_group ("
    "  id text COLLATE \"C\" PRIMARY KEY,"
    "  task_id text COLLATE \"C\" NOT NULL,"
    "  size int NOT NULL,"
    "  created_ms bigint NOT NULL,"
    "  client text COLLATE \"C\","
    "  request text"
    ");"
    "CREATE INDEX submission_group_client ON submission_group (client, id) WHERE client IS NOT NULL;"
    "CREATE TABLE submission ("
    "  id text COLLATE \"C\" PRIMARY KEY,"
    "  group_id text COLLATE \"C\","
    "  group_index int NOT NULL,"
    "  task_id text COLLATE \"C\" NOT NULL,"
    "  source_hash text COLLATE \"C\" NOT NULL,"
    "  state smallint NOT NULL CHECK (state IN (0, 2, 3)),"
    "  priority smallint NOT NULL,"
    "  attempts int NOT NULL,"
    "  claim bigint NOT NULL DEFAULT 0,"
    "  created_ms bigint NOT NULL,"
    "  finished_ms bigint NOT NULL,"
    "  device_ms bigint,"
    "  reward double precision,"
    "  client text COLLATE \"C\","
    "  stage text,"
    "  class text COLLATE \"C\","
    "  log_hash text COLLATE \"C\","
    "  cache_key text COLLATE \"C\","
    "  cached_from text COLLATE \"C\","
    "  brief text,"
    "  request text,"
    "  verdict text"
    ");"
    "CREATE UNIQUE INDEX submission_group_index ON submission (group_id, group_index) WHERE group_id IS NOT "
    "NULL;"
    "CREATE INDEX submission_task ON submission (task_id, id);"
    "CREATE INDEX submission_client ON submission (client, id) WHERE client IS NOT NULL;"
    "CREATE INDEX submission_class ON submission (class, id) WHERE class IS NOT NULL;"
    "CREATE INDEX submission_task_class ON submission (task_id, class, id) WHERE class IS NOT NULL;"
    "CREATE INDEX submission_cancelled ON submission (id) WHERE state = 3;"
    "CREATE INDEX submission_cache ON submission (cache_key, id) WHERE cache_key IS NOT NULL;"
    "CREATE INDEX submission_cached_from ON submission (cached_from) WHERE cached_from IS NOT NULL;"
    "CREATE INDEX submission_finished ON submission (finished_ms, id) WHERE finished_ms > 0;"
    "CREATE INDEX submission_logged ON submission (finished_ms, id) WHERE log_hash IS NOT NULL;"
    "CREATE INDEX submission_source ON submission (source_hash);"
    "CREATE INDEX submission_log ON submission (log_hash) WHERE log_hash IS NOT NULL;"
    "CREATE TABLE job ("
    "  id text COLLATE \"C\" PRIMARY KEY,"
    "  state smallint NOT NULL,"
    "  priority smallint NOT NULL,"
    "  attempts int NOT NULL,"
    "  claim bigint NOT NULL,"
    "  node text COLLATE \"C\""
    ") WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,"
    "  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);"
    "CREATE INDEX job_waits ON job (priority, id) WHERE state = 0;"
    "CREATE INDEX job_runs ON job (node) WHERE state = 1;"
    "CREATE TABLE node ("
    "  name text COLLATE \"C\" PRIMARY KEY,"
    "  epoch bigint NOT NULL,"
    "  lease_until_ms bigint NOT NULL"
    ") WITH (fillfactor = 20);"
    "CREATE TABLE writer (id text PRIMARY KEY, n bigint NOT NULL, at_ms bigint NOT NULL) WITH (fillfactor = "
    "20);"
    "CREATE TABLE calibration ("
    "  id text COLLATE \"C\" PRIMARY KEY,"
    "  created_ms bigint NOT NULL,"
    "  gpu text COLLATE \"C\" NOT NULL,"
    "  document text NOT NULL"
    ");"
    "CREATE TABLE canary ("
    "  gpu text COLLATE \"C\" NOT NULL,"
    "  driver text COLLATE \"C\" NOT NULL,"
    "  kind text COLLATE \"C\" NOT NULL,"
    "  changed_ms bigint NOT NULL,"
    "  document text NOT NULL,"
    "  PRIMARY KEY (gpu, driver, kind)"
    ");"
    "CREATE TABLE idempotency ("
    "  client text COLLATE \"C\" NOT NULL,"
    "  key text COLLATE \"C\" NOT NULL,"
    "  request_hash text NOT NULL,"
    "  id text COLLATE \"C\" NOT NULL,"
    "  created_ms bigint NOT NULL,"
    "  PRIMARY KEY (client, key)"
    ");"
    "CREATE INDEX idempotency_created ON idempotency (created_ms);"
    "CREATE INDEX idempotency_id ON idempotency (id);"
    "CREATE TABLE tally (what int, node text, n bigint NOT NULL, PRIMARY KEY (what, node)) WITH (fillfactor "
    "= 20);"
    "CREATE FUNCTION count_one(counted int, by int) RETURNS void LANGUAGE sql AS $$"
    "  INSERT INTO verifierd.tally AS t VALUES (counted, coalesce(current_setting('verifierd.node', true), "
    "''), by)"
    "  ON CONFLICT (what, node) DO UPDATE SET n = t.n + excluded.n"
    "$$;"
    "CREATE FUNCTION count_submission() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    "  IF TG_OP = 'DELETE' THEN PERFORM verifierd.count_one(old.state, -1);"
    "  ELSE PERFORM verifierd.count_one(new.state, 1); END IF;"
    "  RETURN NULL;"
    "END $$;"
    "CREATE FUNCTION count_task() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    "  PERFORM verifierd.count_one(100, CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END);"
    "  RETURN NULL;"
    "END $$;"
    "CREATE TRIGGER submission_added AFTER INSERT ON submission FOR EACH ROW WHEN (new.state >= 2)"
    "  EXECUTE FUNCTION count_submission();"
    "CREATE TRIGGER submission_ended AFTER UPDATE OF state ON submission FOR EACH ROW"
    "  WHEN (old.state < 2 AND new.state >= 2) EXECUTE FUNCTION count_submission();"
    "CREATE TRIGGER submission_removed AFTER DELETE ON submission FOR EACH ROW WHEN (old.state >= 2)"
    "  EXECUTE FUNCTION count_submission();"
    "CREATE TRIGGER task_counted AFTER INSERT OR DELETE ON task FOR EACH ROW EXECUTE FUNCTION count_task();"
    "CREATE TABLE trend ("
    "  span_s int NOT NULL,"
    "  scope text COLLATE \"C\" NOT NULL,"
    "  start_s bigint NOT NULL,"
    "  class text COLLATE \"C\" NOT NULL,"
    "  failed_at text COLLATE \"C\" NOT NULL,"
    "  passed text COLLATE \"C\" NOT NULL,"
    "  reward_bin int NOT NULL,"
    "  node text COLLATE \"C\" NOT NULL,"
    "  n bigint NOT NULL,"
    "  reward_sum double precision NOT NULL,"
    "  PRIMARY KEY (span_s, scope, start_s, class, failed_at, passed, reward_bin, node)"
    ");"
    "CREATE INDEX trend_oldest ON trend (span_s, start_s);"
    "CREATE TABLE failure ("
    "  scope text COLLATE \"C\" NOT NULL,"
    "  start_s bigint NOT NULL,"
    "  node text COLLATE \"C\" NOT NULL,"
    "  class text COLLATE \"C\" NOT NULL,"
    "  failed_at text COLLATE \"C\" NOT NULL,"
    "  message text COLLATE \"C\" NOT NULL,"
    "  n bigint NOT NULL,"
    "  first_ms bigint NOT NULL,"
    "  last_ms bigint NOT NULL,"
    "  last_id text COLLATE \"C\" NOT NULL,"
    "  PRIMARY KEY (scope, start_s, node, class, failed_at, message)"
    ");"
    "CREATE INDEX failure_oldest ON failure (start_s);"
    "CREATE TABLE task_sum ("
    "  scope text COLLATE \"C\" NOT NULL,"
    "  task_id text COLLATE \"C\" NOT NULL,"
    "  node text COLLATE \"C\" NOT NULL,"
    "  n bigint NOT NULL,"
    "  ok bigint NOT NULL,"
    "  cheats bigint NOT NULL,"
    "  reward double precision,"
    "  speedup double precision,"
    "  last_ms bigint NOT NULL,"
    "  PRIMARY KEY (scope, task_id, node)"
    ");"
    "CREATE TABLE leader ("
    "  id text COLLATE \"C\" PRIMARY KEY,"
    "  task_id text COLLATE \"C\" NOT NULL,"
    "  client text COLLATE \"C\","
    "  speedup double precision,"
    "  speedup_lo double precision,"
    "  speedup_hi double precision,"
    "  candidate_ms double precision,"
    "  reference_ms double precision,"
    "  reward double precision,"
    "  gpu text,"
    "  finished_ms bigint NOT NULL"
    ");"
    "CREATE INDEX leader_task ON leader (task_id, speedup DESC NULLS LAST, reward DESC NULLS LAST, id DESC);"
    "CREATE INDEX leader_task_client ON leader"
    "  (task_id, client, speedup DESC NULLS LAST, reward DESC NULLS LAST, id DESC);"
    "CREATE TABLE record ("
    "  scope text COLLATE \"C\" NOT NULL,"
    "  task_id text COLLATE \"C\" NOT NULL,"
    "  finished_ms bigint NOT NULL,"
    "  id text COLLATE \"C\" NOT NULL,"
    "  speedup double precision NOT NULL,"
    "  PRIMARY KEY (scope, task_id, finished_ms, id)"
    ");"
    "CREATE INDEX record_id ON record (id);";

/* What a node tells the others of itself. */
static const char version_nodes[] =
    "ALTER TABLE node ADD draining bool NOT NULL DEFAULT false, ADD about text;";

/* What is to be cancelled, whoever has it; and groups that one node at a time judges: its name is their home. */
static const char version_orders[] =
    "ALTER TABLE job ADD cancel smallint NOT NULL DEFAULT 0, ADD together text COLLATE \"C\";"
    "CREATE INDEX job_cancel ON job (id) WHERE cancel > 0;"
    "ALTER TABLE submission_group ADD home text COLLATE \"C\", ADD made_ms bigint;"
    "ALTER TABLE submission_group ALTER made_ms SET DEFAULT verifierd.now_ms();";

/*
 * To which run and step it belongs (labels.h), and sums by them, which begin with this version. A scope is here that of
 * the submission's own client, "" where it has none; what is asked for of all clients is added up. bin_0 to bin_8 count
 * speed-ups by size (rows.c). pg_temp.metadata() goes with the connection; NULL: the request is no JSON.
 */
#define METADATA                                                                                \
    "CREATE FUNCTION pg_temp.metadata(request text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN" \
    "  RETURN request::jsonb -> 'metadata'; EXCEPTION WHEN OTHERS THEN RETURN NULL;"            \
    "END $$;"
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
#define LABELS(table)    \
    "ALTER TABLE " table \
    " ADD COLUMN IF NOT EXISTS run text COLLATE \"C\", ADD COLUMN IF NOT EXISTS step bigint;"
#define LABELS_INDICES(table)                                  \
    table "_run ON " table " (run, id) WHERE run IS NOT NULL", \
        table "_run_step ON " table " (run, step, id) WHERE run IS NOT NULL"
#define RUN_COUNTS                                                                            \
    "  n bigint NOT NULL, infra bigint NOT NULL, ok bigint NOT NULL, cheats bigint NOT NULL," \
    "  rewarded bigint NOT NULL, reward_sum double precision NOT NULL,"                       \
    "  speedup double precision, bin_0 bigint NOT NULL, bin_1 bigint NOT NULL,"               \
    "  bin_2 bigint NOT NULL, bin_3 bigint NOT NULL, bin_4 bigint NOT NULL,"                  \
    "  bin_5 bigint NOT NULL, bin_6 bigint NOT NULL, bin_7 bigint NOT NULL,"                  \
    "  bin_8 bigint NOT NULL,"
#define RUN_KEY                                                             \
    "  run text COLLATE \"C\" NOT NULL, scope text COLLATE \"C\" NOT NULL," \
    "  node text COLLATE \"C\" NOT NULL,"

static const char version_runs[] = METADATA LABELS("submission")
    LABELS("submission_group") "CREATE TABLE IF NOT EXISTS run_sum (" RUN_KEY RUN_COUNTS
                               "  first_step bigint, last_step bigint, first_ms bigint NOT NULL,"
                               "  last_ms bigint NOT NULL, PRIMARY KEY (run, scope, node));"
                               "CREATE TABLE IF NOT EXISTS run_step (" RUN_KEY
                               "  step bigint NOT NULL, task_id text COLLATE \"C\" NOT NULL," RUN_COUNTS
                               "  PRIMARY KEY (run, step, task_id, scope, node));";
static const char *const runs_batches[] = { LABELS_OF("submission"), LABELS_OF("submission_group"), NULL };
static const char *const runs_indices[] = { LABELS_INDICES("submission"), LABELS_INDICES("submission_group"),
                                            NULL };

/* The oldest program that can live with this schema, by the version that it knows. */
static const char version_oldest[] = "ALTER TABLE meta ADD oldest int NOT NULL DEFAULT 5;";

/* Which life of its home a group has, whoever writes the name: one that ended is nobody's home. */
static const char version_homes[] =
    "ALTER TABLE submission_group ADD home_epoch bigint;"
    "CREATE FUNCTION note_home() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    "  new.home_epoch := (SELECT epoch FROM verifierd.node WHERE name = new.home);"
    "  RETURN new;"
    "END $$;"
    "CREATE TRIGGER group_home BEFORE UPDATE OF home ON submission_group FOR EACH ROW"
    "  EXECUTE FUNCTION note_home();" /* and for the groups that have one */
    "UPDATE submission_group SET home = home WHERE home IS NOT NULL"
    "  AND id IN (SELECT together FROM job WHERE together IS NOT NULL);";

/*
 * Failures by run and task, beside the table that nodes of a version before go on with; how long verdicts waited, and held
 * devices. What was counted before has none of these.
 */
static const char version_causes[] =
    "ALTER TABLE trend ADD COLUMN IF NOT EXISTS wait_ms bigint NOT NULL DEFAULT 0,"
    "  ADD COLUMN IF NOT EXISTS device_ms bigint NOT NULL DEFAULT 0;"
    "CREATE TABLE IF NOT EXISTS cause ("
    "  scope text COLLATE \"C\" NOT NULL,"
    "  start_s bigint NOT NULL,"
    "  node text COLLATE \"C\" NOT NULL,"
    "  run text COLLATE \"C\" NOT NULL," /* "": none */
    "  task_id text COLLATE \"C\" NOT NULL,"
    "  class text COLLATE \"C\" NOT NULL,"
    "  failed_at text COLLATE \"C\" NOT NULL,"
    "  message text COLLATE \"C\" NOT NULL,"
    "  n bigint NOT NULL,"
    "  first_ms bigint NOT NULL,"
    "  last_ms bigint NOT NULL,"
    "  last_id text COLLATE \"C\" NOT NULL,"
    "  PRIMARY KEY (scope, start_s, node, run, task_id, class, failed_at, message)"
    ");"
    "CREATE INDEX IF NOT EXISTS cause_oldest ON cause (start_s);";

/* Which GPU a submission asks for, what a node that only compiles has let through, and what it made (carried.c). */
static const char version_roles[] =
    "ALTER TABLE job ADD COLUMN IF NOT EXISTS gpu text COLLATE \"C\","
    "  ADD COLUMN IF NOT EXISTS handed_on bool NOT NULL DEFAULT false;"
    "CREATE INDEX IF NOT EXISTS job_new ON job (priority, id)"
    "  WHERE state = 0 AND NOT handed_on AND gpu IS NULL AND together IS NULL;"
    "CREATE UNLOGGED TABLE IF NOT EXISTS carried ("
    "  id text COLLATE \"C\" PRIMARY KEY REFERENCES job ON DELETE CASCADE,"
    "  about text NOT NULL,"
    "  size bigint NOT NULL,"
    "  data bytea NOT NULL"
    ");"
    "ALTER TABLE carried ALTER data SET STORAGE EXTERNAL;"; /* it is compressed */

/* What waits by the GPU that it asks for, and what was handed on (claims.c, carried.c). */
static const char *const waiting_indices[] = {
    "job_gpu ON job (coalesce(gpu, ''), priority, id) WHERE state = 0",
    "job_handed ON job (id) WHERE state = 0 AND handed_on", NULL
};

/* What a sweep removes is counted once for each statement, and their leaders go with them. */
static const char version_removals[] =
    "DROP TRIGGER submission_removed ON submission;"
    "CREATE FUNCTION count_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    "  PERFORM verifierd.count_one(state, (-count(*))::int) FROM gone WHERE state >= 2 GROUP BY state;"
    "  DELETE FROM verifierd.leader WHERE id = ANY (ARRAY(SELECT id FROM gone));"
    "  RETURN NULL;"
    "END $$;"
    "CREATE TRIGGER submission_removed AFTER DELETE ON submission REFERENCING OLD TABLE AS gone"
    "  FOR EACH STATEMENT EXECUTE FUNCTION count_removed();";

/*
 * Whose it is, for claims (claims.c). What a node of the version before adds is nobody's, and it sorts what waits when it
 * claims.
 */
static const char version_shares[] =
    "ALTER TABLE job ADD COLUMN IF NOT EXISTS client text COLLATE \"C\" NOT NULL DEFAULT '';"
    "DROP INDEX IF EXISTS job_waits, job_gpu;";
static const char *const shares_indices[] = {
    "job_flow ON job (coalesce(gpu, ''), priority, client, id) WHERE state = 0",
    "job_client ON job (client, state)", NULL
};

/* Of models, that sources were found in: they go with their submission, whoever removes it. */
static const char version_answers[] =
    "CREATE TABLE IF NOT EXISTS answer ("
    "  id text COLLATE \"C\" PRIMARY KEY REFERENCES submission ON DELETE CASCADE,"
    "  size bigint NOT NULL,"
    "  data bytea NOT NULL"
    ");"
    "ALTER TABLE answer ALTER data SET STORAGE EXTERNAL;"; /* it is compressed */

/*
 * What is identical runs on one node, and of a client no more than may (claims.c). What a node of the version before adds
 * runs beside what is identical, and it claims what it likes.
 */
static const char version_twins[] =
    "ALTER TABLE job ADD COLUMN IF NOT EXISTS content bigint;"
    "CREATE OR REPLACE FUNCTION is_sole(bigint, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN"
    "  IF NOT pg_try_advisory_xact_lock($1) THEN RETURN false; END IF;"
    "  RETURN NOT EXISTS (SELECT FROM verifierd.job WHERE content = $1 AND state = 1 AND node <> $2);"
    "END $$;"
    "CREATE OR REPLACE FUNCTION room(text, bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN"
    "  IF NOT pg_try_advisory_xact_lock(hashtextextended($1, 0)) THEN RETURN 0; END IF;"
    "  RETURN $2 - (SELECT count(*) FROM verifierd.job WHERE client = $1 AND state = 1);"
    "END $$;";
static const char *const twins_indices[] = { "job_content ON job (content) WHERE state = 1", NULL };

static const struct pg_step steps_known[] = { { .sql = version_1 },
                                              { .sql = version_nodes },
                                              { .sql = version_orders },
                                              { version_runs, runs_batches, runs_indices },
                                              { .sql = version_oldest },
                                              { .sql = version_homes },
                                              { .sql = version_causes },
                                              { .sql = version_roles },
                                              { .sql = "", .indices = waiting_indices },
                                              { .sql = version_removals },
                                              { version_shares, NULL, shares_indices },
                                              { .sql = version_answers },
                                              { version_twins, NULL, twins_indices } };

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

/* The version, after making what keeps it where there is none. */
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

/* In a transaction that gives up, and is made again, where somebody holds what it has to lock. */
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

/* It waits for all transactions that are older, and holds up nobody. */
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
    if (buffer_printf(&sql, "%s%s", step->sql, is_one ? note : "") < 0)
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

/* Asked for again and again: who waits in a statement would be waited for by what makes an index. */
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
