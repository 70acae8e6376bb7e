#include "server/store/sqlite/sweep.h"

#include <stdbool.h>
#include <string.h>

#include "common/auto.h"
#include "common/limits.h"
#include "server/store/sqlite/db.h"

/*
 * Theory of operation. Submissions are looked at in the order in which they
 * ended, a batch after the other, each going on where the last one stopped. A
 * single submission goes alone, a group as a whole. What somebody refers to
 * stays: the fastest of a task, whoever's verdict was handed on, what a request
 * that may come again was answered with. A blob goes with the last row that
 * names it. The sums (sums.c) stay: they are what is left of what has gone.
 */

enum change {
    OLDEST,
    OLDEST_LOGS,
    GROUP_KEPT,
    ONE_KEPT,
    GROUP_BLOBS,
    ONE_BLOBS,
    DELETE_MEMBERS,
    DELETE_GROUP,
    DELETE_ONE,
    DELETE_BLOB,
    GET_LOG_HASH,
    DROP_LOG,
    VACUUM,
    FREE_PAGES,
};
_Static_assert(FREE_PAGES + 1 == SWEEP_NCHANGES, "a statement for each");

/* Whether a submission of this id, which is an expression, is referred to. ?2: keys made at or before it are forgotten. */
#define REFERRED(id)                                                                  \
    "(EXISTS (SELECT 1 FROM record WHERE record.id = " id ")"                         \
    " OR EXISTS (SELECT 1 FROM submission AS other WHERE other.cached_from = " id ")" \
    " OR EXISTS (SELECT 1 FROM idempotency WHERE idempotency.id = " id " AND idempotency.created_ms > ?2))"

static const char *const change_sql[SWEEP_NCHANGES] = {
    [OLDEST] = "SELECT id, group_id, finished_ms FROM submission INDEXED BY submission_finished WHERE "
               "finished_ms > 0"
               " AND finished_ms < ?1 AND (finished_ms, id) > (?2, ?3) ORDER BY finished_ms, id LIMIT ?4",
    [OLDEST_LOGS] =
        "SELECT id, group_id, finished_ms FROM submission INDEXED BY submission_logged WHERE log_hash IS NOT "
        "NULL"
        " AND finished_ms < ?1 AND (finished_ms, id) > (?2, ?3) ORDER BY finished_ms, id LIMIT ?4",
    /* ?1 the group, ?2 keys, ?3 the end */
    [GROUP_KEPT] = "SELECT count(*), max(state IN (0, 1) OR finished_ms >= ?3 OR " REFERRED(
        "submission.id") "),"
                         " EXISTS (SELECT 1 FROM idempotency WHERE id = ?1 AND created_ms > ?2)"
                         " FROM submission WHERE group_id = ?1",
    [ONE_KEPT] = "SELECT 1, " REFERRED("?1") ", 0",
    [GROUP_BLOBS] = "SELECT source_hash FROM submission WHERE group_id = ?1 UNION"
                    " SELECT log_hash FROM submission WHERE group_id = ?1 AND log_hash IS NOT NULL",
    [ONE_BLOBS] = "SELECT source_hash FROM submission WHERE id = ?1 UNION"
                  " SELECT log_hash FROM submission WHERE id = ?1 AND log_hash IS NOT NULL",
    [DELETE_MEMBERS] = "DELETE FROM submission WHERE group_id = ?1 AND state IN (2, 3)",
    [DELETE_GROUP] = "DELETE FROM submission_group WHERE id = ?1",
    [DELETE_ONE] = "DELETE FROM submission WHERE id = ?1 AND state IN (2, 3)",
    [DELETE_BLOB] = "DELETE FROM blob WHERE hash = ?1"
                    " AND NOT EXISTS (SELECT 1 FROM submission WHERE source_hash = ?1)"
                    " AND NOT EXISTS (SELECT 1 FROM submission WHERE log_hash = ?1)"
                    " AND NOT EXISTS (SELECT 1 FROM task WHERE reference_hash = ?1)",
    [GET_LOG_HASH] = "SELECT log_hash FROM submission WHERE id = ?1",
    [DROP_LOG] = "UPDATE submission SET log_hash = NULL WHERE id = ?1 AND state IN (2, 3)",
    [VACUUM] = "PRAGMA incremental_vacuum(256)",
    [FREE_PAGES] = "PRAGMA freelist_count",
};

int
sweep_init(struct sweep *s, sqlite3 *db, struct error *err)
{
    int rc = 0;

    s->db = db;
    for (int i = 0; rc == 0 && i < SWEEP_NCHANGES; i++)
        rc = db_prepare(db, change_sql[i], &s->changes[i], err);
    return rc;
}

void
sweep_release(struct sweep *s)
{
    for (int i = 0; i < SWEEP_NCHANGES; i++)
        sqlite3_finalize(s->changes[i]);
}

/* --- one thing --- */

struct blobs {
    char hashes[2 * GROUP_MAX][HASH_TEXT_SIZE];
    int n;
};

static int
read_blobs(sqlite3_stmt *stmt, const char *id, struct blobs *out, struct error *err)
{
    int step, rc = 0;

    out->n = 0;
    db_bind_text(stmt, 1, id);
    while ((step = sqlite3_step(stmt)) == SQLITE_ROW && out->n < (int)ARRAY_LEN(out->hashes)) {
        const char *hash = (const char *)sqlite3_column_text(stmt, 0);
        if (hash)
            strncpy(out->hashes[out->n++], hash, HASH_TEXT_SIZE - 1);
    }
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = db_fail(sqlite3_db_handle(stmt), err, "look for sources to remove");
    db_reset(stmt);
    return rc;
}

/* Run a statement with one id; how many rows it changed is added to *n. */
static int
run_on(struct sweep *s, enum change change, const char *id, int64_t *n, struct error *err)
{
    db_bind_text(s->changes[change], 1, id);
    int rc = db_run(s->changes[change], "remove what is not to be kept", err);
    if (rc == 0)
        *n += sqlite3_changes(s->db);
    return rc;
}

static int
remove_blobs(struct sweep *s, struct blobs *blobs, struct store_sweep *step, struct error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < blobs->n; i++)
        rc = run_on(s, DELETE_BLOB, blobs->hashes[i], &step->blobs, err);
    return rc;
}

/* 1: it has to stay; 0; or an error. */
static int
is_kept(struct sweep *s, enum change question, const char *id, const struct store_sweep *step,
        struct error *err)
{
    sqlite3_stmt *stmt = s->changes[question];
    int rc;

    db_bind_text(stmt, 1, id);
    sqlite3_bind_int64(stmt, 2, step->now_ms - STORE_KEY_LIFE_MS);
    if (question == GROUP_KEPT)
        sqlite3_bind_int64(stmt, 3, step->before_ms);
    if (sqlite3_step(stmt) == SQLITE_ROW)
        rc = sqlite3_column_int64(stmt, 0) == 0 || sqlite3_column_int(stmt, 1) != 0 ||
             sqlite3_column_int(stmt, 2) != 0;
    else
        rc = db_fail(s->db, err, "ask whether something is referred to");
    db_reset(stmt);
    return rc;
}

static int
remove_one(struct sweep *s, const char *id, const char *group, struct store_sweep *step, struct error *err)
{
    struct blobs blobs = { .n = 0 };
    bool is_group = *group != '\0';
    const char *key = is_group ? group : id;

    int rc = is_kept(s, is_group ? GROUP_KEPT : ONE_KEPT, key, step, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = read_blobs(s->changes[is_group ? GROUP_BLOBS : ONE_BLOBS], key, &blobs, err);
    if (rc == 0)
        rc = run_on(s, is_group ? DELETE_MEMBERS : DELETE_ONE, key, &step->submissions, err);
    if (rc == 0 && is_group)
        rc = run_on(s, DELETE_GROUP, key, &step->groups, err);
    return rc == 0 ? remove_blobs(s, &blobs, step, err) : rc;
}

static int
remove_log(struct sweep *s, const char *id, struct store_sweep *step, struct error *err)
{
    struct blobs blobs = { .n = 0 };

    int rc = read_blobs(s->changes[GET_LOG_HASH], id, &blobs, err);
    if (rc == 0)
        rc = run_on(s, DROP_LOG, id, &step->logs, err);
    return rc == 0 ? remove_blobs(s, &blobs, step, err) : rc;
}

/* --- a batch --- */

struct found {
    char id[ID_SIZE], group[ID_SIZE];
    int64_t finished_ms;
};

static int
read_oldest(struct sweep *s, const struct store_sweep *step, struct found out[STORE_SWEEP_BATCH], int *n,
            struct error *err)
{
    sqlite3_stmt *stmt = s->changes[step->what == SWEEP_LOGS ? OLDEST_LOGS : OLDEST];
    int status, rc = 0;

    *n = 0;
    sqlite3_bind_int64(stmt, 1, step->before_ms);
    sqlite3_bind_int64(stmt, 2, step->at_ms);
    db_bind_text(stmt, 3, step->at_id);
    sqlite3_bind_int(stmt, 4, STORE_SWEEP_BATCH);
    while ((status = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(stmt, 0),
                   *group = (const char *)sqlite3_column_text(stmt, 1);
        out[*n] = (struct found){ .finished_ms = sqlite3_column_int64(stmt, 2) };
        strncpy(out[*n].id, id ? id : "", ID_SIZE - 1);
        strncpy(out[*n].group, group ? group : "", ID_SIZE - 1);
        ++*n;
    }
    if (status != SQLITE_DONE)
        rc = db_fail(s->db, err, "look for what is not to be kept");
    db_reset(stmt);
    return rc;
}

static int
remove_batch(struct sweep *s, struct store_sweep *step, struct error *err)
{
    struct found found[STORE_SWEEP_BATCH];
    int n, rc = read_oldest(s, step, found, &n, err);

    for (int i = 0; rc == 0 && i < n && step->submissions < step->most; i++) {
        rc = step->what == SWEEP_LOGS ? remove_log(s, found[i].id, step, err)
                                      : remove_one(s, found[i].id, found[i].group, step, err);
        step->at_ms = found[i].finished_ms;
        memcpy(step->at_id, found[i].id, ID_SIZE);
    }
    step->is_over = n < STORE_SWEEP_BATCH || step->submissions >= step->most;
    return rc;
}

static int
free_pages(struct sweep *s, int64_t *out, struct error *err)
{
    int rc = 0;

    if (sqlite3_step(s->changes[FREE_PAGES]) == SQLITE_ROW)
        *out = sqlite3_column_int64(s->changes[FREE_PAGES], 0);
    else
        rc = db_fail(s->db, err, "count free pages");
    db_reset(s->changes[FREE_PAGES]);
    return rc;
}

/* Gives room back to the file system. It is over when there is none, or when the file is of the kind that keeps it. */
static int
vacuum(struct sweep *s, struct store_sweep *step, struct error *err)
{
    int64_t before = 0, after = 0;
    int status, rc = free_pages(s, &before, err);

    while (rc == 0 && (status = sqlite3_step(s->changes[VACUUM])) != SQLITE_DONE)
        if (status != SQLITE_ROW)
            rc = db_fail(s->db, err, "give room back");
    db_reset(s->changes[VACUUM]);
    if (rc == 0)
        rc = free_pages(s, &after, err);
    step->pages += before - after;
    step->is_over = after == 0 || after == before;
    return rc;
}

int
sweep_step(struct sweep *s, struct store_sweep *step, struct error *err)
{
    return step->what == SWEEP_VACUUM ? vacuum(s, step, err) : remove_batch(s, step, err);
}
