#include "server/store/writes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/blob.h"
#include "server/store/brief.h"
#include "server/store/db.h"
#include "server/store/names.h"
#include "server/store/private.h"
#include "server/store/rows.h"
#include "server/store/store.h"
#include "server/store/sums.h"
#include "server/store/sweep.h"
#include "server/store/writer.h"

enum change {
    ADD_TASK,
    ADD_GROUP,
    ADD_SUBMISSION,
    BEGIN,
    REQUEUE,
    FINISH,
    FIND_STATE,
    ADD_CALIBRATION,
    PUT_CANARY,
    FORGET_CANARY,
    ADD_KEY,
    FORGET_KEYS,
    NCHANGES
};

/* A submission that has ended stays as it is: only queued (0) and running (1) ones are changed. */
static const char *const change_sql[NCHANGES] = {
    [ADD_TASK] = "INSERT INTO task (id, name, entry_point, level, dynamic_shapes, created_ms, "
                 "reference_hash, metadata,"
                 " spec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
    [ADD_GROUP] = "INSERT INTO submission_group (id, task_id, size, created_ms, request, client)"
                  " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [ADD_SUBMISSION] =
        "INSERT INTO submission (id, group_id, group_index, task_id, source_hash, state, priority,"
        " client, attempts, created_ms, finished_ms, stage, class, reward, request, verdict, brief)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    [BEGIN] = "UPDATE submission SET state = 1, attempts = ?2 WHERE id = ?1 AND state IN (0, 1)",
    [REQUEUE] = "UPDATE submission SET state = 0, attempts = ?2 WHERE id = ?1 AND state IN (0, 1)",
    [FINISH] = "UPDATE submission SET state = ?2, stage = ?3, class = ?4, reward = ?5, verdict = ?6, "
               "finished_ms = ?7,"
               " log_hash = ?8, cache_key = ?9, device_ms = ?10, cached_from = ?11, brief = ?12"
               " WHERE id = ?1 AND state IN (0, 1)",
    [FIND_STATE] = "SELECT state FROM submission WHERE id = ?1",
    [ADD_CALIBRATION] = "INSERT INTO calibration (id, created_ms, gpu, document) VALUES (?1, ?2, ?3, ?4)",
    [PUT_CANARY] = "INSERT OR REPLACE INTO canary (gpu, driver, kind, changed_ms, document)"
                   " VALUES (?1, ?2, ?3, ?4, ?5)",
    [FORGET_CANARY] = "DELETE FROM canary WHERE gpu = ?1 AND driver = ?2 AND kind = ?3",
    [ADD_KEY] = "INSERT OR REPLACE INTO idempotency (client, key, request_hash, id, created_ms)"
                " VALUES (?1, ?2, ?3, ?4, ?5)",
    [FORGET_KEYS] = "DELETE FROM idempotency WHERE created_ms <= ?1",
};

struct write_kit {
    sqlite3 *db;
    sqlite3_stmt *changes[NCHANGES];
    struct blob_writer blobs;
    struct sums sums;
    struct sweep sweep;
    struct names names;
};

int
write_kit_new(sqlite3 *db, struct write_kit **out, struct error *err)
{
    struct write_kit *kit = calloc(1, sizeof(*kit));
    int rc;

    *out = NULL;
    if (!kit)
        return error_set(err, ERR_NOMEM, "no memory for the store's statements");
    kit->db = db;
    rc = blob_writer_init(&kit->blobs, db, err);
    if (rc == 0)
        rc = sums_init(&kit->sums, db, err);
    if (rc == 0)
        rc = sweep_init(&kit->sweep, db, err);
    if (rc == 0)
        rc = names_init(&kit->names, db, err);
    for (int i = 0; rc == 0 && i < NCHANGES; i++)
        rc = db_prepare(db, change_sql[i], &kit->changes[i], err);
    if (rc < 0) {
        write_kit_free(kit);
        return rc;
    }
    *out = kit;
    return 0;
}

void
write_kit_free(struct write_kit *kit)
{
    if (!kit)
        return;
    for (int i = 0; i < NCHANGES; i++)
        sqlite3_finalize(kit->changes[i]);
    blob_writer_release(&kit->blobs);
    sums_release(&kit->sums);
    sweep_release(&kit->sweep);
    names_release(&kit->names);
    free(kit);
}

static void
write_init(struct write *w, int (*apply)(struct write *, struct write_kit *, struct error *),
           void (*release)(struct write *), store_done_cb *cb, void *arg)
{
    memset(w, 0, sizeof(*w));
    w->apply = apply;
    w->free = release;
    w->rows = 1;
    w->cb = cb;
    w->arg = arg;
}

static int
no_memory(struct error *err)
{
    return error_set(err, ERR_NOMEM, "no memory to queue a write");
}

/* --- room --- */

enum { PROBE_BYTES = 256 * 1024, PROBE_EVERY_NS = 1000000000 };

struct probe_write {
    struct write write;
    struct store *store;
    bool is_failing; /* then the database is written, too: room is not all that it may have lacked */
};

/* The file is gone again at once: what a disk or a quota has no room for fails here, and leaves nothing. */
static int
find_room(const char *beside, struct error *err)
{
    AUTO_FREE char *path = NULL;
    AUTO_FD int fd = -1;

    if (asprintf(&path, "%s-room.XXXXXX", beside) < 0) {
        path = NULL;
        return no_memory(err);
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_STORE, "make a file beside it: %s", strerror(errno));
    unlink(path);
    int rc = posix_fallocate(fd, 0, PROBE_BYTES);
    return rc == 0 ? 0 : error_set(err, ERR_STORE, "find room for %d bytes: %s", PROBE_BYTES, strerror(rc));
}

/* Its version is what it was; the page it stands on is written. */
static int
touch_database(sqlite3 *db, struct error *err)
{
    char sql[64];
    int64_t version = 0;
    int rc = db_integer(db, "PRAGMA user_version", &version, err);

    snprintf(sql, sizeof(sql), "PRAGMA user_version = %lld", (long long)version);
    return rc < 0 ? rc : db_exec(db, sql, err);
}

static int
apply_probe(struct write *write, struct write_kit *kit, struct error *err)
{
    int rc = find_room(sqlite3_db_filename(kit->db, "main"), err);

    if (rc == 0 && ((struct probe_write *)write)->is_failing)
        rc = touch_database(kit->db, err);
    return rc;
}

static void
free_probe(struct write *write)
{
    ((struct probe_write *)write)->store->is_probing = false;
    free(write);
}

static void
probe_done(void *arg, int rc, const struct error *err)
{
    (void)arg, (void)rc, (void)err; /* the writer keeps what it found */
}

bool
store_is_writable(struct store *s)
{
    int64_t now_ns = clock_monotonic_ns();
    bool is_failing = writer_is_failing(s->writer);
    struct error unused;

    if (s->is_probing || (s->probed_ns != 0 && now_ns - s->probed_ns < PROBE_EVERY_NS))
        return !is_failing;
    struct probe_write *w = calloc(1, sizeof(*w));
    if (!w)
        return !is_failing;
    s->probed_ns = now_ns;
    s->is_probing = true;
    write_init(&w->write, apply_probe, free_probe, probe_done, NULL);
    w->write.rows = 0;
    w->store = s;
    w->is_failing = is_failing;
    writer_put(s->writer, &w->write,
               &unused); /* refused: the queue is long, and then writes say how the disk is */
    return !is_failing;
}

/* --- tasks --- */

struct task_write {
    struct write write;
    struct task_row row;
};

static int
apply_task(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct task_row *row = &((struct task_write *)write)->row;
    sqlite3_stmt *stmt = kit->changes[ADD_TASK];
    char hash[HASH_TEXT_SIZE];
    int rc;

    hash_text(row->reference, row->reference_size, hash);
    rc = blob_put(&kit->blobs, hash, row->reference, row->reference_size, err);
    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, row->id);
    db_bind_text(stmt, 2, row->name);
    db_bind_text(stmt, 3, row->entry_point);
    sqlite3_bind_int(stmt, 4, row->level);
    sqlite3_bind_int(stmt, 5, row->dynamic_shapes);
    sqlite3_bind_int64(stmt, 6, row->created_ms);
    db_bind_text(stmt, 7, hash);
    db_bind_text(stmt, 8, row->metadata);
    db_bind_text(stmt, 9, row->spec);
    return db_run(stmt, "add a task", err);
}

static void
free_task_write(struct write *write)
{
    task_row_release(&((struct task_write *)write)->row);
    free(write);
}

int
store_add_task(struct store *s, const struct task_row *row, store_done_cb *cb, void *arg, struct error *err)
{
    struct task_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_task, free_task_write, cb, arg);
    w->write.is_new_work = true;
    w->write.weight = row->reference_size;
    if (task_row_copy(row, &w->row) < 0) {
        free_task_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

/* --- names of tasks --- */

struct name_write {
    struct write write;
    char *client, *name; /* NULL: anybody; none */
    char id[HASH_TEXT_SIZE];
    int64_t now_ms;
};

static int
apply_name(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct name_write *w = (const struct name_write *)write;
    return names_claim(&kit->names, w->client, w->name, w->id, w->now_ms, err);
}

static int
apply_rename(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct name_write *w = (const struct name_write *)write;
    return names_rename(&kit->names, w->client, w->name, w->id, w->now_ms, err);
}

static int
apply_remove(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct name_write *w = (const struct name_write *)write;
    return names_remove(&kit->names, w->client, w->id, err);
}

static void
free_name_write(struct write *write)
{
    struct name_write *w = (struct name_write *)write;

    free(w->client);
    free(w->name);
    free(w);
}

static int
put_name(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
         int (*apply)(struct write *, struct write_kit *, struct error *), store_done_cb *cb, void *arg,
         struct error *err)
{
    struct name_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply, free_name_write, cb, arg);
    w->write.is_new_work = true;
    strncpy(w->id, id, sizeof(w->id) - 1); /* an id that is longer is no task's */
    w->now_ms = now_ms;
    w->client = client ? strdup(client) : NULL;
    w->name = name ? strdup(name) : NULL;
    if ((client && !w->client) || (name && !w->name)) {
        free_name_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

int
store_name_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                store_done_cb *cb, void *arg, struct error *err)
{
    return put_name(s, client ? client : "", name, id, now_ms, apply_name, cb, arg, err);
}

int
store_rename_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                  store_done_cb *cb, void *arg, struct error *err)
{
    return put_name(s, client, name, id, now_ms, apply_rename, cb, arg, err);
}

int
store_remove_task(struct store *s, const char *client, const char *id, store_done_cb *cb, void *arg,
                  struct error *err)
{
    return put_name(s, client, NULL, id, 0, apply_remove, cb, arg, err);
}

/* --- new submissions --- */

struct source_copy {
    char *text;
    size_t size;
};

struct submissions_write {
    struct write write;
    bool has_group, has_key;
    struct group_row group;
    struct key_row key;
    size_t n;
    struct submission_row *rows;
    struct source_copy *sources;
};

static int
apply_group(const struct group_row *group, const char *client, struct write_kit *kit, struct error *err)
{
    sqlite3_stmt *stmt = kit->changes[ADD_GROUP];
    int rc;

    db_bind_text(stmt, 1, group->id);
    db_bind_text(stmt, 2, group->task_id);
    sqlite3_bind_int(stmt, 3, group->size);
    sqlite3_bind_int64(stmt, 4, group->created_ms);
    db_bind_text(stmt, 5, group->request);
    db_bind_text(stmt, 6, client);
    rc = db_run(stmt, "add a group", err);
    if (rc < 0)
        error_prefix(err, "group %s", group->id);
    return rc;
}

static void
bind_reward(sqlite3_stmt *stmt, int index, double reward)
{
    if (isnan(reward))
        sqlite3_bind_null(stmt, index);
    else
        sqlite3_bind_double(stmt, index, reward);
}

/* Of the verdict's text; NULL: there is none, or it is no object. */
static json_t *
read_verdict(const struct submission_row *row)
{
    json_t *verdict = row->verdict ? json_loads(row->verdict, JSON_ALLOW_NUL, NULL) : NULL;

    if (json_is_object(verdict))
        return verdict;
    json_decref(verdict);
    return NULL;
}

static int
apply_submission(const struct submission_row *row, struct write_kit *kit, struct error *err)
{
    AUTO_JSON json_t *verdict = read_verdict(row);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    sqlite3_stmt *stmt = kit->changes[ADD_SUBMISSION];
    int rc;

    db_bind_text(stmt, 1, row->id);
    db_bind_name(stmt, 2, row->group_id);
    sqlite3_bind_int(stmt, 3, row->group_index);
    db_bind_text(stmt, 4, row->task_id);
    db_bind_text(stmt, 5, row->source_hash);
    sqlite3_bind_int(stmt, 6, row->state);
    sqlite3_bind_int(stmt, 7, row->priority);
    db_bind_text(stmt, 8, row->client);
    sqlite3_bind_int(stmt, 9, row->attempts);
    sqlite3_bind_int64(stmt, 10, row->created_ms);
    sqlite3_bind_int64(stmt, 11, row->finished_ms);
    db_bind_text(stmt, 12, row->stage);
    db_bind_text(stmt, 13, row->class_);
    bind_reward(stmt, 14, row->reward);
    db_bind_text(stmt, 15, row->request);
    db_bind_text(stmt, 16, row->verdict);
    db_bind_text(stmt, 17, brief);
    rc = db_run(stmt, "add a submission", err);
    if (rc < 0)
        error_prefix(err, "submission %s", row->id);
    return rc;
}

/* Those that are too old go with it, so that the table stays as large as a day's requests. */
static int
apply_key(const struct key_row *key, struct write_kit *kit, struct error *err)
{
    sqlite3_stmt *stmt = kit->changes[ADD_KEY];

    sqlite3_bind_int64(kit->changes[FORGET_KEYS], 1, key->created_ms - STORE_KEY_LIFE_MS);
    int rc = db_run(kit->changes[FORGET_KEYS], "forget old keys", err);
    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, key->client);
    db_bind_text(stmt, 2, key->key);
    db_bind_text(stmt, 3, key->request_hash);
    db_bind_text(stmt, 4, key->id);
    sqlite3_bind_int64(stmt, 5, key->created_ms);
    return db_run(stmt, "add a key", err);
}

static int
apply_submissions(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct submissions_write *w = (const struct submissions_write *)write;
    const char *client = w->n > 0 ? w->rows[0].client : NULL; /* a group's submissions are all of one */
    int rc = w->has_group ? apply_group(&w->group, client, kit, err) : 0;

    if (rc == 0 && w->has_key)
        rc = apply_key(&w->key, kit, err);
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        rc = blob_put(&kit->blobs, w->rows[i].source_hash, w->sources[i].text, w->sources[i].size, err);
        if (rc == 0)
            rc = apply_submission(&w->rows[i], kit, err);
        if (rc == 0 && w->rows[i].state == SUBMISSION_DONE)
            rc = sums_add(&kit->sums, &w->rows[i], err);
    }
    return rc;
}

static void
free_submissions_write(struct write *write)
{
    struct submissions_write *w = (struct submissions_write *)write;

    group_row_release(&w->group);
    for (size_t i = 0; i < w->n; i++) {
        submission_row_release(&w->rows[i]);
        free(w->sources[i].text);
    }
    free(w->rows);
    free(w->sources);
    free(w);
}

static int
copy_submissions(struct submissions_write *w, const struct submission_row *rows,
                 const struct store_source *sources, size_t n)
{
    w->rows = calloc(n, sizeof(*w->rows));
    w->sources = calloc(n, sizeof(*w->sources));
    if (!w->rows || !w->sources)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        w->n = i + 1; /* what free_submissions_write() has to look at */
        if (submission_row_copy(&rows[i], &w->rows[i]) < 0)
            return ERR_NOMEM;
        w->sources[i].text = malloc(sources[i].size + 1);
        if (!w->sources[i].text)
            return ERR_NOMEM;
        if (sources[i].size > 0)
            memcpy(w->sources[i].text, sources[i].text, sources[i].size);
        w->sources[i].size = sources[i].size;
        w->write.weight += sources[i].size + submission_row_weight(&rows[i]);
    }
    return 0;
}

int
store_add_submissions(struct store *s, const struct group_row *group, const struct key_row *key,
                      const struct submission_row *rows, const struct store_source *sources, size_t n,
                      store_done_cb *cb, void *arg, struct error *err)
{
    struct submissions_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_submissions, free_submissions_write, cb, arg);
    w->write.is_new_work = true;
    w->write.rows = (int)n + !!group + !!key;
    w->has_group = group;
    w->has_key = key;
    if (key)
        w->key = *key;
    if ((group && group_row_copy(group, &w->group) < 0) || copy_submissions(w, rows, sources, n) < 0) {
        free_submissions_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

/* --- moves of a submission --- */

/* Why an UPDATE met no row. */
static int
explain_miss(struct write_kit *kit, const char *id, struct error *err)
{
    sqlite3_stmt *stmt = kit->changes[FIND_STATE];
    int step, rc;

    db_bind_text(stmt, 1, id);
    step = sqlite3_step(stmt);
    if (step == SQLITE_ROW)
        rc = error_set(err, ERR_CONFLICT, "submission %s is %s already", id,
                       submission_state_name((enum submission_state)sqlite3_column_int(stmt, 0)));
    else if (step == SQLITE_DONE)
        rc = error_set(err, ERR_NOTFOUND, "no submission %s", id);
    else
        rc = db_fail(kit->db, err, "look for a submission");
    db_reset(stmt);
    return rc;
}

/* Run a bound UPDATE of one submission that has not ended. */
static int
move(struct write_kit *kit, sqlite3_stmt *stmt, const char *id, struct error *err)
{
    int rc = db_run(stmt, "change a submission", err);

    if (rc < 0) {
        error_prefix(err, "submission %s", id);
        return rc;
    }
    return sqlite3_changes(kit->db) == 1 ? 0 : explain_miss(kit, id, err);
}

struct move_write {
    struct write write;
    char id[ID_SIZE];
    int attempts;
};

static int
apply_begin(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct move_write *w = (const struct move_write *)write;

    db_bind_text(kit->changes[BEGIN], 1, w->id);
    sqlite3_bind_int(kit->changes[BEGIN], 2, w->attempts);
    return move(kit, kit->changes[BEGIN], w->id, err);
}

static int
apply_requeue(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct move_write *w = (const struct move_write *)write;

    db_bind_text(kit->changes[REQUEUE], 1, w->id);
    sqlite3_bind_int(kit->changes[REQUEUE], 2, w->attempts);
    return move(kit, kit->changes[REQUEUE], w->id, err);
}

static void
free_move_write(struct write *write)
{
    free(write);
}

static int
put_move(struct store *s, const char *id, int attempts,
         int (*apply)(struct write *, struct write_kit *, struct error *), store_done_cb *cb, void *arg,
         struct error *err)
{
    struct move_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply, free_move_write, cb, arg);
    strncpy(w->id, id, sizeof(w->id) - 1); /* an id that is longer is nobody's */
    w->attempts = attempts;
    return writer_put(s->writer, &w->write, err);
}

int
store_begin_submission(struct store *s, const char *id, int attempts, store_done_cb *cb, void *arg,
                       struct error *err)
{
    return put_move(s, id, attempts, apply_begin, cb, arg, err);
}

int
store_requeue_submission(struct store *s, const char *id, int attempts, store_done_cb *cb, void *arg,
                         struct error *err)
{
    return put_move(s, id, attempts, apply_requeue, cb, arg, err);
}

struct finish_write {
    struct write write;
    struct submission_row row;
    struct source_copy log;
};

static int
apply_finish(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct finish_write *w = (const struct finish_write *)write;
    AUTO_JSON json_t *verdict = read_verdict(&w->row);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    sqlite3_stmt *stmt = kit->changes[FINISH];
    char log_hash[HASH_TEXT_SIZE] = "";
    int rc = 0;

    if (w->log.size > 0) {
        hash_text(w->log.text, w->log.size, log_hash);
        rc = blob_put(&kit->blobs, log_hash, w->log.text, w->log.size, err);
    }
    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, w->row.id);
    sqlite3_bind_int(stmt, 2, w->row.state);
    db_bind_text(stmt, 3, w->row.stage);
    db_bind_text(stmt, 4, w->row.class_);
    bind_reward(stmt, 5, w->row.reward);
    db_bind_text(stmt, 6, w->row.verdict);
    sqlite3_bind_int64(stmt, 7, w->row.finished_ms);
    db_bind_name(stmt, 8, log_hash);
    db_bind_name(stmt, 9, w->row.cache_key);
    sqlite3_bind_int64(stmt, 10, w->row.device_ms);
    db_bind_text(stmt, 11, json_string_value(json_object_get(verdict, "cached_from")));
    db_bind_text(stmt, 12, brief);
    rc = move(kit, stmt, w->row.id, err);
    return rc == 0 && w->row.state == SUBMISSION_DONE ? sums_add(&kit->sums, &w->row, err) : rc;
}

static void
free_finish_write(struct write *write)
{
    struct finish_write *w = (struct finish_write *)write;

    submission_row_release(&w->row);
    free(w->log.text);
    free(w);
}

static int
copy_log(struct finish_write *w, const char *log, size_t size)
{
    if (!log || size == 0)
        return 0;
    w->log.text = malloc(size);
    if (!w->log.text)
        return ERR_NOMEM;
    memcpy(w->log.text, log, size);
    w->log.size = size;
    return 0;
}

int
store_finish_submission(struct store *s, const struct submission_row *row, const char *log, size_t log_size,
                        store_done_cb *cb, void *arg, struct error *err)
{
    struct finish_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_finish, free_finish_write, cb, arg);
    w->write.weight = submission_row_weight(row) + log_size;
    if (submission_row_copy(row, &w->row) < 0 || copy_log(w, log, log_size) < 0) {
        free_finish_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

/* --- calibrations --- */

struct calibration_write {
    struct write write;
    struct calibration_row row;
    char *gpu, *document; /* what the row points at */
};

static int
apply_calibration(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct calibration_row *row = &((struct calibration_write *)write)->row;
    sqlite3_stmt *stmt = kit->changes[ADD_CALIBRATION];

    db_bind_text(stmt, 1, row->id);
    sqlite3_bind_int64(stmt, 2, row->created_ms);
    db_bind_text(stmt, 3, row->gpu);
    db_bind_text(stmt, 4, row->document);
    return db_run(stmt, "add a calibration", err);
}

static void
free_calibration_write(struct write *write)
{
    struct calibration_write *w = (struct calibration_write *)write;

    free(w->gpu);
    free(w->document);
    free(w);
}

int
store_add_calibration(struct store *s, const struct calibration_row *row, store_done_cb *cb, void *arg,
                      struct error *err)
{
    struct calibration_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_calibration, free_calibration_write, cb, arg);
    w->write.weight = strlen(row->document);
    w->gpu = strdup(row->gpu);
    w->document = strdup(row->document);
    if (!w->gpu || !w->document) {
        free_calibration_write(&w->write);
        return no_memory(err);
    }
    w->row = *row;
    w->row.gpu = w->gpu;
    w->row.document = w->document;
    return writer_put(s->writer, &w->write, err);
}

/* --- canaries --- */

struct canary_write {
    struct write write;
    char *gpu, *driver, *kind;
    int64_t changed_ms;
    char *document; /* NULL: it is forgotten */
};

static int
apply_canary(struct write *write, struct write_kit *kit, struct error *err)
{
    const struct canary_write *w = (struct canary_write *)write;
    sqlite3_stmt *stmt = kit->changes[w->document ? PUT_CANARY : FORGET_CANARY];

    db_bind_text(stmt, 1, w->gpu);
    db_bind_text(stmt, 2, w->driver);
    db_bind_text(stmt, 3, w->kind);
    if (w->document) {
        sqlite3_bind_int64(stmt, 4, w->changed_ms);
        db_bind_text(stmt, 5, w->document);
    }
    return db_run(stmt, "keep a canary", err);
}

static void
free_canary_write(struct write *write)
{
    struct canary_write *w = (struct canary_write *)write;

    free(w->gpu);
    free(w->driver);
    free(w->kind);
    free(w->document);
    free(w);
}

int
store_put_canary(struct store *s, const struct canary_row *row, store_done_cb *cb, void *arg,
                 struct error *err)
{
    struct canary_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_canary, free_canary_write, cb, arg);
    w->write.weight = row->document ? strlen(row->document) : 0;
    w->changed_ms = row->changed_ms;
    w->gpu = strdup(row->gpu);
    w->driver = strdup(row->driver);
    w->kind = strdup(row->kind);
    w->document = row->document ? strdup(row->document) : NULL;
    if (!w->gpu || !w->driver || !w->kind || (row->document && !w->document)) {
        free_canary_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

/* --- sweeping --- */

struct sweep_write {
    struct write write;
    struct store_sweep *step, start; /* it begins there again when it is tried again */
};

static int
apply_sweep(struct write *write, struct write_kit *kit, struct error *err)
{
    struct sweep_write *w = (struct sweep_write *)write;

    *w->step = w->start;
    return sweep_step(&kit->sweep, w->step, err);
}

int
store_sweep_step(struct store *s, struct store_sweep *step, store_done_cb *cb, void *arg, struct error *err)
{
    struct sweep_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_sweep, free_move_write, cb, arg);
    w->write.is_new_work = true; /* it can wait: a full queue refuses it first */
    w->step = step;
    w->start = *step;
    return writer_put(s->writer, &w->write, err);
}
