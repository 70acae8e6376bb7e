#include "server/store/sqlite/sums.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "server/store/sqlite/db.h"
#include "server/store/summary.h"

enum change {
    FIND,
    ADD_TREND,
    ADD_FAILURE,
    ADD_RECORD,
    ADD_TASK_SUM,
    ADD_LEADER,
    PRUNE_TREND,
    PRUNE_FAILURE
};

_Static_assert(PRUNE_FAILURE < SUMS_NCHANGES, "room for each statement");

static const char *const change_sql[SUMS_NCHANGES] = {
    [FIND] = "SELECT task_id, client, run, step FROM submission WHERE id = ?1",
    [ADD_TREND] = "INSERT INTO trend VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?9, ?10)"
                  " ON CONFLICT DO UPDATE SET n = n + 1, reward_sum = reward_sum + excluded.reward_sum,"
                  "  wait_ms = wait_ms + excluded.wait_ms, device_ms = device_ms + excluded.device_ms",
    /* As summary.h has it: where there is a row, or room for one; else without run and task, and a message that is new. */
    [ADD_FAILURE] = "WITH own AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM failure WHERE scope = ?1"
                    "    AND start_s = ?2 AND run = ?9 AND task_id = ?10 AND class = ?3 AND failed_at = ?4"
                    "    AND message = ?6) OR (SELECT count(*) FROM (SELECT 1 FROM failure WHERE scope = ?1"
                    "    AND start_s = ?2 LIMIT ?5)) < ?5 AS has_row)"
                    " INSERT INTO failure SELECT ?1, ?2, iif(has_row, ?9, ''), iif(has_row, ?10, ''), ?3, ?4,"
                    "  iif(has_row OR EXISTS (SELECT 1 FROM failure WHERE scope = ?1 AND start_s = ?2"
                    "    AND class = ?3 AND failed_at = ?4 AND message = ?6), ?6, ''), 1, ?7, ?7, ?8"
                    "  FROM own WHERE true"
                    " ON CONFLICT DO UPDATE SET n = n + 1, first_ms = min(first_ms, excluded.first_ms),"
                    "  last_ms = max(last_ms, excluded.last_ms), last_id = excluded.last_id",
    [ADD_RECORD] = "INSERT OR IGNORE INTO record SELECT ?1, ?2, ?3, ?4, ?5 WHERE ?5 >"
                   " coalesce((SELECT speedup FROM task_sum WHERE scope = ?1 AND task_id = ?2), 0)",
    [ADD_TASK_SUM] =
        "INSERT INTO task_sum VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7)"
        " ON CONFLICT DO UPDATE SET n = n + 1, ok = ok + excluded.ok, cheats = cheats + excluded.cheats,"
        "  reward = max(coalesce(reward, excluded.reward), coalesce(excluded.reward, reward)),"
        "  speedup = max(coalesce(speedup, excluded.speedup), coalesce(excluded.speedup, speedup)),"
        "  last_ms = max(last_ms, excluded.last_ms)",
    [ADD_LEADER] = "INSERT OR REPLACE INTO leader VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    [PRUNE_TREND] = "DELETE FROM trend WHERE span_s = ?1 AND start_s < ?2",
    [PRUNE_FAILURE] = "DELETE FROM failure WHERE start_s < ?1",
};

int
sums_init(struct sums *s, sqlite3 *db, struct error *err)
{
    int rc = 0;

    memset(s, 0, sizeof(*s));
    for (int i = 0; rc == 0 && i < SUMS_NCHANGES; i++)
        if (change_sql[i])
            rc = db_prepare(db, change_sql[i], &s->changes[i], err);
    return rc == 0 ? runs_writer_init(&s->runs, db, err) : rc;
}

void
sums_release(struct sums *s)
{
    for (int i = 0; i < SUMS_NCHANGES; i++)
        sqlite3_finalize(s->changes[i]);
    runs_writer_release(&s->runs);
}

/* One ended submission, while it is counted. */
struct counted {
    const struct submission_row *row;
    struct summary is;
    char task_id[HASH_TEXT_SIZE];
    char client[256]; /* cut: a sum's scope need not be longer */
    bool has_client;
    struct labels labels;
};

static void
bind_real(sqlite3_stmt *stmt, int index, double x)
{
    if (isfinite(x))
        sqlite3_bind_double(stmt, index, x);
    else
        sqlite3_bind_null(stmt, index);
}

static int
find(struct sums *s, struct counted *c, struct error *err)
{
    sqlite3_stmt *stmt = s->changes[FIND];

    db_bind_text(stmt, 1, c->row->id);
    int step = sqlite3_step(stmt);
    if (step == SQLITE_ROW) {
        const char *task = (const char *)sqlite3_column_text(stmt, 0);
        const char *client = (const char *)sqlite3_column_text(stmt, 1);
        snprintf(c->task_id, sizeof(c->task_id), "%s", task ? task : "");
        snprintf(c->client, sizeof(c->client), "%s", client ? client : "");
        c->has_client = client;
        const char *run = (const char *)sqlite3_column_text(stmt, 2);
        snprintf(c->labels.run, sizeof(c->labels.run), "%s", run ? run : "");
        bool has_step = sqlite3_column_type(stmt, 3) != SQLITE_NULL;
        c->labels.step = has_step ? sqlite3_column_int64(stmt, 3) : LABEL_STEP_NONE;
    }
    int rc = step == SQLITE_ROW ? 0 : db_fail(sqlite3_db_handle(stmt), err, "look for what ended");
    db_reset(stmt);
    return rc;
}

static int
add_trends(struct sums *s, const struct counted *c, const char *scope, struct error *err)
{
    sqlite3_stmt *stmt = s->changes[ADD_TREND];
    int64_t at_s = c->row->finished_ms / 1000;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < SUMMARY_NSPANS; i++) {
        sqlite3_bind_int(stmt, 1, summary_spans[i].span_s);
        db_bind_text(stmt, 2, scope);
        sqlite3_bind_int64(stmt, 3, at_s - at_s % summary_spans[i].span_s);
        db_bind_text(stmt, 4, class_name(c->is.class_));
        db_bind_text(stmt, 5, c->is.failed_at);
        db_bind_text(stmt, 6, c->is.passed);
        sqlite3_bind_int(stmt, 7, store_reward_bin(c->row->reward));
        sqlite3_bind_double(stmt, 8, isfinite(c->row->reward) ? c->row->reward : 0);
        sqlite3_bind_int64(stmt, 9, (int64_t)c->is.wait_ms);
        sqlite3_bind_int64(stmt, 10, c->row->device_ms);
        rc = db_run(stmt, "count a verdict", err);
    }
    return rc;
}

static int
add_failure(struct sums *s, const struct counted *c, const char *scope, struct error *err)
{
    sqlite3_stmt *stmt = s->changes[ADD_FAILURE];
    int64_t at_s = c->row->finished_ms / 1000;

    if (!*c->is.message)
        return 0;
    db_bind_text(stmt, 1, scope);
    sqlite3_bind_int64(stmt, 2, at_s - at_s % STORE_FAILURE_SPAN_S);
    db_bind_text(stmt, 3, class_name(c->is.class_));
    db_bind_text(stmt, 4, c->is.failed_at);
    sqlite3_bind_int(stmt, 5, SUMMARY_FAILURES);
    db_bind_text(stmt, 6, c->is.message);
    sqlite3_bind_int64(stmt, 7, c->row->finished_ms);
    db_bind_text(stmt, 8, c->row->id);
    db_bind_text(stmt, 9, c->labels.run);
    db_bind_text(stmt, 10, c->task_id);
    return db_run(stmt, "count a failure", err);
}

/* The record before the sum, which is what a record is compared with. */
static int
add_task(struct sums *s, const struct counted *c, const char *scope, struct error *err)
{
    sqlite3_stmt *stmt = s->changes[ADD_RECORD];
    int rc = 0;

    if (isfinite(c->is.speedup)) {
        db_bind_text(stmt, 1, scope);
        db_bind_text(stmt, 2, c->task_id);
        sqlite3_bind_int64(stmt, 3, c->row->finished_ms);
        db_bind_text(stmt, 4, c->row->id);
        sqlite3_bind_double(stmt, 5, c->is.speedup);
        rc = db_run(stmt, "keep a record", err);
    }
    if (rc < 0)
        return rc;
    stmt = s->changes[ADD_TASK_SUM];
    db_bind_text(stmt, 1, scope);
    db_bind_text(stmt, 2, c->task_id);
    sqlite3_bind_int(stmt, 3, c->is.class_ == CLASS_OK);
    sqlite3_bind_int(stmt, 4, class_info(c->is.class_)->is_cheat);
    bind_real(stmt, 5, c->row->reward);
    bind_real(stmt, 6, c->is.speedup);
    sqlite3_bind_int64(stmt, 7, c->row->finished_ms);
    return db_run(stmt, "count for a task", err);
}

static int
add_leader(struct sums *s, const struct counted *c, struct error *err)
{
    sqlite3_stmt *stmt = s->changes[ADD_LEADER];

    if (c->is.class_ != CLASS_OK || c->is.is_weakened)
        return 0;
    db_bind_text(stmt, 1, c->row->id);
    db_bind_text(stmt, 2, c->task_id);
    db_bind_text(stmt, 3, c->has_client ? c->client : NULL);
    bind_real(stmt, 4, c->is.speedup);
    bind_real(stmt, 5, c->is.speedup_lo);
    bind_real(stmt, 6, c->is.speedup_hi);
    bind_real(stmt, 7, c->is.candidate_ms);
    bind_real(stmt, 8, c->is.reference_ms);
    bind_real(stmt, 9, c->row->reward);
    db_bind_name(stmt, 10, c->is.gpu);
    sqlite3_bind_int64(stmt, 11, c->row->finished_ms);
    return db_run(stmt, "keep a kernel", err);
}

static int
prune(struct sums *s, int64_t now_s, struct error *err)
{
    int rc = 0;

    if (now_s < s->pruned_s + SUMMARY_PRUNE_EVERY_S)
        return 0;
    for (size_t i = 0; rc == 0 && i < SUMMARY_NSPANS; i++) {
        sqlite3_bind_int(s->changes[PRUNE_TREND], 1, summary_spans[i].span_s);
        sqlite3_bind_int64(s->changes[PRUNE_TREND], 2, now_s - summary_spans[i].kept_s);
        rc = db_run(s->changes[PRUNE_TREND], "drop old counts", err);
    }
    if (rc == 0) {
        sqlite3_bind_int64(s->changes[PRUNE_FAILURE], 1, now_s - SUMMARY_FAILURES_KEPT_S);
        rc = db_run(s->changes[PRUNE_FAILURE], "drop old failures", err);
    }
    s->pruned_s = now_s;
    return rc;
}

static int
add_to_scope(struct sums *s, const struct counted *c, const char *scope, struct error *err)
{
    int rc = add_failure(s, c, scope, err);

    if (rc != 0 || c->is.is_weakened)
        return rc;
    rc = add_trends(s, c, scope, err);
    return rc == 0 ? add_task(s, c, scope, err) : rc;
}

static int
add_run(struct sums *s, const struct counted *c, struct error *err)
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
    return runs_add(&s->runs, &v, err);
}

int
sums_add(struct sums *s, const struct submission_row *row, struct error *err)
{
    struct counted c = { .row = row };
    char scope[STORE_SCOPE_SIZE];

    if (!summary_read(row->verdict, &c.is))
        return 0;
    int rc = find(s, &c, err);
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
