#include "common/auto.h"
#include "server/funnel/private.h"

/*
 * Ending what is not finished, one submission or what is left of a group: who waits is concluded at once, who runs has
 * its processes ended first (judge_stop()).
 */

static int
cancel_one(struct submission *s, struct error *err)
{
    struct funnel *f = s->funnel;

    if (state_is_final(s->state) || s->is_cancelled || (s->judgement && s->judgement->is_finishing))
        return error_set(err, ERR_CONFLICT, "%s is finished", s->id);
    if (s->state != STATE_QUEUED && s->state != STATE_READY) {
        s->is_cancelled = true;
        judge_stop(s);
        return 0;
    }
    int rc = s->state == STATE_QUEUED ? judgement_new(s, err) : 0;
    if (rc != 0) {
        judgement_free(f, ptr_take(&s->judgement));
        return rc;
    }
    if (s->leader)
        cache_leave(s);
    else if (s->is_parked)
        group_unpark(s);
    else
        scheduler_remove(s);
    submission_conclude(s, EVENT_CANCEL);
    return 0;
}

struct members {
    struct funnel *funnel;
    struct submission *found[REQUEST_GROUP_MAX];
    int n;
};

static bool
member_cb(void *arg, const struct submission_row *row)
{
    struct members *m = arg;
    struct submission *s = NULL;

    HASH_FIND_STR(m->funnel->submissions, row->id, s);
    if (s && m->n < REQUEST_GROUP_MAX)
        m->found[m->n++] = s;
    return true;
}

int
group_cancel_rest(struct funnel *f, const char *id, enum cancel_reason why, struct error *err)
{
    struct members m = { .funnel = f };
    int cancelled = 0;

    int rc = store_each_of_group(f->store, id, member_cb, &m, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < m.n;
         i++) /* a verdict is durable on a later turn at the earliest, so none of them is freed here */
    {
        struct submission *s = m.found[i];
        enum cancel_reason before = s->cancel_reason;
        if (why == CANCEL_DECIDED && (s->is_parked || s->is_chosen))
            continue;
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

    HASH_FIND_STR(f->submissions, id, s);
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
