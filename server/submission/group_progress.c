#include "server/submission/group_progress.h"

#include "common/limits.h"
#include "common/log.h"
#include "server/queue/scheduler.h"
#include "server/submission/cancel.h"
#include "server/submission/conclude.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/submission.h"

static void
cancel_rest(struct funnel *f, struct group *g, enum cancel_reason why)
{
    struct error err = { 0 };

    if (group_cancel_rest(f, group_id(g), why, &err) != 0 && err.code != ERR_CONFLICT)
        log_warn(group_id(g), "%s", err.text);
}

void
group_progress_deadline_cb(void *arg, struct group *g)
{
    log_info(group_id(g), "its deadline has passed: what is not done is cancelled");
    cancel_rest(arg, g, CANCEL_DEADLINE);
}

void
group_progress_decision(struct funnel *f, struct group *g)
{
    if (group_decides(g))
        cancel_rest(f, g, CANCEL_DECIDED);
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
group_progress(struct funnel *f, struct group *g)
{
    group_progress_decision(f, g);
    time_chosen(f, g);
}
