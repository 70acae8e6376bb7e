#include "server/store/sqlite/sums_reader.h"

#include <math.h>
#include <string.h>

#include "server/store/labels.h"
#include "server/store/sqlite/db.h"

#define PAGE_MAX 201  /* a page, and whether there is more */
#define GROUPS_MAX 51 /* a group has up to 256 submissions to look at */

enum query {
    EACH_TREND,
    EACH_FAILURE,
    EACH_TASK,
    ONE_TASK,
    EACH_LEADER,
    EACH_LEADER_OF_CLIENT,
    EACH_RECORD,
    EACH_GROUP,
    EACH_GROUP_OF_CLIENT,
    EACH_GROUP_OF_RUN,
    EACH_GROUP_OF_STEP,
};

_Static_assert(EACH_GROUP_OF_STEP + 1 == SUMS_NQUERIES, "one statement for each query");

#define TASK_SUM_SQL                                                                                     \
    "SELECT task_id, name, level, n, ok, cheats, reward, speedup, last_ms FROM task_sum LEFT JOIN task " \
    "ON id = task_id WHERE scope = ?1"
#define LEADER_SQL                                                                                  \
    "SELECT id, client, gpu, speedup, speedup_lo, speedup_hi, candidate_ms, reference_ms, reward, " \
    "finished_ms FROM leader"
/* The counts walk one group's stretch of an index, 256 rows at most. */
#define GROUP_SQL                                                                                   \
    "SELECT g.id, g.task_id, (SELECT name FROM task WHERE task.id = g.task_id), g.client, g.size, " \
    "g.created_ms, sum(s.state = 0), sum(s.state = 1), sum(s.state = 2), sum(s.state = 3), "        \
    "sum(s.class IS 'ok'), max(s.reward), g.run, g.step"                                            \
    " FROM (SELECT * FROM submission_group"
#define GROUP_SQL_END                                                                         \
    " ORDER BY id DESC LIMIT ?2) g CROSS JOIN submission s INDEXED BY submission_group_index" \
    " ON s.group_id = g.id GROUP BY g.id ORDER BY g.id DESC"

/* SQLite has no statistics of ours: the index to walk is named where there is a choice. */
static const char *const query_sql[SUMS_NQUERIES] = {
    [EACH_TREND] =
        "SELECT start_s, class, failed_at, passed, reward_bin, n, reward_sum, wait_ms, device_ms FROM trend"
        " WHERE span_s = ?1 AND scope = ?2 AND start_s >= ?3 ORDER BY start_s",
    /* Of several rows with the greatest last_ms any gives the id: SQLite takes bare columns from that row. */
    [EACH_FAILURE] =
        "SELECT class, failed_at, message, sum(n) AS total, min(first_ms), last_id, max(last_ms),"
        "  sum(sum(n)) OVER (), count(*) OVER () FROM failure WHERE scope = ?1 AND start_s >= ?2"
        " AND (?4 IS NULL OR task_id = ?4) AND (?5 IS NULL OR run = ?5)"
        " AND (?6 IS NULL OR class = ?6)"
        " GROUP BY class, failed_at, message ORDER BY total DESC, 7 DESC LIMIT ?3",
    [EACH_TASK] =
        TASK_SUM_SQL " AND (last_ms, task_id) < (?2, ?3) ORDER BY last_ms DESC, task_id DESC LIMIT ?4",
    [ONE_TASK] = TASK_SUM_SQL " AND task_id = ?2",
    [EACH_LEADER] = LEADER_SQL " INDEXED BY leader_task WHERE task_id = ?1"
                               " ORDER BY speedup DESC, reward DESC, id DESC LIMIT ?2",
    [EACH_LEADER_OF_CLIENT] = LEADER_SQL " INDEXED BY leader_task_client WHERE task_id = ?1 AND client = ?3"
                                         " ORDER BY speedup DESC, reward DESC, id DESC LIMIT ?2",
    [EACH_RECORD] = "SELECT id, finished_ms, speedup FROM record WHERE scope = ?1 AND task_id = ?2"
                    " ORDER BY finished_ms DESC, id DESC LIMIT ?3",
    [EACH_GROUP] = GROUP_SQL " WHERE id < ?1" GROUP_SQL_END,
    [EACH_GROUP_OF_CLIENT] =
        GROUP_SQL " INDEXED BY submission_group_client WHERE id < ?1 AND client = ?3" GROUP_SQL_END,
    /* A run is rarely more than one client's. */
    [EACH_GROUP_OF_RUN] = GROUP_SQL " INDEXED BY submission_group_run WHERE id < ?1 AND run = ?4"
                                    " AND (?3 IS NULL OR client = ?3)" GROUP_SQL_END,
    [EACH_GROUP_OF_STEP] = GROUP_SQL " INDEXED BY submission_group_run_step WHERE id < ?1 AND run = ?4"
                                     " AND step = ?5 AND (?3 IS NULL OR client = ?3)" GROUP_SQL_END,
};

int
sums_reader_init(struct sqlite_reader *r, struct error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < SUMS_NQUERIES; i++)
        rc = db_prepare(r->db, query_sql[i], &r->sums[i], err);
    return rc;
}

void
sums_reader_release(struct sqlite_reader *r)
{
    for (int i = 0; i < SUMS_NQUERIES; i++)
        sqlite3_finalize(r->sums[i]);
}

static sqlite3_stmt *
query(struct store_reader *r, enum query which)
{
    return sqlite_reader_of(r)->sums[which];
}

static const char *
text_at(sqlite3_stmt *stmt, int column)
{
    return (const char *)sqlite3_column_text(stmt, column);
}

/* Of a column that is never NULL: only a want of memory makes it so, and then the row says less. */
static const char *
word_at(sqlite3_stmt *stmt, int column)
{
    const char *text = text_at(stmt, column);
    return text ? text : "";
}

static double
real_at(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? NAN : sqlite3_column_double(stmt, column);
}

static int
check(sqlite3_stmt *stmt, int limit, int most, struct error *err)
{
    if (limit < 1 || limit > most)
        return error_set(err, ERR_INPUT, "a page has 1 to %d rows, not %d", most, limit);
    return sqlite3_stmt_busy(stmt) ? error_set(err, ERR_STORE, "a list was asked for from its own callback")
                                   : 0;
}

/* Step a bound statement through its rows and reset it. */
struct call {
    void (*cb)(void);
    void *arg;
};

static int
each(sqlite3_stmt *stmt, void (*give)(sqlite3_stmt *stmt, const struct call *call), struct call call,
     const char *what, struct error *err)
{
    int step, rc = 0;

    while ((step = sqlite3_step(stmt)) == SQLITE_ROW)
        give(stmt, &call);
    if (step != SQLITE_DONE)
        rc = db_fail(sqlite3_db_handle(stmt), err, what);
    db_reset(stmt);
    return rc;
}

static void
give_trend(sqlite3_stmt *stmt, const struct call *call)
{
    struct trend_row row = { .start_s = sqlite3_column_int64(stmt, 0),
                             .class_ = word_at(stmt, 1),
                             .failed_at = word_at(stmt, 2),
                             .passed = word_at(stmt, 3),
                             .reward_bin = sqlite3_column_int(stmt, 4),
                             .n = sqlite3_column_int64(stmt, 5),
                             .reward_sum = sqlite3_column_double(stmt, 6),
                             .wait_ms = sqlite3_column_int64(stmt, 7),
                             .device_ms = sqlite3_column_int64(stmt, 8) };
    ((store_trend_cb *)call->cb)(call->arg, &row);
}

int
sums_each_trend(struct store_reader *r, const char *scope, int span_s, int64_t since_s,
                store_trend_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt = query(r, EACH_TREND);
    int rc = check(stmt, 1, 1, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int(stmt, 1, span_s);
    db_bind_text(stmt, 2, scope);
    sqlite3_bind_int64(stmt, 3, since_s);
    return each(stmt, give_trend, (struct call){ (void (*)(void))row_cb, arg }, "read counts", err);
}

static void
give_failure(sqlite3_stmt *stmt, const struct call *call)
{
    struct failure_row row = { .class_ = word_at(stmt, 0),
                               .failed_at = word_at(stmt, 1),
                               .message = word_at(stmt, 2),
                               .n = sqlite3_column_int64(stmt, 3),
                               .first_ms = sqlite3_column_int64(stmt, 4),
                               .last_id = word_at(stmt, 5),
                               .last_ms = sqlite3_column_int64(stmt, 6),
                               .all_n = sqlite3_column_int64(stmt, 7),
                               .all_rows = sqlite3_column_int64(stmt, 8) };
    ((store_failure_cb *)call->cb)(call->arg, &row);
}

int
sums_each_failure(struct store_reader *r, const struct failure_filter *f, store_failure_cb *row_cb, void *arg,
                  struct error *err)
{
    sqlite3_stmt *stmt = query(r, EACH_FAILURE);
    int rc = check(stmt, f->limit, PAGE_MAX, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, f->scope);
    sqlite3_bind_int64(stmt, 2, f->since_s);
    sqlite3_bind_int(stmt, 3, f->limit);
    db_bind_text(stmt, 4, f->task_id);
    db_bind_text(stmt, 5, f->run);
    db_bind_text(stmt, 6, f->class_);
    return each(stmt, give_failure, (struct call){ (void (*)(void))row_cb, arg }, "read failures", err);
}

static void
give_task(sqlite3_stmt *stmt, const struct call *call)
{
    struct task_sum_row row = { .id = word_at(stmt, 0),
                                .name = text_at(stmt, 1),
                                .level = sqlite3_column_int(stmt, 2),
                                .n = sqlite3_column_int64(stmt, 3),
                                .ok = sqlite3_column_int64(stmt, 4),
                                .cheats = sqlite3_column_int64(stmt, 5),
                                .reward = real_at(stmt, 6),
                                .speedup = real_at(stmt, 7),
                                .last_ms = sqlite3_column_int64(stmt, 8) };
    ((store_task_sum_cb *)call->cb)(call->arg, &row);
}

int
sums_each_task_sum(struct store_reader *r, const char *scope, int64_t before_ms, const char *before_id,
                   int limit, store_task_sum_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt = query(r, EACH_TASK);
    int rc = check(stmt, limit, PAGE_MAX, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, scope);
    sqlite3_bind_int64(stmt, 2, before_ms);
    db_bind_text(stmt, 3, before_id);
    sqlite3_bind_int(stmt, 4, limit);
    return each(stmt, give_task, (struct call){ (void (*)(void))row_cb, arg }, "read tasks' counts", err);
}

int
sums_get_task_sum(struct store_reader *r, const char *scope, const char *task_id, store_task_sum_cb *row_cb,
                  void *arg, struct error *err)
{
    sqlite3_stmt *stmt = query(r, ONE_TASK);
    int rc = check(stmt, 1, 1, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, scope);
    db_bind_text(stmt, 2, task_id);
    return each(stmt, give_task, (struct call){ (void (*)(void))row_cb, arg }, "read a task's counts", err);
}

static void
give_leader(sqlite3_stmt *stmt, const struct call *call)
{
    struct leader_row row = { .id = word_at(stmt, 0),
                              .client = text_at(stmt, 1),
                              .gpu = text_at(stmt, 2),
                              .speedup = real_at(stmt, 3),
                              .speedup_lo = real_at(stmt, 4),
                              .speedup_hi = real_at(stmt, 5),
                              .candidate_ms = real_at(stmt, 6),
                              .reference_ms = real_at(stmt, 7),
                              .reward = real_at(stmt, 8),
                              .finished_ms = sqlite3_column_int64(stmt, 9) };
    ((store_leader_cb *)call->cb)(call->arg, &row);
}

int
sums_each_leader(struct store_reader *r, const char *task_id, const char *client, int limit,
                 store_leader_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt = query(r, client ? EACH_LEADER_OF_CLIENT : EACH_LEADER);
    int rc = check(stmt, limit, PAGE_MAX, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, task_id);
    sqlite3_bind_int(stmt, 2, limit);
    if (client)
        db_bind_text(stmt, 3, client);
    return each(stmt, give_leader, (struct call){ (void (*)(void))row_cb, arg }, "read a task's best", err);
}

static void
give_record(sqlite3_stmt *stmt, const struct call *call)
{
    struct record_row row = { .id = word_at(stmt, 0),
                              .finished_ms = sqlite3_column_int64(stmt, 1),
                              .speedup = real_at(stmt, 2) };
    ((store_record_cb *)call->cb)(call->arg, &row);
}

int
sums_each_record(struct store_reader *r, const char *scope, const char *task_id, store_record_cb *row_cb,
                 void *arg, struct error *err)
{
    sqlite3_stmt *stmt = query(r, EACH_RECORD);
    int rc = check(stmt, 1, 1, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, scope);
    db_bind_text(stmt, 2, task_id);
    sqlite3_bind_int(stmt, 3, STORE_RECORDS_MAX);
    return each(stmt, give_record, (struct call){ (void (*)(void))row_cb, arg }, "read a task's records",
                err);
}

static void
give_group(sqlite3_stmt *stmt, const struct call *call)
{
    struct group_sum_row row = { .id = word_at(stmt, 0),
                                 .task_id = word_at(stmt, 1),
                                 .task_name = text_at(stmt, 2),
                                 .client = text_at(stmt, 3),
                                 .size = sqlite3_column_int(stmt, 4),
                                 .created_ms = sqlite3_column_int64(stmt, 5),
                                 .ok = sqlite3_column_int64(stmt, 6 + SUBMISSION_NSTATES),
                                 .reward = real_at(stmt, 7 + SUBMISSION_NSTATES),
                                 .run = text_at(stmt, 8 + SUBMISSION_NSTATES),
                                 .step = LABEL_STEP_NONE };

    if (sqlite3_column_type(stmt, 9 + SUBMISSION_NSTATES) != SQLITE_NULL)
        row.step = sqlite3_column_int64(stmt, 9 + SUBMISSION_NSTATES);
    for (int i = 0; i < SUBMISSION_NSTATES; i++)
        row.by_state[i] = sqlite3_column_int64(stmt, 6 + i);
    ((store_group_sum_cb *)call->cb)(call->arg, &row);
}

static enum query
group_query(const struct groups_filter *f)
{
    if (f->run)
        return f->step >= 0 ? EACH_GROUP_OF_STEP : EACH_GROUP_OF_RUN;
    return f->client ? EACH_GROUP_OF_CLIENT : EACH_GROUP;
}

int
sums_each_group(struct store_reader *r, const struct groups_filter *f, store_group_sum_cb *row_cb, void *arg,
                struct error *err)
{
    sqlite3_stmt *stmt = query(r, group_query(f));
    int rc = check(stmt, f->limit, GROUPS_MAX, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, f->before ? f->before : "~"); /* greater than any id */
    sqlite3_bind_int(stmt, 2, f->limit);
    db_bind_text(stmt, 3, f->client);
    db_bind_text(stmt, 4, f->run);
    sqlite3_bind_int64(stmt, 5, f->step);
    return each(stmt, give_group, (struct call){ (void (*)(void))row_cb, arg }, "read groups", err);
}
