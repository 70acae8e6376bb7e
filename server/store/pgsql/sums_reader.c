#include "server/store/pgsql/sums_reader.h"

#include "server/store/pgsql/reading.h"

#define PAGE_MAX 201  /* a page, and whether there is more */
#define GROUPS_MAX 51 /* a group has up to 256 submissions to look at */

/* Each node has rows of its own; here they are added up. */

static bool
give_trend(void *arg, const PGresult *rows, int i)
{
    const struct call *call = arg;
    struct trend_row row = { .start_s = pg_column_int(rows, i, 0),
                             .class_ = pg_column_text(rows, i, 1),
                             .failed_at = pg_column_text(rows, i, 2),
                             .passed = pg_column_text(rows, i, 3),
                             .reward_bin = (int)pg_column_int(rows, i, 4),
                             .n = pg_column_int(rows, i, 5),
                             .reward_sum = pg_column_real(rows, i, 6),
                             .wait_ms = pg_column_int(rows, i, 7),
                             .device_ms = pg_column_int(rows, i, 8) };
    ((store_trend_cb *)call->cb)(call->arg, &row);
    return true;
}

int
pg_each_trend(struct store_reader *r, const char *scope, int span_s, int64_t since_s, store_trend_cb *row_cb,
              void *arg, struct error *err)
{
    return pg_read_each(r, "read counts",
                        "SELECT start_s, class, failed_at, passed, reward_bin, sum(n), sum(reward_sum),"
                        " sum(wait_ms), sum(device_ms) FROM trend"
                        " WHERE span_s = $1 AND scope = $2 AND start_s >= $3"
                        " GROUP BY start_s, class, failed_at, passed, reward_bin ORDER BY start_s",
                        PG_VALUES(pg_int(span_s), pg_text(scope), pg_int(since_s)), give_trend,
                        CALL(row_cb, arg), NULL, err);
}

static bool
give_failure(void *arg, const PGresult *rows, int i)
{
    const struct call *call = arg;
    struct failure_row row = { .class_ = pg_column_text(rows, i, 0),
                               .failed_at = pg_column_text(rows, i, 1),
                               .message = pg_column_text(rows, i, 2),
                               .n = pg_column_int(rows, i, 3),
                               .first_ms = pg_column_int(rows, i, 4),
                               .last_id = pg_column_text(rows, i, 5),
                               .last_ms = pg_column_int(rows, i, 6),
                               .all_n = pg_column_int(rows, i, 7),
                               .all_rows = pg_column_int(rows, i, 8) };
    ((store_failure_cb *)call->cb)(call->arg, &row);
    return true;
}

int
pg_each_failure(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb, void *arg,
                struct error *err)
{
    int rc = pg_check_limit(f->limit, PAGE_MAX, err);

    if (rc < 0)
        return rc;
    return pg_read_each(
        r, "read failures",
        "SELECT class, failed_at, message, sum(n), min(first_ms),"
        " (array_agg(last_id ORDER BY last_ms DESC, last_id DESC))[1], max(last_ms),"
        " sum(sum(n)) OVER (), count(*) OVER () FROM (SELECT scope, start_s, run, task_id, class, failed_at,"
        "   message, n, first_ms, last_ms, last_id FROM cause UNION ALL SELECT scope, start_s, '', '', class,"
        "   failed_at, message, n, first_ms, last_ms, last_id FROM failure) AS f"
        " WHERE scope = $1 AND start_s >= $2"
        " AND ($4::text IS NULL OR task_id = $4) AND ($5::text IS NULL OR run = $5)"
        " AND ($6::text IS NULL OR class = $6) GROUP BY class, failed_at, message"
        " ORDER BY 4 DESC, 7 DESC LIMIT $3",
        PG_VALUES(pg_text(f->scope), pg_int(f->since_s), pg_int(f->limit), pg_text(f->task_id),
                  pg_text(f->run), pg_text(f->class_)),
        give_failure, CALL(row_cb, arg), NULL, err);
}

#define TASK_SUMS                                                                                           \
    "SELECT task_id, name, level, n, ok, cheats, reward, speedup, last_ms FROM (SELECT task_id, sum(n) AS " \
    "n,"                                                                                                    \
    " sum(ok) AS ok, sum(cheats) AS cheats, max(reward) AS reward, max(speedup) AS speedup,"                \
    " max(last_ms) AS last_ms FROM task_sum WHERE scope = $1"
#define TASK_SUMS_END " GROUP BY task_id) AS t LEFT JOIN task ON task.id = task_id"

static bool
give_task(void *arg, const PGresult *rows, int i)
{
    const struct call *call = arg;
    struct task_sum_row row = { .id = pg_column_text(rows, i, 0),
                                .name = pg_column_text(rows, i, 1),
                                .level = (int)pg_column_int(rows, i, 2),
                                .n = pg_column_int(rows, i, 3),
                                .ok = pg_column_int(rows, i, 4),
                                .cheats = pg_column_int(rows, i, 5),
                                .reward = pg_column_real(rows, i, 6),
                                .speedup = pg_column_real(rows, i, 7),
                                .last_ms = pg_column_int(rows, i, 8) };
    ((store_task_sum_cb *)call->cb)(call->arg, &row);
    return true;
}

int
pg_each_task_sum(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                 int limit, store_task_sum_cb *row_cb, void *arg, struct error *err)
{
    int rc = pg_check_limit(limit, PAGE_MAX, err);

    if (rc < 0)
        return rc;
    return pg_read_each(r, "read tasks' counts",
                        TASK_SUMS TASK_SUMS_END " WHERE (last_ms, task_id) < ($2, $3)"
                                                " ORDER BY last_ms DESC, task_id DESC LIMIT $4",
                        PG_VALUES(pg_text(scope), pg_int(before_ms), pg_text(before_id), pg_int(limit)),
                        give_task, CALL(row_cb, arg), NULL, err);
}

int
pg_get_task_sum(struct store_reader *r, const char *scope, const char *task_id, store_task_sum_cb *row_cb,
                void *arg, struct error *err)
{
    return pg_read_each(r, "read a task's counts", TASK_SUMS " AND task_id = $2" TASK_SUMS_END,
                        PG_VALUES(pg_text(scope), pg_text(task_id)), give_task, CALL(row_cb, arg), NULL, err);
}

static bool
give_leader(void *arg, const PGresult *rows, int i)
{
    const struct call *call = arg;
    struct leader_row row = { .id = pg_column_text(rows, i, 0),
                              .client = pg_column_text(rows, i, 1),
                              .gpu = pg_column_text(rows, i, 2),
                              .speedup = pg_column_real(rows, i, 3),
                              .speedup_lo = pg_column_real(rows, i, 4),
                              .speedup_hi = pg_column_real(rows, i, 5),
                              .candidate_ms = pg_column_real(rows, i, 6),
                              .reference_ms = pg_column_real(rows, i, 7),
                              .reward = pg_column_real(rows, i, 8),
                              .finished_ms = pg_column_int(rows, i, 9) };
    ((store_leader_cb *)call->cb)(call->arg, &row);
    return true;
}

#define LEADERS                                                                                     \
    "SELECT id, client, gpu, speedup, speedup_lo, speedup_hi, candidate_ms, reference_ms, reward, " \
    "finished_ms FROM leader WHERE task_id = $1"
#define LEADERS_END " ORDER BY speedup DESC NULLS LAST, reward DESC NULLS LAST, id DESC LIMIT $2"

int
pg_each_leader(struct store_reader *r, const char *task_id, const char *client, int limit,
               store_leader_cb *row_cb, void *arg, struct error *err)
{
    const struct pg_value values[] = { pg_text(task_id), pg_int(limit), pg_text(client) };
    int rc = pg_check_limit(limit, PAGE_MAX, err);

    if (rc < 0)
        return rc;
    return pg_read_each(r, "read a task's best",
                        client ? LEADERS " AND client = $3" LEADERS_END : LEADERS LEADERS_END, values,
                        client ? 3 : 2, give_leader, CALL(row_cb, arg), NULL, err);
}

static bool
give_record(void *arg, const PGresult *rows, int i)
{
    const struct call *call = arg;
    struct record_row row = { .id = pg_column_text(rows, i, 0),
                              .finished_ms = pg_column_int(rows, i, 1),
                              .speedup = pg_column_real(rows, i, 2) };
    ((store_record_cb *)call->cb)(call->arg, &row);
    return true;
}

/* Two nodes may each have beaten what they both saw: only what is faster than all before it counts. */
int
pg_each_record(struct store_reader *r, const char *scope, const char *task_id, store_record_cb *row_cb,
               void *arg, struct error *err)
{
    return pg_read_each(
        r, "read a task's records",
        "SELECT id, finished_ms, speedup FROM (SELECT *, max(speedup) OVER (ORDER BY finished_ms,"
        " id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM record"
        " WHERE scope = $1 AND task_id = $2) AS r WHERE before IS NULL OR speedup > before"
        " ORDER BY finished_ms DESC, id DESC LIMIT $3",
        PG_VALUES(pg_text(scope), pg_text(task_id), pg_int(STORE_RECORDS_MAX)), give_record,
        CALL(row_cb, arg), NULL, err);
}

static bool
give_group(void *arg, const PGresult *rows, int row_number)
{
    const struct call *call = arg;
    struct group_sum_row row = { .id = pg_column_text(rows, row_number, 0),
                                 .task_id = pg_column_text(rows, row_number, 1),
                                 .task_name = pg_column_text(rows, row_number, 2),
                                 .client = pg_column_text(rows, row_number, 3),
                                 .size = (int)pg_column_int(rows, row_number, 4),
                                 .created_ms = pg_column_int(rows, row_number, 5),
                                 .ok = pg_column_int(rows, row_number, 6 + SUBMISSION_NSTATES),
                                 .reward = pg_column_real(rows, row_number, 7 + SUBMISSION_NSTATES),
                                 .run = pg_column_text(rows, row_number, 8 + SUBMISSION_NSTATES),
                                 .step = pg_column_int(rows, row_number, 9 + SUBMISSION_NSTATES) };

    for (int i = 0; i < SUBMISSION_NSTATES; i++)
        row.by_state[i] = pg_column_int(rows, row_number, 6 + i);
    ((store_group_sum_cb *)call->cb)(call->arg, &row);
    return true;
}

/* The counts walk one group's stretch of an index, 256 rows at most. */
#define GROUPS                                                                                      \
    "SELECT g.id, g.task_id, (SELECT name FROM task WHERE task.id = g.task_id), g.client, g.size, " \
    "g.created_ms,"                                                                                 \
    " c.*, g.run, coalesce(g.step, -1) FROM (SELECT * FROM submission_group WHERE true"
#define GROUPS_END                                                                                     \
    " ORDER BY id DESC LIMIT %d) g CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE j.state = 0),"    \
    " count(*) FILTER (WHERE j.state = 1), count(*) FILTER (WHERE s.state = 2),"                       \
    " count(*) FILTER (WHERE s.state = 3), count(*) FILTER (WHERE s.class = 'ok'), max(s.reward)"      \
    " FROM submission s LEFT JOIN job j ON j.id = s.id WHERE s.group_id = g.id HAVING count(*) > 0) c" \
    " ORDER BY g.id DESC"

int
pg_each_group(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb, void *arg,
              struct error *err)
{
    struct pg_query q = { .n = 0 };
    int rc = pg_check_limit(f->limit, GROUPS_MAX, err);

    if (rc < 0)
        return rc;
    pg_query_add(&q, GROUPS);
    if (f->before)
        pg_query_where(&q, "id <", pg_text(f->before));
    if (f->client)
        pg_query_where(&q, "client =", pg_text(f->client));
    if (f->run)
        pg_query_where(&q, "run =", pg_text(f->run));
    if (f->run && f->step >= 0)
        pg_query_where(&q, "step =", pg_int(f->step));
    pg_query_add(&q, GROUPS_END, f->limit);
    return pg_read_each(r, "read groups", q.sql, q.values, q.n, give_group, CALL(row_cb, arg), NULL, err);
}
