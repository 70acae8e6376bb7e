#include "server/store/labels.h"
#include "server/store/reading.h"

#define PAGE_MAX 201  /* a page, and whether there is more */
#define GROUPS_MAX 51 /* a group has up to 256 submissions to look at */

/* --- counts of what ended --- */

static bool
give_trend(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct trend_row view = { .start_s = row_int(row, 0),
                              .class_ = row_word(row, 1),
                              .failed_at = row_word(row, 2),
                              .passed = row_word(row, 3),
                              .reward_bin = (int)row_int(row, 4),
                              .n = row_int(row, 5),
                              .reward_sum = row_real(row, 6),
                              .wait_ms = row_int(row, 7),
                              .device_ms = row_int(row, 8) };
    ((store_trend_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_trend(struct store_reader *r, const char *scope, int span_s, int64_t since_s,
                  store_trend_cb *row_cb, void *arg, struct error *err)
{
    /* Of several nodes each has rows of its own. */
    return r->ops->each(r, "read counts",
                        "SELECT start_s, class, failed_at, passed, reward_bin, sum(n), sum(reward_sum),"
                        " sum(wait_ms), sum(device_ms) FROM trend"
                        " WHERE span_s = $1 AND scope = $2 AND start_s >= $3"
                        " GROUP BY start_s, class, failed_at, passed, reward_bin ORDER BY start_s",
                        SQL_VALUES(sql_int(span_s), sql_text(scope), sql_int(since_s)), give_trend,
                        CALL(row_cb, arg), NULL, err);
}

static bool
give_failure(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct failure_row view = { .class_ = row_word(row, 0),
                                .failed_at = row_word(row, 1),
                                .message = row_word(row, 2),
                                .n = row_int(row, 3),
                                .first_ms = row_int(row, 4),
                                .last_id = row_word(row, 5),
                                .last_ms = row_int(row, 6),
                                .all_n = row_int(row, 7),
                                .all_rows = row_int(row, 8) };
    ((store_failure_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_failure(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb,
                    void *arg, struct error *err)
{
    if (!is_page(f->limit, PAGE_MAX, err))
        return ERR_INPUT;
    return r->ops->each(r, "read failures", dialect_of(r)->each_failure,
                        SQL_VALUES(sql_text(f->scope), sql_int(f->since_s), sql_int(f->limit),
                                   sql_text(f->task_id), sql_text(f->run), sql_text(f->class_)),
                        give_failure, CALL(row_cb, arg), NULL, err);
}

/* --- tasks --- */

static bool
give_task(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct task_sum_row view = { .id = row_word(row, 0),
                                 .name = row_text(row, 1),
                                 .level = (int)row_int(row, 2),
                                 .n = row_int(row, 3),
                                 .ok = row_int(row, 4),
                                 .cheats = row_int(row, 5),
                                 .reward = row_real(row, 6),
                                 .speedup = row_real(row, 7),
                                 .last_ms = row_int(row, 8) };
    ((store_task_sum_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_task_sum(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                     int limit, store_task_sum_cb *row_cb, void *arg, struct error *err)
{
    if (!is_page(limit, PAGE_MAX, err))
        return ERR_INPUT;
    return r->ops->each(r, "read tasks' counts", dialect_of(r)->each_task_sum,
                        SQL_VALUES(sql_text(scope), sql_int(before_ms), sql_text(before_id), sql_int(limit)),
                        give_task, CALL(row_cb, arg), NULL, err);
}

int
reader_get_task_sum(struct store_reader *r, const char *scope, const char *task_id, store_task_sum_cb *row_cb,
                    void *arg, struct error *err)
{
    return r->ops->each(r, "read a task's counts", dialect_of(r)->get_task_sum,
                        SQL_VALUES(sql_text(scope), sql_text(task_id)), give_task, CALL(row_cb, arg), NULL,
                        err);
}

static bool
give_leader(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct leader_row view = { .id = row_word(row, 0),
                               .client = row_text(row, 1),
                               .gpu = row_text(row, 2),
                               .speedup = row_real(row, 3),
                               .speedup_lo = row_real(row, 4),
                               .speedup_hi = row_real(row, 5),
                               .candidate_ms = row_real(row, 6),
                               .reference_ms = row_real(row, 7),
                               .reward = row_real(row, 8),
                               .finished_ms = row_int(row, 9) };
    ((store_leader_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_leader(struct store_reader *r, const char *task_id, const char *client, int limit,
                   store_leader_cb *row_cb, void *arg, struct error *err)
{
    struct sql_query q = { .n = 0 };

    if (!is_page(limit, PAGE_MAX, err))
        return ERR_INPUT;
    sql_add(&q,
            "SELECT id, client, gpu, speedup, speedup_lo, speedup_hi, candidate_ms, reference_ms, reward,"
            " finished_ms FROM leader%s WHERE true",
            client ? INDEXED(r, "leader_task_client") : INDEXED(r, "leader_task"));
    sql_add_value(&q, " AND task_id =", sql_text(task_id));
    if (client)
        sql_add_value(&q, " AND client =", sql_text(client));
    sql_add_value(&q, " ORDER BY speedup DESC NULLS LAST, reward DESC NULLS LAST, id DESC LIMIT",
                  sql_int(limit));
    return r->ops->each(r, "read a task's best", q.sql, q.values, q.n, give_leader, CALL(row_cb, arg), NULL,
                        err);
}

static bool
give_record(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct record_row view = { .id = row_word(row, 0),
                               .finished_ms = row_int(row, 1),
                               .speedup = row_real(row, 2) };
    ((store_record_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_record(struct store_reader *r, const char *scope, const char *task_id, store_record_cb *row_cb,
                   void *arg, struct error *err)
{
    return r->ops->each(r, "read a task's records", dialect_of(r)->each_record,
                        SQL_VALUES(sql_text(scope), sql_text(task_id), sql_int(STORE_RECORDS_MAX)),
                        give_record, CALL(row_cb, arg), NULL, err);
}

/* --- groups --- */

static bool
give_group(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct group_sum_row view = { .id = row_word(row, 0),
                                  .task_id = row_word(row, 1),
                                  .task_name = row_text(row, 2),
                                  .client = row_text(row, 3),
                                  .size = (int)row_int(row, 4),
                                  .created_ms = row_int(row, 5),
                                  .run = row_text(row, 6),
                                  .step = row_int(row, 7),
                                  .ok = row_int(row, 8 + SUBMISSION_NSTATES),
                                  .reward = row_real(row, 9 + SUBMISSION_NSTATES) };

    for (int i = 0; i < SUBMISSION_NSTATES; i++)
        view.by_state[i] = row_int(row, 8 + i);
    ((store_group_sum_cb *)call->cb)(call->arg, &view);
    return true;
}

/* A run is rarely more than one client's. */
static const char *
group_index(const struct store_reader *r, const struct groups_filter *f)
{
    if (f->run)
        return f->step >= 0 ? INDEXED(r, "submission_group_run_step") : INDEXED(r, "submission_group_run");
    return f->client ? INDEXED(r, "submission_group_client") : "";
}

int
reader_each_group(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb,
                  void *arg, struct error *err)
{
    struct sql_query q = { .n = 0 };

    if (!is_page(f->limit, GROUPS_MAX, err))
        return ERR_INPUT;
    sql_add(&q,
            "SELECT g.id, g.task_id, (SELECT name FROM task WHERE task.id = g.task_id), g.client, g.size,"
            " g.created_ms, g.run, coalesce(g.step, -1), %s FROM (SELECT * FROM submission_group%s"
            " WHERE true",
            dialect_of(r)->group_counts, group_index(r, f));
    if (f->before)
        sql_add_value(&q, " AND id <", sql_text(f->before));
    if (f->client)
        sql_add_value(&q, " AND client =", sql_text(f->client));
    if (f->run)
        sql_add_value(&q, " AND run =", sql_text(f->run));
    if (f->run && f->step >= 0)
        sql_add_value(&q, " AND step =", sql_int(f->step));
    sql_add_value(&q, " ORDER BY id DESC LIMIT", sql_int(f->limit));
    sql_add(&q, ") g %s ORDER BY g.id DESC", dialect_of(r)->group_counts_from);
    return r->ops->each(r, "read groups", q.sql, q.values, q.n, give_group, CALL(row_cb, arg), NULL, err);
}

_Static_assert(LABEL_STEP_NONE + 1 == 0, "the number in the statements");

/* --- runs --- */

/* The first columns of each answer. */
#define COUNTS                                                                                \
    "sum(n), sum(infra), sum(ok), sum(cheats), sum(rewarded), sum(reward_sum), max(speedup)," \
    " sum(bin_0), sum(bin_1), sum(bin_2), sum(bin_3), sum(bin_4), sum(bin_5), sum(bin_6),"    \
    " sum(bin_7), sum(bin_8)"
#define NCOUNTS (7 + STORE_SPEEDUP_NBINS)
/* $1: the scope, "" for all */
#define OF_SCOPE "(CAST($1 AS text) = '' OR scope = $1)"
#define RUN_SQL                                                                            \
    "SELECT " COUNTS ", run, coalesce(min(first_step), -1), coalesce(max(last_step), -1)," \
    " min(first_ms), max(last_ms) FROM run_sum WHERE " OF_SCOPE
/* $2: the run; $3: where the first stretch begins; $4: how long each is */
#define STRETCH "$3 + (step - $3) / CAST($4 AS bigint) * $4 AS stretch"
#define OF_STEPS " FROM run_step WHERE run = $2 AND step >= CAST($3 AS bigint) AND " OF_SCOPE

static void
read_counts(const struct sql_row *row, struct run_counts *out)
{
    *out = (struct run_counts){ .n = row_int(row, 0),
                                .infra = row_int(row, 1),
                                .ok = row_int(row, 2),
                                .cheats = row_int(row, 3),
                                .rewarded = row_int(row, 4),
                                .reward_sum = row_real(row, 5),
                                .speedup = row_real(row, 6) };
    for (int bin = 0; bin < STORE_SPEEDUP_NBINS; bin++)
        out->speedups[bin] = row_int(row, 7 + bin);
}

static bool
give_run(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct run_row view = { .run = row_word(row, NCOUNTS),
                            .first_step = row_int(row, NCOUNTS + 1),
                            .last_step = row_int(row, NCOUNTS + 2),
                            .first_ms = row_int(row, NCOUNTS + 3),
                            .last_ms = row_int(row, NCOUNTS + 4) };

    read_counts(row, &view.counts);
    ((store_run_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_run(struct store_reader *r, const char *scope, int64_t before_ms, const char *before, int limit,
                store_run_cb *row_cb, void *arg, struct error *err)
{
    if (!is_page(limit, PAGE_MAX, err))
        return ERR_INPUT;
    return r->ops->each(r, "read runs",
                        RUN_SQL " GROUP BY run HAVING (max(last_ms), run) < ($2, $3)"
                                " ORDER BY max(last_ms) DESC, run DESC LIMIT $4",
                        SQL_VALUES(sql_text(scope), sql_int(before_ms), sql_text(before), sql_int(limit)),
                        give_run, CALL(row_cb, arg), NULL, err);
}

int
reader_get_run(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb, void *arg,
               struct error *err)
{
    return r->ops->each(r, "read a run", RUN_SQL " AND run = $2 GROUP BY run",
                        SQL_VALUES(sql_text(scope), sql_text(run)), give_run, CALL(row_cb, arg), NULL, err);
}

static bool
give_step(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct run_step_row view = { .task_id = row_text(row, NCOUNTS),
                                 .task_name = row_text(row, NCOUNTS + 1),
                                 .step = row_int(row, NCOUNTS + 2) };

    read_counts(row, &view.counts);
    ((store_run_step_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_run_step(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                     store_run_step_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each(r, "read a run's steps",
                        "SELECT " COUNTS ", NULL, NULL, " STRETCH OF_STEPS
                        " GROUP BY stretch ORDER BY stretch",
                        SQL_VALUES(sql_text(scope), sql_text(run), sql_int(from), sql_int(width)), give_step,
                        CALL(row_cb, arg), NULL, err);
}

int
reader_each_run_task(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                     int limit, store_run_step_cb *row_cb, void *arg, struct error *err)
{
    if (!is_page(limit, PAGE_MAX, err))
        return ERR_INPUT;
    return r->ops->each(
        r, "read a run's tasks",
        "WITH steps AS (SELECT *" OF_STEPS "), top AS (SELECT task_id, sum(n) AS total FROM steps"
        "  GROUP BY task_id ORDER BY total DESC, task_id LIMIT $5)"
        " SELECT " COUNTS ", task_id, (SELECT name FROM task WHERE id = task_id), " STRETCH
        " FROM steps JOIN top USING (task_id) GROUP BY task_id, total, stretch"
        " ORDER BY total DESC, task_id, stretch",
        SQL_VALUES(sql_text(scope), sql_text(run), sql_int(from), sql_int(width), sql_int(limit)), give_step,
        CALL(row_cb, arg), NULL, err);
}
