#include "server/store/sqlite/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/brief.h"
#include "server/store/labels.h"
#include "server/store/sqlite/blob.h"
#include "server/store/sqlite/db.h"
#include "server/store/sqlite/names.h"
#include "server/store/sqlite/sqlite.h"
#include "server/store/sqlite/sums.h"
#include "server/store/sqlite/sweep.h"

enum change {
    ADD_TASK,
    ADD_GROUP,
    ADD_SUBMISSION,
    JOIN,
    LOSE,
    RENEW,
    REAP,
    CLAIM,
    CLAIM_NEXT,
    RELEASE,
    SET_ATTEMPTS,
    FINISH,
    FIND_STATE,
    FIND_LEASE,
    ADD_CALIBRATION,
    PUT_CANARY,
    FORGET_CANARY,
    ADD_KEY,
    FORGET_KEYS,
    NCHANGES
};

/* What is running is claimed again where its release failed: ?6 is what that left of its attempts. */
#define CLAIM_SET                                                                        \
    "SET state = 1, node = ?1, claim = claim + 1, attempts = 1 + CASE state WHEN 0 THEN" \
    " attempts ELSE ?6 END"
#define CLAIM_LEASE                                                                      \
    "EXISTS (SELECT 1 FROM node WHERE name = ?1 AND epoch = ?2 AND lease_until_ms > ?3)" \
    " RETURNING id, claim, attempts"

/* A submission that has ended stays as it is: only queued (0) and running (1) ones are changed. */
static const char *const change_sql[NCHANGES] = {
    [ADD_TASK] = "INSERT INTO task (id, name, entry_point, level, dynamic_shapes, created_ms, "
                 "reference_hash, metadata,"
                 " spec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
    [ADD_GROUP] = "INSERT INTO submission_group (id, task_id, size, created_ms, request, client, run, step)"
                  " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [ADD_SUBMISSION] =
        "INSERT INTO submission (id, group_id, group_index, task_id, source_hash, state, priority,"
        " client, attempts, created_ms, finished_ms, stage, class, reward, request, verdict, brief, run,"
        " step) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, "
        "?19)",
    [JOIN] = "INSERT INTO node (name, epoch, lease_until_ms) VALUES (?1, 1, ?2)"
             " ON CONFLICT DO UPDATE SET epoch = epoch + 1, lease_until_ms = ?2 RETURNING epoch",
    /* Whose node stays in the row of one that waits: it was lost there. */
    [LOSE] = "UPDATE submission SET state = 0, claim = claim + 1 WHERE state = 1 AND node = ?1",
    [RENEW] = "UPDATE node SET lease_until_ms = ?3 WHERE name = ?1 AND epoch = ?2 AND lease_until_ms > ?4",
    [REAP] = "UPDATE submission SET state = 0, claim = claim + 1 WHERE state = 1"
             " AND node NOT IN (SELECT name FROM node WHERE lease_until_ms > ?1)",
    [CLAIM] = "UPDATE submission " CLAIM_SET
              " WHERE id = ?4 AND (state = 0 OR (state = 1 AND node = ?1 AND claim = ?5)) AND " CLAIM_LEASE,
    [CLAIM_NEXT] =
        "UPDATE submission " CLAIM_SET " WHERE id = (SELECT id FROM submission INDEXED BY submission_state"
        " WHERE state = 0 ORDER BY priority, id LIMIT 1) AND " CLAIM_LEASE,
    [RELEASE] = "UPDATE submission SET state = 0, node = NULL, attempts = ?3"
                " WHERE id = ?1 AND state = 1 AND claim = ?2",
    [SET_ATTEMPTS] = "UPDATE submission SET attempts = ?3 WHERE id = ?1 AND state = 1 AND claim = ?2",
    [FINISH] = "UPDATE submission SET state = ?2, stage = ?3, class = ?4, reward = ?5, verdict = ?6, "
               "finished_ms = ?7,"
               " log_hash = ?8, cache_key = ?9, device_ms = ?10, cached_from = ?11, brief = ?12"
               " WHERE id = ?1 AND state IN (0, 1) AND claim = ?13",
    [FIND_LEASE] = "SELECT 1 FROM node WHERE name = ?1 AND epoch = ?2 AND lease_until_ms > ?3",
    [FIND_STATE] = "SELECT state FROM submission WHERE id = ?1",
    [ADD_CALIBRATION] = "INSERT INTO calibration (id, created_ms, gpu, document) VALUES (?1, ?2, ?3, ?4)",
    [PUT_CANARY] = "INSERT OR REPLACE INTO canary (gpu, driver, kind, changed_ms, document)"
                   " VALUES (?1, ?2, ?3, ?4, ?5)",
    [FORGET_CANARY] = "DELETE FROM canary WHERE gpu = ?1 AND driver = ?2 AND kind = ?3",
    [ADD_KEY] =
        "INSERT INTO idempotency (client, key, request_hash, id, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)"
        " ON CONFLICT DO UPDATE SET request_hash = excluded.request_hash, id = excluded.id,"
        " created_ms = excluded.created_ms WHERE ?6 OR NOT (EXISTS (SELECT 1 FROM submission s WHERE s.id ="
        " idempotency.id) OR EXISTS (SELECT 1 FROM submission_group g WHERE g.id = idempotency.id))",
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

/* --- room --- */

enum { PROBE_BYTES = 256 * 1024 };

/* The file is gone again at once: what a disk or a quota has no room for fails here, and leaves nothing. */
static int
find_room(const char *beside, struct error *err)
{
    AUTO_FREE char *path = NULL;
    AUTO_FD int fd = -1;

    if (asprintf(&path, "%s-room.XXXXXX", beside) < 0) {
        path = NULL;
        return error_set(err, ERR_NOMEM, "no memory to look for room");
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

int
changes_probe(struct store_backend *b, bool touch, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    int rc = find_room(sqlite3_db_filename(kit->db, "main"), err);
    return rc == 0 && touch ? touch_database(kit->db, err) : rc;
}

/* --- tasks --- */

int
changes_add_task(struct store_backend *b, const struct task_row *row, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
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

int
changes_name_task(struct store_backend *b, const char *client, const char *name, const char *id,
                  int64_t now_ms, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    return names_claim(&kit->names, client, name, id, now_ms, err);
}

int
changes_rename_task(struct store_backend *b, const char *client, const char *name, const char *id,
                    int64_t now_ms, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    return names_rename(&kit->names, client, name, id, now_ms, err);
}

int
changes_remove_task(struct store_backend *b, const char *client, const char *id, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    return names_remove(&kit->names, client, id, err);
}

/* --- new submissions --- */

static void
bind_labels(sqlite3_stmt *stmt, int index, const struct labels *labels)
{
    db_bind_name(stmt, index, labels->run);
    if (labels->step != LABEL_STEP_NONE)
        sqlite3_bind_int64(stmt, index + 1, labels->step);
}

static int
apply_group(const struct group_row *group, const char *client, struct write_kit *kit, struct error *err)
{
    sqlite3_stmt *stmt = kit->changes[ADD_GROUP];
    struct labels labels;
    int rc;

    labels_read(group->request, &labels);

    db_bind_text(stmt, 1, group->id);
    db_bind_text(stmt, 2, group->task_id);
    sqlite3_bind_int(stmt, 3, group->size);
    sqlite3_bind_int64(stmt, 4, group->created_ms);
    db_bind_text(stmt, 5, group->request);
    db_bind_text(stmt, 6, client);
    bind_labels(stmt, 7, &labels);
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

static int
apply_submission(const struct submission_row *row, struct write_kit *kit, struct error *err)
{
    AUTO_JSON json_t *verdict = verdict_read(row->verdict);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    sqlite3_stmt *stmt = kit->changes[ADD_SUBMISSION];
    struct labels labels;
    int rc;

    labels_read(row->request, &labels);

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
    bind_labels(stmt, 18, &labels);
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
    sqlite3_bind_int(stmt, 6, key->replaces);
    rc = db_run(stmt, "add a key", err);
    if (rc == 0 && sqlite3_changes(kit->db) == 0)
        return error_set(err, ERR_CONFLICT, "the key has made something already");
    return rc;
}

int
changes_add_submissions(struct store_backend *b, const struct store_intake *w, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    const char *client = w->n > 0 ? w->rows[0].client : NULL; /* a group's submissions are all of one */
    int rc = w->key ? apply_key(w->key, kit, err) : 0; /* first: what it finds must not be of this write */

    if (rc == 0 && w->group)
        rc = apply_group(w->group, client, kit, err);
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        rc = blob_put(&kit->blobs, w->rows[i].source_hash, w->sources[i].text, w->sources[i].size, err);
        if (rc == 0)
            rc = apply_submission(&w->rows[i], kit, err);
        if (rc == 0 && w->rows[i].state == SUBMISSION_DONE)
            rc = sums_add(&kit->sums, &w->rows[i], err);
    }
    return rc;
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
        rc = error_set(err, ERR_CONFLICT, "submission %s is %s", id,
                       submission_state_name((enum submission_state)sqlite3_column_int(stmt, 0)));
    else if (step == SQLITE_DONE)
        rc = error_set(err, ERR_NOTFOUND, "no submission %s", id);
    else
        rc = db_fail(kit->db, err, "look for a submission");
    db_reset(stmt);
    return rc;
}

/* Run a bound UPDATE of one submission. */
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

static int64_t
lease_end(int64_t lease_ms)
{
    return lease_ms == STORE_LEASE_ENDLESS ? lease_ms : clock_wall_ms() + lease_ms;
}

int
changes_join(struct store_backend *b, const char *node, int64_t lease_ms, struct store_lease *out,
             struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    sqlite3_stmt *stmt = kit->changes[JOIN];
    int rc = 0;

    db_bind_text(stmt, 1, node);
    sqlite3_bind_int64(stmt, 2, lease_end(lease_ms));
    if (sqlite3_step(stmt) != SQLITE_ROW)
        rc = db_fail(kit->db, err, "take a lease");
    else
        out->epoch = sqlite3_column_int64(stmt, 0);
    db_reset(stmt);
    if (rc < 0)
        return rc;
    snprintf(out->node, sizeof(out->node), "%s", node);
    db_bind_text(kit->changes[LOSE], 1, node);
    return db_run(kit->changes[LOSE], "take back what a node had claimed", err);
}

int
changes_renew(struct store_backend *b, const struct store_lease *l, int64_t lease_ms,
              const struct store_node_state *state, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    sqlite3_stmt *stmt = kit->changes[RENEW];

    (void)state; /* no other daemon looks */
    db_bind_text(stmt, 1, l->node);
    sqlite3_bind_int64(stmt, 2, l->epoch);
    sqlite3_bind_int64(stmt, 3, lease_end(lease_ms));
    sqlite3_bind_int64(stmt, 4, clock_wall_ms());
    int rc = db_run(stmt, "renew a lease", err);
    if (rc == 0 && sqlite3_changes(kit->db) == 0)
        return error_set(err, ERR_CONFLICT, "the lease of node %s has ended", l->node);
    return rc;
}

int
changes_reap(struct store_backend *b, char holder[STORE_HOLDER_SIZE], struct error *err)
{
    holder[0] = '\0';
    sqlite3_stmt *stmt = sqlite_of(b)->kit->changes[REAP];

    sqlite3_bind_int64(stmt, 1, clock_wall_ms());
    return db_run(stmt, "take back what dead nodes had claimed", err);
}

/* Step a bound CLAIM or CLAIM_NEXT; 1: it met no row. */
static int
take(struct write_kit *kit, sqlite3_stmt *stmt, const struct store_lease *l, struct store_claim *out,
     struct error *err)
{
    int step, rc = 0;

    db_bind_text(stmt, 1, l->node);
    sqlite3_bind_int64(stmt, 2, l->epoch);
    sqlite3_bind_int64(stmt, 3, clock_wall_ms());
    step = sqlite3_step(stmt);
    if (step == SQLITE_ROW) {
        snprintf(out->id, sizeof(out->id), "%s", (const char *)sqlite3_column_text(stmt, 0));
        out->number = sqlite3_column_int64(stmt, 1);
        out->attempts = sqlite3_column_int(stmt, 2);
    } else {
        rc = step == SQLITE_DONE ? 1 : db_fail(kit->db, err, "claim a submission");
    }
    db_reset(stmt);
    return rc;
}

/* Whether it is the lease for which nothing could be claimed: ERR_CONFLICT then. */
static int
check_lease(struct write_kit *kit, const struct store_lease *l, struct error *err)
{
    sqlite3_stmt *stmt = kit->changes[FIND_LEASE];

    db_bind_text(stmt, 1, l->node);
    sqlite3_bind_int64(stmt, 2, l->epoch);
    sqlite3_bind_int64(stmt, 3, clock_wall_ms());
    int step = sqlite3_step(stmt);
    db_reset(stmt);
    return step == SQLITE_ROW ? 0 : error_set(err, ERR_CONFLICT, "the lease of node %s has ended", l->node);
}

int
changes_claim(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
              const struct store_claim *held, struct store_claim *out, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;

    (void)wants; /* a file has one node, which takes all */
    db_bind_text(kit->changes[CLAIM], 4, held->id);
    sqlite3_bind_int64(kit->changes[CLAIM], 5, held->number);
    sqlite3_bind_int(kit->changes[CLAIM], 6, held->attempts);
    int rc = take(kit, kit->changes[CLAIM], l, out, err);
    if (rc != 1)
        return rc;
    rc = check_lease(kit, l, err);
    return rc < 0 ? rc : explain_miss(kit, held->id, err);
}

int
changes_claim_next(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
                   struct store_claim *out, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    int rc = take(kit, kit->changes[CLAIM_NEXT], l, out, err);

    (void)wants;
    if (rc != 1)
        return rc;
    rc = check_lease(kit, l, err);
    return rc < 0 ? rc : error_set(err, ERR_NOTFOUND, "nothing waits");
}

/* Run RELEASE or SET_ATTEMPTS. */
static int
note_attempts(struct write_kit *kit, enum change change, const struct store_claim *c, struct error *err)
{
    sqlite3_stmt *stmt = kit->changes[change];

    db_bind_text(stmt, 1, c->id);
    sqlite3_bind_int64(stmt, 2, c->number);
    sqlite3_bind_int(stmt, 3, c->attempts);
    return move(kit, stmt, c->id, err);
}

int
changes_release(struct store_backend *b, const struct store_claim *c, struct error *err)
{
    return note_attempts(sqlite_of(b)->kit, RELEASE, c, err);
}

int
changes_set_attempts(struct store_backend *b, const struct store_claim *c, struct error *err)
{
    return note_attempts(sqlite_of(b)->kit, SET_ATTEMPTS, c, err);
}

int
changes_finish(struct store_backend *b, const struct submission_row *row, const char *log, size_t log_size,
               struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    AUTO_JSON json_t *verdict = verdict_read(row->verdict);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    sqlite3_stmt *stmt = kit->changes[FINISH];
    char log_hash[HASH_TEXT_SIZE] = "";
    int rc = 0;

    if (log_size > 0) {
        hash_text(log, log_size, log_hash);
        rc = blob_put(&kit->blobs, log_hash, log, log_size, err);
    }
    if (rc < 0)
        return rc;
    db_bind_text(stmt, 1, row->id);
    sqlite3_bind_int(stmt, 2, row->state);
    db_bind_text(stmt, 3, row->stage);
    db_bind_text(stmt, 4, row->class_);
    bind_reward(stmt, 5, row->reward);
    db_bind_text(stmt, 6, row->verdict);
    sqlite3_bind_int64(stmt, 7, row->finished_ms);
    db_bind_name(stmt, 8, log_hash);
    db_bind_name(stmt, 9, row->cache_key);
    sqlite3_bind_int64(stmt, 10, row->device_ms);
    db_bind_text(stmt, 11, json_string_value(json_object_get(verdict, "cached_from")));
    db_bind_text(stmt, 12, brief);
    sqlite3_bind_int64(stmt, 13, row->claim);
    rc = move(kit, stmt, row->id, err);
    return rc == 0 && row->state == SUBMISSION_DONE ? sums_add(&kit->sums, row, err) : rc;
}

/* --- the machine --- */

int
changes_add_calibration(struct store_backend *b, const struct calibration_row *row, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    sqlite3_stmt *stmt = kit->changes[ADD_CALIBRATION];

    db_bind_text(stmt, 1, row->id);
    sqlite3_bind_int64(stmt, 2, row->created_ms);
    db_bind_text(stmt, 3, row->gpu);
    db_bind_text(stmt, 4, row->document);
    return db_run(stmt, "add a calibration", err);
}

int
changes_put_canary(struct store_backend *b, const struct canary_row *w, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
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

int
changes_sweep(struct store_backend *b, struct store_sweep *step, struct error *err)
{
    struct write_kit *kit = sqlite_of(b)->kit;
    return sweep_step(&kit->sweep, step, err);
}
