#include "server/submission/group_progress.h"

#include "common/limits.h"
#include "common/log.h"
#include "server/queue/scheduler.h"
#include "server/submission/cancel.h"
#include "server/submission/conclude.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/submission.h"
#include "server/submission/wait.h"

void
group_progress_deadline_cb(void *arg, struct group *g)
{
    log_info(group_id(g), "its deadline has passed: what is not done is cancelled");
    group_cancel_rest(arg, group_id(g), CANCEL_DEADLINE);
}

void
group_progress_decision(struct funnel *f, struct group *g)
{
    if (group_decides(g))
        group_cancel_rest(f, group_id(g), CANCEL_DECIDED);
}

/* Those that were chosen wait for a device; the others end untimed. */
static void
time_chosen(struct funnel *f, struct group *g)
{
    struct group_member *all[GROUP_MAX];
    size_t n = group_choose(g, all);

    for (size_t i = 0; i < n; i++) {
        struct submission *s = scheduler_owner(all[i], struct submission, member);
        if (s->member.is_chosen) {
            submission_waits(s);
            scheduler_add_for_device(f->scheduler, &s->job, false);
        } else {
            submission_end_untimed(s);
        }
    }
    if (n > 0)
        scheduler_kick(f->scheduler);
}

void
group_progress_end(struct funnel *f, struct group *g, const char *client)
{
    funnel_tell(f, &(struct funnel_event){ group_is_whole(g) ? FUNNEL_EVENT_GROUP : FUNNEL_EVENT_PART,
                                           .group = group_id(g), .client = client,
                                           .notify_url = group_is_whole(g) ? group_notify_url(g) : NULL });
    waits_notify(group_waits(g));
    group_free(g);
}

void
group_progress(struct funnel *f, struct group *g)
{
    group_progress_decision(f, g);
    time_chosen(f, g);
}
