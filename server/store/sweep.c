#include "server/store/sweep.h"

#include <string.h>

#include "common/buffer.h"

/*
 * Theory of operation. Submissions are read in the order in which they ended,
 * in batches, each starting after the last one. A single submission is
 * removed alone, a group as a whole, with its submission that ended last. A
 * row that is referred to stays: the fastest of a task, the origin of a reused
 * verdict, the response to a request that may be repeated. A blob is removed
 * with the last row that names it. The sums stay: they still count the removed
 * submissions.
 *
 * One statement finds a batch, and one for each table removes it: that gets
 * the ids, or the hashes, as a set, which is a list in JSON.
 */

/* As EXISTS: of that one, PostgreSQL may read the whole table at once instead of looking into an index for each row. */
#define ANY(from) "(SELECT 1 " from " LIMIT 1) IS NOT NULL"
/* Whether it is referred to by an id, which is an expression. $4: keys made at or before it are forgotten. */
#define ANSWERS(id) ANY("FROM idempotency i WHERE i.id = " id " AND i.created_ms > $4")
/* clang-format off */
#define REFERRED(id) \
    "(" ANY("FROM record WHERE record.id = " id) \
    " OR " ANY("FROM submission AS other WHERE other.cached_from = " id) \
    " OR " ANSWERS(id) ")"
/* clang-format on */
#define OF_ITS_GROUP "FROM submission m WHERE m.group_id = s.group_id"
#define ITSELF REFERRED("s.id")
#define A_MEMBER REFERRED("m.id")
#define ITS_GROUP ANSWERS("s.group_id")

/* The number of rows removed with a submission: none, itself, or all of the group if it is the group's last. */
/* clang-format off */
#define GOING \
    "CASE WHEN s.group_id IS NULL THEN CASE WHEN " ITSELF " THEN 0 ELSE 1 END" \
    " WHEN " ANY(OF_ITS_GROUP " AND (m.state < 2 OR (m.finished_ms, m.id) > (s.finished_ms, s.id))") \
    " OR " ANY(OF_ITS_GROUP " AND " A_MEMBER) \
    " OR " ITS_GROUP " THEN 0 ELSE (SELECT count(*) " OF_ITS_GROUP ") END"
/* clang-format on */

static const struct kind {
    const char *columns, *index, *is_of_it;
} kinds[] = {
    [SWEEP_SUBMISSIONS] = { "s.group_id, " GOING ", NULL", "submission_finished", "s.finished_ms > 0" },
    [SWEEP_LOGS] = { "NULL, 1, s.log_hash", "submission_logged", "s.log_hash IS NOT NULL" },
};

struct batch {
    struct store_sweep *step;
    struct buffer ids, groups, blobs; /* sets */
    int64_t looked_at, going, room;   /* reading stops once as many are to be removed as there is room for */
    bool is_short;                    /* there was no memory for a row */
};

static void
add(struct batch *batch, struct buffer *set, const char *name)
{
    if (!*name)
        return;
    bool is_first = set->size == 0;
    set->size -= !is_first; /* "]" */
    batch->is_short |= buffer_printf(set, "%c\"%s\"]", is_first ? '[' : ',', name) < 0;
}

/* --- what goes --- */

static bool
take_found(void *arg, struct sql_row *row)
{
    struct batch *batch = arg;
    const char *group = row_word(row, 2);
    int64_t going = row_int(row, 3);

    row_name(row, 0, batch->step->at_id, ID_SIZE);
    batch->step->at_ms = row_int(row, 1);
    if (going > 0)
        add(batch, *group ? &batch->groups : &batch->ids, *group ? group : batch->step->at_id);
    add(batch, &batch->blobs, row_word(row, 4));
    batch->looked_at++;
    batch->going += going;
    return batch->going < batch->room;
}

static int
find_oldest(struct store_backend *b, struct batch *batch, struct error *err)
{
    const struct sql_changes *dialect = b->ops->dialect;
    struct store_sweep *step = batch->step;
    const struct kind *kind = &kinds[step->what];
    char at_id[ID_SIZE]; /* the step's is moved on by each row */
    const struct sql_value values[] = { sql_int(step->at_ms), sql_text(at_id), sql_int(step->before_ms),
                                        sql_int(step->now_ms - STORE_KEY_LIFE_MS) };
    size_t n = step->what == SWEEP_SUBMISSIONS ? 4 : 3;
    struct sql_query q = { .n = 0 };

    memcpy(at_id, step->at_id, ID_SIZE);
    sql_add(&q, "SELECT s.id, s.finished_ms, %s FROM submission AS s%s%s WHERE %s", kind->columns,
            dialect->names_indices ? " INDEXED BY " : "", dialect->names_indices ? kind->index : "",
            kind->is_of_it);
    sql_add(&q,
            " AND (s.finished_ms, s.id) > ($1, $2) AND s.finished_ms < $3"
            " ORDER BY s.finished_ms, s.id LIMIT %d",
            dialect->sweep_batch);
    return b->ops->each(b, "look for what is not to be kept", q.sql, values, n, take_found, batch, NULL, err);
}

/* --- its end --- */

/* A statement about the rows of a set (NULL: none), which before and behind stand around. *n counts, unless row_cb does. */
static int
run_on(struct store_backend *b, const char *before, const char *set, const char *behind, sql_row_cb *row_cb,
       void *arg, int64_t *n, struct error *err)
{
    struct sql_query q = { .n = 0 };
    int64_t changed = 0;

    if (!set)
        return 0;
    sql_add(&q, "%s %s%s", before, b->ops->dialect->in_set, behind);
    int rc = b->ops->each(b, "remove what is not to be kept", q.sql, SQL_VALUES(sql_text(set)), row_cb, arg,
                          &changed, err);
    *n += changed;
    return rc;
}

#define NO_OTHER                                                          \
    " AND NOT EXISTS (SELECT 1 FROM submission WHERE source_hash = hash)" \
    " AND NOT EXISTS (SELECT 1 FROM submission WHERE log_hash = hash)"

/*
 * A transaction that stores the same bytes again locks their row until it ends: if nodes share a database, this waits
 * for it, and the second statement sees its commit. A blob that another submission names is neither locked nor waited
 * for: it stays named until this transaction has ended, since nothing else removes submissions meanwhile.
 */
int
sweep_blobs(struct store_backend *b, const char *set, int64_t *n, struct error *err)
{
    int64_t locked = 0;
    int rc = 0;

    if (b->ops->is_alone)
        rc = run_on(b, "SELECT 1 FROM blob WHERE hash", set, NO_OTHER " ORDER BY hash FOR UPDATE", NULL, NULL,
                    &locked, err);
    if (rc < 0)
        return rc;
    return run_on(b, "DELETE FROM blob WHERE hash", set,
                  NO_OTHER " AND NOT EXISTS (SELECT 1 FROM task WHERE reference_hash = hash)", NULL, NULL, n,
                  err);
}

static bool
take_gone(void *arg, struct sql_row *row)
{
    struct batch *batch = arg;

    batch->step->submissions++;
    add(batch, &batch->blobs, row_word(row, 0));
    add(batch, &batch->blobs, row_word(row, 1));
    return true;
}

static int
remove_found(struct store_backend *b, struct batch *batch, struct error *err)
{
    static const char behind[] = " AND state >= 2 RETURNING source_hash, log_hash";
    struct store_sweep *step = batch->step;
    int64_t unused = 0;
    int rc;

    if (step->what == SWEEP_LOGS)
        return run_on(b, "UPDATE submission SET log_hash = NULL WHERE id", batch->ids.data, " AND state >= 2",
                      NULL, NULL, &step->logs, err);
    rc =
        run_on(b, "DELETE FROM submission WHERE id", batch->ids.data, behind, take_gone, batch, &unused, err);
    if (rc == 0)
        rc = run_on(b, "DELETE FROM submission WHERE group_id", batch->groups.data, behind, take_gone, batch,
                    &unused, err);
    if (rc == 0)
        rc = run_on(b, "DELETE FROM submission_group WHERE id", batch->groups.data, "", NULL, NULL,
                    &step->groups, err);
    return rc;
}

static int
remove_batch(struct store_backend *b, struct store_sweep *step, struct error *err)
{
    const int batch_size = b->ops->dialect->sweep_batch;
    struct batch batch = { .step = step, .room = step->most - step->submissions };
    int rc;

    if (batch.room > batch_size)
        batch.room = batch_size;
    rc = find_oldest(b, &batch, err);
    step->is_over = batch.looked_at < batch_size && batch.going < batch.room;
    if (rc == 0)
        rc = remove_found(b, &batch, err);
    if (rc == 0 && batch.is_short)
        rc = error_set(err, ERR_NOMEM, "no memory for a sweep");
    if (rc == 0)
        rc = sweep_blobs(b, batch.blobs.data, &step->blobs, err);
    step->is_over |= step->submissions >= step->most;
    buffer_release(&batch.ids);
    buffer_release(&batch.groups);
    buffer_release(&batch.blobs);
    return rc;
}

int
sweep_step(struct store_backend *b, struct store_sweep *step, struct error *err)
{
    bool is_alone = true;
    int rc = b->ops->is_alone ? b->ops->is_alone(b, DUTY_SWEEPS, &is_alone, err) : 0;

    if (rc < 0)
        return rc;
    if (step->what == SWEEP_VACUUM && b->ops->vacuum)
        return b->ops->vacuum(b, step, err);
    if (step->what != SWEEP_VACUUM && is_alone)
        return remove_batch(b, step, err);
    step->is_over = true;
    return 0;
}
