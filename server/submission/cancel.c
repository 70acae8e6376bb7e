#include "server/submission/cancel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/limits.h"
#include "common/log.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/adopt.h"
#include "server/submission/attempt.h"
#include "server/submission/conclude.h"
#include "server/submission/funnel.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/seen.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"

/*
 * Cancels what is not finished, one submission or the rest of a group: a waiting submission is concluded at once, the
 * processes of a running one are ended first (submission_stop()).
 */

static int
cancel_one(struct submission *s, struct error *err)
{
    if (state_is_final(s->state) || s->is_cancelled || (s->attempt && s->attempt->is_finishing))
        return error_set(err, ERR_CONFLICT, "%s is finished", s->id);
    if (s->is_claiming) { /* it ends as soon as it has begun */
        s->is_cancelled = true;
        return 0;
    }
    if (s->state != STATE_QUEUED && s->state != STATE_READY) {
        s->is_cancelled = true;
        submission_stop(s);
        return 0;
    }
    if (s->state == STATE_QUEUED)
        return error_set(err, ERR_NOMEM, "no memory to cancel %s", s->id);
    submission_leave_queue(s);
    submission_conclude(s, EVENT_CANCEL);
    return 0;
}

/*
 * Those that were queued. Their verdicts are much alike, but hundreds of them take longer than the loop may block, so
 * they are made in libuv's pool. Nothing else changes a submission that has ended and is not stored yet.
 */
struct batch {
    struct pending_work work;
    struct funnel *funnel;
    char *task_name;
    struct submission *all[GROUP_MAX];
    struct submission_row rows[GROUP_MAX]; /* owned */
    int n;
};

static void
fill_batch(void *arg)
{
    struct batch *b = arg;

    for (int i = 0; i < b->n; i++) {
        struct attempt *j = b->all[i]->attempt;
        attempt_read_row(j, &b->rows[i], NULL); /* a row that cannot be read leaves its known members */
        j->task.name = b->task_name ? strdup(b->task_name) : NULL;
        submission_fill_cancelled(b->all[i]);
    }
}

static void
filled_cb(void *arg)
{
    struct batch *b = arg;
    struct funnel *f = b->funnel;

    for (int i = 0; i < b->n; i++)
        submission_concluded(b->all[i]);
    free(b->task_name);
    free(b);
    scheduler_kick(f->scheduler);
}

static bool
is_spared(const struct submission *s, enum cancel_reason why)
{
    return why == CANCEL_DECIDED && (s->member.is_parked || s->member.is_chosen);
}

/* True: it is queued, and its verdict is the batch's to make. */
static bool
add_to_batch(struct batch *b, struct submission *s, const struct submission_row *row)
{
    if (s->state != STATE_QUEUED || s->is_claiming || s->is_cancelled || b->n == GROUP_MAX ||
        !submission_make_attempt(s))
        return false;
    if (submission_row_copy(row, &b->rows[b->n]) != 0) {
        submission_row_release(&b->rows[b->n]);
        attempt_free(b->funnel, ptr_take(&s->attempt));
        return false;
    }
    b->all[b->n++] = s;
    return true;
}

static struct batch *
batch_new(struct funnel *f, const char *task_name)
{
    struct batch *b = calloc(1, sizeof(*b));

    if (b) {
        b->funnel = f;
        b->task_name = task_name ? strdup(task_name) : NULL;
    }
    return b;
}

/* How many end so. */
static int
cancel_batch(struct batch *b, enum cancel_reason why)
{
    int n = b->n;

    if (n == 0) {
        free(b->task_name);
        free(b);
        return 0;
    }
    for (int i = 0; i < n; i++) {
        struct submission *s = b->all[i];
        s->cancel_reason = why;
        submission_leave_queue(s);
        submission_move(s, EVENT_CANCEL);
    }
    pending_work(b->funnel->pending, &b->work, fill_batch, filled_cb, b);
    return n;
}

/* --- what this daemon does not have --- */

static void
ordered_cb(void *arg, int code, const struct error *err)
{
    struct funnel *f = arg;

    if (code != 0 && code != ERR_NOTFOUND) /* it had ended */
        log_warn(NULL, "a submission of another node's is not cancelled: %s", err->text);
    pending_end_write(f->pending);
}

int
cancel_elsewhere(struct funnel *f, const char *id, enum cancel_reason why, struct error *err)
{
    if (!store_is_writable(f->store))
        return error_set(err, ERR_UNAVAILABLE, "the store cannot be written, so that %s cannot be cancelled",
                         id);
    pending_begin_write(f->pending);
    int rc = store_cancel(f->store, id, CANCEL_ORDER(why), ordered_cb, f, err);
    if (rc != 0)
        pending_end_write(f->pending);
    return rc;
}

/*
 * It waits in the store, unclaimed or in another node's queue: it is adopted and ends with the batch, unless a node
 * claims it first and is notified then (others_take()).
 */
static void
add_waiting(struct batch *b, const struct submission_row *row)
{
    struct funnel *f = b->funnel;

    if (row->state != SUBMISSION_QUEUED || store_lease_ms(f->store) == STORE_LEASE_ENDLESS ||
        !store_is_writable(f->store))
        return;
    struct submission *s = adopt(f, row, NULL, false);
    if (s && !add_to_batch(b, s, row))
        f->taken(s);
}

/* How many are left to others to cancel; or an error. */
static int
cancel_others(struct funnel *f, const struct seen *seen, enum cancel_reason why, struct error *err)
{
    int n = 0;

    for (size_t i = 0; i < seen->n; i++) {
        const struct submission_row *row = &seen->rows[i];
        if (!row_is_unfinished(row) || submission_by_id(f, row->id))
            continue;
        int rc = cancel_elsewhere(f, row->id, why, err);
        if (rc != 0)
            return rc;
        n++;
    }
    return n;
}

/* Those of the rows that have not ended by now. 0, or ERR_CONFLICT: all have. */
static int
cancel_rows(struct funnel *f, const struct seen *seen, enum cancel_reason why, struct error *err)
{
    struct submission *found[GROUP_MAX];
    struct batch *batch = batch_new(f, seen->task_name);
    int n = 0;

    for (size_t i = 0; i < seen->n; i++) {
        struct submission *s = submission_by_id(f, seen->rows[i].id);
        bool is_left = s && !is_spared(s, why) && !(batch && add_to_batch(batch, s, &seen->rows[i]));
        if (!s && batch)
            add_waiting(batch, &seen->rows[i]);
        if (is_left && n < GROUP_MAX)
            found[n++] = s;
    }
    int cancelled = batch ? cancel_batch(batch, why) : 0;
    /* A verdict is durable on a later turn at the earliest, so none of them is freed here. */
    for (int i = 0; i < n; i++) {
        struct submission *s = found[i];
        enum cancel_reason before = s->cancel_reason;
        s->cancel_reason = why; /* used in the verdict of cancel_one() */
        if (cancel_one(s, NULL) == 0)
            cancelled++;
        else
            s->cancel_reason = before;
    }
    int others = store_lease_ms(f->store) != STORE_LEASE_ENDLESS ? cancel_others(f, seen, why, err) : 0;
    if (others < 0)
        return others;
    const char *id = *seen->group.id ? seen->group.id : seen->n > 0 ? seen->rows[0].id : "";
    return cancelled + others > 0
               ? 0
               : error_set(err, ERR_CONFLICT, "%s%s is finished", *seen->group.id ? "group " : "", id);
}

int
funnel_cancel(struct funnel *f, const struct seen *seen, struct error *err)
{
    return cancel_rows(f, seen, CANCEL_ASKED, err);
}

/* --- the rest of a group, and requests to cancel from other nodes --- */

struct rest {
    struct funnel *funnel;
    char id[ID_SIZE];
    bool is_group;
    enum cancel_reason why;
    struct seen seen;
    int rc;
    struct error err;
};

static void
read_rest_cb(void *arg, struct store_reader *r)
{
    struct rest *rest = arg;

    rest->rc = rest->is_group ? seen_read_group(r, rest->id, false, &rest->seen, &rest->err)
                              : seen_read(r, rest->id, &rest->seen, &rest->err);
}

/*
 * A submission that has ended, or was chosen, since the read began is skipped: cancel_rows() checks the present state.
 */
static void
rest_read_cb(void *arg)
{
    struct rest *rest = arg;
    struct funnel *f = rest->funnel;
    struct group *g = rest->is_group ? groups_find(f->groups, rest->id) : NULL;

    if (rest->rc == 0 && !pending_is(f->pending, PENDING_STOPPING))
        cancel_rows(f, &rest->seen, rest->why, NULL);
    else if (rest->rc != 0)
        log_warn(rest->id, "it is not cancelled: %s", rest->err.text);
    if (rest->rc == ERR_UNAVAILABLE && g && !pending_is(f->pending, PENDING_STOPPING))
        group_put_off(g);
    seen_release(&rest->seen);
    free(rest);
    pending_end_write(f->pending);
}

static void
cancel_read(struct funnel *f, const char *id, bool is_group, enum cancel_reason why)
{
    struct rest *rest = calloc(1, sizeof(*rest));

    if (!rest) {
        log_warn(id, "no memory to cancel it");
        return;
    }
    *rest = (struct rest){ .funnel = f, .is_group = is_group, .why = why };
    snprintf(rest->id, sizeof(rest->id), "%s", id);
    pending_begin_write(f->pending);
    if (store_read(f->store, read_rest_cb, rest_read_cb, rest, &rest->err) != 0) {
        rest->rc = rest->err.code;
        rest_read_cb(rest);
    }
}

void
group_cancel_rest(struct funnel *f, const char *id, enum cancel_reason why)
{
    cancel_read(f, id, true, why);
}

void
cancel_ordered(struct funnel *f, const char *id, int order)
{
    struct submission *s = submission_by_id(f, id);

    if (s && !state_is_final(s->state) && !s->is_cancelled && order >= CANCEL_ORDER(CANCEL_ASKED) &&
        order <= CANCEL_ORDER(CANCEL_DECIDED) && !is_spared(s, (enum cancel_reason)(order - 1)))
        cancel_read(f, id, false, (enum cancel_reason)(order - 1));
}
