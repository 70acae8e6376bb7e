#include "server/store/pgsql/sums.h"

#include <math.h>

#include "common/auto.h"
#include "server/store/pgsql/alone.h"
#include "server/store/pgsql/runs.h"
#include "server/store/summary.h"

/*
 * Each statement counts for everybody ("") and for the client, in rows that are this node's alone, so that no two nodes
 * wait for each other: $1 is the client's scope (NULL: there is no client), $2 the node.
 */
#define SCOPES "(SELECT '' AS scope UNION ALL SELECT $1 WHERE $1::text IS NOT NULL) AS s"
#define TEXT_OF(number) #number
#define NUMBER(macro) TEXT_OF(macro)

/* One ended submission, while it is counted. */
struct counted {
    const struct submission_row *row;
    struct summary is;
    const char *task_id, *client; /* client NULL: none */
    const char *run;              /* "": none */
    char scope[STORE_SCOPE_SIZE];
};

static struct sql_value
scope_of(const struct counted *c)
{
    return sql_text(c->client ? c->scope : NULL);
}

static int
add_trends(struct pgsql *p, const struct counted *c, struct error *err)
{
    double reward = c->row->reward;

    return pg_run(
        &p->link, "count a verdict",
        "INSERT INTO trend AS t (span_s, scope, start_s, class, failed_at, passed, reward_bin, node, n,"
        "  reward_sum, wait_ms, device_ms)"
        " SELECT span, scope, $3::bigint - $3::bigint % span, $4, $5, $6, $7, $2, 1, $8, $9, $10 FROM " SCOPES
        ","
        " (VALUES (" NUMBER(STORE_TREND_MINUTE_S) "), (" NUMBER(
            STORE_TREND_QUARTER_S) "),"
                                   " (" NUMBER(
                                       STORE_TREND_LONG_S) ")) AS spans (span)"
                                                           " ON CONFLICT (span_s, scope, start_s, class, "
                                                           "failed_at, passed, reward_bin, node)"
                                                           " DO UPDATE SET n = t.n + 1, reward_sum = "
                                                           "t.reward_sum + excluded.reward_sum,"
                                                           " wait_ms = t.wait_ms + excluded.wait_ms,"
                                                           " device_ms = t.device_ms + excluded.device_ms",
        SQL_VALUES(scope_of(c), sql_text(p->lease.node), sql_int(c->row->finished_ms / 1000),
                   sql_text(class_name(c->is.class_)), sql_text(c->is.failed_at), sql_text(c->is.passed),
                   sql_int(store_reward_bin(reward)), sql_real(isfinite(reward) ? reward : 0),
                   sql_int((int64_t)c->is.wait_ms), sql_int(c->row->device_ms)),
        NULL, err);
}

/* As summary.h has it: where there is a row, or room for one; else without run and task, and a message that is new. */
#define STRETCH "FROM cause f WHERE f.scope = s.scope AND f.start_s = $3 AND f.node = $2"
#define CAUSE "f.class = $4 AND f.failed_at = $5 AND f.message = $6"
#define OWN_ROW                                                                                         \
    "(SELECT EXISTS (SELECT " STRETCH " AND f.run = $9 AND f.task_id = $10 AND " CAUSE ") OR"           \
    "   (SELECT count(*) FROM (SELECT " STRETCH " LIMIT " NUMBER(SUMMARY_FAILURES) ") AS f) < " NUMBER( \
        SUMMARY_FAILURES) " AS has_row OFFSET 0) AS own" /* OFFSET: it is looked for once */

static int
add_failure(struct pgsql *p, const struct counted *c, struct error *err)
{
    int64_t at_s = c->row->finished_ms / 1000;

    if (!*c->is.message)
        return 0;
    return pg_run(
        &p->link, "count a failure",
        "INSERT INTO cause AS t (scope, start_s, node, run, task_id, class, failed_at, message, n, first_ms,"
        "  last_ms, last_id)"
        " SELECT scope, $3, $2, CASE WHEN has_row THEN $9 ELSE '' END,"
        "  CASE WHEN has_row THEN $10 ELSE '' END, $4, $5,"
        "  CASE WHEN has_row OR EXISTS (SELECT " STRETCH " AND " CAUSE ") THEN $6 ELSE '' END,"
        "  1, $7, $7, $8 FROM " SCOPES " CROSS JOIN LATERAL " OWN_ROW
        " ON CONFLICT (scope, start_s, node, run, task_id, class, failed_at, message)"
        " DO UPDATE SET n = t.n + 1, first_ms = least(t.first_ms, excluded.first_ms),"
        " last_ms = greatest(t.last_ms, excluded.last_ms), last_id = excluded.last_id",
        SQL_VALUES(scope_of(c), sql_text(p->lease.node), sql_int(at_s - at_s % STORE_FAILURE_SPAN_S),
                   sql_text(class_name(c->is.class_)), sql_text(c->is.failed_at), sql_text(c->is.message),
                   sql_int(c->row->finished_ms), sql_text(c->row->id), sql_text(c->run),
                   sql_text(c->task_id)),
        NULL, err);
}

static int
add_record(struct pgsql *p, const struct counted *c, struct error *err)
{
    if (!isfinite(c->is.speedup))
        return 0;
    return pg_run(&p->link, "keep a record",
                  "INSERT INTO record (scope, task_id, finished_ms, id, speedup)"
                  " SELECT scope, $2, $3, $4, $5 FROM " SCOPES " WHERE $5 > coalesce((SELECT max(speedup)"
                  "   FROM task_sum WHERE task_sum.scope = s.scope AND task_id = $2), 0)"
                  " ON CONFLICT DO NOTHING",
                  SQL_VALUES(scope_of(c), sql_text(c->task_id), sql_int(c->row->finished_ms),
                             sql_text(c->row->id), sql_real(c->is.speedup)),
                  NULL, err);
}

/* The record before the sum, which is what a record is compared with. */
static int
add_task(struct pgsql *p, const struct counted *c, struct error *err)
{
    int rc = add_record(p, c, err);

    if (rc < 0)
        return rc;
    /* The greater of the two, or the one that there is. */
    return pg_run(&p->link, "count for a task",
                  "INSERT INTO task_sum AS t (scope, task_id, node, n, ok, cheats, reward, speedup, last_ms)"
                  " SELECT scope, $3, $2, 1, $4, $5, $6, $7, $8 FROM " SCOPES
                  " ON CONFLICT (scope, task_id, node) DO UPDATE SET n = t.n + 1, ok = t.ok + excluded.ok,"
                  " cheats = t.cheats + excluded.cheats, reward = greatest(t.reward, excluded.reward),"
                  " speedup = greatest(t.speedup, excluded.speedup),"
                  " last_ms = greatest(t.last_ms, excluded.last_ms)",
                  SQL_VALUES(scope_of(c), sql_text(p->lease.node), sql_text(c->task_id),
                             sql_int(c->is.class_ == CLASS_OK), sql_int(class_info(c->is.class_)->is_cheat),
                             sql_real(c->row->reward), sql_real(c->is.speedup), sql_int(c->row->finished_ms)),
                  NULL, err);
}

static int
add_leader(struct pgsql *p, const struct counted *c, struct error *err)
{
    if (c->is.class_ != CLASS_OK)
        return 0;
    return pg_run(&p->link, "keep a kernel",
                  "INSERT INTO leader (id, task_id, client, speedup, speedup_lo, speedup_hi, candidate_ms,"
                  "  reference_ms, reward, gpu, finished_ms)"
                  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                  SQL_VALUES(sql_text(c->row->id), sql_text(c->task_id), sql_text(c->client),
                             sql_real(c->is.speedup), sql_real(c->is.speedup_lo), sql_real(c->is.speedup_hi),
                             sql_real(c->is.candidate_ms), sql_real(c->is.reference_ms),
                             sql_real(c->row->reward), sql_name(c->is.gpu), sql_int(c->row->finished_ms)),
                  NULL, err);
}

static int
add_run(struct pgsql *p, const struct counted *c, const struct labels *labels, struct error *err)
{
    if (!*labels->run)
        return 0;
    const struct pg_run_verdict v = { .labels = labels,
                                      .client = c->client,
                                      .task_id = c->task_id,
                                      .is = &c->is,
                                      .reward = c->row->reward,
                                      .finished_ms = c->row->finished_ms };
    return pg_runs_add(p, &v, err);
}

/* By one node at a time. */
static int
prune(struct pgsql *p, int64_t now_s, struct error *err)
{
    bool is_alone = false;
    int rc;

    if (now_s < p->pruned_s + SUMMARY_PRUNE_EVERY_S)
        return 0;
    p->pruned_s = now_s;
    rc = pg_alone(p, PG_PRUNES, &is_alone, err);
    if (rc < 0 || !is_alone)
        return rc;
    for (size_t i = 0; rc == 0 && i < SUMMARY_NSPANS; i++)
        rc = pg_run(&p->link, "drop old counts", "DELETE FROM trend WHERE span_s = $1 AND start_s < $2",
                    SQL_VALUES(sql_int(summary_spans[i].span_s), sql_int(now_s - summary_spans[i].kept_s)),
                    NULL, err);
    if (rc == 0)
        rc = pg_run(&p->link, "drop old failures", "DELETE FROM failure WHERE start_s < $1",
                    SQL_VALUES(sql_int(now_s - SUMMARY_FAILURES_KEPT_S)), NULL, err);
    if (rc == 0)
        rc = pg_run(&p->link, "drop old failures", "DELETE FROM cause WHERE start_s < $1",
                    SQL_VALUES(sql_int(now_s - SUMMARY_FAILURES_KEPT_S)), NULL, err);
    return rc;
}

int
pg_sums_add(struct pgsql *p, const struct submission_row *row, const char *task_id, const char *client,
            const struct labels *labels, struct error *err)
{
    struct counted c = { .row = row, .task_id = task_id, .client = client, .run = labels->run };

    if (!summary_read(row->verdict, &c.is))
        return 0;
    store_scope(client, c.scope);
    int rc = add_failure(p, &c, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_trends(p, &c, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_task(p, &c, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_run(p, &c, labels, err);
    if (rc == 0 && !c.is.is_weakened)
        rc = add_leader(p, &c, err);
    return rc == 0 ? prune(p, row->finished_ms / 1000, err) : rc;
}
