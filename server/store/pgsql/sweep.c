#include "server/store/pgsql/sweep.h"

#include <string.h>

#include "common/auto.h"
#include "common/limits.h"
#include "server/store/pgsql/blob.h"

/*
 * Theory of operation. Submissions are looked at in the order in which they ended, a batch after the other, each going on
 * where the last one stopped. A single submission goes alone, a group as a whole. What somebody refers to stays: the
 * fastest of a task, whoever's verdict was handed on, what a request that may come again was answered with. A blob goes
 * with the last row that names it. The sums stay: they are what is left of what has gone. The tables' room is given back by the
 * database itself (autovacuum).
 */

/* Whether a submission of this id, which is an expression, is referred to. $2: keys made at or before it are forgotten. */
#define REFERRED(id)                                                                  \
    "(EXISTS (SELECT 1 FROM record WHERE record.id = " id ")"                         \
    " OR EXISTS (SELECT 1 FROM submission AS other WHERE other.cached_from = " id ")" \
    " OR EXISTS (SELECT 1 FROM idempotency i WHERE i.id = " id " AND i.created_ms > $2))"

/* What goes: one submission, or a group with all that are in it. $1 is its id. */
static const struct kind {
    const char *is_kept, *blobs, *remove;
} kinds[] = {
    { "SELECT " REFERRED("$1"), "SELECT source_hash, log_hash FROM submission WHERE id = $1",
      "WITH gone AS (DELETE FROM submission WHERE id = $1 AND state >= 2 RETURNING id),"
      " leaders AS (DELETE FROM leader USING gone WHERE leader.id = gone.id)"
      " SELECT count(*), 0 FROM gone" },
    { "SELECT count(*) = 0 OR bool_or(state = 0 OR finished_ms >= $3 OR " REFERRED(
          "submission.id") ") OR EXISTS"
                           " (SELECT 1 FROM idempotency WHERE id = $1 AND created_ms > $2) FROM submission "
                           "WHERE group_id = $1",
      "SELECT source_hash, log_hash FROM submission WHERE group_id = $1",
      "WITH gone AS (DELETE FROM submission WHERE group_id = $1 AND state >= 2 RETURNING id),"
      " leaders AS (DELETE FROM leader USING gone WHERE leader.id = gone.id),"
      " groups AS (DELETE FROM submission_group WHERE id = $1 RETURNING id)"
      " SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM groups)" },
};

int
pg_sweep_alone(struct pgsql *p, bool *is_alone, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&p->link, "ask whether another node sweeps",
                    "SELECT pg_try_advisory_xact_lock(2004247141)", SQL_NO_VALUES, &row, err);
    *is_alone = rc == 0 && pg_column_bool(row, 0, 0);
    return rc;
}

/* 1: it has to stay; 0; or an error. */
static int
is_kept(struct pgsql *p, const struct kind *kind, const char *id, const struct store_sweep *step,
        struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    const struct sql_value values[] = { sql_text(id), sql_int(step->now_ms - STORE_KEY_LIFE_MS),
                                        sql_int(step->before_ms) };
    size_t n = kind == &kinds[0] ? 2 : 3;
    int rc = pg_ask(&p->link, "ask whether something is referred to", kind->is_kept, values, n, &row, err);
    return rc < 0 ? rc : pg_column_bool(row, 0, 0);
}

/* Those of which the two columns of each row name one. */
static int
drop_blobs(struct pgsql *p, const PGresult *rows, struct store_sweep *step, struct error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < 2 * PQntuples(rows); i++) {
        const char *hash = i % 2 < PQnfields(rows) ? pg_column_text(rows, i / 2, i % 2) : NULL;
        if (hash)
            rc = pg_blob_drop(p, hash, &step->blobs, err);
    }
    return rc;
}

static int
remove_one(struct pgsql *p, const char *id, const char *group, struct store_sweep *step, struct error *err)
{
    const struct kind *kind = &kinds[*group ? 1 : 0];
    const char *key = *group ? group : id;
    AUTO_RESULT PGresult *blobs = NULL, *gone = NULL;

    int rc = is_kept(p, kind, key, step, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = pg_ask(&p->link, "look for sources to remove", kind->blobs, SQL_VALUES(sql_text(key)), &blobs, err);
    if (rc == 0)
        rc = pg_ask(&p->link, "remove what is not to be kept", kind->remove, SQL_VALUES(sql_text(key)), &gone,
                    err);
    if (rc < 0)
        return rc;
    step->submissions += pg_column_int(gone, 0, 0);
    step->groups += pg_column_int(gone, 0, 1);
    return drop_blobs(p, blobs, step, err);
}

static int
remove_log(struct pgsql *p, const char *id, struct store_sweep *step, struct error *err)
{
    AUTO_RESULT PGresult *gone = NULL;
    int rc =
        pg_ask(&p->link, "remove captured output",
               "WITH old AS MATERIALIZED (SELECT id, log_hash FROM submission WHERE id = $1 AND state >= 2"
               "  AND log_hash IS NOT NULL FOR UPDATE)"
               " UPDATE submission s SET log_hash = NULL FROM old WHERE s.id = old.id RETURNING old.log_hash",
               SQL_VALUES(sql_text(id)), &gone, err);
    if (rc < 0)
        return rc;
    step->logs += PQntuples(gone);
    return drop_blobs(p, gone, step, err);
}

static int
read_oldest(struct pgsql *p, const struct store_sweep *step, PGresult **out, struct error *err)
{
    const char *sql =
        step->what == SWEEP_LOGS
            ? "SELECT id, group_id, finished_ms FROM submission WHERE log_hash IS NOT NULL AND finished_ms < "
              "$1"
              " AND (finished_ms, id) > ($2, $3) ORDER BY finished_ms, id LIMIT $4"
            : "SELECT id, group_id, finished_ms FROM submission WHERE finished_ms > 0 AND finished_ms < $1"
              " AND (finished_ms, id) > ($2, $3) ORDER BY finished_ms, id LIMIT $4";
    return pg_ask(&p->link, "look for what is not to be kept", sql,
                  SQL_VALUES(sql_int(step->before_ms), sql_int(step->at_ms), sql_text(step->at_id),
                             sql_int(STORE_SWEEP_BATCH)),
                  out, err);
}

static int
remove_batch(struct pgsql *p, struct store_sweep *step, struct error *err)
{
    AUTO_RESULT PGresult *found = NULL;
    int rc = read_oldest(p, step, &found, err);

    if (rc < 0)
        return rc;
    int n = PQntuples(found);
    for (int i = 0; rc == 0 && i < n && step->submissions < step->most; i++) {
        char id[ID_SIZE], group[ID_SIZE];
        pg_column_name(found, i, 0, id, sizeof(id));
        pg_column_name(found, i, 1, group, sizeof(group));
        rc = step->what == SWEEP_LOGS ? remove_log(p, id, step, err) : remove_one(p, id, group, step, err);
        step->at_ms = pg_column_int(found, i, 2);
        memcpy(step->at_id, id, ID_SIZE);
    }
    step->is_over = n < STORE_SWEEP_BATCH || step->submissions >= step->most;
    return rc;
}

int
pg_sweep(struct store_backend *b, struct store_sweep *step, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    bool is_alone = false;
    int rc = pg_sweep_alone(p, &is_alone, err);

    if (rc < 0)
        return rc;
    if (step->what != SWEEP_VACUUM && is_alone)
        return remove_batch(p, step, err);
    step->is_over = true;
    return 0;
}
