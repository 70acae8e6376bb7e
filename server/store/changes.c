#include "server/store/changes.h"

#include <stdlib.h>

#include "common/auto.h"
#include "server/store/brief.h"
#include "server/store/sums.h"
#include "server/store/labels.h"

static int
change(struct store_backend *b, const char *what, const char *sql, const struct sql_value *values, size_t n,
       int64_t *changed, struct error *err)
{
    return b->ops->each(b, what, sql, values, n, NULL, NULL, changed, err);
}

struct first {
    char *out;
    size_t size;
    bool is_there;
};

static bool
take_first(void *arg, struct sql_row *row)
{
    struct first *first = arg;

    first->is_there = true;
    if (first->out)
        row_name(row, 0, first->out, first->size);
    return false;
}

/* 1 and the first column where there is a row, 0 where there is none, or an error. out may be NULL. */
static int
ask(struct store_backend *b, const char *what, const char *sql, const struct sql_value *values, size_t n,
    char *out, size_t size, struct error *err)
{
    struct first first = { .out = out, .size = size };
    int rc = b->ops->each(b, what, sql, values, n, take_first, &first, NULL, err);
    return rc < 0 ? rc : first.is_there;
}

/* --- bytes: packed; sources, references and captured output once, under the hash of what they were --- */

static int
put_bytes(struct store_backend *b, const char *sql, const char *key, const void *bytes, size_t size,
          int64_t *inserted, struct error *err)
{
    const char *packed;
    size_t packed_size;
    int rc = packer_pack(&b->packer, bytes, size, &packed, &packed_size, err);

    if (rc < 0)
        return rc;
    rc = change(b, "store bytes", sql,
                SQL_VALUES(sql_text(key), sql_int((int64_t)size), sql_bytes(packed, packed_size)), inserted,
                err);
    packer_trim(&b->packer);
    return rc;
}

/* Another node may store the same bytes, or remove them, between two statements. */
static int
put_blob(struct store_backend *b, const char *hash, const void *bytes, size_t size, struct error *err)
{
    for (int64_t inserted = 0;;) {
        int rc = ask(b, "look for stored bytes", b->ops->dialect->find_blob, SQL_VALUES(sql_text(hash)), NULL,
                     0, err);
        if (rc == 0)
            rc =
                put_bytes(b, "INSERT INTO blob (hash, size, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                          hash, bytes, size, &inserted, err);
        if (rc != 0 || inserted > 0)
            return rc < 0 ? rc : 0;
    }
}

/* --- tasks --- */

int
change_add_task(struct store_backend *b, void *what, struct error *err)
{
    const struct task_row *row = what;
    char hash[HASH_TEXT_SIZE];

    hash_text(row->reference, row->reference_size, hash);
    int rc = put_blob(b, hash, row->reference, row->reference_size, err);
    if (rc < 0)
        return rc;
    return change(
        b, "add a task",
        "INSERT INTO task (id, name, entry_point, level, dynamic_shapes, created_ms, reference_hash,"
        " metadata, spec) VALUES ($1, $2, $3, $4, CAST($5 AS int) <> 0, $6, $7, $8, $9)"
        " ON CONFLICT (id) DO NOTHING",
        SQL_VALUES(sql_text(row->id), sql_text(row->name), sql_text(row->entry_point), sql_int(row->level),
                   sql_int(row->dynamic_shapes), sql_int(row->created_ms), sql_text(hash),
                   sql_text(row->metadata), sql_text(row->spec)),
        NULL, err);
}

/* --- their names --- */

/*
 * The name in the task's own row is the one that everybody sees: that of the client that registered it, for as long as
 * any client has that name for it. A rename or removal locks the task's row first: changes by nodes are serialized.
 */

#define NAMES "look at the names of a task"

/* Replaces the shown name by this one (NULL: the oldest) once no client has the shown name for the task any more. */
static int
show(struct store_backend *b, const char *id, const char *name, struct error *err)
{
    return change(b, "show another name of a task",
                  "UPDATE task SET name = coalesce($2, (SELECT a.name FROM task_alias a WHERE a.task_id = $1"
                  " ORDER BY a.created_ms, a.name LIMIT 1)) WHERE id = $1 AND NOT EXISTS"
                  " (SELECT 1 FROM task_alias a WHERE a.task_id = $1 AND a.name = task.name)",
                  SQL_VALUES(sql_text(id), sql_text(name)), NULL, err);
}

int
change_name_task(struct store_backend *b, void *what, struct error *err)
{
    const struct store_naming *n = what;
    char other[HASH_TEXT_SIZE] = "";
    int64_t named = 0;
    int rc = change(
        b, "name a task",
        "INSERT INTO task_alias AS t (task_id, client, name, created_ms) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (client, name) DO UPDATE SET name = t.name WHERE t.task_id = excluded.task_id",
        SQL_VALUES(sql_text(n->id), sql_text(n->client), sql_text(n->name), sql_int(n->now_ms)), &named, err);

    if (rc < 0)
        return rc;
    if (named > 0)
        return show(b, n->id, n->name, err);
    rc = ask(b, NAMES, "SELECT task_id FROM task_alias WHERE client = $1 AND name = $2",
             SQL_VALUES(sql_text(n->client), sql_text(n->name)), other, sizeof(other), err);
    return rc < 0 ? rc : error_set(err, ERR_CONFLICT, "\"%.100s\" is the name of %s", n->name, other);
}

/* 0 where there is such a task, which is locked then, and the client has a name for it. */
static int
check_own(struct store_backend *b, const struct store_naming *n, struct error *err)
{
    int rc = ask(b, NAMES, b->ops->dialect->lock_task, SQL_VALUES(sql_text(n->id)), NULL, 0, err);

    if (rc == 0)
        return error_set(err, ERR_NOTFOUND, "no task %s", n->id);
    if (rc == 1 && n->client)
        rc = ask(b, NAMES, "SELECT 1 FROM task_alias WHERE task_id = $1 AND client = $2",
                 SQL_VALUES(sql_text(n->id), sql_text(n->client)), NULL, 0, err);
    if (rc == 0)
        return error_set(err, ERR_INPUT, "%.80s has no name for the task: others registered it", n->client);
    return rc < 0 ? rc : 0;
}

static int
forget(struct store_backend *b, const struct store_naming *n, struct error *err)
{
    return change(b, "forget a name",
                  "DELETE FROM task_alias WHERE task_id = $1 AND (CAST($2 AS text) IS NULL OR client = $2)",
                  SQL_VALUES(sql_text(n->id), sql_text(n->client)), NULL, err);
}

int
change_rename_task(struct store_backend *b, void *what, struct error *err)
{
    struct store_naming n = *(const struct store_naming *)what;
    char holder[1024] = ""; /* 200 characters at most */
    int rc = check_own(b, &n, err);

    if (rc == 0 && !n.client)
        rc = ask(b, NAMES,
                 "SELECT client FROM task_alias a JOIN task ON task.id = task_id WHERE task_id = $1"
                 " ORDER BY a.name = task.name DESC, a.created_ms LIMIT 1",
                 SQL_VALUES(sql_text(n.id)), holder, sizeof(holder), err);
    if (rc < 0)
        return rc;
    if (!n.client)
        n.client = holder;
    rc = forget(b, &n, err);
    if (rc == 0)
        rc = show(b, n.id, n.name, err);
    return rc == 0 ? change_name_task(b, &n, err) : rc;
}

int
change_remove_task(struct store_backend *b, void *what, struct error *err)
{
    const struct store_naming *n = what;
    int rc = check_own(b, n, err);

    if (rc == 0)
        rc = forget(b, n, err);
    if (rc == 0)
        rc = ask(b, NAMES, "SELECT 1 FROM task_alias WHERE task_id = $1 LIMIT 1", SQL_VALUES(sql_text(n->id)),
                 NULL, 0, err);
    if (rc == 1)
        return show(b, n->id, NULL, err);
    if (rc == 0)
        rc = ask(b, NAMES, b->ops->dialect->task_in_use, SQL_VALUES(sql_text(n->id)), NULL, 0, err);
    if (rc == 1)
        return error_set(err, ERR_CONFLICT, "submissions of the task are not finished");
    return rc == 0 ? b->ops->drop_task(b, n->id, err) : rc;
}

/* --- new submissions --- */

static int
add_group(struct store_backend *b, const struct group_row *group, const char *client, struct error *err)
{
    struct labels labels;

    labels_read(group->request, &labels);
    int rc = change(b, "add a group",
                    "INSERT INTO submission_group (id, task_id, size, created_ms, request, client, run, step)"
                    " VALUES ($1, $2, $3, $4, $5, $6, $7, nullif(CAST($8 AS bigint), -1))",
                    SQL_VALUES(sql_text(group->id), sql_text(group->task_id), sql_int(group->size),
                               sql_int(group->created_ms), sql_text(group->request), sql_text(client),
                               sql_name(labels.run), sql_int(labels.step)),
                    NULL, err);
    if (rc < 0)
        error_prefix(err, "group %s", group->id);
    return rc;
}

/* Those that are too old go with it, so that the table stays as large as a day's requests. */
static int
add_key(struct store_backend *b, const struct key_row *key, struct error *err)
{
    int64_t kept = 0, oldest_ms = key->created_ms - STORE_KEY_LIFE_MS;
    int rc =
        change(b, "forget old keys", b->ops->dialect->forget_keys, SQL_VALUES(sql_int(oldest_ms)), NULL, err);

    if (rc < 0)
        return rc;
    /* Of two nodes that add one key at once the second waits for the first. */
    rc = change(b, "add a key",
                "INSERT INTO idempotency AS old (client, key, request_hash, id, created_ms)"
                " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (client, key) DO UPDATE SET"
                " request_hash = excluded.request_hash, id = excluded.id, created_ms = excluded.created_ms"
                " WHERE CAST($7 AS int) = 1 OR old.created_ms <= $6 OR NOT"
                " (EXISTS (SELECT 1 FROM submission s WHERE s.id = old.id)"
                "  OR EXISTS (SELECT 1 FROM submission_group g WHERE g.id = old.id))",
                SQL_VALUES(sql_text(key->client), sql_text(key->key), sql_text(key->request_hash),
                           sql_text(key->id), sql_int(key->created_ms), sql_int(oldest_ms),
                           sql_int(key->replaces)),
                &kept, err);
    if (rc == 0 && kept == 0)
        return error_set(err, ERR_CONFLICT, "the key has made something already");
    return rc;
}

static int
insert_submission(struct store_backend *b, const struct submission_row *row, const struct labels *labels,
                  struct error *err)
{
    AUTO_JSON json_t *verdict = verdict_read(row->verdict);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    bool is_job = b->ops->add_job && row->state < SUBMISSION_DONE; /* the table of jobs then has its state */

    return change(b, "add a submission",
                  "INSERT INTO submission (id, group_id, group_index, task_id, source_hash, state, priority,"
                  " client, attempts, created_ms, finished_ms, stage, class, reward, request, verdict, brief,"
                  " run, step) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
                  " $17, $18, nullif(CAST($19 AS bigint), -1))",
                  SQL_VALUES(sql_text(row->id), sql_name(row->group_id), sql_int(row->group_index),
                             sql_text(row->task_id), sql_text(row->source_hash),
                             sql_int(is_job ? SUBMISSION_QUEUED : row->state), sql_int(row->priority),
                             sql_text(row->client), sql_int(row->attempts), sql_int(row->created_ms),
                             sql_int(row->finished_ms), sql_text(row->stage), sql_text(row->class_),
                             sql_real(row->reward), sql_text(row->request), sql_text(row->verdict),
                             sql_text(brief), sql_name(labels->run), sql_int(labels->step)),
                  NULL, err);
}

static int
add_submission(struct store_backend *b, const struct submission_row *row, const char *together,
               struct error *err)
{
    struct labels labels;

    labels_read(row->request, &labels);
    int rc = insert_submission(b, row, &labels, err);
    if (rc == 0 && b->ops->add_job && row->state < SUBMISSION_DONE)
        rc = b->ops->add_job(b, row, together, &labels, err);
    if (rc == 0 && row->state == SUBMISSION_DONE)
        rc = sums_add(b, row, row->task_id, row->client, &labels, err);
    if (rc < 0)
        error_prefix(err, "submission %s", row->id);
    return rc;
}

int
change_add_submissions(struct store_backend *b, void *what, struct error *err)
{
    const struct store_intake *w = what;
    const char *client = w->n > 0 ? w->rows[0].client : NULL; /* a group's submissions are all of one */
    const char *together = w->group && w->group->keeps_together ? w->group->id : NULL;
    int rc = w->key ? add_key(b, w->key, err) : 0; /* first: what it finds must not be of this write */

    if (rc == 0 && w->group)
        rc = add_group(b, w->group, client, err);
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        rc = put_blob(b, w->rows[i].source_hash, w->sources[i].text, w->sources[i].size, err);
        if (rc == 0)
            rc = add_submission(b, &w->rows[i], together, err);
        if (rc == 0 && w->sources[i].answer)
            rc = put_bytes(b, "INSERT INTO answer (id, size, data) VALUES ($1, $2, $3)", w->rows[i].id,
                           w->sources[i].answer, w->sources[i].answer_size, NULL, err);
    }
    return rc;
}

/* --- moves of a submission. One that has ended stays as it is --- */

int
change_explain_miss(struct store_backend *b, const char *id, struct error *err)
{
    char state[16];
    int rc = ask(b, "look for a submission", b->ops->dialect->state_of, SQL_VALUES(sql_text(id)), state,
                 sizeof(state), err);

    if (rc == 1)
        return error_set(err, ERR_CONFLICT, "submission %s is %s", id,
                         submission_state_name((enum submission_state)atoi(state)));
    return rc < 0 ? rc : error_set(err, ERR_NOTFOUND, "no submission %s", id);
}

/* set: the new state of what is claimed under the number, with the attempts of the claim. */
static int
change_claimed(struct store_backend *b, const char *set, const struct store_claim *c, struct error *err)
{
    struct sql_query q = { .n = 0 };
    int64_t changed = 0;

    sql_add(&q, "UPDATE %s SET %s WHERE id = $1 AND state = 1 AND claim = $2", b->ops->dialect->jobs, set);
    int rc = change(b, "change a submission", q.sql,
                    SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts)), &changed, err);
    if (rc < 0)
        error_prefix(err, "submission %s", c->id);
    return rc < 0 || changed == 1 ? rc : change_explain_miss(b, c->id, err);
}

int
change_release(struct store_backend *b, struct store_order *o, struct error *err)
{
    return change_claimed(b, "state = 0, node = NULL, attempts = $3", &o->claim, err);
}

int
change_set_attempts(struct store_backend *b, struct store_order *o, struct error *err)
{
    return change_claimed(b, "attempts = $3", &o->claim, err);
}

struct ended {
    char task_id[HASH_TEXT_SIZE], client[LABEL_MAX_CHARS * 4 + 1];
    bool is_there, has_client;
    struct labels labels;
};

static bool
take_ended(void *arg, struct sql_row *row)
{
    struct ended *e = arg;

    e->is_there = true;
    row_name(row, 0, e->task_id, sizeof(e->task_id));
    e->has_client = row_text(row, 1);
    row_name(row, 1, e->client, sizeof(e->client));
    row_name(row, 2, e->labels.run, sizeof(e->labels.run));
    e->labels.step = row_int(row, 3);
    return true;
}

static int
end(struct store_backend *b, const struct submission_row *row, const char *log_hash, struct ended *e,
    struct error *err)
{
    AUTO_JSON json_t *verdict = verdict_read(row->verdict);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    int rc = b->ops->each(b, "end a submission", b->ops->dialect->finish,
                          SQL_VALUES(sql_text(row->id), sql_int(row->claim), sql_int(row->state),
                                     sql_text(row->stage), sql_text(row->class_), sql_real(row->reward),
                                     sql_text(row->verdict), sql_int(row->finished_ms), sql_name(log_hash),
                                     sql_name(row->cache_key), sql_int(row->device_ms),
                                     sql_text(json_string_value(json_object_get(verdict, "cached_from"))),
                                     sql_text(brief)),
                          take_ended, e, NULL, err);

    if (rc < 0)
        error_prefix(err, "submission %s", row->id);
    return rc < 0 || e->is_there ? rc : change_explain_miss(b, row->id, err);
}

int
change_finish(struct store_backend *b, void *what, struct error *err)
{
    const struct submission_row *row = &((const struct store_ending *)what)->row;
    const struct store_source *log = &((const struct store_ending *)what)->log;
    struct ended e = { .is_there = false };
    char log_hash[HASH_TEXT_SIZE] = "";
    int rc = 0;

    if (log->size > 0) {
        hash_text(log->text, log->size, log_hash);
        rc = put_blob(b, log_hash, log->text, log->size, err);
    }
    if (rc == 0)
        rc = end(b, row, log_hash, &e, err);
    if (rc < 0 || row->state != SUBMISSION_DONE)
        return rc;
    return sums_add(b, row, e.task_id, e.has_client ? e.client : NULL, &e.labels, err);
}

/* --- the machine --- */

int
change_add_calibration(struct store_backend *b, void *what, struct error *err)
{
    const struct calibration_row *row = what;

    return change(
        b, "add a calibration",
        "INSERT INTO calibration (id, created_ms, gpu, document) VALUES ($1, $2, $3, $4)",
        SQL_VALUES(sql_text(row->id), sql_int(row->created_ms), sql_text(row->gpu), sql_text(row->document)),
        NULL, err);
}

int
change_put_canary(struct store_backend *b, void *what, struct error *err)
{
    const struct canary_row *w = what;

    if (!w->document)
        return change(b, "forget a canary", "DELETE FROM canary WHERE gpu = $1 AND driver = $2 AND kind = $3",
                      SQL_VALUES(sql_text(w->gpu), sql_text(w->driver), sql_text(w->kind)), NULL, err);
    return change(b, "keep a canary",
                  "INSERT INTO canary (gpu, driver, kind, changed_ms, document) VALUES ($1, $2, $3, $4, $5)"
                  " ON CONFLICT (gpu, driver, kind) DO UPDATE"
                  " SET changed_ms = excluded.changed_ms, document = excluded.document",
                  SQL_VALUES(sql_text(w->gpu), sql_text(w->driver), sql_text(w->kind), sql_int(w->changed_ms),
                             sql_text(w->document)),
                  NULL, err);
}
