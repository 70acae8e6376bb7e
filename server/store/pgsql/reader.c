#include "server/store/pgsql/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "server/store/pgsql/blob.h"
#include "server/store/pgsql/carried.h"
#include "server/store/pgsql/claims.h"
#include "server/store/pgsql/reading.h"
#include "server/store/pgsql/rows.h"
#include "server/store/pgsql/runs.h"
#include "server/store/pgsql/sums_reader.h"
#include "server/store/rows.h"

#define PAGE_MAX 200

static int
no_memory(struct error *err)
{
    return error_set(err, ERR_NOMEM, "no memory for a stored row");
}

/* --- one row --- */

static int
read_task(const PGresult *rows, struct task_row *out, struct error *err)
{
    struct task_row view = pg_task_view(rows, 0);
    const char *spec = pg_column_text(rows, 0, PG_TASK_NCOLUMNS);

    if (task_row_copy(&view, out) < 0 || (spec && !(out->spec = strdup(spec))))
        return no_memory(err);
    return pg_blob_column(rows, 0, PG_TASK_NCOLUMNS + 1, &out->reference, &out->reference_size, err);
}

static int
get_task(struct store_reader *r, const char *id, struct task_row *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;

    memset(out, 0, sizeof(*out));
    int rc = pg_look_up(r, "task", id,
                        "SELECT " PG_TASK_COLUMNS ", spec, blob.size, blob.data FROM task"
                        " JOIN blob ON blob.hash = reference_hash WHERE id = $1",
                        PG_VALUES(pg_text(id)), &row, err);
    if (rc < 0)
        return rc;
    rc = read_task(row, out, err);
    if (rc < 0)
        task_row_release(out);
    return rc;
}

static int
find_task(struct store_reader *r, const char *client, const char *name, char id[HASH_TEXT_SIZE], bool *is_own,
          struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_look_up(r, "task", name,
                        "SELECT task_id, client = $2 FROM task_alias WHERE name = $1"
                        " ORDER BY client = $2 DESC, created_ms, client LIMIT 1",
                        PG_VALUES(pg_text(name), pg_text(client ? client : "")), &row, err);
    if (rc < 0)
        return rc;
    pg_column_name(row, 0, 0, id, HASH_TEXT_SIZE);
    *is_own = pg_column_bool(row, 0, 1);
    return 0;
}

static int
read_submission(struct store_reader *r, const char *what, const char *key, const char *sql,
                struct submission_row *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    struct submission_row view;

    memset(out, 0, sizeof(*out));
    int rc = pg_look_up(r, what, key, sql, PG_VALUES(pg_text(key)), &row, err);
    if (rc < 0)
        return rc;
    view = pg_submission_view(row, 0);
    if (submission_row_copy(&view, out) == 0)
        return 0;
    submission_row_release(out);
    return no_memory(err);
}

static int
get_submission(struct store_reader *r, const char *id, struct submission_row *out, struct error *err)
{
    return read_submission(r, "submission", id,
                           "SELECT " PG_SUBMISSION_COLUMNS " FROM " PG_SUBMISSIONS " WHERE s.id = $1", out,
                           err);
}

static int
find_cached(struct store_reader *r, const char *cache_key, struct submission_row *out, struct error *err)
{
    return read_submission(r, "verdict under", cache_key,
                           "SELECT " PG_SUBMISSION_COLUMNS " FROM " PG_SUBMISSIONS
                           " WHERE cache_key = $1 ORDER BY s.id DESC LIMIT 1",
                           out, err);
}

static int
is_unfinished(struct store_reader *r, const char *id, bool *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_look_up(r, "submission", id,
                        "SELECT EXISTS (SELECT 1 FROM job WHERE id = $1) OR EXISTS"
                        " (SELECT 1 FROM submission JOIN job USING (id) WHERE group_id = $1)",
                        PG_VALUES(pg_text(id)), &row, err);
    if (rc == 0)
        *out = pg_column_bool(row, 0, 0);
    return rc;
}

static int
get_answer(struct store_reader *r, const char *id, char **client, char **verdict, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    char **out[] = { client, verdict };

    *client = *verdict = NULL;
    int rc = pg_look_up(r, "submission", id, "SELECT client, verdict FROM submission WHERE id = $1",
                        PG_VALUES(pg_text(id)), &row, err);
    for (int i = 0; rc == 0 && i < (int)ARRAY_LEN(out); i++) {
        const char *text = pg_column_text(row, 0, i);
        if (text && !(*out[i] = strdup(text)))
            rc = no_memory(err);
    }
    if (rc < 0) {
        free(ptr_take(client));
        free(ptr_take(verdict));
    }
    return rc;
}

static int
get_key(struct store_reader *r, const char *client, const char *key, int64_t now_ms, struct key_row *out,
        struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;

    memset(out, 0, sizeof(*out));
    int rc =
        pg_look_up(r, "request of the client", client,
                   "SELECT request_hash, id, created_ms FROM idempotency"
                   " WHERE client = $1 AND key = $2 AND created_ms > $3",
                   PG_VALUES(pg_text(client), pg_text(key), pg_int(now_ms - STORE_KEY_LIFE_MS)), &row, err);
    if (rc < 0)
        return rc;
    snprintf(out->client, sizeof(out->client), "%s", client);
    snprintf(out->key, sizeof(out->key), "%s", key);
    pg_column_name(row, 0, 0, out->request_hash, sizeof(out->request_hash));
    pg_column_name(row, 0, 1, out->id, sizeof(out->id));
    out->created_ms = pg_column_int(row, 0, 2);
    return 0;
}

static int
get_group(struct store_reader *r, const char *id, struct group_row *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    struct group_row view;

    memset(out, 0, sizeof(*out));
    int rc = pg_look_up(r, "group", id, "SELECT " PG_GROUP_COLUMNS " FROM submission_group WHERE id = $1",
                        PG_VALUES(pg_text(id)), &row, err);
    if (rc < 0)
        return rc;
    view = pg_group_view(row, 0);
    if (group_row_copy(&view, out) == 0)
        return 0;
    group_row_release(out);
    return no_memory(err);
}

/* Append a stored blob's bytes to out. */
static int
append_blob(const PGresult *row, int size_column, struct buffer *out, struct error *err)
{
    AUTO_FREE char *bytes = NULL;
    size_t size = 0;
    int rc = pg_blob_column(row, 0, size_column, &bytes, &size, err);

    if (rc < 0)
        return rc;
    return buffer_append(out, bytes, size) < 0 ? no_memory(err) : 0;
}

static int
get_source(struct store_reader *r, const char *hash, struct buffer *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_look_up(r, "source", hash, "SELECT size, data FROM blob WHERE hash = $1",
                        PG_VALUES(pg_text(hash)), &row, err);
    return rc == 0 ? append_blob(row, 0, out, err) : rc;
}

static int
get_log(struct store_reader *r, const char *id, struct buffer *out, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_look_up(r, "submission", id,
                        "SELECT log_hash, size, data FROM submission LEFT JOIN blob ON blob.hash = log_hash"
                        " WHERE id = $1",
                        PG_VALUES(pg_text(id)), &row, err);
    return rc == 0 && pg_column_text(row, 0, 0) ? append_blob(row, 1, out, err) : rc;
}

static int
count(struct store_reader *r, struct store_counts *out, struct error *err)
{
    AUTO_RESULT PGresult *rows = NULL;

    memset(out, 0, sizeof(*out));
    int rc = pg_read(r, "count",
                     "SELECT what, sum(n) FROM tally GROUP BY what UNION ALL"
                     " SELECT state, count(*) FROM job GROUP BY state",
                     PG_NO_VALUES, &rows, err);
    for (int i = 0; rc == 0 && i < PQntuples(rows); i++) {
        int64_t what = pg_column_int(rows, i, 0);
        if (what >= 0 && what < SUBMISSION_NSTATES)
            out->by_state[what] = pg_column_int(rows, i, 1);
        else
            out->tasks = pg_column_int(rows, i, 1);
    }
    return rc;
}

/* --- several rows: who is called for each, and with what --- */

static bool
give_submission(void *arg, const PGresult *rows, int row)
{
    const struct call *call = arg;
    struct submission_row view = pg_submission_view(rows, row);
    return ((store_submission_cb *)call->cb)(call->arg, &view);
}

static int
each_of_group(struct store_reader *r, const char *group_id, store_submission_cb *row_cb, void *arg,
              struct error *err)
{
    size_t n = 0;
    int rc = pg_read_each(r, "read submissions",
                          "SELECT " PG_SUBMISSION_COLUMNS " FROM " PG_SUBMISSIONS
                          " WHERE s.group_id = $1 ORDER BY s.group_index",
                          PG_VALUES(pg_text(group_id)), give_submission, CALL(row_cb, arg), &n, err);
    return rc == 0 && n == 0 ? error_set(err, ERR_NOTFOUND, "no group %s", group_id) : rc;
}

static int
each_unfinished(struct store_reader *r, store_submission_cb *row_cb, void *arg, struct error *err)
{
    return pg_read_each(r, "read submissions",
                        "SELECT " PG_SUBMISSION_COLUMNS
                        " FROM job j JOIN submission s ON s.id = j.id ORDER BY s.id",
                        PG_NO_VALUES, give_submission, CALL(row_cb, arg), NULL, err);
}

static bool
give_usage(void *arg, const PGresult *rows, int row)
{
    const struct call *call = arg;
    ((store_usage_cb *)call->cb)(call->arg, pg_column_text(rows, row, 0), pg_column_int(rows, row, 1));
    return true;
}

static int
each_usage(struct store_reader *r, int64_t since_ms, store_usage_cb *usage_cb, void *arg, struct error *err)
{
    char first[ID_SIZE];

    /* An id begins with the time at which it was made. */
    snprintf(first, sizeof(first), "%08x-%04x", (unsigned)(since_ms >> 16), (unsigned)(since_ms & 0xffff));
    return pg_read_each(r, "sum up what clients used",
                        "SELECT client, sum(device_ms) FROM submission WHERE id >= $1 AND client IS NOT NULL"
                        " AND device_ms > 0 GROUP BY client",
                        PG_VALUES(pg_text(first)), give_usage, CALL(usage_cb, arg), NULL, err);
}

/* --- pages of submissions --- */

static void
add_state(struct pg_query *q, int state)
{
    if (state == SUBMISSION_QUEUED || state == SUBMISSION_RUNNING)
        pg_query_where(q, "j.state =", pg_int(state));
    else if (state >= 0) /* in the text: a partial index is for one state only */
        pg_query_add(q, " AND s.state = %d", state);
}

static int
list(struct store_reader *r, const struct submission_filter *f, const char *columns, pg_row_cb *give,
     struct call *call, struct error *err)
{
    struct pg_query q = { .n = 0 };
    int rc = pg_check_limit(f->limit, PAGE_MAX, err);

    if (rc == 0 && f->state >= SUBMISSION_NSTATES)
        rc = error_set(err, ERR_INPUT, "no state has the number %d", f->state);
    if (rc < 0)
        return rc;
    pg_query_add(&q, "SELECT %s FROM " PG_SUBMISSIONS " WHERE true", columns);
    add_state(&q, f->state);
    if (f->task_id)
        pg_query_where(&q, "s.task_id =", pg_text(f->task_id));
    if (f->class_)
        pg_query_where(&q, "s.class =", pg_text(f->class_));
    if (f->client)
        pg_query_where(&q, "s.client =", pg_text(f->client));
    if (f->group_id)
        pg_query_where(&q, "s.group_id =", pg_text(f->group_id));
    if (f->run)
        pg_query_where(&q, "s.run =", pg_text(f->run));
    if (f->run && f->step >= 0)
        pg_query_where(&q, "s.step =", pg_int(f->step));
    if (f->before)
        pg_query_where(&q, "s.id <", pg_text(f->before));
    pg_query_add(&q, " ORDER BY s.id DESC LIMIT %d", f->limit);
    return pg_read_each(r, "read submissions", q.sql, q.values, q.n, give, call, NULL, err);
}

static int
list_submissions(struct store_reader *r, const struct submission_filter *f, store_submission_cb *row_cb,
                 void *arg, struct error *err)
{
    return list(r, f, PG_SUBMISSION_COLUMNS, give_submission, CALL(row_cb, arg), err);
}

static bool
give_brief(void *arg, const PGresult *rows, int row)
{
    const struct call *call = arg;
    return ((store_brief_cb *)call->cb)(call->arg, pg_column_text(rows, row, 0), pg_column_text(rows, row, 1),
                                        pg_column_text(rows, row, 2));
}

static int
list_briefs(struct store_reader *r, const struct submission_filter *f, store_brief_cb *row_cb, void *arg,
            struct error *err)
{
    return list(r, f, "s.id, s.brief, CASE WHEN s.brief IS NULL THEN s.verdict END", give_brief,
                CALL(row_cb, arg), err);
}

/* --- tasks, calibrations, canaries --- */

static bool
give_task(void *arg, const PGresult *rows, int row)
{
    const struct call *call = arg;
    struct task_row view = pg_task_view(rows, row);
    return ((store_task_cb *)call->cb)(call->arg, &view);
}

static int
list_tasks(struct store_reader *r, const char *name, const char *after, int limit, store_task_cb *row_cb,
           void *arg, struct error *err)
{
    int rc = pg_check_limit(limit, PAGE_MAX, err);

    if (rc < 0)
        return rc;
    return pg_read_each(
        r, "read tasks",
        "SELECT " PG_TASK_COLUMNS " FROM task WHERE id > $1 AND ($2::text IS NULL OR name = $2"
        " OR id IN (SELECT task_id FROM task_alias a WHERE a.name = $2)) ORDER BY id LIMIT $3",
        PG_VALUES(pg_text(after ? after : ""), pg_text(name), pg_int(limit)), give_task, CALL(row_cb, arg),
        NULL, err);
}

static bool
give_calibration(void *arg, const PGresult *rows, int row)
{
    const struct call *call = arg;
    struct calibration_row view = { .created_ms = pg_column_int(rows, row, 1),
                                    .gpu = pg_column_text(rows, row, 2),
                                    .document = pg_column_text(rows, row, 3) };

    pg_column_name(rows, row, 0, view.id, sizeof(view.id));
    ((store_calibration_cb *)call->cb)(call->arg, &view);
    return true;
}

static int
each_calibration(struct store_reader *r, store_calibration_cb *row_cb, void *arg, struct error *err)
{
    /* Ids are made in order of time. */
    return pg_read_each(r, "read calibrations",
                        "SELECT DISTINCT ON (gpu) id, created_ms, gpu, document FROM calibration"
                        " ORDER BY gpu, id DESC",
                        PG_NO_VALUES, give_calibration, CALL(row_cb, arg), NULL, err);
}

static bool
give_canary(void *arg, const PGresult *rows, int row)
{
    const struct call *call = arg;
    struct canary_row view = { .gpu = pg_column_text(rows, row, 0),
                               .driver = pg_column_text(rows, row, 1),
                               .kind = pg_column_text(rows, row, 2),
                               .changed_ms = pg_column_int(rows, row, 3),
                               .document = pg_column_text(rows, row, 4) };

    ((store_canary_cb *)call->cb)(call->arg, &view);
    return true;
}

static int
each_canary(struct store_reader *r, store_canary_cb *row_cb, void *arg, struct error *err)
{
    return pg_read_each(
        r, "read canaries",
        "SELECT gpu, driver, kind, changed_ms, document FROM canary ORDER BY gpu, driver, kind", PG_NO_VALUES,
        give_canary, CALL(row_cb, arg), NULL, err);
}

static void
reader_free(struct store_reader *base)
{
    pg_link_close(&pg_reader_of(base)->link);
    free(base);
}

static const struct reader_ops reader_ops = {
    .free = reader_free,
    .begin = pg_reads_begin,
    .end = pg_reads_end,
    .get_task = get_task,
    .find_task = find_task,
    .get_submission = get_submission,
    .is_unfinished = is_unfinished,
    .get_answer = get_answer,
    .get_source = get_source,
    .get_carried = pg_get_carried,
    .get_log = get_log,
    .get_group = get_group,
    .get_key = get_key,
    .each_of_group = each_of_group,
    .find_cached = find_cached,
    .each_usage = each_usage,
    .list_submissions = list_submissions,
    .list_briefs = list_briefs,
    .list_tasks = list_tasks,
    .each_unfinished = each_unfinished,
    .each_calibration = each_calibration,
    .each_canary = each_canary,
    .each_trend = pg_each_trend,
    .each_failure = pg_each_failure,
    .each_task_sum = pg_each_task_sum,
    .get_task_sum = pg_get_task_sum,
    .each_leader = pg_each_leader,
    .each_record = pg_each_record,
    .each_group = pg_each_group,
    .each_node = pg_each_node,
    .each_cancel = pg_each_cancel,
    .waits = pg_waits,
    .each_run = pg_each_run,
    .get_run = pg_get_run,
    .each_run_step = pg_each_run_step,
    .each_run_task = pg_each_run_task,
    .count = count,
    .renew = pg_renew,
};

int
pg_reader_new(struct pgsql *p, struct store_reader **out, struct error *err)
{
    struct pg_reader *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (!r)
        return error_set(err, ERR_NOMEM, "no memory for the store's reader");
    r->base.ops = &reader_ops;
    r->of = p;
    int rc = pg_link_open(&r->link, p->where, p->lease.node, err);
    if (rc < 0) {
        reader_free(&r->base);
        return rc;
    }
    *out = &r->base;
    return 0;
}
