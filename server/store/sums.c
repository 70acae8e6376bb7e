#include "server/store/sums.h"

#include <math.h>

#include "server/store/summary.h"

/*
 * Each statement counts for all clients ("") and for the client: $1 is the client's scope (NULL: there is no client).
 * If nodes share a database, the rows are this node's alone, so that no two nodes wait for each other: $2 is the node.
 */
#define SCOPES "(SELECT '' AS scope UNION ALL SELECT $1 WHERE CAST($1 AS text) IS NOT NULL) AS s"
/* Parts of an UPDATE. Of two, the greater or the lesser, or the one that there is. */
#define ADDED(column) ", " column " = t." column " + excluded." column
#define ONE_OF(column, is)                                                            \
    ", " column " = CASE WHEN t." column is "excluded." column " OR excluded." column \
    " IS NULL THEN t." column " ELSE excluded." column " END"
#define GREATER(column) ONE_OF(column, " >= ")
#define LESSER(column) ONE_OF(column, " <= ")

/* One ended submission, while it is counted. */
struct counted {
    const struct submission_row *row;
    struct summary is;
    const char *task_id, *client; /* client NULL: none */
    const struct labels *labels;
    char scope[STORE_SCOPE_SIZE];
    const char *node;
};

static struct sql_value
scope_of(const struct counted *c)
{
    return sql_text(c->client ? c->scope : NULL);
}

static int
run(struct store_backend *b, const char *what, const char *sql, const struct sql_value *values, size_t n,
    struct error *err)
{
    return b->ops->each(b, what, sql, values, n, NULL, NULL, NULL, err);
}

static int
add_trends(struct store_backend *b, const struct counted *c, struct error *err)
{
    const struct sql_changes *d = b->ops->dialect;
    double reward = c->row->reward;
    struct sql_query q = { .n = 0 };

    sql_add(&q,
            "INSERT INTO trend AS t (span_s, scope, start_s, class, failed_at, passed, reward_bin, n,"
            " reward_sum, wait_ms, device_ms%s)"
            " SELECT span, scope, CAST($3 AS bigint) - CAST($3 AS bigint) %% span, $4, $5, $6, $7, 1, $8, $9,"
            " $10%s FROM " SCOPES " CROSS JOIN (SELECT %d AS span UNION ALL SELECT %d UNION ALL SELECT %d)"
            " AS spans WHERE true",
            d->node_column, d->node_value, STORE_TREND_MINUTE_S, STORE_TREND_QUARTER_S, STORE_TREND_LONG_S);
    sql_add(&q,
            " ON CONFLICT (span_s, scope, start_s, class, failed_at, passed, reward_bin%s) DO UPDATE SET"
            " n = t.n + 1" ADDED("reward_sum") ADDED("wait_ms") ADDED("device_ms"),
            d->node_column);
    return run(b, "count a verdict", q.sql,
               SQL_VALUES(scope_of(c), sql_text(c->node), sql_int(c->row->finished_ms / 1000),
                          sql_text(class_name(c->is.class_)), sql_text(c->is.failed_at),
                          sql_text(c->is.passed), sql_int(store_reward_bin(reward)),
                          sql_real(isfinite(reward) ? reward : 0), sql_int((int64_t)c->is.wait_ms),
                          sql_int(c->row->device_ms)),
               err);
}

#define CAUSE "f.class = $4 AND f.failed_at = $5 AND f.message = $6"

/*
 * As in summary.h: if there is a row, or room for one; else without run and task, and without a new message. LIMIT: the
 * subquery for two scopes is evaluated once.
 */
static int
add_failure(struct store_backend *b, const struct counted *c, struct error *err)
{
    const struct sql_changes *d = b->ops->dialect;
    int64_t at_s = c->row->finished_ms / 1000;
    struct sql_query stretch = { .n = 0 }, q = { .n = 0 };

    if (!*c->is.message)
        return 0;
    sql_add(&stretch, "FROM %s f WHERE f.scope = s.scope AND f.start_s = $3%s", d->failures, d->of_node);
    sql_add(&q,
            "INSERT INTO %s AS t (scope, start_s, run, task_id, class, failed_at, message, n, first_ms,"
            " last_ms, last_id%s) SELECT scope, $3, CASE WHEN has_row THEN $9 ELSE '' END,"
            " CASE WHEN has_row THEN $10 ELSE '' END, $4, $5,"
            " CASE WHEN has_row OR EXISTS (SELECT 1 %s AND " CAUSE ") THEN $6 ELSE '' END, 1, $7, $7, $8%s"
            " FROM (SELECT scope,",
            d->failures, d->node_column, stretch.sql, d->node_value);
    sql_add(&q,
            " EXISTS (SELECT 1 %s AND f.run = $9 AND f.task_id = $10 AND " CAUSE ") OR (SELECT count(*)"
            " FROM (SELECT 1 %s LIMIT %d) AS f) < %d AS has_row FROM " SCOPES " LIMIT 2) AS s WHERE true",
            stretch.sql, stretch.sql, SUMMARY_FAILURES, SUMMARY_FAILURES);
    sql_add(&q,
            " ON CONFLICT (scope, start_s, run, task_id, class, failed_at, message%s) DO UPDATE SET"
            " n = t.n + 1" LESSER("first_ms") GREATER("last_ms") ", last_id = excluded.last_id",
            d->node_column);
    return run(b, "count a failure", q.sql,
               SQL_VALUES(scope_of(c), sql_text(c->node), sql_int(at_s - at_s % STORE_FAILURE_SPAN_S),
                          sql_text(class_name(c->is.class_)), sql_text(c->is.failed_at),
                          sql_text(c->is.message), sql_int(c->row->finished_ms), sql_text(c->row->id),
                          sql_text(c->labels->run), sql_text(c->task_id)),
               err);
}

static int
add_record(struct store_backend *b, const struct counted *c, struct error *err)
{
    static const char sql[] =
        "INSERT INTO record (scope, task_id, finished_ms, id, speedup)"
        " SELECT scope, $2, $3, $4, $5 FROM " SCOPES " WHERE $5 > coalesce((SELECT max(speedup)"
        "   FROM task_sum WHERE task_sum.scope = s.scope AND task_id = $2), 0)"
        " ON CONFLICT DO NOTHING";

    if (!isfinite(c->is.speedup))
        return 0;
    return run(b, "keep a record", sql,
               SQL_VALUES(scope_of(c), sql_text(c->task_id), sql_int(c->row->finished_ms),
                          sql_text(c->row->id), sql_real(c->is.speedup)),
               err);
}

/* The record before the sum, which is what a record is compared with. */
static int
add_task(struct store_backend *b, const struct counted *c, struct error *err)
{
    const struct sql_changes *d = b->ops->dialect;
    struct sql_query q = { .n = 0 };
    int rc = add_record(b, c, err);

    if (rc < 0)
        return rc;
    sql_add(&q,
            "INSERT INTO task_sum AS t (scope, task_id, n, ok, cheats, reward, speedup, last_ms%s)"
            " SELECT scope, $3, 1, $4, $5, $6, $7, $8%s FROM " SCOPES " WHERE true"
            " ON CONFLICT (scope, task_id%s) DO UPDATE SET n = t.n + 1" ADDED("ok") ADDED("cheats")
                GREATER("reward") GREATER("speedup") GREATER("last_ms"),
            d->node_column, d->node_value, d->node_column);
    return run(b, "count for a task", q.sql,
               SQL_VALUES(scope_of(c), sql_text(c->node), sql_text(c->task_id), sql_int(c->is.is_correct),
                          sql_int(class_info(c->is.class_)->is_cheat), sql_real(c->row->reward),
                          sql_real(c->is.speedup), sql_int(c->row->finished_ms)),
               err);
}

static int
add_leader(struct store_backend *b, const struct counted *c, struct error *err)
{
    static const char sql[] =
        "INSERT INTO leader (id, task_id, client, speedup, speedup_lo, speedup_hi, candidate_ms,"
        "  reference_ms, reward, gpu, finished_ms)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

    if (!c->is.is_correct)
        return 0;
    return run(b, "keep a kernel", sql,
               SQL_VALUES(sql_text(c->row->id), sql_text(c->task_id), sql_text(c->client),
                          sql_real(c->is.speedup), sql_real(c->is.speedup_lo), sql_real(c->is.speedup_hi),
                          sql_real(c->is.candidate_ms), sql_real(c->is.reference_ms),
                          sql_real(c->row->reward), sql_name(c->is.gpu), sql_int(c->row->finished_ms)),
               err);
}

/* --- of a run --- */

#define COUNTS                                                                                \
    "n, infra, ok, cheats, rewarded, reward_sum, speedup, bin_0, bin_1, bin_2, bin_3, bin_4," \
    " bin_5, bin_6, bin_7, bin_8"
/* $3 to $5: infra, ok, cheats; $6, $7: rewarded, reward; $8: speed-up; $9: its bin, -1 where there is none */
#define BIN(number) ", CASE CAST($9 AS int) WHEN " #number " THEN 1 ELSE 0 END"
#define COUNTS_OF_ONE \
    "1, $3, $4, $5, $6, $7, $8" BIN(0) BIN(1) BIN(2) BIN(3) BIN(4) BIN(5) BIN(6) BIN(7) BIN(8)
#define COUNTS_ADDED                                                                                  \
    "n = t.n + 1" ADDED("infra") ADDED("ok") ADDED("cheats") ADDED("rewarded") ADDED("reward_sum")    \
        GREATER("speedup") ADDED("bin_0") ADDED("bin_1") ADDED("bin_2") ADDED("bin_3") ADDED("bin_4") \
            ADDED("bin_5") ADDED("bin_6") ADDED("bin_7") ADDED("bin_8")

/* last: what differs between the two statements, $12. */
static int
count_of_run(struct store_backend *b, const char *what, const char *sql, const struct counted *c,
             struct sql_value last, struct error *err)
{
    double reward = c->row->reward;

    return run(b, what, sql,
               SQL_VALUES(sql_text(c->scope), sql_text(c->node), sql_int(c->is.class_ == CLASS_INFRA),
                          sql_int(c->is.is_correct), sql_int(class_info(c->is.class_)->is_cheat),
                          sql_int(isfinite(reward)), sql_real(isfinite(reward) ? reward : 0),
                          sql_real(c->is.speedup), sql_int(store_speedup_bin(c->is.speedup)),
                          sql_text(c->labels->run), sql_int(c->labels->step), last),
               err);
}

/* In the client's own scope alone: the sums for all clients are added up when they are read. */
static int
add_run(struct store_backend *b, const struct counted *c, struct error *err)
{
    const struct sql_changes *d = b->ops->dialect;
    struct sql_query whole = { .n = 0 }, step = { .n = 0 };

    if (!*c->labels->run)
        return 0;
    sql_add(&whole,
            "INSERT INTO run_sum AS t (run, scope, first_step, last_step, first_ms, last_ms, " COUNTS "%s)"
            " VALUES ($10, $1, nullif(CAST($11 AS bigint), -1), nullif(CAST($11 AS bigint), -1), $12, $12,"
            " " COUNTS_OF_ONE
            "%s) ON CONFLICT (run, scope%s) DO UPDATE SET " COUNTS_ADDED LESSER("first_step")
                GREATER("last_step") LESSER("first_ms") GREATER("last_ms"),
            d->node_column, d->node_value, d->node_column);
    int rc = count_of_run(b, "count for a run", whole.sql, c, sql_int(c->row->finished_ms), err);
    if (rc < 0 || c->labels->step == LABEL_STEP_NONE)
        return rc;
    sql_add(&step,
            "INSERT INTO run_step AS t (run, scope, step, task_id, " COUNTS "%s)"
            " VALUES ($10, $1, $11, $12, " COUNTS_OF_ONE "%s)"
            " ON CONFLICT (run, step, task_id, scope%s) DO UPDATE SET " COUNTS_ADDED,
            d->node_column, d->node_value, d->node_column);
    return count_of_run(b, "count for a step", step.sql, c, sql_text(c->task_id), err);
}

/* --- the oldest --- */

static int
drop(struct store_backend *b, const char *table, int64_t before_s, struct error *err)
{
    struct sql_query q = { .n = 0 };

    sql_add(&q, "DELETE FROM %s WHERE start_s < $1", table);
    return run(b, "drop old failures", q.sql, SQL_VALUES(sql_int(before_s)), err);
}

/* By one node at a time. */
static int
prune(struct store_backend *b, int64_t now_s, struct error *err)
{
    static const char trends[] = "DELETE FROM trend WHERE span_s = $1 AND start_s < $2";
    bool is_alone = true;
    int rc = 0;

    if (now_s >= b->pruned_s && now_s < b->pruned_s + SUMMARY_PRUNE_EVERY_S)
        return 0;
    b->pruned_s = now_s;
    if (b->ops->is_alone)
        rc = b->ops->is_alone(b, DUTY_PRUNES, &is_alone, err);
    if (rc < 0 || !is_alone)
        return rc;
    for (size_t i = 0; rc == 0 && i < SUMMARY_NSPANS; i++)
        rc = run(b, "drop old counts", trends,
                 SQL_VALUES(sql_int(summary_spans[i].span_s), sql_int(now_s - summary_spans[i].kept_s)), err);
    if (rc == 0)
        rc = drop(b, "failure", now_s - SUMMARY_FAILURES_KEPT_S, err);
    if (rc == 0)
        rc = drop(b, b->ops->dialect->failures, now_s - SUMMARY_FAILURES_KEPT_S, err);
    return rc;
}

int
sums_add(struct store_backend *b, const struct submission_row *row, const char *task_id, const char *client,
         const struct labels *labels, struct error *err)
{
    struct counted c = {
        .row = row, .task_id = task_id, .client = client, .labels = labels, .node = b->lease.node
    };

    if (!summary_read(row->verdict, &c.is))
        return 0;
    store_scope(client, c.scope);
    int rc = add_failure(b, &c, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_trends(b, &c, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_task(b, &c, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_run(b, &c, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_leader(b, &c, err);
    return rc == 0 ? prune(b, row->finished_ms / 1000, err) : rc;
}
