#include "server/submission/submission.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/stages.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/counters.h"
#include "server/submission/funnel.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/registry.h"
#include "server/submission/request.h"
#include "server/submission/single_flight.h"
#include "server/submission/state.h"
#include "server/workers/device_worker.h"
#include "server/workers/zygote.h"

struct submission *
submission_new(struct funnel *f, const char *id, const char *group_id, const char *client, int priority,
               int attempts)
{
    struct submission *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->job.client = clients_get(f->clients, client);
    if (!s->job.client) {
        free(s);
        return NULL;
    }
    s->funnel = f;
    memcpy(s->id, id, sizeof(s->id));
    memcpy(s->entry.id, id, sizeof(s->entry.id));
    s->priority = priority == PRIORITY_BATCH ? PRIORITY_BATCH : PRIORITY_INTERACTIVE;
    s->job.urgency = s->priority == PRIORITY_BATCH ? FAIR_BATCH : FAIR_INTERACTIVE;
    s->attempts = attempts;
    s->cache = "miss";
    s->member.rough_ms = s->speedup = NAN;
    if (group_id && *group_id) {
        s->group = groups_get(f->groups, group_id);
        if (!s->group) {
            free(s);
            return NULL;
        }
        group_join(s->group);
    }
    client_add_submission(s->job.client);
    registry_add(f->registry, &s->entry);
    submission_waits(s);
    return s;
}

void
submission_waits(struct submission *s)
{
    registry_begin_wait(s->funnel->registry, &s->entry,
                        s->state == STATE_QUEUED ? REGISTRY_FOR_SLOT : REGISTRY_FOR_DEVICE);
    counters_touch(s->funnel->counters);
}

void
submission_move(struct submission *s, enum event event)
{
    struct funnel *f = s->funnel;
    int next = state_after(s->state, event);

    /* Only our own bug asks for a move that the table does not have. */
    assert(next != STATE_ILLEGAL);
    registry_end_wait(f->registry, &s->entry);
    counters_touch(f->counters);
    log_debug(s->id, "%s: %s to %s", event_name(event), state_name(s->state), state_name((enum state)next));
    s->state = (enum state)next;
    bool is_over = event == EVENT_FINISH || event == EVENT_CANCEL || event == EVENT_PARK;
    if (is_over || (event == EVENT_RETURN && scheduler_is_isolated(f->scheduler, &s->job)))
        scheduler_end_rerun(f->scheduler, &s->job);
    int stage = stage_of_state(s->state);
    if (stage >= 0 && s->attempt) {
        s->attempt->stage = stage;
        s->attempt->started_ns = clock_monotonic_ns();
        counters_enter_stage(f->counters, (enum stage)stage);
        funnel_tell(f, &(struct funnel_event){ FUNNEL_EVENT_STAGE, s->id, s->attempt->row.group_id,
                                               s->attempt->row.client, stage_name((enum stage)stage),
                                               event == EVENT_BEGIN, s->attempts, NULL, NULL });
    }
}

struct submission *
submission_by_id(const struct funnel *f, const char *id)
{
    struct registry_entry *e = registry_find(f->registry, id);

    return e ? scheduler_owner(e, struct submission, entry) : NULL;
}

bool
submission_will_park(const struct submission *s)
{
    const struct attempt *j = s->attempt;

    return s->group && group_times_some(s->group) && !s->member.is_chosen && j->failed_stage < 0 &&
           (j->until < 0 || j->until > STAGE_FULL);
}

void
submission_leave_queue(struct submission *s)
{
    struct funnel *f = s->funnel;

    if (flight_is_following(&s->flight)) {
        flight_leave(f->flight, &s->flight);
        if (s->group)
            group_end_following(s->group);
    } else if (s->member.is_parked) {
        group_unpark(s->group, &s->member);
    } else if (scheduler_waits(&s->job)) {
        scheduler_remove(f->scheduler, &s->job);
    }
}

bool
submission_is_stopped(const struct submission *s)
{
    return s->is_cancelled || s->is_returned || s->is_taken;
}

void
submission_stop(struct submission *s)
{
    struct attempt *j = s->attempt;

    if (j->device_worker)
        device_worker_close(j->device_worker);
    else if (j->child)
        child_kill(j->child);
}

void
submission_count_attempt(const struct submission *s, bool is_running)
{
    struct store_claim c = s->claim;
    struct error err = { 0 };

    c.attempts = s->attempts - !is_running;
    /* Not waited for: were it lost, the next start would count one attempt more or less, that is all. */
    if (store_set_attempts(s->funnel->store, &c, NULL, NULL, &err) != 0)
        log_warn(s->id, "%s", err.text);
}

/* --- its attempt --- */

bool
submission_make_attempt(struct submission *s)
{
    if (!s->attempt)
        s->attempt = attempt_alloc();
    return s->attempt != NULL;
}
