#include "server/store/sqlite/sqlite.h"

#include <stdlib.h>

#include "common/auto.h"
#include "server/store/backend.h"
#include "server/store/sqlite/db.h"

/* --- statements that read --- */

/*
 * We keep no statistics for SQLite, so a statement names its index where there is a choice: a wrong one reads every
 * row.
 */

enum {
    BY_STATE = 1,
    BY_TASK = 2,
    BY_CLASS = 4,
    BY_CLIENT = 8,
    BY_GROUP = 16,
    IS_LIVE = 32,
    IS_CANCELLED = 64,
    BY_RUN = 128,
    BY_STEP = 256,
};

static int
mask_of(const struct submission_filter *f)
{
    int mask = (f->task_id ? BY_TASK : 0) | (f->class_ ? BY_CLASS : 0) | (f->client ? BY_CLIENT : 0) |
               (f->group_id ? BY_GROUP : 0) | (f->run ? BY_RUN : 0) | (f->run && f->step >= 0 ? BY_STEP : 0);

    if (f->state == SUBMISSION_QUEUED || f->state == SUBMISSION_RUNNING)
        mask |= IS_LIVE;
    if (f->state == SUBMISSION_CANCELLED)
        mask |= IS_CANCELLED;
    return f->state >= 0 ? mask | BY_STATE : mask;
}

/* The first match wins. */
static const struct {
    int needs;
    const char *index;
} index_choices[] = {
    { BY_GROUP, "submission_group_index" }, /* at most 256 rows */
    { IS_LIVE, "submission_state" },        /* no more than the queue holds */
    { BY_STEP, "submission_run_step" },     /* a few groups */
    { IS_CANCELLED | BY_TASK, "submission_cancelled_task" },
    { IS_CANCELLED | BY_CLIENT, "submission_cancelled_client" },
    { IS_CANCELLED | BY_CLASS, "submission_cancelled_class" },
    { BY_TASK | BY_CLASS, "submission_task_class" },
    { BY_CLIENT | BY_CLASS, "submission_client_class" },
    { BY_RUN, "submission_run" },
    { BY_TASK, "submission_task" },
    { BY_CLIENT, "submission_client" },
    { BY_CLASS, "submission_class" },
    { BY_STATE, "submission_state" },
};

static const char *
list_index(const struct submission_filter *f)
{
    int mask = mask_of(f);

    for (size_t i = 0; i < ARRAY_LEN(index_choices); i++)
        if ((mask & index_choices[i].needs) == index_choices[i].needs)
            return index_choices[i].index;
    return NULL;
}

#define TASK_SUM_SQL                                                                                     \
    "SELECT task_id, name, level, n, ok, cheats, reward, speedup, last_ms FROM task_sum LEFT JOIN task " \
    "ON id = task_id WHERE scope = $1"

static const struct sql_dialect dialect = {
    .submission_columns =
        "id, group_id, group_index, task_id, source_hash, state, priority, client, request, attempts, "
        "created_ms, finished_ms, stage, class, reward, verdict, claim, state = 0 AND node IS NOT NULL",
    .submissions = "submission s",
    .policy_version = "json_extract(s.request, '$.metadata.policy_version')",
    .group_columns = "id, task_id, request, size, created_ms, NULL",
    .live_state = "s.state",
    .unfinished = "FROM submission INDEXED BY submission_state WHERE state IN (0, 1) ORDER BY id",
    .queued = "FROM submission INDEXED BY submission_state WHERE client = $1 AND state = 0",
    .is_unfinished = "SELECT EXISTS (SELECT 1 FROM submission WHERE id = $1 AND state IN (0, 1))"
                     " OR EXISTS (SELECT 1 FROM submission INDEXED BY submission_group_index"
                     " WHERE group_id = $1 AND state IN (0, 1))",
    .count = "SELECT what, n FROM tally",
    /* Of several rows with the greatest last_ms any gives the id: SQLite takes bare columns from that row. */
    .each_failure = "SELECT class, failed_at, message, sum(n) AS total, min(first_ms), last_id, max(last_ms),"
                    "  sum(sum(n)) OVER (), count(*) OVER () FROM failure WHERE scope = $1 AND start_s >= $2"
                    " AND ($4 IS NULL OR task_id = $4) AND ($5 IS NULL OR run = $5)"
                    " AND ($6 IS NULL OR class = $6)"
                    " GROUP BY class, failed_at, message ORDER BY total DESC, 7 DESC LIMIT $3",
    .each_task_sum =
        TASK_SUM_SQL " AND (last_ms, task_id) < ($2, $3) ORDER BY last_ms DESC, task_id DESC LIMIT $4",
    .get_task_sum = TASK_SUM_SQL " AND task_id = $2",
    .each_record = "SELECT id, finished_ms, speedup FROM record WHERE scope = $1 AND task_id = $2"
                   " ORDER BY finished_ms DESC, id DESC LIMIT $3",
    /* The counts walk one group's stretch of an index, 256 rows at most. */
    .group_counts = "sum(s.state = 0), sum(s.state = 1), sum(s.state = 2), sum(s.state = 3),"
                    " sum(s.class IS 'ok'), max(s.reward)",
    .group_counts_from = "CROSS JOIN submission s INDEXED BY submission_group_index"
                         " ON s.group_id = g.id GROUP BY g.id",
    .list_index = list_index,
    .names_indices = true,
    .waits = "SELECT 1 FROM submission INDEXED BY submission_state WHERE state = 0 LIMIT 1",
    .waits_new = "SELECT 1 FROM submission INDEXED BY submission_state WHERE state = 0 LIMIT 1",
};

_Static_assert(SUBMISSION_CANCELLED == 3 && SUBMISSION_NSTATES == 4,
               "the numbers in the statements and in the schema");

/* --- how --- */

struct reader {
    struct store_reader base;
    struct db db;
};

static struct reader *
of(struct store_reader *base)
{
    return (struct reader *)base;
}

/* Where either fails, each read is a transaction of its own, or the next end tries again: the caller need not know. */
static void
begin_reads(struct store_reader *base)
{
    db_change(&of(base)->db, "begin", "BEGIN", SQL_NO_VALUES, NULL, NULL);
}

static void
end_reads(struct store_reader *base)
{
    db_change(&of(base)->db, "commit", "COMMIT", SQL_NO_VALUES, NULL, NULL);
}

static void
reader_free(struct store_reader *base)
{
    struct reader *r = of(base);

    db_close(&r->db);
    free(r);
}

static int
each(struct store_reader *base, const char *what, const char *sql, const struct sql_value *values,
     size_t nvalues, sql_row_cb *row_cb, void *arg, size_t *n, struct error *err)
{
    return db_each(&of(base)->db, what, sql, values, nvalues, row_cb, arg, n, err);
}

static const struct reader_ops reader_ops = {
    .dialect = &dialect, .free = reader_free, .begin = begin_reads, .end = end_reads, .each = each
};

static int
reader_fill(struct reader *r, const char *path, struct error *err)
{
    if (sqlite3_open_v2(path, &r->db.handle, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return db_fail(r->db.handle, err, "open for reading");
    return db_exec(r->db.handle, "PRAGMA query_only = 1", err);
}

int
sqlite_reader_new(const char *path, struct store_reader **out, struct error *err)
{
    struct reader *r = calloc(1, sizeof(*r));
    int rc;

    *out = NULL;
    if (!r)
        return error_set(err, ERR_NOMEM, "no memory for the store's reader");
    rc = reader_fill(r, path, err);
    if (rc < 0) {
        reader_free(&r->base);
        return rc;
    }
    r->base.ops = &reader_ops;
    *out = &r->base;
    return 0;
}
