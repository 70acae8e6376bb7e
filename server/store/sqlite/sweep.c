#include "server/store/sqlite/sweep.h"

#include <string.h>

#include "common/auto.h"
#include "common/limits.h"
#include "server/store/sqlite/sqlite.h"

/*
 * Theory of operation. Submissions are looked at in the order in which they
 * ended, a batch after the other, each going on where the last one stopped. A
 * single submission goes alone, a group as a whole. What somebody refers to
 * stays: the fastest of a task, whoever's verdict was handed on, what a request
 * that may come again was answered with. A blob goes with the last row that
 * names it. The sums (sums.c) stay: they are what is left of what has gone.
 */

/* Whether a submission of this id, which is an expression, is referred to. $2: keys made at or before it are forgotten. */
#define REFERRED(id)                                                                  \
    "(EXISTS (SELECT 1 FROM record WHERE record.id = " id ")"                         \
    " OR EXISTS (SELECT 1 FROM submission AS other WHERE other.cached_from = " id ")" \
    " OR EXISTS (SELECT 1 FROM idempotency WHERE idempotency.id = " id " AND idempotency.created_ms > $2))"

/* What goes: one submission, or a group with all that are in it. $1 is its id, $3 the end of what is removed. */
static const struct kind {
    const char *is_kept, *blobs, *remove;
} kinds[] = {
    { "SELECT " REFERRED("$1"),
      "SELECT source_hash FROM submission WHERE id = $1 UNION"
      " SELECT log_hash FROM submission WHERE id = $1 AND log_hash IS NOT NULL",
      "DELETE FROM submission WHERE id = $1 AND state IN (2, 3)" },
    { "SELECT count(*) = 0 OR max(state IN (0, 1) OR finished_ms >= $3 OR " REFERRED(
          "submission.id") ") OR"
                           " EXISTS (SELECT 1 FROM idempotency WHERE id = $1 AND created_ms > $2) FROM "
                           "submission"
                           " WHERE group_id = $1",
      "SELECT source_hash FROM submission WHERE group_id = $1 UNION"
      " SELECT log_hash FROM submission WHERE group_id = $1 AND log_hash IS NOT NULL",
      "DELETE FROM submission WHERE group_id = $1 AND state IN (2, 3)" },
};

/* --- one thing --- */

struct blobs {
    char hashes[2 * GROUP_MAX][HASH_TEXT_SIZE];
    int n;
};

static bool
take_blob(void *arg, struct sql_row *row)
{
    struct blobs *out = arg;

    row_name(row, 0, out->hashes[out->n], HASH_TEXT_SIZE);
    if (*out->hashes[out->n])
        out->n++;
    return out->n < (int)ARRAY_LEN(out->hashes);
}

static int
read_blobs(struct sqlite *s, const char *sql, const char *id, struct blobs *out, struct error *err)
{
    out->n = 0;
    return db_each(&s->db, "look for sources to remove", sql, SQL_VALUES(sql_text(id)), take_blob, out, NULL,
                   err);
}

/* A statement with one id; how many rows it changed is added to *n. */
static int
run_on(struct sqlite *s, const char *sql, const char *id, int64_t *n, struct error *err)
{
    int64_t changed = 0;
    int rc = db_change(&s->db, "remove what is not to be kept", sql, SQL_VALUES(sql_text(id)), &changed, err);

    *n += changed;
    return rc;
}

static int
remove_blobs(struct sqlite *s, struct blobs *blobs, struct store_sweep *step, struct error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < blobs->n; i++)
        rc = run_on(s,
                    "DELETE FROM blob WHERE hash = $1"
                    " AND NOT EXISTS (SELECT 1 FROM submission WHERE source_hash = $1)"
                    " AND NOT EXISTS (SELECT 1 FROM submission WHERE log_hash = $1)"
                    " AND NOT EXISTS (SELECT 1 FROM task WHERE reference_hash = $1)",
                    blobs->hashes[i], &step->blobs, err);
    return rc;
}

static int
remove_one(struct sqlite *s, const char *id, const char *group, struct store_sweep *step, struct error *err)
{
    const struct kind *kind = &kinds[*group ? 1 : 0];
    const char *key = *group ? group : id;
    struct blobs blobs = { .n = 0 };
    char is_kept[2];

    int rc =
        db_ask(&s->db, "ask whether something is referred to", kind->is_kept,
               SQL_VALUES(sql_text(key), sql_int(step->now_ms - STORE_KEY_LIFE_MS), sql_int(step->before_ms)),
               is_kept, sizeof(is_kept), err);
    if (rc < 0 || *is_kept != '0')
        return rc < 0 ? rc : 0;
    rc = read_blobs(s, kind->blobs, key, &blobs, err);
    if (rc == 0)
        rc = run_on(s, kind->remove, key, &step->submissions, err);
    if (rc == 0 && *group)
        rc = run_on(s, "DELETE FROM submission_group WHERE id = $1", key, &step->groups, err);
    return rc == 0 ? remove_blobs(s, &blobs, step, err) : rc;
}

static int
remove_log(struct sqlite *s, const char *id, struct store_sweep *step, struct error *err)
{
    struct blobs blobs = { .n = 0 };

    int rc = read_blobs(s, "SELECT log_hash FROM submission WHERE id = $1", id, &blobs, err);
    if (rc == 0)
        rc = run_on(s, "UPDATE submission SET log_hash = NULL WHERE id = $1 AND state IN (2, 3)", id,
                    &step->logs, err);
    return rc == 0 ? remove_blobs(s, &blobs, step, err) : rc;
}

/* --- a batch --- */

struct batch {
    struct {
        char id[ID_SIZE], group[ID_SIZE];
        int64_t finished_ms;
    } found[STORE_SWEEP_BATCH];
    int n;
};

static bool
take_found(void *arg, struct sql_row *row)
{
    struct batch *b = arg;

    row_name(row, 0, b->found[b->n].id, ID_SIZE);
    row_name(row, 1, b->found[b->n].group, ID_SIZE);
    b->found[b->n++].finished_ms = row_int(row, 2);
    return b->n < STORE_SWEEP_BATCH;
}

static int
remove_batch(struct sqlite *s, struct store_sweep *step, struct error *err)
{
    struct batch b = { .n = 0 };
    int rc = db_each(
        &s->db, "look for what is not to be kept",
        step->what == SWEEP_LOGS
            ? "SELECT id, group_id, finished_ms FROM submission INDEXED BY submission_logged WHERE log_hash "
              "IS NOT "
              "NULL"
              " AND finished_ms < $1 AND (finished_ms, id) > ($2, $3) ORDER BY finished_ms, id LIMIT $4"
            : "SELECT id, group_id, finished_ms FROM submission INDEXED BY submission_finished WHERE "
              "finished_ms > 0"
              " AND finished_ms < $1 AND (finished_ms, id) > ($2, $3) ORDER BY finished_ms, id LIMIT $4",
        SQL_VALUES(sql_int(step->before_ms), sql_int(step->at_ms), sql_text(step->at_id),
                   sql_int(STORE_SWEEP_BATCH)),
        take_found, &b, NULL, err);

    for (int i = 0; rc == 0 && i < b.n && step->submissions < step->most; i++) {
        rc = step->what == SWEEP_LOGS ? remove_log(s, b.found[i].id, step, err)
                                      : remove_one(s, b.found[i].id, b.found[i].group, step, err);
        step->at_ms = b.found[i].finished_ms;
        memcpy(step->at_id, b.found[i].id, ID_SIZE);
    }
    step->is_over = b.n < STORE_SWEEP_BATCH || step->submissions >= step->most;
    return rc;
}

/* Gives room back to the file system. It is over when there is none, or when the file is of the kind that keeps it. */
static int
vacuum(struct sqlite *s, struct store_sweep *step, struct error *err)
{
    int64_t before = 0, after = 0;
    int rc = db_integer(s->db.handle, "PRAGMA freelist_count", &before, err);

    if (rc == 0)
        rc = db_exec(s->db.handle, "PRAGMA incremental_vacuum(256)", err);
    if (rc == 0)
        rc = db_integer(s->db.handle, "PRAGMA freelist_count", &after, err);
    step->pages += before - after;
    step->is_over = after == 0 || after == before;
    return rc;
}

int
sweep_step(struct store_backend *b, struct store_sweep *step, struct error *err)
{
    return step->what == SWEEP_VACUUM ? vacuum(sqlite_of(b), step, err)
                                      : remove_batch(sqlite_of(b), step, err);
}
