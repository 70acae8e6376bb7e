#include "server/submission/ended.h"

#include <stdlib.h>

#include "common/classes.h"
#include "common/stages.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/counters.h"
#include "server/submission/funnel.h"
#include "server/submission/group_progress.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/registry.h"
#include "server/submission/reuse.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/submission/wait.h"

/* --- counters; that a verdict was made is counted when it is made --- */

/* The work that an early failure saved: the stages that it did not reach. */
static void
count_spared(struct funnel *f, const struct attempt *j)
{
    int last = j->failed_stage == STAGE_EXTRACT ? -1 : j->failed_stage;

    if (j->failed_stage < 0)
        return;
    for (int i = last + 1; i < STAGE_NSTAGES; i++)
        if (j->stages[i].outcome == OUTCOME_NONE && (j->until < 0 || i <= j->until))
            counters_spare_stage(f->counters, (enum stage)i);
}

static void
count(struct submission *s)
{
    struct funnel *f = s->funnel;
    const struct attempt *j = s->attempt;

    counters_add_reward(f->counters, j->row.reward, s->speedup);
    if (!j->row.class_ || s->is_shared) /* cancelled, or judged as another */
        return;
    if (class_info(j->class_)->is_cheat)
        counters_reject(f->counters, j->class_, j->rule);
    if (s->job.is_rerun)
        counters_count(f->counters, j->class_ == s->rerun.class_ ? RERUN_CONFIRMED : RERUN_CLEARED);
    count_spared(f, j);
}

/* --- the others --- */

static void
tell_streams(struct submission *s)
{
    const struct submission_row *row = &s->attempt->row;

    funnel_tell(s->funnel, &(struct funnel_event){ FUNNEL_EVENT_VERDICT, s->id, row->group_id, row->client,
                                                   NULL, false, s->attempts, row->verdict, NULL });
}

static void
leave_group(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct group *g = s->group;

    if (!g)
        return;
    if (group_finish_one(g, s->member.is_chosen, s->is_correct))
        group_progress_end(f, g, client_name(s->job.client));
    else
        group_progress(f, g);
}

/* Whom it concerns, in this order. Where the submission is another's by now, there is no verdict to report. */
void
submission_ended(struct submission *s, bool is_durable)
{
    struct funnel *f = s->funnel;
    struct attempt *j = s->attempt;

    s->is_correct = s->is_correct && is_durable;
    registry_remove(f->registry, &s->entry); /* first: later requests are answered from the store */
    if (is_durable) {
        count(s);        /* before the notifications, so that a client that gets one finds it counted */
        tell_streams(s); /* before its waiters, whose requests may end in the callback */
    }
    reuse_settle(s, is_durable);           /* the identical ones get its verdict, or are judged */
    waits_notify(&s->waits);               /* its own; those of its group are woken by leave_group() */
    client_drop_submission(s->job.client); /* its quota has room for another */
    leave_group(s);                        /* which may be finished, be decided, or choose whom to time */
    scheduler_kick(f->scheduler);          /* last: all of these may have made work */
    attempt_free(f, j);
    free(s);
}
