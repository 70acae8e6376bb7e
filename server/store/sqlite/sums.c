#include "server/store/sqlite/sums.h"

#include <math.h>
#include <stdio.h>

#include "server/store/sqlite/runs.h"
#include "server/store/summary.h"

/* One ended submission, while it is counted. */
struct counted {
    const struct submission_row *row;
    struct summary is;
    char task_id[HASH_TEXT_SIZE];
    char client[256]; /* cut: a sum's scope need not be longer */
    bool has_client;
    struct labels labels;
};

static bool
take_ended(void *arg, struct sql_row *row)
{
    struct counted *c = arg;
    const char *client = row_text(row, 1);

    row_name(row, 0, c->task_id, sizeof(c->task_id));
    snprintf(c->client, sizeof(c->client), "%s", client ? client : "");
    c->has_client = client;
    row_name(row, 2, c->labels.run, sizeof(c->labels.run));
    c->labels.step = row_int(row, 3);
    return false;
}

static int
add_trends(struct sqlite *s, const struct counted *c, const char *scope, struct error *err)
{
    int64_t at_s = c->row->finished_ms / 1000;
    double reward = c->row->reward;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < SUMMARY_NSPANS; i++)
        rc = db_change(&s->db, "count a verdict",
                       "INSERT INTO trend VALUES ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10)"
                       " ON CONFLICT DO UPDATE SET n = n + 1, reward_sum = reward_sum + excluded.reward_sum,"
                       "  wait_ms = wait_ms + excluded.wait_ms, device_ms = device_ms + excluded.device_ms",
                       SQL_VALUES(sql_int(summary_spans[i].span_s), sql_text(scope),
                                  sql_int(at_s - at_s % summary_spans[i].span_s),
                                  sql_text(class_name(c->is.class_)), sql_text(c->is.failed_at),
                                  sql_text(c->is.passed), sql_int(store_reward_bin(reward)),
                                  sql_real(isfinite(reward) ? reward : 0), sql_int((int64_t)c->is.wait_ms),
                                  sql_int(c->row->device_ms)),
                       NULL, err);
    return rc;
}

/* As summary.h has it: where there is a row, or room for one; else without run and task, and a message that is new. */
static const char add_failure_sql[] =
    "WITH own AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM failure WHERE scope = $1"
    "    AND start_s = $2 AND run = $9 AND task_id = $10 AND class = $3 AND failed_at = $4"
    "    AND message = $6) OR (SELECT count(*) FROM (SELECT 1 FROM failure WHERE scope = $1"
    "    AND start_s = $2 LIMIT $5)) < $5 AS has_row)"
    " INSERT INTO failure SELECT $1, $2, iif(has_row, $9, ''), iif(has_row, $10, ''), $3, $4,"
    "  iif(has_row OR EXISTS (SELECT 1 FROM failure WHERE scope = $1 AND start_s = $2"
    "    AND class = $3 AND failed_at = $4 AND message = $6), $6, ''), 1, $7, $7, $8"
    "  FROM own WHERE true"
    " ON CONFLICT DO UPDATE SET n = n + 1, first_ms = min(first_ms, excluded.first_ms),"
    "  last_ms = max(last_ms, excluded.last_ms), last_id = excluded.last_id";

static int
add_failure(struct sqlite *s, const struct counted *c, const char *scope, struct error *err)
{
    int64_t at_s = c->row->finished_ms / 1000;

    if (!*c->is.message)
        return 0;
    return db_change(&s->db, "count a failure", add_failure_sql,
                     SQL_VALUES(sql_text(scope), sql_int(at_s - at_s % STORE_FAILURE_SPAN_S),
                                sql_text(class_name(c->is.class_)), sql_text(c->is.failed_at),
                                sql_int(SUMMARY_FAILURES), sql_text(c->is.message),
                                sql_int(c->row->finished_ms), sql_text(c->row->id), sql_text(c->labels.run),
                                sql_text(c->task_id)),
                     NULL, err);
}

static int
add_record(struct sqlite *s, const struct counted *c, const char *scope, struct error *err)
{
    if (!isfinite(c->is.speedup))
        return 0;
    return db_change(&s->db, "keep a record",
                     "INSERT OR IGNORE INTO record SELECT $1, $2, $3, $4, $5 WHERE $5 >"
                     " coalesce((SELECT speedup FROM task_sum WHERE scope = $1 AND task_id = $2), 0)",
                     SQL_VALUES(sql_text(scope), sql_text(c->task_id), sql_int(c->row->finished_ms),
                                sql_text(c->row->id), sql_real(c->is.speedup)),
                     NULL, err);
}

/* The record before the sum, which is what a record is compared with. */
static int
add_task(struct sqlite *s, const struct counted *c, const char *scope, struct error *err)
{
    int rc = add_record(s, c, scope, err);

    if (rc < 0)
        return rc;
    return db_change(
        &s->db, "count for a task",
        "INSERT INTO task_sum VALUES ($1, $2, 1, $3, $4, $5, $6, $7)"
        " ON CONFLICT DO UPDATE SET n = n + 1, ok = ok + excluded.ok, cheats = cheats + excluded.cheats,"
        "  reward = max(coalesce(reward, excluded.reward), coalesce(excluded.reward, reward)),"
        "  speedup = max(coalesce(speedup, excluded.speedup), coalesce(excluded.speedup, speedup)),"
        "  last_ms = max(last_ms, excluded.last_ms)",
        SQL_VALUES(sql_text(scope), sql_text(c->task_id), sql_int(c->is.class_ == CLASS_OK),
                   sql_int(class_info(c->is.class_)->is_cheat), sql_real(c->row->reward),
                   sql_real(c->is.speedup), sql_int(c->row->finished_ms)),
        NULL, err);
}

static int
add_leader(struct sqlite *s, const struct counted *c, struct error *err)
{
    if (c->is.class_ != CLASS_OK || c->is.is_weakened)
        return 0;
    return db_change(&s->db, "keep a kernel",
                     "INSERT OR REPLACE INTO leader VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                     SQL_VALUES(sql_text(c->row->id), sql_text(c->task_id),
                                sql_text(c->has_client ? c->client : NULL), sql_real(c->is.speedup),
                                sql_real(c->is.speedup_lo), sql_real(c->is.speedup_hi),
                                sql_real(c->is.candidate_ms), sql_real(c->is.reference_ms),
                                sql_real(c->row->reward), sql_name(c->is.gpu), sql_int(c->row->finished_ms)),
                     NULL, err);
}

static int
prune(struct sqlite *s, int64_t now_s, struct error *err)
{
    int rc = 0;

    if (now_s < s->pruned_s + SUMMARY_PRUNE_EVERY_S)
        return 0;
    for (size_t i = 0; rc == 0 && i < SUMMARY_NSPANS; i++)
        rc = db_change(&s->db, "drop old counts", "DELETE FROM trend WHERE span_s = $1 AND start_s < $2",
                       SQL_VALUES(sql_int(summary_spans[i].span_s), sql_int(now_s - summary_spans[i].kept_s)),
                       NULL, err);
    if (rc == 0)
        rc = db_change(&s->db, "drop old failures", "DELETE FROM failure WHERE start_s < $1",
                       SQL_VALUES(sql_int(now_s - SUMMARY_FAILURES_KEPT_S)), NULL, err);
    s->pruned_s = now_s;
    return rc;
}

static int
add_to_scope(struct sqlite *s, const struct counted *c, const char *scope, struct error *err)
{
    int rc = add_failure(s, c, scope, err);

    if (rc != 0 || c->is.is_weakened)
        return rc;
    rc = add_trends(s, c, scope, err);
    return rc == 0 ? add_task(s, c, scope, err) : rc;
}

static int
add_run(struct sqlite *s, const struct counted *c, struct error *err)
{
    char scope[STORE_SCOPE_SIZE];

    if (!*c->labels.run || c->is.is_weakened)
        return 0;
    store_scope(c->has_client ? c->client : NULL, scope);
    const struct run_verdict v = { .labels = &c->labels,
                                   .scope = scope,
                                   .task_id = c->task_id,
                                   .is = &c->is,
                                   .reward = c->row->reward,
                                   .finished_ms = c->row->finished_ms };
    return runs_add(s, &v, err);
}

int
sums_add(struct sqlite *s, const struct submission_row *row, struct error *err)
{
    struct counted c = { .row = row };
    char scope[STORE_SCOPE_SIZE];

    if (!summary_read(row->verdict, &c.is))
        return 0;
    size_t n = 0;
    int rc = db_each(&s->db, "look for what ended",
                     "SELECT task_id, client, run, coalesce(step, -1) FROM submission WHERE id = $1",
                     SQL_VALUES(sql_text(row->id)), take_ended, &c, &n, err);
    if (rc == 0 && n == 0)
        rc = error_set(err, ERR_STORE, "no submission %s is there to be counted", row->id);
    if (rc == 0)
        rc = add_to_scope(s, &c, "", err);
    if (rc == 0 && c.has_client) {
        store_scope(c.client, scope);
        rc = add_to_scope(s, &c, scope, err);
    }
    if (rc == 0)
        rc = add_run(s, &c, err);
    if (rc == 0)
        rc = add_leader(s, &c, err);
    return rc == 0 ? prune(s, row->finished_ms / 1000, err) : rc;
}
