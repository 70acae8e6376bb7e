#include "server/submission/others.h"

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/log.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/submission/attempt.h"
#include "server/submission/cancel.h"
#include "server/submission/funnel.h"
#include "server/submission/group_progress.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/registry.h"
#include "server/submission/reuse.h"
#include "server/submission/submission.h"
#include "server/submission/wait.h"
#include "server/verdict/verdict.h"

/* --- given away --- */

/* It was cancelled here when another had taken it already. */
static void
cancel_there(const struct submission *s)
{
    struct error err = { 0 };

    if ((s->is_cancelled || s->state == STATE_CANCELLED) &&
        cancel_elsewhere(s->funnel, s->id, s->cancel_reason, &err) != 0)
        log_warn(s->id, "it is judged on though it was cancelled: %s", err.text);
}

void
others_take(struct submission *s)
{
    struct funnel *f = s->funnel;

    cancel_there(s);
    struct elsewhere_entry *e =
        elsewhere_add(f->elsewhere, s->id, s->group ? group_id(s->group) : "", client_name(s->job.client));

    scheduler_end_rerun(f->scheduler, &s->job); /* nothing moves it, which would */
    scheduler_release_slot(f->scheduler, &s->job);
    if (!e) { /* its waiters look for themselves, and the group ends without it */
        log_error(s->id, "no memory to follow what another node makes of it");
        f->ended(s, false);
        return;
    }
    e->group = s->group;
    e->is_news = true;
    waits_move(&s->waits, &e->waits);
    registry_remove(f->registry, &s->entry);
    if (s->group)
        group_begin_elsewhere(s->group, &s->member);
    if (s->is_accepted)
        elsewhere_own(f->elsewhere, e, s->job.client);
    else
        client_drop_submission(s->job.client);
    reuse_settle(s, false);
    attempt_free(f, s->attempt);
    free(s);
    scheduler_kick(f->scheduler);
}

/* --- its end --- */

static bool
is_correct(const char *verdict)
{
    AUTO_JSON json_t *document = json_of(verdict);

    return verdict_is_correct(document);
}

static void
leave_group(struct funnel *f, struct elsewhere_entry *e, const char *verdict)
{
    struct group *g = e->group;

    if (!g)
        return;
    if (group_finish_elsewhere(g, verdict && group_stops_early(g) && is_correct(verdict)))
        group_progress_end(f, g, e->client);
    else
        group_progress(f, g);
}

static void
end(struct funnel *f, struct elsewhere_entry *e, const char *verdict)
{
    if (verdict && e->is_news) /* else it had ended before it was asked for, and was told then */
        funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_VERDICT, e->id, e->group_id, e->client, NULL,
                                               false, 0, verdict, NULL });
    waits_notify(&e->waits);
    if (e->owner)
        client_drop_submission(e->owner);
    leave_group(f, e, verdict);
}

/* A member of a followed group: it counts for the group from now on. */
static void
follow_member(struct funnel *f, const char *group, const char *id, const char *client)
{
    struct elsewhere_entry *e = elsewhere_find(f->elsewhere, id);

    if (submission_by_id(f, id) || (e && e->group))
        return;
    if (!e)
        e = elsewhere_add(f->elsewhere, id, group, client);
    struct group *g = e ? groups_get(f->groups, group) : NULL;
    if (!g) {
        log_error(id, "no memory to follow what another node makes of it");
        return;
    }
    e->group = g;
    snprintf(e->group_id, sizeof(e->group_id), "%s", group);
    group_begin_elsewhere(g, NULL);
}

static void
follow_members(struct funnel *f, struct elsewhere_entry *e, const struct elsewhere_news *news)
{
    for (size_t i = 0; i < news->n; i++)
        if (!news->members[i].is_finished)
            follow_member(f, e->id, news->members[i].id, news->members[i].client);
    elsewhere_hurry(f->elsewhere); /* a member seen unfinished again has not ended here since: it is news */
    struct group *g = groups_find(f->groups, e->id);
    if (g) {
        group_set_whole(g);
        waits_move(&e->waits, group_waits(g));
    } else {
        waits_notify(&e->waits);
    }
}

void
others_seen_cb(void *arg, struct elsewhere_entry *e, const struct elsewhere_news *news)
{
    if (news->what == ELSEWHERE_GROUP)
        follow_members(arg, e, news);
    else
        end(arg, e, news->what == ELSEWHERE_ENDED ? news->verdict : NULL);
}

void
funnel_watch(struct funnel *f, const char *id, const char *group, const char *client)
{
    struct elsewhere_entry *e = elsewhere_find(f->elsewhere, id);

    if (group && *group)
        follow_member(f, group, id, client);
    else if (!e && !submission_by_id(f, id))
        group ? elsewhere_add(f->elsewhere, id, "", client) : elsewhere_ask(f->elsewhere, id);
    if ((e = elsewhere_find(f->elsewhere, id)))
        e->is_news = true;
}
