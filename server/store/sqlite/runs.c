#include "server/store/sqlite/runs.h"

#include <math.h>
#include <stdio.h>

#include "common/classes.h"
#include "server/store/sqlite/db.h"

/* --- writing --- */

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
/* ?1 to ?3: infra, ok, cheats; ?4, ?5: rewarded, reward; ?6: speed-up; ?7: its bin */
#define COUNTS_OF_ONE                                                                           \
    "1, ?1, ?2, ?3, ?4, ?5, ?6, ?7 IS 0, ?7 IS 1, ?7 IS 2, ?7 IS 3, ?7 IS 4, ?7 IS 5, ?7 IS 6," \
    " ?7 IS 7, ?7 IS 8"

static const char add_sum_sql[] =
    "INSERT INTO run_sum VALUES (?8, ?9, " COUNTS_OF_ONE ", ?10, ?10, ?11, ?11)"
    " ON CONFLICT DO UPDATE SET " COUNTS_ADDED ","
    " first_step = min(coalesce(first_step, excluded.first_step), coalesce(excluded.first_step, first_step)),"
    " last_step = max(coalesce(last_step, excluded.last_step), coalesce(excluded.last_step, last_step)),"
    " first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)";
static const char add_step_sql[] = "INSERT INTO run_step VALUES (?8, ?10, ?11, ?9, " COUNTS_OF_ONE ")"
                                   " ON CONFLICT DO UPDATE SET " COUNTS_ADDED;

int
runs_writer_init(struct runs_writer *w, sqlite3 *db, struct error *err)
{
    *w = (struct runs_writer){ 0 };
    int rc = db_prepare(db, add_sum_sql, &w->add_sum, err);
    return rc == 0 ? db_prepare(db, add_step_sql, &w->add_step, err) : rc;
}

void
runs_writer_release(struct runs_writer *w)
{
    sqlite3_finalize(w->add_sum);
    sqlite3_finalize(w->add_step);
}

static void
bind_one(sqlite3_stmt *stmt, const struct run_verdict *v)
{
    bool is_rewarded = isfinite(v->reward);

    sqlite3_bind_int(stmt, 1, v->is->class_ == CLASS_INFRA);
    sqlite3_bind_int(stmt, 2, v->is->class_ == CLASS_OK);
    sqlite3_bind_int(stmt, 3, class_info(v->is->class_)->is_cheat);
    sqlite3_bind_int(stmt, 4, is_rewarded);
    sqlite3_bind_double(stmt, 5, is_rewarded ? v->reward : 0);
    if (isfinite(v->is->speedup)) {
        sqlite3_bind_double(stmt, 6, v->is->speedup);
        sqlite3_bind_int(stmt, 7, store_speedup_bin(v->is->speedup));
    }
    db_bind_text(stmt, 8, v->labels->run);
    db_bind_text(stmt, 9, v->scope);
    if (v->labels->step != LABEL_STEP_NONE)
        sqlite3_bind_int64(stmt, 10, v->labels->step);
}

int
runs_add(struct runs_writer *w, const struct run_verdict *v, struct error *err)
{
    bind_one(w->add_sum, v);
    sqlite3_bind_int64(w->add_sum, 11, v->finished_ms);
    int rc = db_run(w->add_sum, "count for a run", err);
    if (rc < 0 || v->labels->step == LABEL_STEP_NONE)
        return rc;
    bind_one(w->add_step, v);
    db_bind_text(w->add_step, 11, v->task_id);
    return db_run(w->add_step, "count for a step", err);
}

/* --- reading --- */

enum query { EACH_RUN, GET_RUN, EACH_STEP, EACH_TASK };

_Static_assert(EACH_TASK + 1 == RUNS_NQUERIES, "one statement for each query");

/* The first 16 columns of each answer. */
#define COUNTS                                                                                \
    "sum(n), sum(infra), sum(ok), sum(cheats), sum(rewarded), sum(reward_sum), max(speedup)," \
    " sum(bin_0), sum(bin_1), sum(bin_2), sum(bin_3), sum(bin_4), sum(bin_5), sum(bin_6),"    \
    " sum(bin_7), sum(bin_8)"
#define NCOUNTS (7 + STORE_SPEEDUP_NBINS)
/* ?1: the scope, "" for all */
#define OF_SCOPE "(?1 = '' OR scope = ?1)"
#define RUN_SQL      \
    "SELECT " COUNTS \
    ", run, min(first_step), max(last_step), min(first_ms), max(last_ms) AS last FROM run_sum"
/* ?2: the run; ?3: where the first stretch begins; ?4: how long each is */
#define STRETCH "?3 + (step - ?3) / ?4 * ?4"

static const char *const query_sql[RUNS_NQUERIES] = {
    [EACH_RUN] = RUN_SQL " WHERE " OF_SCOPE " GROUP BY run HAVING (last, run) < (?2, ?3)"
                         " ORDER BY last DESC, run DESC LIMIT ?4",
    [GET_RUN] = RUN_SQL " WHERE run = ?2 AND " OF_SCOPE " GROUP BY run",
    [EACH_STEP] = "SELECT " COUNTS ", NULL, NULL, " STRETCH " AS stretch FROM run_step"
                  " WHERE run = ?2 AND step >= ?3 AND " OF_SCOPE " GROUP BY stretch ORDER BY stretch",
    [EACH_TASK] =
        "WITH top AS (SELECT task_id, sum(n) AS total FROM run_step WHERE run = ?2 AND step >= ?3 "
        "AND " OF_SCOPE "  GROUP BY task_id ORDER BY total DESC, task_id LIMIT ?5)"
        " SELECT " COUNTS ", task_id, (SELECT name FROM task WHERE id = task_id), " STRETCH " AS stretch"
        " FROM run_step JOIN top USING (task_id) WHERE run = ?2 AND step >= ?3 AND " OF_SCOPE
        " GROUP BY task_id, stretch ORDER BY total DESC, task_id, stretch",
};

int
runs_reader_init(struct sqlite_reader *r, struct error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < RUNS_NQUERIES; i++)
        rc = db_prepare(r->db, query_sql[i], &r->runs[i], err);
    return rc;
}

void
runs_reader_release(struct sqlite_reader *r)
{
    for (int i = 0; i < RUNS_NQUERIES; i++)
        sqlite3_finalize(r->runs[i]);
}

static const char *
text_at(sqlite3_stmt *stmt, int column)
{
    return (const char *)sqlite3_column_text(stmt, column);
}

static void
read_counts(sqlite3_stmt *stmt, struct run_counts *out)
{
    bool is_timed = sqlite3_column_type(stmt, 6) != SQLITE_NULL;

    *out = (struct run_counts){ .n = sqlite3_column_int64(stmt, 0),
                                .infra = sqlite3_column_int64(stmt, 1),
                                .ok = sqlite3_column_int64(stmt, 2),
                                .cheats = sqlite3_column_int64(stmt, 3),
                                .rewarded = sqlite3_column_int64(stmt, 4),
                                .reward_sum = sqlite3_column_double(stmt, 5),
                                .speedup = is_timed ? sqlite3_column_double(stmt, 6) : NAN };
    for (int i = 0; i < STORE_SPEEDUP_NBINS; i++)
        out->speedups[i] = sqlite3_column_int64(stmt, 7 + i);
}

static int64_t
step_at(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? LABEL_STEP_NONE
                                                            : sqlite3_column_int64(stmt, column);
}

/* out: a statement that is free to be bound, with its scope. */
static int
begin(struct store_reader *r, enum query which, int limit, const char *scope, sqlite3_stmt **out,
      struct error *err)
{
    *out = sqlite_reader_of(r)->runs[which];
    if (limit < 1 || limit > 201)
        return error_set(err, ERR_INPUT, "a page has 1 to 201 rows, not %d", limit);
    if (sqlite3_stmt_busy(*out))
        return error_set(err, ERR_STORE, "a list was asked for from its own callback");
    db_bind_text(*out, 1, scope);
    return 0;
}

static int
end(sqlite3_stmt *stmt, int step, struct error *err)
{
    int rc = step == SQLITE_DONE ? 0 : db_fail(sqlite3_db_handle(stmt), err, "read what a run came to");

    db_reset(stmt);
    return rc;
}

static int
give_runs(sqlite3_stmt *stmt, store_run_cb *row_cb, void *arg, struct error *err)
{
    int step;

    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct run_row row = { .run = text_at(stmt, NCOUNTS),
                               .first_step = step_at(stmt, NCOUNTS + 1),
                               .last_step = step_at(stmt, NCOUNTS + 2),
                               .first_ms = sqlite3_column_int64(stmt, NCOUNTS + 3),
                               .last_ms = sqlite3_column_int64(stmt, NCOUNTS + 4) };
        read_counts(stmt, &row.counts);
        if (row.run)
            row_cb(arg, &row);
    }
    return end(stmt, step, err);
}

int
runs_each_run(struct store_reader *r, const char *scope, int64_t before_ms, const char *before, int limit,
              store_run_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt;
    int rc = begin(r, EACH_RUN, limit, scope, &stmt, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int64(stmt, 2, before_ms);
    db_bind_text(stmt, 3, before);
    sqlite3_bind_int(stmt, 4, limit);
    return give_runs(stmt, row_cb, arg, err);
}

int
runs_get_run(struct store_reader *r, const char *scope, const char *run, store_run_cb *row_cb, void *arg,
             struct error *err)
{
    sqlite3_stmt *stmt;
    int rc = begin(r, GET_RUN, 1, scope, &stmt, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 2, run);
    return give_runs(stmt, row_cb, arg, err);
}

static int
give_steps(sqlite3_stmt *stmt, const char *run, int64_t from, int64_t width, store_run_step_cb *row_cb,
           void *arg, struct error *err)
{
    int step;

    db_bind_text(stmt, 2, run);
    sqlite3_bind_int64(stmt, 3, from);
    sqlite3_bind_int64(stmt, 4, width);
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct run_step_row row = { .task_id = text_at(stmt, NCOUNTS),
                                    .task_name = text_at(stmt, NCOUNTS + 1),
                                    .step = sqlite3_column_int64(stmt, NCOUNTS + 2) };
        read_counts(stmt, &row.counts);
        row_cb(arg, &row);
    }
    return end(stmt, step, err);
}

int
runs_each_step(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
               store_run_step_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt;
    int rc = begin(r, EACH_STEP, 1, scope, &stmt, err);

    return rc < 0 ? rc : give_steps(stmt, run, from, width, row_cb, arg, err);
}

int
runs_each_task(struct store_reader *r, const char *scope, const char *run, int64_t from, int64_t width,
               int limit, store_run_step_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt;
    int rc = begin(r, EACH_TASK, limit, scope, &stmt, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int(stmt, 5, limit);
    return give_steps(stmt, run, from, width, row_cb, arg, err);
}
