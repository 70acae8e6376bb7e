#include "server/store/pgsql/runs.h"

#include <math.h>

#include "common/classes.h"
#include "server/store/pgsql/reading.h"

/* --- writing: rows of this node alone, as those of sums.c --- */

#define COUNTS_COLUMNS                                                                        \
    "n, infra, ok, cheats, rewarded, reward_sum, speedup, bin_0, bin_1, bin_2, bin_3, bin_4," \
    " bin_5, bin_6, bin_7, bin_8"
/* $1 to $3: infra, ok, cheats; $4, $5: rewarded, reward; $6: speed-up; $7: its bin, -1 where there is none */
#define COUNTS_OF_ONE                                                              \
    "1, $1, $2, $3, $4, $5, $6, ($7::int = 0)::int, ($7 = 1)::int, ($7 = 2)::int," \
    " ($7 = 3)::int, ($7 = 4)::int, ($7 = 5)::int, ($7 = 6)::int, ($7 = 7)::int, ($7 = 8)::int"
/* The greater of two, or the one that there is. */
#define COUNTS_ADDED                                                                      \
    "n = t.n + 1, infra = t.infra + excluded.infra, ok = t.ok + excluded.ok,"             \
    " cheats = t.cheats + excluded.cheats, rewarded = t.rewarded + excluded.rewarded,"    \
    " reward_sum = t.reward_sum + excluded.reward_sum,"                                   \
    " speedup = greatest(t.speedup, excluded.speedup), bin_0 = t.bin_0 + excluded.bin_0," \
    " bin_1 = t.bin_1 + excluded.bin_1, bin_2 = t.bin_2 + excluded.bin_2,"                \
    " bin_3 = t.bin_3 + excluded.bin_3, bin_4 = t.bin_4 + excluded.bin_4,"                \
    " bin_5 = t.bin_5 + excluded.bin_5, bin_6 = t.bin_6 + excluded.bin_6,"                \
    " bin_7 = t.bin_7 + excluded.bin_7, bin_8 = t.bin_8 + excluded.bin_8"

static const char add_sum_sql[] =
    "INSERT INTO run_sum AS t (run, scope, node, first_step, last_step, first_ms, last_ms, " COUNTS_COLUMNS
    ") SELECT $8, $9, $10, step, step, $12, $12, " COUNTS_OF_ONE
    " FROM (SELECT nullif($11::bigint, -1) AS step) AS s"
    " ON CONFLICT (run, scope, node) DO UPDATE SET " COUNTS_ADDED ","
    " first_step = least(t.first_step, excluded.first_step),"
    " last_step = greatest(t.last_step, excluded.last_step),"
    " first_ms = least(t.first_ms, excluded.first_ms), last_ms = greatest(t.last_ms, excluded.last_ms)";
static const char add_step_sql[] =
    "INSERT INTO run_step AS t (run, scope, node, step, task_id, " COUNTS_COLUMNS
    ") VALUES ($8, $9, $10, $11, $12, " COUNTS_OF_ONE
    ") ON CONFLICT (run, step, task_id, scope, node) DO UPDATE SET " COUNTS_ADDED;

/* last: what differs between the two statements, $12. */
static int
add(struct pgsql *p, const char *what, const char *sql, const struct pg_run_verdict *v, struct pg_value last,
    struct error *err)
{
    bool is_rewarded = isfinite(v->reward);
    char scope[STORE_SCOPE_SIZE];

    store_scope(v->client, scope);
    return pg_run(&p->link, what, sql,
                  PG_VALUES(pg_int(v->is->class_ == CLASS_INFRA), pg_int(v->is->class_ == CLASS_OK),
                            pg_int(class_info(v->is->class_)->is_cheat), pg_int(is_rewarded),
                            pg_real(is_rewarded ? v->reward : 0), pg_real(v->is->speedup),
                            pg_int(store_speedup_bin(v->is->speedup)), pg_text(v->labels->run),
                            pg_text(scope), pg_text(p->lease.node), pg_int(v->labels->step), last),
                  NULL, err);
}

int
pg_runs_add(struct pgsql *p, const struct pg_run_verdict *v, struct error *err)
{
    int rc = add(p, "count for a run", add_sum_sql, v, pg_int(v->finished_ms), err);

    if (rc < 0 || v->labels->step == LABEL_STEP_NONE)
        return rc;
    return add(p, "count for a step", add_step_sql, v, pg_text(v->task_id), err);
}

/* --- reading --- */

/* The first columns of each answer. */
#define COUNTS                                                                                \
    "sum(n), sum(infra), sum(ok), sum(cheats), sum(rewarded), sum(reward_sum), max(speedup)," \
    " sum(bin_0), sum(bin_1), sum(bin_2), sum(bin_3), sum(bin_4), sum(bin_5), sum(bin_6),"    \
    " sum(bin_7), sum(bin_8)"
#define RUNS_MAX 201 /* a page, and whether there is more */
#define NCOUNTS (7 + STORE_SPEEDUP_NBINS)
/* $1: the scope, "" for all */
#define OF_SCOPE "($1::text = '' OR scope = $1)"
#define RUN_SQL                                                                            \
    "SELECT " COUNTS ", run, coalesce(min(first_step), -1), coalesce(max(last_step), -1)," \
    " min(first_ms), max(last_ms) FROM run_sum WHERE " OF_SCOPE
/* $2: the run; $3: where the first stretch begins; $4: how long each is */
#define STRETCH "$3 + (step - $3) / $4::bigint * $4 AS stretch"
#define OF_STEPS " FROM run_step WHERE run = $2 AND step >= $3::bigint AND " OF_SCOPE

static void
read_counts(const PGresult *rows, int i, struct run_counts *out)
{
    *out = (struct run_counts){ .n = pg_column_int(rows, i, 0),
                                .infra = pg_column_int(rows, i, 1),
                                .ok = pg_column_int(rows, i, 2),
                                .cheats = pg_column_int(rows, i, 3),
                                .rewarded = pg_column_int(rows, i, 4),
                                .reward_sum = pg_column_real(rows, i, 5),
                                .speedup = pg_column_real(rows, i, 6) };
    for (int bin = 0; bin < STORE_SPEEDUP_NBINS; bin++)
        out->speedups[bin] = pg_column_int(rows, i, 7 + bin);
}

static bool
give_run(void *arg, const PGresult *rows, int i)
{
    const struct call *call = arg;
    struct run_row row = { .run = pg_column_text(rows, i, NCOUNTS),
                           .first_step = pg_column_int(rows, i, NCOUNTS + 1),
                           .last_step = pg_column_int(rows, i, NCOUNTS + 2),
                           .first_ms = pg_column_int(rows, i, NCOUNTS + 3),
                           .last_ms = pg_column_int(rows, i, NCOUNTS + 4) };

    read_counts(rows, i, &row.counts);
    ((store_run_cb *)call->cb)(call->arg, &row);
    return true;
}

int
pg_each_run(struct store_reader *r, const char *scope, int64_t before_ms, const char *before, int limit,
            store_run_cb *row_cb, void *arg, struct error *err)
{
    int rc = pg_check_limit(limit, RUNS_MAX, err);

    if (rc < 0)
        return rc;
    return pg_read_each(r, "read runs",
                        RUN_SQL " GROUP BY run HAVING (max(last_ms), run) < ($2, $3)"
                                " ORDER BY max(last_ms) DESC, run DESC LIMIT $4",
                        PG_VALUES(pg_text(scope), pg_int(before_ms), pg_text(before), pg_int(limit)),
                        give_run, CALL(row_cb, arg), NULL, err);
}

int
pg_get_run(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb, void *arg,
           struct error *err)
{
    return pg_read_each(r, "read a run", RUN_SQL " AND run = $2 GROUP BY run",
                        PG_VALUES(pg_text(scope), pg_text(run)), give_run, CALL(row_cb, arg), NULL, err);
}

static bool
give_step(void *arg, const PGresult *rows, int i)
{
    const struct call *call = arg;
    struct run_step_row row = { .task_id = pg_column_text(rows, i, NCOUNTS),
                                .task_name = pg_column_text(rows, i, NCOUNTS + 1),
                                .step = pg_column_int(rows, i, NCOUNTS + 2) };

    read_counts(rows, i, &row.counts);
    ((store_run_step_cb *)call->cb)(call->arg, &row);
    return true;
}

int
pg_each_run_step(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                 store_run_step_cb *row_cb, void *arg, struct error *err)
{
    return pg_read_each(r, "read a run's steps",
                        "SELECT " COUNTS ", NULL, NULL, " STRETCH OF_STEPS
                        " GROUP BY stretch ORDER BY stretch",
                        PG_VALUES(pg_text(scope), pg_text(run), pg_int(from), pg_int(width)), give_step,
                        CALL(row_cb, arg), NULL, err);
}

int
pg_each_run_task(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
                 int limit, store_run_step_cb *row_cb, void *arg, struct error *err)
{
    int rc = pg_check_limit(limit, RUNS_MAX, err);

    if (rc < 0)
        return rc;
    return pg_read_each(r, "read a run's tasks",
                        "WITH steps AS (SELECT *" OF_STEPS
                        "), top AS (SELECT task_id, sum(n) AS total FROM steps"
                        "  GROUP BY task_id ORDER BY total DESC, task_id LIMIT $5)"
                        " SELECT " COUNTS ", task_id, (SELECT name FROM task WHERE id = task_id), " STRETCH
                        " FROM steps JOIN top USING (task_id) GROUP BY task_id, total, stretch"
                        " ORDER BY total DESC, task_id, stretch",
                        PG_VALUES(pg_text(scope), pg_text(run), pg_int(from), pg_int(width), pg_int(limit)),
                        give_step, CALL(row_cb, arg), NULL, err);
}
