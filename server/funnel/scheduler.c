#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/funnel/private.h"

/*
 * Who is next. CPU slots go to queued submissions, interactive ones first, in
 * the order in which they came; a device goes to a registration that waits,
 * then to what is ready. Few are let through to the devices' queue in advance:
 * what waits there holds sources and caches in memory and on disk.
 */

#define READY_AHEAD 32 /* for each lane */

int64_t
funnel_waiting(const struct funnel *f)
{
    int64_t n = f->n_following;
    for (int i = 0; i < PRIORITY_N; i++)
        n += f->queue[i].n + f->ready[i].n;
    return n;
}

static struct list *
list_of(struct submission *s)
{
    return s->state == STATE_READY ? &s->funnel->ready[s->urgency] : &s->funnel->queue[s->urgency];
}

void
scheduler_add(struct submission *s, bool at_head)
{
    list_add(list_of(s), s, at_head);
}

void
scheduler_remove(struct submission *s)
{
    list_remove(list_of(s), s);
}

void
scheduler_hurry(struct submission *s, int priority)
{
    bool is_waiting = s->state == STATE_QUEUED || s->state == STATE_READY;

    if (priority >= s->urgency)
        return;
    if (is_waiting)
        scheduler_remove(s);
    s->urgency = priority;
    if (is_waiting)
        scheduler_add(s, false);
}

static struct submission *
pick(struct list lists[PRIORITY_N])
{
    for (int i = 0; i < PRIORITY_N; i++) {
        struct submission *s = lists[i].head;
        if (s) {
            list_remove(&lists[i], s);
            return s;
        }
    }
    return NULL;
}

/* A suspect has the zygote to itself: it waits until all others are through, and they wait for it. */
static bool
may_begin(struct funnel *f, struct submission *s)
{
    if (f->alone)
        return false;
    return s->losses == 0 || f->cpu_running == 0;
}

static bool
begin_one(struct funnel *f)
{
    int64_t ahead = f->ready[PRIORITY_INTERACTIVE].n + f->ready[PRIORITY_BATCH].n;

    if (f->cpu_running >= f->cpu_jobs || !zygote_is_ready(f->zygote))
        return false;
    struct submission *s = f->queue[PRIORITY_INTERACTIVE].head;
    if (!s && ahead < READY_AHEAD * (int64_t)f->n_lanes)
        s = f->queue[PRIORITY_BATCH].head;
    if (!s || ahead >= 4 * READY_AHEAD * (int64_t)f->n_lanes || !may_begin(f, s))
        return false;
    list_remove(&f->queue[s->urgency], s);
    if (cache_answers(s))
        return true;
    if (s->losses > 0)
        f->alone = s;
    f->cpu_running++;
    s->has_slot = true;
    judge_begin(s);
    return true;
}

void
scheduler_release_slot(struct submission *s)
{
    struct funnel *f = s->funnel;

    if (!s->has_slot)
        return;
    s->has_slot = false;
    f->cpu_running--;
    if (f->alone == s)
        f->alone = NULL;
}

/* True: the lane has work now. */
static bool
give(struct funnel *f, struct lane *l)
{
    if (lane_state(l) != LANE_IDLE)
        return false;
    if (task_give_lane(f, l))
        return true;
    struct submission *s = f->config->paused ? NULL : pick(f->ready);
    if (s)
        judge_on_lane(s, l);
    return s != NULL;
}

/* Calls from inside a kick only ask for one more round: what it calls may well call it. */
void
scheduler_kick(struct funnel *f)
{
    if (f->is_kicking) {
        f->is_kick_due = true;
        return;
    }
    f->is_kicking = true;
    do {
        f->is_kick_due = false;
        for (int i = 0; i < f->n_lanes && !f->is_draining; i++)
            while (give(f, f->lanes[i]) && lane_state(f->lanes[i]) == LANE_IDLE)
                ;
        while (!f->is_draining && !f->config->paused && begin_one(f))
            ;
    } while (f->is_kick_due);
    f->is_kicking = false;
    funnel_check_drained(f);
}

void
scheduler_idle_cb(void *arg, struct lane *l)
{
    (void)l;
    scheduler_kick(arg);
}
