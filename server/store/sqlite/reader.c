#include "server/store/sqlite/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "server/store/backend.h"
#include "server/store/sqlite/blob.h"
#include "server/store/sqlite/db.h"
#include "server/store/rows.h"
#include "server/store/sqlite/rows.h"
#include "server/store/sqlite/runs.h"
#include "server/store/sqlite/sums_reader.h"

#define PAGE_MAX 200

enum query {
    GET_TASK,
    FIND_TASK,
    GET_SUBMISSION,
    IS_UNFINISHED,
    GET_ANSWER,
    FIND_CACHED,
    EACH_USAGE,
    GET_BLOB,
    GET_LOG,
    GET_GROUP,
    EACH_OF_GROUP,
    EACH_UNFINISHED,
    LIST_TASKS,
    LIST_TASKS_NAMED,
    COUNT,
    EACH_CALIBRATION,
    EACH_CANARY,
    GET_KEY,
    NQUERIES
};

static const char *const query_sql[NQUERIES] = {
    [GET_TASK] = "SELECT " TASK_COLUMNS
                 ", spec, blob.size, blob.data FROM task JOIN blob ON blob.hash = reference_hash"
                 " WHERE id = ?1",
    [FIND_TASK] = "SELECT task_id, client = ?2 FROM task_alias WHERE name = ?1"
                  " ORDER BY client = ?2 DESC, created_ms, client LIMIT 1",
    [GET_SUBMISSION] = "SELECT " SUBMISSION_COLUMNS " FROM submission WHERE id = ?1",
    [IS_UNFINISHED] = "SELECT EXISTS (SELECT 1 FROM submission WHERE id = ?1 AND state IN (0, 1))"
                      " OR EXISTS (SELECT 1 FROM submission INDEXED BY submission_group_index"
                      " WHERE group_id = ?1 AND state IN (0, 1))",
    [GET_ANSWER] = "SELECT client, verdict FROM submission WHERE id = ?1",
    [EACH_USAGE] = "SELECT client, sum(device_ms) FROM submission WHERE id >= ?1 AND client IS NOT NULL"
                   " AND device_ms > 0 GROUP BY client",
    [FIND_CACHED] = "SELECT " SUBMISSION_COLUMNS " FROM submission INDEXED BY submission_cache"
                    " WHERE cache_key = ?1 ORDER BY id DESC LIMIT 1",
    [GET_BLOB] = "SELECT size, data FROM blob WHERE hash = ?1",
    [GET_LOG] =
        "SELECT log_hash, size, data FROM submission LEFT JOIN blob ON blob.hash = log_hash WHERE id = ?1",
    [GET_GROUP] = "SELECT " GROUP_COLUMNS " FROM submission_group WHERE id = ?1",
    [EACH_OF_GROUP] = "SELECT " SUBMISSION_COLUMNS " FROM submission INDEXED BY submission_group_index"
                      " WHERE group_id = ?1 ORDER BY group_index",
    [EACH_UNFINISHED] = "SELECT " SUBMISSION_COLUMNS " FROM submission INDEXED BY submission_state"
                        " WHERE state IN (0, 1) ORDER BY id",
    [LIST_TASKS] = "SELECT " TASK_COLUMNS " FROM task WHERE id > ?1 ORDER BY id LIMIT ?2",
    [LIST_TASKS_NAMED] = "SELECT " TASK_COLUMNS " FROM task WHERE id > ?1 AND (name = ?3 OR id IN"
                         " (SELECT task_id FROM task_alias WHERE task_alias.name = ?3)) ORDER BY id LIMIT ?2",
    [COUNT] = "SELECT what, n FROM tally",
    /* SQLite takes the other columns from the row that has the greatest id; ids are made in order of time. */
    [EACH_CALIBRATION] = "SELECT max(id), created_ms, gpu, document FROM calibration GROUP BY gpu",
    [EACH_CANARY] = "SELECT gpu, driver, kind, changed_ms, document FROM canary",
    [GET_KEY] = "SELECT " KEY_COLUMNS " FROM idempotency"
                " WHERE client = ?1 AND key = ?2 AND created_ms > ?3",
};

/* Bits of a filter's mask: its conditions, and what is known of its state: few are in it, or it has indices of its own. */
enum {
    BY_STATE = 1,
    BY_TASK = 2,
    BY_CLASS = 4,
    BY_CLIENT = 8,
    BY_GROUP = 16,
    BY_CURSOR = 32,
    IS_LIVE = 64,
    IS_CANCELLED = 128,
    BY_RUN = 256,
    BY_STEP = 512,
    NMASKS = 1024
};

struct reader {
    struct sqlite_reader shared;
    sqlite3_stmt *queries[NQUERIES];
    sqlite3_stmt *lists[NMASKS], *briefs[NMASKS]; /* prepared when first asked for */
    sqlite3_stmt *begin, *commit;
};

static int
reader_fill(struct reader *r, const char *path, struct error *err)
{
    int rc = 0;

    if (sqlite3_open_v2(path, &r->shared.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return db_fail(r->shared.db, err, "open for reading");
    rc = db_exec(r->shared.db, "PRAGMA query_only = 1", err);
    for (int i = 0; rc == 0 && i < NQUERIES; i++)
        rc = db_prepare(r->shared.db, query_sql[i], &r->queries[i], err);
    if (rc == 0)
        rc = db_prepare(r->shared.db, "BEGIN", &r->begin, err);
    if (rc == 0)
        rc = db_prepare(r->shared.db, "COMMIT", &r->commit, err);
    if (rc == 0)
        rc = sums_reader_init(&r->shared, err);
    return rc == 0 ? runs_reader_init(&r->shared, err) : rc;
}

static struct reader *
of(struct store_reader *base)
{
    return (struct reader *)base;
}

static void
reader_free(struct store_reader *base)
{
    struct reader *r = of(base);

    for (int i = 0; i < NQUERIES; i++)
        sqlite3_finalize(r->queries[i]);
    for (int i = 0; i < NMASKS; i++) {
        sqlite3_finalize(r->lists[i]);
        sqlite3_finalize(r->briefs[i]);
    }
    sqlite3_finalize(r->begin);
    sqlite3_finalize(r->commit);
    sums_reader_release(&r->shared);
    runs_reader_release(&r->shared);
    sqlite3_close(r->shared.db);
    free(r);
}

/* Where either fails, each read is a transaction of its own, or the next end tries again: the caller need not know. */
static void
begin_reads(struct store_reader *base)
{
    sqlite3_step(of(base)->begin);
    sqlite3_reset(of(base)->begin);
}

static void
end_reads(struct store_reader *base)
{
    sqlite3_step(of(base)->commit);
    sqlite3_reset(of(base)->commit);
}

/* Step a look-up of one row. 0 when it stands on the row; else the statement is reset. what, key: for the error. */
static int
look_up(sqlite3_stmt *stmt, const char *what, const char *key, struct error *err)
{
    int step, rc;

    db_bind_text(stmt, 1, key);
    step = sqlite3_step(stmt);
    if (step == SQLITE_ROW)
        return 0;
    rc = step == SQLITE_DONE ? error_set(err, ERR_NOTFOUND, "no %s %s", what, key)
                             : db_fail(sqlite3_db_handle(stmt), err, what);
    db_reset(stmt);
    return rc;
}

static int
no_memory(struct error *err)
{
    return error_set(err, ERR_NOMEM, "no memory for a stored row");
}

/* A statement cannot be stepped twice at once: a callback asked for the list that it is called from. */
static int
check_idle(sqlite3_stmt *stmt, struct error *err)
{
    return sqlite3_stmt_busy(stmt) ? error_set(err, ERR_STORE, "a list was asked for from its own callback")
                                   : 0;
}

/* --- one row --- */

static int
read_task(sqlite3_stmt *stmt, struct task_row *out, struct error *err)
{
    struct task_row view;
    const char *spec;

    if (task_row_view(stmt, &view) < 0 || task_row_copy(&view, out) < 0)
        return no_memory(err);
    spec = (const char *)sqlite3_column_text(stmt, TASK_NCOLUMNS);
    if (spec && !(out->spec = strdup(spec)))
        return no_memory(err);
    return blob_column(stmt, TASK_NCOLUMNS + 1, &out->reference, &out->reference_size, err);
}

static int
get_task(struct store_reader *base, const char *id, struct task_row *out, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[GET_TASK];
    int rc;

    memset(out, 0, sizeof(*out));
    rc = look_up(stmt, "task", id, err);
    if (rc < 0)
        return rc;
    rc = read_task(stmt, out, err);
    db_reset(stmt);
    if (rc < 0)
        task_row_release(out);
    return rc;
}

static int
find_task(struct store_reader *base, const char *client, const char *name, char id[HASH_TEXT_SIZE],
          bool *is_own, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[FIND_TASK];

    db_bind_text(stmt, 2, client ? client : "");
    int rc = look_up(stmt, "task", name, err);
    if (rc < 0)
        return rc;
    snprintf(id, HASH_TEXT_SIZE, "%s", (const char *)sqlite3_column_text(stmt, 0));
    *is_own = sqlite3_column_int(stmt, 1) != 0;
    db_reset(stmt);
    return 0;
}

static int
read_submission(sqlite3_stmt *stmt, const char *what, const char *key, struct submission_row *out,
                struct error *err)
{
    struct submission_row view;
    int rc;

    memset(out, 0, sizeof(*out));
    rc = look_up(stmt, what, key, err);
    if (rc < 0)
        return rc;
    if (submission_row_view(stmt, &view) < 0 || submission_row_copy(&view, out) < 0) {
        submission_row_release(out);
        rc = no_memory(err);
    }
    db_reset(stmt);
    return rc;
}

static int
get_key(struct store_reader *base, const char *client, const char *key, int64_t now_ms, struct key_row *out,
        struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[GET_KEY];
    int rc;

    memset(out, 0, sizeof(*out));
    db_bind_text(stmt, 2, key);
    sqlite3_bind_int64(stmt, 3, now_ms - STORE_KEY_LIFE_MS);
    rc = look_up(stmt, "request of the client", client, err);
    if (rc < 0)
        return rc;
    snprintf(out->client, sizeof(out->client), "%s", client);
    snprintf(out->key, sizeof(out->key), "%s", key);
    snprintf(out->request_hash, sizeof(out->request_hash), "%s", (const char *)sqlite3_column_text(stmt, 0));
    snprintf(out->id, sizeof(out->id), "%s", (const char *)sqlite3_column_text(stmt, 1));
    out->created_ms = sqlite3_column_int64(stmt, 2);
    db_reset(stmt);
    return 0;
}

static int
get_submission(struct store_reader *base, const char *id, struct submission_row *out, struct error *err)
{
    return read_submission(of(base)->queries[GET_SUBMISSION], "submission", id, out, err);
}

static int
is_unfinished(struct store_reader *base, const char *id, bool *out, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[IS_UNFINISHED];
    int rc = look_up(stmt, "submission", id, err);

    if (rc < 0)
        return rc;
    *out = sqlite3_column_int(stmt, 0) != 0;
    db_reset(stmt);
    return 0;
}

static int
get_answer(struct store_reader *base, const char *id, char **client, char **verdict, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[GET_ANSWER];
    char **out[] = { client, verdict };
    int rc;

    *client = *verdict = NULL;
    rc = look_up(stmt, "submission", id, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < (int)ARRAY_LEN(out); i++) {
        const char *text = (const char *)sqlite3_column_text(stmt, i);
        if (sqlite3_column_type(stmt, i) != SQLITE_NULL && (!text || !(*out[i] = strdup(text))))
            rc = no_memory(err);
    }
    db_reset(stmt);
    if (rc < 0) {
        free(ptr_take(client));
        free(ptr_take(verdict));
    }
    return rc;
}

static int
find_cached(struct store_reader *base, const char *cache_key, struct submission_row *out, struct error *err)
{
    return read_submission(of(base)->queries[FIND_CACHED], "verdict under", cache_key, out, err);
}

static int
each_usage(struct store_reader *base, int64_t since_ms, store_usage_cb *usage_cb, void *arg,
           struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[EACH_USAGE];
    char first[ID_SIZE];
    int step, rc = check_idle(stmt, err);

    if (rc < 0)
        return rc;
    /* An id begins with the time at which it was made. */
    snprintf(first, sizeof(first), "%08x-%04x", (unsigned)(since_ms >> 16), (unsigned)(since_ms & 0xffff));
    db_bind_text(stmt, 1, first);
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW)
        usage_cb(arg, (const char *)sqlite3_column_text(stmt, 0), sqlite3_column_int64(stmt, 1));
    if (step != SQLITE_DONE)
        rc = db_fail(sqlite3_db_handle(stmt), err, "sum up what clients used");
    db_reset(stmt);
    return rc;
}

static int
get_group(struct store_reader *base, const char *id, struct group_row *out, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[GET_GROUP];
    struct group_row view;
    int rc;

    memset(out, 0, sizeof(*out));
    rc = look_up(stmt, "group", id, err);
    if (rc < 0)
        return rc;
    if (group_row_view(stmt, &view) < 0 || group_row_copy(&view, out) < 0) {
        group_row_release(out);
        rc = no_memory(err);
    }
    db_reset(stmt);
    return rc;
}

/* Append a stored blob's bytes to out. */
static int
append_blob(sqlite3_stmt *stmt, int size_column, struct buffer *out, struct error *err)
{
    AUTO_FREE char *bytes = NULL;
    size_t size = 0;
    int rc = blob_column(stmt, size_column, &bytes, &size, err);

    if (rc < 0)
        return rc;
    return buffer_append(out, bytes, size) < 0 ? no_memory(err) : 0;
}

static int
get_source(struct store_reader *base, const char *hash, struct buffer *out, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[GET_BLOB];
    int rc = look_up(stmt, "source", hash, err);

    if (rc < 0)
        return rc;
    rc = append_blob(stmt, 0, out, err);
    db_reset(stmt);
    return rc;
}

static int
get_log(struct store_reader *base, const char *submission_id, struct buffer *out, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[GET_LOG];
    int rc = look_up(stmt, "submission", submission_id, err);

    if (rc < 0)
        return rc;
    if (sqlite3_column_type(stmt, 0) != SQLITE_NULL)
        rc = append_blob(stmt, 1, out, err);
    db_reset(stmt);
    return rc;
}

/* --- several rows --- */

/* Step a bound statement through its rows. *n counts the calls. */
static int
each_submission(sqlite3_stmt *stmt, store_submission_cb *row_cb, void *arg, size_t *n, struct error *err)
{
    struct submission_row row;
    int step, rc = 0;

    for (*n = 0; (step = sqlite3_step(stmt)) == SQLITE_ROW;) {
        if (submission_row_view(stmt, &row) < 0) {
            rc = no_memory(err);
            break;
        }
        ++*n;
        if (!row_cb(arg, &row))
            break;
    }
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = db_fail(sqlite3_db_handle(stmt), err, "read submissions");
    db_reset(stmt);
    return rc;
}

static int
each_of_group(struct store_reader *base, const char *group_id, store_submission_cb *row_cb, void *arg,
              struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[EACH_OF_GROUP];
    size_t n;
    int rc = check_idle(stmt, err);

    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, group_id);
    rc = each_submission(stmt, row_cb, arg, &n, err);
    if (rc == 0 && n == 0)
        return error_set(err, ERR_NOTFOUND, "no group %s", group_id);
    return rc;
}

static int
each_unfinished(struct store_reader *base, store_submission_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[EACH_UNFINISHED];
    size_t n;
    int rc = check_idle(stmt, err);

    return rc < 0 ? rc : each_submission(stmt, row_cb, arg, &n, err);
}

static int
mask_of(const struct submission_filter *f)
{
    int mask = (f->task_id ? BY_TASK : 0) | (f->class_ ? BY_CLASS : 0) | (f->client ? BY_CLIENT : 0) |
               (f->group_id ? BY_GROUP : 0) | (f->before ? BY_CURSOR : 0) | (f->run ? BY_RUN : 0) |
               (f->run && f->step >= 0 ? BY_STEP : 0);

    if (f->state == SUBMISSION_QUEUED || f->state == SUBMISSION_RUNNING)
        mask |= IS_LIVE;
    if (f->state == SUBMISSION_CANCELLED)
        mask |= IS_CANCELLED;
    return f->state >= 0 ? mask | BY_STATE : mask;
}

/*
 * Which index to walk, first match wins: SQLite would have to guess, having no
 * statistics of ours, and a wrong guess looks at every row.
 */
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

/* "INDEXED BY name", or nothing: the key itself is walked. */
static void
write_index(int mask, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(index_choices); i++) {
        if ((mask & index_choices[i].needs) == index_choices[i].needs) {
            snprintf(out, size, "INDEXED BY %s", index_choices[i].index);
            return;
        }
    }
}

/* A partial index is only considered when its condition stands in the text, so this state is not a parameter. */
static const char *
state_condition(int mask)
{
    if (mask & IS_CANCELLED)
        return " AND state = 3";
    return mask & BY_STATE ? " AND state = ?1" : "";
}

_Static_assert(SUBMISSION_CANCELLED == 3, "the number in state_condition() and in the schema");

#define BRIEF_COLUMNS "id, brief, CASE WHEN brief IS NULL THEN verdict END"

static int
prepare_list(struct reader *r, const char *columns, int mask, sqlite3_stmt **out, struct error *err)
{
    char sql[1024], index[64];

    write_index(mask, index, sizeof(index));
    snprintf(sql, sizeof(sql),
             "SELECT %s FROM submission %s WHERE 1%s%s%s%s%s%s%s%s ORDER BY id DESC LIMIT ?7", columns, index,
             state_condition(mask), mask & BY_TASK ? " AND task_id = ?2" : "",
             mask & BY_CLASS ? " AND class = ?3" : "", mask & BY_CLIENT ? " AND client = ?4" : "",
             mask & BY_GROUP ? " AND group_id = ?5" : "", mask & BY_CURSOR ? " AND id < ?6" : "",
             mask & BY_RUN ? " AND run = ?8" : "", mask & BY_STEP ? " AND step = ?9" : "");
    return db_prepare(r->shared.db, sql, out, err);
}

static int
check_limit(int limit, struct error *err)
{
    if (limit < 1 || limit > PAGE_MAX)
        return error_set(err, ERR_INPUT, "a page has 1 to %d rows, not %d", PAGE_MAX, limit);
    return 0;
}

static void
bind_filter(sqlite3_stmt *stmt, const struct submission_filter *f)
{
    if (f->state >= 0)
        sqlite3_bind_int(stmt, 1, f->state);
    /* Binding a parameter that the statement does not use is harmless. */
    db_bind_text(stmt, 2, f->task_id);
    db_bind_text(stmt, 3, f->class_);
    db_bind_text(stmt, 4, f->client);
    db_bind_text(stmt, 5, f->group_id);
    db_bind_text(stmt, 6, f->before);
    sqlite3_bind_int(stmt, 7, f->limit);
    db_bind_text(stmt, 8, f->run);
    sqlite3_bind_int64(stmt, 9, f->step);
}

/* The statement of a page, bound; lists: which of the reader's. */
static int
begin_list(struct reader *r, const struct submission_filter *f, const char *columns, sqlite3_stmt **lists,
           sqlite3_stmt **out, struct error *err)
{
    int mask = mask_of(f);
    int rc = check_limit(f->limit, err);

    if (rc == 0 && f->state >= SUBMISSION_NSTATES)
        rc = error_set(err, ERR_INPUT, "no state has the number %d", f->state);
    if (rc == 0 && !lists[mask])
        rc = prepare_list(r, columns, mask, &lists[mask], err);
    if (rc == 0)
        rc = check_idle(lists[mask], err);
    if (rc < 0)
        return rc;
    bind_filter(lists[mask], f);
    *out = lists[mask];
    return 0;
}

static int
list_submissions(struct store_reader *base, const struct submission_filter *f, store_submission_cb *row_cb,
                 void *arg, struct error *err)
{
    sqlite3_stmt *stmt;
    size_t n;
    int rc = begin_list(of(base), f, SUBMISSION_COLUMNS, of(base)->lists, &stmt, err);

    return rc < 0 ? rc : each_submission(stmt, row_cb, arg, &n, err);
}

static int
list_briefs(struct store_reader *base, const struct submission_filter *f, store_brief_cb *row_cb, void *arg,
            struct error *err)
{
    sqlite3_stmt *stmt;
    int step, rc = begin_list(of(base), f, BRIEF_COLUMNS, of(base)->briefs, &stmt, err);

    if (rc < 0)
        return rc;
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(stmt, 0);
        if (!id) {
            rc = no_memory(err);
            break;
        }
        if (!row_cb(arg, id, (const char *)sqlite3_column_text(stmt, 1),
                    (const char *)sqlite3_column_text(stmt, 2)))
            break;
    }
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = db_fail(of(base)->shared.db, err, "read submissions");
    db_reset(stmt);
    return rc;
}

static int
list_tasks(struct store_reader *base, const char *name, const char *after, int limit, store_task_cb *row_cb,
           void *arg, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[name ? LIST_TASKS_NAMED : LIST_TASKS];
    struct task_row row;
    int step, rc = check_limit(limit, err);

    if (rc == 0)
        rc = check_idle(stmt, err);
    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, after ? after : "");
    sqlite3_bind_int(stmt, 2, limit);
    if (name)
        db_bind_text(stmt, 3, name);
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (task_row_view(stmt, &row) < 0) {
            rc = no_memory(err);
            break;
        }
        if (!row_cb(arg, &row))
            break;
    }
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = db_fail(of(base)->shared.db, err, "read tasks");
    db_reset(stmt);
    return rc;
}

static int
count(struct store_reader *base, struct store_counts *out, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[COUNT];
    int step, rc = 0;

    memset(out, 0, sizeof(*out));
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        int what = sqlite3_column_int(stmt, 0);
        if (what >= 0 && what < SUBMISSION_NSTATES)
            out->by_state[what] = sqlite3_column_int64(stmt, 1);
        else
            out->tasks = sqlite3_column_int64(stmt, 1);
    }
    if (step != SQLITE_DONE)
        rc = db_fail(of(base)->shared.db, err, "count");
    db_reset(stmt);
    return rc;
}

static int
each_calibration(struct store_reader *base, store_calibration_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[EACH_CALIBRATION];
    int step, rc = check_idle(stmt, err);

    if (rc < 0)
        return rc;
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct calibration_row row = { .created_ms = sqlite3_column_int64(stmt, 1),
                                       .gpu = (const char *)sqlite3_column_text(stmt, 2),
                                       .document = (const char *)sqlite3_column_text(stmt, 3) };
        const char *id = (const char *)sqlite3_column_text(stmt, 0);
        if (!id || !row.gpu || !row.document) {
            rc = no_memory(err);
            break;
        }
        strncpy(row.id, id, sizeof(row.id) - 1);
        row_cb(arg, &row);
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = db_fail(of(base)->shared.db, err, "read calibrations");
    db_reset(stmt);
    return rc;
}

static int
each_canary(struct store_reader *base, store_canary_cb *row_cb, void *arg, struct error *err)
{
    sqlite3_stmt *stmt = of(base)->queries[EACH_CANARY];
    int step, rc = check_idle(stmt, err);

    if (rc < 0)
        return rc;
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct canary_row row = { .gpu = (const char *)sqlite3_column_text(stmt, 0),
                                  .driver = (const char *)sqlite3_column_text(stmt, 1),
                                  .kind = (const char *)sqlite3_column_text(stmt, 2),
                                  .changed_ms = sqlite3_column_int64(stmt, 3),
                                  .document = (const char *)sqlite3_column_text(stmt, 4) };
        if (!row.gpu || !row.driver || !row.kind || !row.document) {
            rc = no_memory(err);
            break;
        }
        row_cb(arg, &row);
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = db_fail(of(base)->shared.db, err, "read canaries");
    db_reset(stmt);
    return rc;
}

static const struct reader_ops reader_ops = {
    .free = reader_free,
    .begin = begin_reads,
    .end = end_reads,
    .get_task = get_task,
    .find_task = find_task,
    .get_key = get_key,
    .get_submission = get_submission,
    .is_unfinished = is_unfinished,
    .get_answer = get_answer,
    .find_cached = find_cached,
    .each_usage = each_usage,
    .get_group = get_group,
    .get_source = get_source,
    .get_log = get_log,
    .each_of_group = each_of_group,
    .each_unfinished = each_unfinished,
    .list_submissions = list_submissions,
    .list_briefs = list_briefs,
    .list_tasks = list_tasks,
    .count = count,
    .each_calibration = each_calibration,
    .each_canary = each_canary,
    .each_trend = sums_each_trend,
    .each_failure = sums_each_failure,
    .each_task_sum = sums_each_task_sum,
    .get_task_sum = sums_get_task_sum,
    .each_leader = sums_each_leader,
    .each_record = sums_each_record,
    .each_group = sums_each_group,
    .each_run = runs_each_run,
    .get_run = runs_get_run,
    .each_run_step = runs_each_step,
    .each_run_task = runs_each_task,
};

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
        reader_free(&r->shared.base);
        return rc;
    }
    r->shared.base.ops = &reader_ops;
    *out = &r->shared.base;
    return 0;
}
