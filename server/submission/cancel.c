#include "server/submission/cancel.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/limits.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/conclude.h"
#include "server/submission/funnel.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/registry.h"
#include "server/submission/single_flight.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"

/*
 * Ending what is not finished, one submission or what is left of a group: who waits is concluded at once, who runs has
 * its processes ended first (submission_stop()).
 */

static int
cancel_one(struct submission *s, struct error *err)
{
    struct funnel *f = s->funnel;

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
    int rc = s->state == STATE_QUEUED ? submission_load_attempt(s, err) : 0;
    if (rc != 0) {
        attempt_free(f, ptr_take(&s->attempt));
        return rc;
    }
    if (flight_is_following(&s->flight))
        submission_leave_flight(s);
    else if (s->member.is_parked)
        group_unpark(s->group, &s->member);
    else
        scheduler_remove(f->scheduler, &s->job);
    submission_conclude(s, EVENT_CANCEL);
    return 0;
}

struct members {
    struct funnel *funnel;
    enum cancel_reason why;
    struct submission *found[GROUP_MAX];
    int n;
    struct batch *batch; /* of those that are only queued; NULL: each for itself */
};

/*
 * Those of a group that were queued. Their verdicts say much the same, but hundreds of them take longer than the loop may
 * be away, so they are made beside it. Nobody touches what has ended and is not stored yet.
 */
struct batch {
    uv_work_t work;
    struct funnel *funnel;
    char *task_name;
    struct submission *all[GROUP_MAX];
    struct submission_row rows[GROUP_MAX]; /* owned */
    int n;
};

static void
fill_work_cb(uv_work_t *work)
{
    struct batch *b = work->data;

    for (int i = 0; i < b->n; i++) {
        struct attempt *j = b->all[i]->attempt;
        attempt_read_row(j, &b->rows[i], NULL); /* of one that cannot be read as much is told as is known */
        j->task.name = b->task_name ? strdup(b->task_name) : NULL;
        submission_fill_cancelled(b->all[i]);
    }
}

static void
filled_cb(uv_work_t *work, int status)
{
    struct batch *b = work->data;
    struct funnel *f = b->funnel;

    (void)status; /* nobody takes it out of the pool */
    for (int i = 0; i < b->n; i++)
        submission_concluded(b->all[i]);
    free(b->task_name);
    free(b);
    scheduler_kick(f->scheduler);
    pending_end_work(f->pending);
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

static bool
member_cb(void *arg, const struct submission_row *row)
{
    struct members *m = arg;
    struct submission *s = NULL;

    s = submission_by_id(m->funnel, row->id);
    if (!s || is_spared(s, m->why) || (m->batch && add_to_batch(m->batch, s, row)))
        return true;
    if (m->n < GROUP_MAX)
        m->found[m->n++] = s;
    return true;
}

static struct batch *
batch_new(struct funnel *f)
{
    struct batch *b = calloc(1, sizeof(*b));

    if (b) {
        b->funnel = f;
        b->work.data = b;
    }
    return b;
}

/* How many end so. */
static int
cancel_batch(struct batch *b, enum cancel_reason why)
{
    struct task_row task = { 0 };
    int n = b->n;

    if (n == 0) {
        free(b);
        return 0;
    }
    if (store_get_task(b->funnel->store, b->rows[0].task_id, &task, NULL) == 0)
        b->task_name = ptr_take(&task.name);
    task_row_release(&task);
    for (int i = 0; i < n; i++) {
        struct submission *s = b->all[i];
        s->cancel_reason = why;
        if (flight_is_following(&s->flight))
            submission_leave_flight(s);
        else
            scheduler_remove(b->funnel->scheduler, &s->job);
        submission_move(s, EVENT_CANCEL);
    }
    pending_work(b->funnel->pending, &b->work, fill_work_cb, filled_cb);
    return n;
}

int
group_cancel_rest(struct funnel *f, const char *id, enum cancel_reason why, struct error *err)
{
    struct members m = { .funnel = f, .why = why, .batch = batch_new(f) };

    int rc = store_each_of_group(f->store, id, member_cb, &m, err);
    int cancelled = m.batch ? cancel_batch(m.batch, why) : 0;
    if (rc != 0)
        return rc;
    for (int i = 0; i < m.n;
         i++) /* a verdict is durable on a later turn at the earliest, so none of them is freed here */
    {
        struct submission *s = m.found[i];
        enum cancel_reason before = s->cancel_reason;
        s->cancel_reason = why; /* told in what cancel_one() writes */
        if (cancel_one(s, NULL) == 0)
            cancelled++;
        else
            s->cancel_reason = before;
    }
    return cancelled > 0 ? 0 : error_set(err, ERR_CONFLICT, "group %s is finished", id);
}

int
funnel_cancel(struct funnel *f, const char *id, struct error *err)
{
    struct submission_row row = { 0 };
    struct group_row group = { 0 };
    struct submission *s = NULL;

    s = submission_by_id(f, id);
    if (s)
        return cancel_one(s, err);
    int rc = store_get_submission(f->store, id, &row, err);
    submission_row_release(&row);
    if (rc == 0)
        return error_set(err, ERR_CONFLICT, "%s is finished", id);
    if (rc != ERR_NOTFOUND)
        return rc;
    rc = store_get_group(f->store, id, &group, err);
    group_row_release(&group);
    return rc == 0 ? group_cancel_rest(f, id, CANCEL_ASKED, err) : rc;
}
