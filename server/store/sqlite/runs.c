#include "server/store/sqlite/runs.h"

#include <math.h>

#include "common/classes.h"

#define BINS_ADDED                                                     \
    "bin_0 = bin_0 + excluded.bin_0, bin_1 = bin_1 + excluded.bin_1,"  \
    " bin_2 = bin_2 + excluded.bin_2, bin_3 = bin_3 + excluded.bin_3," \
    " bin_4 = bin_4 + excluded.bin_4, bin_5 = bin_5 + excluded.bin_5," \
    " bin_6 = bin_6 + excluded.bin_6, bin_7 = bin_7 + excluded.bin_7," \
    " bin_8 = bin_8 + excluded.bin_8"
#define COUNTS_ADDED                                                               \
    "n = n + 1, infra = infra + excluded.infra, ok = ok + excluded.ok,"            \
    " cheats = cheats + excluded.cheats, rewarded = rewarded + excluded.rewarded," \
    " reward_sum = reward_sum + excluded.reward_sum,"                              \
    " speedup = max(coalesce(speedup, excluded.speedup), coalesce(excluded.speedup, speedup)), " BINS_ADDED
/* $1 to $3: infra, ok, cheats; $4, $5: rewarded, reward; $6: speed-up; $7: its bin */
#define COUNTS_OF_ONE                                                                           \
    "1, $1, $2, $3, $4, $5, $6, $7 IS 0, $7 IS 1, $7 IS 2, $7 IS 3, $7 IS 4, $7 IS 5, $7 IS 6," \
    " $7 IS 7, $7 IS 8"

static const char add_sum_sql[] =
    "INSERT INTO run_sum VALUES ($8, $9, " COUNTS_OF_ONE ", nullif($10, -1), nullif($10, -1), $11, $11)"
    " ON CONFLICT DO UPDATE SET " COUNTS_ADDED ","
    " first_step = min(coalesce(first_step, excluded.first_step), coalesce(excluded.first_step, first_step)),"
    " last_step = max(coalesce(last_step, excluded.last_step), coalesce(excluded.last_step, last_step)),"
    " first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)";
static const char add_step_sql[] = "INSERT INTO run_step VALUES ($8, $10, $11, $9, " COUNTS_OF_ONE ")"
                                   " ON CONFLICT DO UPDATE SET " COUNTS_ADDED;

/* last: what differs between the two statements, $11. */
static int
add(struct sqlite *s, const char *what, const char *sql, const struct run_verdict *v, struct sql_value last,
    struct error *err)
{
    bool is_rewarded = isfinite(v->reward);

    return db_change(&s->db, what, sql,
                     SQL_VALUES(sql_int(v->is->class_ == CLASS_INFRA), sql_int(v->is->class_ == CLASS_OK),
                                sql_int(class_info(v->is->class_)->is_cheat), sql_int(is_rewarded),
                                sql_real(is_rewarded ? v->reward : 0), sql_real(v->is->speedup),
                                sql_int(store_speedup_bin(v->is->speedup)), sql_text(v->labels->run),
                                sql_text(v->scope), sql_int(v->labels->step), last),
                     NULL, err);
}

int
runs_add(struct sqlite *s, const struct run_verdict *v, struct error *err)
{
    int rc = add(s, "count for a run", add_sum_sql, v, sql_int(v->finished_ms), err);

    if (rc < 0 || v->labels->step == LABEL_STEP_NONE)
        return rc;
    return add(s, "count for a step", add_step_sql, v, sql_text(v->task_id), err);
}
