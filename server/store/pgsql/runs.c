#include "server/store/pgsql/runs.h"

#include <math.h>

#include "common/classes.h"

/* Rows of this node alone, as those of sums.c. */

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
add(struct pgsql *p, const char *what, const char *sql, const struct pg_run_verdict *v, struct sql_value last,
    struct error *err)
{
    bool is_rewarded = isfinite(v->reward);
    char scope[STORE_SCOPE_SIZE];

    store_scope(v->client, scope);
    return pg_run(&p->link, what, sql,
                  SQL_VALUES(sql_int(v->is->class_ == CLASS_INFRA), sql_int(v->is->class_ == CLASS_OK),
                             sql_int(class_info(v->is->class_)->is_cheat), sql_int(is_rewarded),
                             sql_real(is_rewarded ? v->reward : 0), sql_real(v->is->speedup),
                             sql_int(store_speedup_bin(v->is->speedup)), sql_text(v->labels->run),
                             sql_text(scope), sql_text(p->lease.node), sql_int(v->labels->step), last),
                  NULL, err);
}

int
pg_runs_add(struct pgsql *p, const struct pg_run_verdict *v, struct error *err)
{
    int rc = add(p, "count for a run", add_sum_sql, v, sql_int(v->finished_ms), err);

    if (rc < 0 || v->labels->step == LABEL_STEP_NONE)
        return rc;
    return add(p, "count for a step", add_step_sql, v, sql_text(v->task_id), err);
}
