#include "server/store/pgsql/pgsql.h"

#include <stdio.h>

#include "server/store/labels.h"
#include "server/store/sweep.h"

/* --- parts of writes --- */

const struct sql_changes pg_dialect = {
    .lock_task = "SELECT 1 FROM task WHERE id = $1 FOR UPDATE",
    .task_in_use = "SELECT 1 FROM job JOIN submission USING (id) WHERE task_id = $1 LIMIT 1",
    .forget_keys = "DELETE FROM idempotency WHERE (client, key) IN (SELECT client, key FROM idempotency"
                   " WHERE created_ms <= $1 FOR UPDATE SKIP LOCKED)",
    .find_blob = "SELECT 1 FROM blob WHERE hash = $1 FOR KEY SHARE",
    .jobs = "job",
    .state_of = "SELECT coalesce(job.state, submission.state) FROM submission LEFT JOIN job USING (id)"
                " WHERE id = $1",
    .finish = "WITH ended AS (DELETE FROM job WHERE id = $1 AND claim = $2 RETURNING attempts, claim)"
              " UPDATE submission SET state = $3, stage = $4, class = $5, reward = $6, verdict = $7,"
              " finished_ms = $8, log_hash = $9, cache_key = $10, device_ms = $11, cached_from = $12,"
              " brief = $13, attempts = ended.attempts, claim = ended.claim"
              " FROM ended WHERE id = $1 RETURNING task_id, client, run, coalesce(step, -1)",
    .failures = "cause",
    .node_column = ", node",
    .node_value = ", $2",
    .of_node = " AND f.node = $2",
    .in_set = "= ANY (ARRAY(SELECT json_array_elements_text(CAST($1 AS json))))",
    .sweep_batch = 200,
};

int
pg_change_each(struct store_backend *b, const char *what, const char *sql, const struct sql_value *values,
               size_t nvalues, sql_row_cb *row_cb, void *arg, int64_t *changed, struct error *err)
{
    struct pg_link *l = &pgsql_of(b)->link;
    return row_cb ? pg_each(l, what, sql, values, nvalues, row_cb, arg, NULL, err)
                  : pg_run(l, what, sql, values, nvalues, changed, err);
}

/* The submissions of the task stay. */
int
pg_drop_task(struct store_backend *b, const char *id, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    AUTO_RESULT PGresult *gone = NULL;
    char set[HASH_TEXT_SIZE + 8];
    int64_t unused = 0;
    int rc = pg_ask(&p->link, "remove a task",
                    "WITH sums AS (DELETE FROM task_sum WHERE task_id = $1),"
                    " leaders AS (DELETE FROM leader WHERE task_id = $1),"
                    " records AS (DELETE FROM record WHERE task_id = $1)"
                    " DELETE FROM task WHERE id = $1 RETURNING reference_hash",
                    SQL_VALUES(sql_text(id)), &gone, err);
    if (rc < 0 || PQntuples(gone) == 0)
        return rc;
    const char *reference = pg_column_text(gone, 0, 0);
    snprintf(set, sizeof(set), "[\"%s\"]", reference);
    /* A concurrent sweep may be removing the last row that names it. */
    rc = pg_run(&p->link, "lock a reference", "SELECT 1 FROM blob WHERE hash = $1 FOR UPDATE",
                SQL_VALUES(sql_text(reference)), NULL, err);
    return rc == 0 ? sweep_blobs(b, set, &unused, err) : rc;
}

int
pg_add_job(struct store_backend *b, const struct submission_row *row, const char *together,
           const struct labels *labels, struct error *err)
{
    return pg_run(&pgsql_of(b)->link, "add a job",
                  "INSERT INTO job (id, state, priority, attempts, claim, together, gpu, client, content)"
                  " VALUES ($1, $2, $3, $4, 0, $5, $6, coalesce($7, ''), nullif($8::bigint, 0))",
                  SQL_VALUES(sql_text(row->id), sql_int(row->state), sql_int(row->priority),
                             sql_int(row->attempts), sql_text(together), sql_name(labels->gpu),
                             sql_text(row->client), sql_int(row->content)),
                  NULL, err);
}
