#include "server/store/sweep.h"

#include <string.h>

#include "common/auto.h"
#include "common/limits.h"

/*
 * Theory of operation. Submissions are looked at in the order in which they
 * ended, a batch after the other, each going on where the last one stopped. A
 * single submission goes alone, a group as a whole. What somebody refers to
 * stays: the fastest of a task, whoever's verdict was handed on, what a request
 * that may come again was answered with. A blob goes with the last row that
 * names it. The sums stay: they are what is left of what has gone.
 */

/* Whether a submission of this id, which is an expression, is referred to. $2: keys made at or before it are forgotten. */
#define REFERRED(id)                                                                  \
    "(EXISTS (SELECT 1 FROM record WHERE record.id = " id ")"                         \
    " OR EXISTS (SELECT 1 FROM submission AS other WHERE other.cached_from = " id ")" \
    " OR EXISTS (SELECT 1 FROM idempotency i WHERE i.id = " id " AND i.created_ms > $2))"

#define BLOBS(where)                                                                                        \
    "SELECT source_hash FROM submission WHERE " where " UNION SELECT log_hash FROM submission WHERE " where \
    " AND log_hash IS NOT NULL"

/* What goes: one submission, or a group with all that are in it. $1 is its id, $3 the end of what is removed. */
static const struct kind {
    const char *is_kept, *blobs, *remove;
} kinds[] = {
    { "SELECT " REFERRED("$1"), BLOBS("id = $1"), "DELETE FROM submission WHERE id = $1 AND state >= 2" },
    { "SELECT count(*) = 0 OR count(CASE WHEN state < 2 OR finished_ms >= $3 OR " REFERRED(
          "submission.id") " THEN 1 END) > 0 OR EXISTS (SELECT 1 FROM idempotency WHERE id = $1 AND "
                           "created_ms > $2)"
                           " FROM submission WHERE group_id = $1",
      BLOBS("group_id = $1"), "DELETE FROM submission WHERE group_id = $1 AND state >= 2" },
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
read_blobs(struct store_backend *b, const char *sql, const char *id, struct blobs *out, struct error *err)
{
    out->n = 0;
    return b->ops->each(b, "look for sources to remove", sql, SQL_VALUES(sql_text(id)), take_blob, out, NULL,
                        err);
}

/* A statement with one id; how many rows it changed is added to *n. */
static int
run_on(struct store_backend *b, const char *sql, const char *id, int64_t *n, struct error *err)
{
    int64_t changed = 0;
    int rc = b->ops->each(b, "remove what is not to be kept", sql, SQL_VALUES(sql_text(id)), NULL, NULL,
                          &changed, err);

    *n += changed;
    return rc;
}

static int
remove_blobs(struct store_backend *b, struct blobs *blobs, struct store_sweep *step, struct error *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < blobs->n; i++)
        rc = b->ops->drop_blob(b, blobs->hashes[i], &step->blobs, err);
    return rc;
}

static bool
take_bool(void *arg, struct sql_row *row)
{
    *(bool *)arg = row_bool(row, 0);
    return false;
}

static int
is_kept(struct store_backend *b, const struct kind *kind, const char *id, const struct store_sweep *step,
        bool *out, struct error *err)
{
    const struct sql_value values[] = { sql_text(id), sql_int(step->now_ms - STORE_KEY_LIFE_MS),
                                        sql_int(step->before_ms) };

    *out = true;
    return b->ops->each(b, "ask whether something is referred to", kind->is_kept, values,
                        kind == &kinds[0] ? 2 : 3, take_bool, out, NULL, err);
}

static int
remove_one(struct store_backend *b, const char *id, const char *group, struct store_sweep *step,
           struct error *err)
{
    const struct kind *kind = &kinds[*group ? 1 : 0];
    const char *key = *group ? group : id, *forget_leaders = b->ops->dialect->forget_leaders[*group ? 1 : 0];
    struct blobs blobs = { .n = 0 };
    int64_t unused = 0;
    bool stays;

    int rc = is_kept(b, kind, key, step, &stays, err);
    if (rc < 0 || stays)
        return rc;
    rc = read_blobs(b, kind->blobs, key, &blobs, err);
    if (rc == 0 && forget_leaders)
        rc = run_on(b, forget_leaders, key, &unused, err);
    if (rc == 0)
        rc = run_on(b, kind->remove, key, &step->submissions, err);
    if (rc == 0 && *group)
        rc = run_on(b, "DELETE FROM submission_group WHERE id = $1", key, &step->groups, err);
    return rc == 0 ? remove_blobs(b, &blobs, step, err) : rc;
}

static int
remove_log(struct store_backend *b, const char *id, struct store_sweep *step, struct error *err)
{
    struct blobs blobs = { .n = 0 };

    int rc = read_blobs(b, "SELECT log_hash FROM submission WHERE id = $1", id, &blobs, err);
    if (rc == 0)
        rc = run_on(b, "UPDATE submission SET log_hash = NULL WHERE id = $1 AND state >= 2", id, &step->logs,
                    err);
    return rc == 0 ? remove_blobs(b, &blobs, step, err) : rc;
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
find_oldest(struct store_backend *b, const struct store_sweep *step, struct batch *out, struct error *err)
{
    bool is_of_logs = step->what == SWEEP_LOGS;
    struct sql_query q = { .n = 0 };

    sql_add(&q, "SELECT id, group_id, finished_ms FROM submission%s WHERE %s",
            !b->ops->dialect->names_indices ? ""
            : is_of_logs                    ? " INDEXED BY submission_logged"
                                            : " INDEXED BY submission_finished",
            is_of_logs ? "log_hash IS NOT NULL" : "finished_ms > 0");
    sql_add_value(&q, " AND finished_ms <", sql_int(step->before_ms));
    sql_add_value(&q, " AND (finished_ms, id) > (", sql_int(step->at_ms));
    sql_add_value(&q, ",", sql_text(step->at_id));
    sql_add_value(&q, ") ORDER BY finished_ms, id LIMIT", sql_int(STORE_SWEEP_BATCH));
    return b->ops->each(b, "look for what is not to be kept", q.sql, q.values, q.n, take_found, out, NULL,
                        err);
}

static int
remove_batch(struct store_backend *b, struct store_sweep *step, struct error *err)
{
    struct batch old = { .n = 0 };
    int rc = find_oldest(b, step, &old, err);

    for (int i = 0; rc == 0 && i < old.n && step->submissions < step->most; i++) {
        rc = step->what == SWEEP_LOGS ? remove_log(b, old.found[i].id, step, err)
                                      : remove_one(b, old.found[i].id, old.found[i].group, step, err);
        step->at_ms = old.found[i].finished_ms;
        memcpy(step->at_id, old.found[i].id, ID_SIZE);
    }
    step->is_over = old.n < STORE_SWEEP_BATCH || step->submissions >= step->most;
    return rc;
}

int
sweep_step(struct store_backend *b, struct store_sweep *step, struct error *err)
{
    bool is_alone = true;
    int rc = b->ops->is_alone ? b->ops->is_alone(b, &is_alone, err) : 0;

    if (rc < 0)
        return rc;
    if (step->what == SWEEP_VACUUM && b->ops->vacuum)
        return b->ops->vacuum(b, step, err);
    if (step->what != SWEEP_VACUUM && is_alone)
        return remove_batch(b, step, err);
    step->is_over = true;
    return 0;
}
