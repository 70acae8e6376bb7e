#include "server/store/reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/rows.h"

#define PAGE_MAX 201 /* a page, and whether there is more */
#define MINUTE_MS 60000
#define DAY_MS (86400 * INT64_C(1000))

static int
no_memory(struct error *err)
{
    return error_set(err, ERR_NOMEM, "no memory for a stored row");
}

/* --- one row --- */

/* Copies the row of a look-up to out, which is the caller's. 0, or err's code. */
typedef int take_fn(struct sql_row *row, void *out, struct error *err);

struct look_up {
    take_fn *take;
    void *out;
    struct error *err;
    int rc;
};

static bool
take_one(void *arg, struct sql_row *row)
{
    struct look_up *l = arg;

    l->rc = l->take(row, l->out, l->err);
    return false;
}

/* One row by a key: ERR_NOTFOUND, naming both, where there is none. */
static int
look_up(struct store_reader *r, const char *what, const char *key, const char *sql,
        const struct sql_value *values, size_t nvalues, take_fn *take, void *out, struct error *err)
{
    struct look_up l = { .take = take, .out = out, .err = err };
    size_t n = 0;
    int rc = r->ops->each(r, what, sql, values, nvalues, take_one, &l, &n, err);

    if (rc == 0 && n == 0)
        return error_set(err, ERR_NOTFOUND, "no %s %s", what, key);
    return rc < 0 ? rc : l.rc;
}

#define TASK_COLUMNS "id, name, entry_point, level, dynamic_shapes, metadata, created_ms"
#define TASK_NCOLUMNS 7

/* A task's reference and spec are left NULL. */
static struct task_row
task_view(struct sql_row *row)
{
    struct task_row out = { .name = row_text(row, 1),
                            .entry_point = row_text(row, 2),
                            .level = (int)row_int(row, 3),
                            .dynamic_shapes = row_bool(row, 4),
                            .metadata = row_text(row, 5),
                            .created_ms = row_int(row, 6) };

    row_name(row, 0, out.id, sizeof(out.id));
    return out;
}

static struct submission_row
submission_view(struct sql_row *row)
{
    struct submission_row out = { .group_index = (int)row_int(row, 2),
                                  .state = (enum submission_state)row_int(row, 5),
                                  .priority = (int)row_int(row, 6),
                                  .client = row_text(row, 7),
                                  .request = row_text(row, 8),
                                  .attempts = (int)row_int(row, 9),
                                  .created_ms = row_int(row, 10),
                                  .finished_ms = row_int(row, 11),
                                  .stage = row_text(row, 12),
                                  .class_ = row_text(row, 13),
                                  .reward = row_real(row, 14),
                                  .verdict = row_text(row, 15),
                                  .claim = row_int(row, 16),
                                  .is_lost = row_bool(row, 17) };

    row_name(row, 0, out.id, sizeof(out.id));
    row_name(row, 1, out.group_id, sizeof(out.group_id));
    row_name(row, 3, out.task_id, sizeof(out.task_id));
    row_name(row, 4, out.source_hash, sizeof(out.source_hash));
    return out;
}

static int
take_task(struct sql_row *row, void *out, struct error *err)
{
    struct task_row view = task_view(row), *task = out;
    const char *spec = row_text(row, TASK_NCOLUMNS);

    if (row->is_short || task_row_copy(&view, task) < 0 || (spec && !(task->spec = strdup(spec))))
        return no_memory(err);
    return row->ops->unpack(row, TASK_NCOLUMNS + 1, &task->reference, &task->reference_size, err);
}

int
reader_get_task(struct store_reader *r, const char *id, struct task_row *out, struct error *err)
{
    memset(out, 0, sizeof(*out));
    int rc = look_up(r, "task", id,
                     "SELECT " TASK_COLUMNS ", spec, blob.size, blob.data FROM task"
                     " JOIN blob ON blob.hash = reference_hash WHERE id = $1",
                     SQL_VALUES(sql_text(id)), take_task, out, err);
    if (rc < 0)
        task_row_release(out);
    return rc;
}

struct found_task {
    char *id;
    bool *is_own;
};

static int
take_name(struct sql_row *row, void *out, struct error *err)
{
    struct found_task *found = out;

    row_name(row, 0, found->id, HASH_TEXT_SIZE);
    *found->is_own = row_bool(row, 1);
    return row->is_short ? no_memory(err) : 0;
}

int
reader_find_task(struct store_reader *r, const char *client, const char *name, char id[HASH_TEXT_SIZE],
                 bool *is_own, struct error *err)
{
    return look_up(r, "task", name,
                   "SELECT task_id, client = $2 FROM task_alias WHERE name = $1"
                   " ORDER BY client = $2 DESC, created_ms, client LIMIT 1",
                   SQL_VALUES(sql_text(name), sql_text(client ? client : "")), take_name,
                   &(struct found_task){ id, is_own }, err);
}

static int
take_submission(struct sql_row *row, void *out, struct error *err)
{
    struct submission_row view = submission_view(row);
    return row->is_short || submission_row_copy(&view, out) < 0 ? no_memory(err) : 0;
}

/* index: INDEXED(). where: what follows the key's column. */
static int
read_submission(struct store_reader *r, const char *what, const char *index, const char *where,
                const char *key, struct submission_row *out, struct error *err)
{
    struct sql_query q = { .n = 0 };

    memset(out, 0, sizeof(*out));
    sql_add(&q, "SELECT %s FROM %s%s WHERE %s", dialect_of(r)->submission_columns, dialect_of(r)->submissions,
            index, where);
    int rc = look_up(r, what, key, q.sql, SQL_VALUES(sql_text(key)), take_submission, out, err);
    if (rc < 0)
        submission_row_release(out);
    return rc;
}

int
reader_get_submission(struct store_reader *r, const char *id, struct submission_row *out, struct error *err)
{
    return read_submission(r, "submission", "", "s.id = $1", id, out, err);
}

int
reader_find_cached(struct store_reader *r, const char *cache_key, struct submission_row *out,
                   struct error *err)
{
    return read_submission(r, "verdict under", INDEXED(r, "submission_cache"),
                           "s.cache_key = $1 ORDER BY s.id DESC LIMIT 1", cache_key, out, err);
}

static int
take_bool(struct sql_row *row, void *out, struct error *err)
{
    *(bool *)out = row_bool(row, 0);
    return row->is_short ? no_memory(err) : 0;
}

int
reader_is_unfinished(struct store_reader *r, const char *id, bool *out, struct error *err)
{
    return look_up(r, "submission", id, dialect_of(r)->is_unfinished, SQL_VALUES(sql_text(id)), take_bool,
                   out, err);
}

static int
take_answer(struct sql_row *row, void *out, struct error *err)
{
    char ***texts = out;
    int rc = 0;

    for (int i = 0; i < 2; i++) {
        const char *text = row_text(row, i);
        if (text && !(*texts[i] = strdup(text)))
            rc = no_memory(err);
    }
    return row->is_short ? no_memory(err) : rc;
}

int
reader_get_answer(struct store_reader *r, const char *id, char **client, char **verdict, struct error *err)
{
    char **out[] = { client, verdict };

    *client = *verdict = NULL;
    int rc = look_up(r, "submission", id, "SELECT client, verdict FROM submission WHERE id = $1",
                     SQL_VALUES(sql_text(id)), take_answer, out, err);
    if (rc < 0) {
        free(ptr_take(client));
        free(ptr_take(verdict));
    }
    return rc;
}

static int
take_key(struct sql_row *row, void *out, struct error *err)
{
    struct key_row *key = out;

    row_name(row, 0, key->request_hash, sizeof(key->request_hash));
    row_name(row, 1, key->id, sizeof(key->id));
    key->created_ms = row_int(row, 2);
    return row->is_short ? no_memory(err) : 0;
}

int
reader_get_key(struct store_reader *r, const char *client, const char *key, int64_t now_ms,
               struct key_row *out, struct error *err)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->client, sizeof(out->client), "%s", client);
    snprintf(out->key, sizeof(out->key), "%s", key);
    return look_up(r, "request of the client", client,
                   "SELECT request_hash, id, created_ms FROM idempotency"
                   " WHERE client = $1 AND key = $2 AND created_ms > $3",
                   SQL_VALUES(sql_text(client), sql_text(key), sql_int(now_ms - STORE_KEY_LIFE_MS)), take_key,
                   out, err);
}

static int
take_group(struct sql_row *row, void *out, struct error *err)
{
    struct group_row view = { .request = row_text(row, 2),
                              .size = (int)row_int(row, 3),
                              .created_ms = row_int(row, 4),
                              .age_ms = row_int(row, 5) };

    row_name(row, 0, view.id, sizeof(view.id));
    row_name(row, 1, view.task_id, sizeof(view.task_id));
    if (row->ops->is_null(row, 5)) /* this machine's clock is the only one */
        view.age_ms = clock_wall_ms() - view.created_ms;
    return row->is_short || group_row_copy(&view, out) < 0 ? no_memory(err) : 0;
}

int
reader_get_group(struct store_reader *r, const char *id, struct group_row *out, struct error *err)
{
    struct sql_query q = { .n = 0 };

    memset(out, 0, sizeof(*out));
    sql_add(&q, "SELECT %s FROM submission_group WHERE id = $1", dialect_of(r)->group_columns);
    int rc = look_up(r, "group", id, q.sql, SQL_VALUES(sql_text(id)), take_group, out, err);
    if (rc < 0)
        group_row_release(out);
    return rc;
}

/* Appends what was stored under a hash, columns 1 and 2, unless that is NULL. */
static int
take_bytes(struct sql_row *row, void *out, struct error *err)
{
    AUTO_FREE char *bytes = NULL;
    size_t size = 0;

    if (row->ops->is_null(row, 0))
        return 0;
    int rc = row->ops->unpack(row, 1, &bytes, &size, err);
    if (rc < 0)
        return rc;
    return buffer_append(out, bytes, size) < 0 ? no_memory(err) : 0;
}

int
reader_get_source(struct store_reader *r, const char *hash, struct buffer *out, struct error *err)
{
    return look_up(r, "source", hash, "SELECT hash, size, data FROM blob WHERE hash = $1",
                   SQL_VALUES(sql_text(hash)), take_bytes, out, err);
}

static int
take_carried(struct sql_row *row, void *out, struct error *err)
{
    struct carried_row *carried = out;
    const char *about = row_text(row, 0);

    if (!about || !(carried->about = strdup(about)))
        return no_memory(err);
    return row->ops->unpack(row, 1, &carried->bytes, &carried->size, err);
}

int
reader_get_carried(struct store_reader *r, const char *id, struct carried_row *out, struct error *err)
{
    *out = (struct carried_row){ 0 };
    if (!dialect_of(r)->has_nodes)
        return error_set(err, ERR_NOTFOUND, "nothing was handed on with %s", id);
    return look_up(r, "what was handed on with", id, "SELECT about, size, data FROM carried WHERE id = $1",
                   SQL_VALUES(sql_text(id)), take_carried, out, err);
}

int
reader_get_log(struct store_reader *r, const char *submission_id, struct buffer *out, struct error *err)
{
    return look_up(r, "submission", submission_id,
                   "SELECT log_hash, size, data FROM submission LEFT JOIN blob ON blob.hash = log_hash"
                   " WHERE id = $1",
                   SQL_VALUES(sql_text(submission_id)), take_bytes, out, err);
}

int
reader_get_completion(struct store_reader *r, const char *submission_id, struct buffer *out,
                      struct error *err)
{
    return look_up(r, "submission", submission_id,
                   "SELECT a.id, a.size, a.data FROM submission s LEFT JOIN answer a ON a.id = s.id"
                   " WHERE s.id = $1",
                   SQL_VALUES(sql_text(submission_id)), take_bytes, out, err);
}

/* --- several rows: the callbacks and their arguments --- */

static bool
give_submission(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct submission_row view = submission_view(row);
    return !row->is_short && ((store_submission_cb *)call->cb)(call->arg, &view);
}

int
reader_each_of_group(struct store_reader *r, const char *group_id, store_submission_cb *row_cb, void *arg,
                     struct error *err)
{
    struct sql_query q = { .n = 0 };
    size_t n = 0;

    sql_add(&q, "SELECT %s FROM %s%s WHERE s.group_id = $1 ORDER BY s.group_index",
            dialect_of(r)->submission_columns, dialect_of(r)->submissions,
            INDEXED(r, "submission_group_index"));
    int rc = r->ops->each(r, "read submissions", q.sql, SQL_VALUES(sql_text(group_id)), give_submission,
                          CALL(row_cb, arg), &n, err);
    return rc == 0 && n == 0 ? error_set(err, ERR_NOTFOUND, "no group %s", group_id) : rc;
}

int
reader_each_unfinished(struct store_reader *r, store_submission_cb *row_cb, void *arg, struct error *err)
{
    struct sql_query q = { .n = 0 };

    sql_add(&q, "SELECT %s %s", dialect_of(r)->submission_columns, dialect_of(r)->unfinished);
    return r->ops->each(r, "read submissions", q.sql, SQL_NO_VALUES, give_submission, CALL(row_cb, arg), NULL,
                        err);
}

static bool
give_usage(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    const char *client = row_text(row, 0);

    if (!row->is_short)
        ((store_usage_cb *)call->cb)(call->arg, client, row_int(row, 1));
    return true;
}

/* An id begins with the time at which it was made. */
static void
first_id(int64_t ms, char out[ID_SIZE])
{
    snprintf(out, ID_SIZE, "%08x-%04x", (unsigned)(ms >> 16), (unsigned)(ms & 0xffff));
}

int
reader_each_usage(struct store_reader *r, int64_t since_ms, store_usage_cb *usage_cb, void *arg,
                  struct error *err)
{
    struct sql_query q = { .n = 0 };

    sql_add(&q,
            "SELECT substr(scope, 2), sum(device_ms) FROM trend WHERE span_s = %d AND start_s >= $1"
            " AND scope <> '' AND device_ms > 0 GROUP BY scope",
            STORE_TREND_LONG_S);
    return r->ops->each(r, "sum up what clients used", q.sql, SQL_VALUES(sql_int(since_ms / 1000)),
                        give_usage, CALL(usage_cb, arg), NULL, err);
}

static int
take_usage(struct sql_row *row, void *out, struct error *err)
{
    *(struct store_usage *)out = (struct store_usage){ row_int(row, 0), row_int(row, 1), row_int(row, 2) };
    return row->is_short ? no_memory(err) : 0;
}

int
reader_get_usage(struct store_reader *r, const char *client, int64_t now_ms, int64_t most,
                 struct store_usage *out, struct error *err)
{
    struct sql_query q = { .n = 0 };
    char scope[STORE_SCOPE_SIZE], after[ID_SIZE], until[ID_SIZE];

    store_scope(client, scope);
    first_id(now_ms - MINUTE_MS, after);
    first_id(now_ms + MINUTE_MS, until); /* a node whose clock is far ahead counts for itself */
    sql_add(&q,
            "SELECT (SELECT count(*) %s), coalesce(sum(device_ms), 0), (SELECT count(*) FROM (SELECT 1 FROM"
            " submission WHERE client = $1 AND id >= $4 AND id < $5 LIMIT $6) recent) FROM trend"
            " WHERE span_s = %d AND scope = $2 AND start_s >= $3",
            dialect_of(r)->queued, STORE_TREND_LONG_S);
    return look_up(r, "client", client, q.sql,
                   SQL_VALUES(sql_text(client), sql_text(scope), sql_int((now_ms - now_ms % DAY_MS) / 1000),
                              sql_text(after), sql_text(until), sql_int(most)),
                   take_usage, out, err);
}

/* --- pages of submissions --- */

static void
add_conditions(struct sql_query *q, const struct sql_dialect *d, const struct submission_filter *f)
{
    bool is_live = f->state == SUBMISSION_QUEUED || f->state == SUBMISSION_RUNNING;

    if (f->state >= 0) /* in the text: a partial index is for one state only */
        sql_add(q, " AND %s = %d", is_live ? d->live_state : "s.state", f->state);
    if (f->task_id)
        sql_add_value(q, " AND s.task_id =", sql_text(f->task_id));
    if (f->class_)
        sql_add_value(q, " AND s.class =", sql_text(f->class_));
    if (f->client)
        sql_add_value(q, " AND s.client =", sql_text(f->client));
    if (f->group_id)
        sql_add_value(q, " AND s.group_id =", sql_text(f->group_id));
    if (f->run)
        sql_add_value(q, " AND s.run =", sql_text(f->run));
    if (f->run && f->step >= 0)
        sql_add_value(q, " AND s.step =", sql_int(f->step));
    if (f->run && f->policy_version) {
        sql_add(q, " AND %s", d->policy_version);
        sql_add_value(q, " =", sql_text(f->policy_version));
    }
    if (f->before)
        sql_add_value(q, " AND s.id <", sql_text(f->before));
}

static int
list(struct store_reader *r, const struct submission_filter *f, const char *columns, sql_row_cb *give,
     struct call *call, struct error *err)
{
    const struct sql_dialect *d = dialect_of(r);
    struct sql_query q = { .n = 0 };

    if (!is_page(f->limit, PAGE_MAX, err))
        return ERR_INPUT;
    if (f->state >= SUBMISSION_NSTATES)
        return error_set(err, ERR_INPUT, "no state has the number %d", f->state);
    const char *index = d->list_index ? d->list_index(f) : NULL;
    sql_add(&q, "SELECT %s FROM %s%s%s WHERE true", columns, d->submissions, index ? " INDEXED BY " : "",
            index ? index : "");
    add_conditions(&q, d, f);
    sql_add_value(&q, " ORDER BY s.id DESC LIMIT", sql_int(f->limit));
    return r->ops->each(r, "read submissions", q.sql, q.values, q.n, give, call, NULL, err);
}

int
reader_list_submissions(struct store_reader *r, const struct submission_filter *f,
                        store_submission_cb *row_cb, void *arg, struct error *err)
{
    return list(r, f, dialect_of(r)->submission_columns, give_submission, CALL(row_cb, arg), err);
}

static bool
give_brief(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    const char *id = row_text(row, 0), *brief = row_text(row, 1);
    return !row->is_short && ((store_brief_cb *)call->cb)(call->arg, id, brief);
}

int
reader_list_briefs(struct store_reader *r, const struct submission_filter *f, store_brief_cb *row_cb,
                   void *arg, struct error *err)
{
    return list(r, f, "s.id, s.brief", give_brief, CALL(row_cb, arg), err);
}

/* --- tasks, calibrations, canaries, counts --- */

static bool
give_task(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct task_row view = task_view(row);
    return !row->is_short && ((store_task_cb *)call->cb)(call->arg, &view);
}

int
reader_list_tasks(struct store_reader *r, const char *name, const char *after, int limit,
                  store_task_cb *row_cb, void *arg, struct error *err)
{
    const struct sql_value values[] = { sql_text(after ? after : ""), sql_int(limit), sql_text(name) };

    if (!is_page(limit, PAGE_MAX, err))
        return ERR_INPUT;
    return r->ops->each(r, "read tasks",
                        name ? "SELECT " TASK_COLUMNS " FROM (SELECT id AS named FROM task WHERE name = $3"
                               "   UNION SELECT task_id FROM task_alias WHERE name = $3) AS n"
                               " JOIN task ON id = named WHERE id > $1 ORDER BY id LIMIT $2"
                             : "SELECT " TASK_COLUMNS " FROM task WHERE id > $1 ORDER BY id LIMIT $2",
                        values, name ? 3 : 2, give_task, CALL(row_cb, arg), NULL, err);
}

static bool
give_calibration(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct calibration_row view = { .created_ms = row_int(row, 1),
                                    .gpu = row_text(row, 2),
                                    .document = row_text(row, 3) };

    row_name(row, 0, view.id, sizeof(view.id));
    if (!row->is_short)
        ((store_calibration_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_calibration(struct store_reader *r, store_calibration_cb *row_cb, void *arg, struct error *err)
{
    /* Ids are made in order of time. */
    return r->ops->each(r, "read calibrations",
                        "SELECT id, created_ms, gpu, document FROM calibration WHERE id IN (SELECT max(id)"
                        " FROM calibration GROUP BY gpu) ORDER BY gpu",
                        SQL_NO_VALUES, give_calibration, CALL(row_cb, arg), NULL, err);
}

static bool
give_canary(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    struct canary_row view = { .gpu = row_text(row, 0),
                               .driver = row_text(row, 1),
                               .kind = row_text(row, 2),
                               .changed_ms = row_int(row, 3),
                               .document = row_text(row, 4) };

    if (!row->is_short)
        ((store_canary_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_canary(struct store_reader *r, store_canary_cb *row_cb, void *arg, struct error *err)
{
    return r->ops->each(r, "read canaries",
                        "SELECT gpu, driver, kind, changed_ms, document FROM canary"
                        " ORDER BY gpu, driver, kind",
                        SQL_NO_VALUES, give_canary, CALL(row_cb, arg), NULL, err);
}

static bool
add_count(void *arg, struct sql_row *row)
{
    struct store_counts *out = arg;
    int64_t what = row_int(row, 0);

    if (what >= 0 && what < SUBMISSION_NSTATES)
        out->by_state[what] = row_int(row, 1);
    else
        out->tasks = row_int(row, 1);
    return true;
}

int
reader_count(struct store_reader *r, struct store_counts *out, struct error *err)
{
    memset(out, 0, sizeof(*out));
    return r->ops->each(r, "count", dialect_of(r)->count, SQL_NO_VALUES, add_count, out, NULL, err);
}

/* --- among nodes --- */

static bool
give_node(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    const struct node_row view = { .name = row_word(row, 0),
                                   .epoch = row_int(row, 1),
                                   .lease_left_ms = row_int(row, 2),
                                   .is_draining = row_bool(row, 3),
                                   .about = row_text(row, 4),
                                   .claimed = row_int(row, 5) };

    ((store_node_cb *)call->cb)(call->arg, &view);
    return true;
}

int
reader_each_node(struct store_reader *r, store_node_cb *row_cb, void *arg, struct error *err)
{
    if (!dialect_of(r)->has_nodes)
        return 0;
    return r->ops->each(r, "read the nodes", dialect_of(r)->each_node, SQL_NO_VALUES, give_node,
                        CALL(row_cb, arg), NULL, err);
}

static bool
give_cancel(void *arg, struct sql_row *row)
{
    const struct call *call = arg;

    ((store_cancel_cb *)call->cb)(call->arg, row_word(row, 0), (int)row_int(row, 1));
    return true;
}

int
reader_each_cancel(struct store_reader *r, const char *node, int limit, store_cancel_cb *row_cb, void *arg,
                   struct error *err)
{
    if (!dialect_of(r)->has_nodes)
        return 0;
    return r->ops->each(r, "look for what is to be cancelled", dialect_of(r)->each_cancel,
                        SQL_VALUES(sql_text(node), sql_int(limit)), give_cancel, CALL(row_cb, arg), NULL,
                        err);
}

static bool
note_row(void *arg, struct sql_row *row)
{
    (void)row;
    *(bool *)arg = true;
    return false;
}

int
reader_waits(struct store_reader *r, const struct store_lease *l, const struct store_wants *wants, bool *out,
             struct error *err)
{
    const bool is_compiler = wants && wants->is_compiler;
    const struct sql_value values[] = { sql_text(l->node), sql_int(l->epoch),
                                        sql_text(wants ? wants->gpu : "") };

    *out = false;
    return r->ops->each(r, "look for what waits",
                        is_compiler ? dialect_of(r)->waits_new : dialect_of(r)->waits, values,
                        is_compiler ? 1 : 3, note_row, out, NULL, err);
}

int
reader_is_ahead(struct store_reader *r, bool *out, struct error *err)
{
    *out = false;
    if (!dialect_of(r)->has_nodes)
        return 0;
    return look_up(r, "look for what was handed on", "", dialect_of(r)->is_ahead,
                   SQL_VALUES(sql_int(STORE_AHEAD_MOST), sql_int(STORE_AHEAD_BYTES)), take_bool, out, err);
}
