#include <stddef.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/submission/private.h"

/*
 * Who is next: fair.h says it, for the CPU slots and for the devices. A registration takes its client's turn on a device
 * like a submission, since it holds the device like one. Few are let through to the devices' queue in advance: what waits there holds sources and caches in memory and on disk.
 *
 * Where it goes: to a lane that holds its task's reference. If that lane works, and one close behind in the same
 * client's queue has its own reference with the lane that is free, that one goes first. No lane stays free for it.
 */

#define READY_AHEAD 32   /* for each lane */
#define LOOK_BEHIND 16   /* that are asked whether their reference is with the lane */
#define OVERTAKEN_MOST 4 /* times that others go first for it */

int64_t
funnel_waiting(const struct funnel *f)
{
    return f->n_following + fair_waiting(&f->queue) + scheduler_ready(f, FAIR_INTERACTIVE) +
           scheduler_ready(f, FAIR_BATCH);
}

int64_t
scheduler_ready(const struct funnel *f, int urgency)
{
    return f->ready.n[urgency] - f->registration_turns[urgency];
}

/* NULL for the turn of a registration. */
static struct submission *
submission_of(struct fair_turn *t)
{
    return t && !t->is_registration ? (struct submission *)((char *)t - offsetof(struct submission, turn))
                                    : NULL;
}

void
scheduler_add(struct submission *s, bool at_head)
{
    if (s->state == STATE_READY)
        fair_add(&s->funnel->ready, client_device(s->client), &s->turn, s->urgency, at_head);
    else
        fair_add(&s->funnel->queue, client_cpu(s->client), &s->turn, s->urgency, at_head);
}

void
scheduler_remove(struct submission *s)
{
    fair_remove(s->state == STATE_READY ? &s->funnel->ready : &s->funnel->queue, &s->turn);
}

void
scheduler_hurry(struct submission *s, int priority)
{
    bool is_waiting = s->turn.share != NULL;

    if (priority >= s->urgency)
        return;
    if (is_waiting)
        scheduler_remove(s);
    s->urgency = priority;
    if (is_waiting)
        scheduler_add(s, false);
}

struct submission *
scheduler_first_ready(struct funnel *f)
{
    return submission_of(fair_next(&f->ready, 1u << FAIR_INTERACTIVE | 1u << FAIR_BATCH, NULL, NULL));
}

/* All that runs anywhere, registrations included. */
static int64_t
running(const struct funnel *f)
{
    int64_t n = f->cpu_running + f->gpu_running;

    for (int i = 0; i < f->n_lanes; i++)
        n += lane_state(f->lanes[i]) == LANE_BUSY;
    return n;
}

/*
 * A suspect has the zygote to itself: it waits until all others are through, and they wait for it. Who is judged again
 * for fear of neighbours has everything to itself.
 */
static bool
may_begin(struct funnel *f, struct submission *s)
{
    if (s->is_rerun)
        alone_becomes_due(&f->house, &s->alone, clock_monotonic_ns());
    if (f->alone || !alone_may_begin(&f->house, s->is_rerun ? &s->alone : NULL, running(f)))
        return false;
    return s->losses == 0 || f->cpu_running == 0;
}

bool
scheduler_is_alone(const struct submission *s)
{
    return s->funnel->house.holder == &s->alone;
}

void
scheduler_end_alone(struct submission *s, enum event event)
{
    bool is_over = event == EVENT_FINISH || event == EVENT_CANCEL || event == EVENT_PARK;

    if (is_over || (event == EVENT_RETURN && scheduler_is_alone(s)))
        alone_end(&s->funnel->house, &s->alone, clock_monotonic_ns());
}

static struct submission *
submission_alone(const struct alone_turn *t)
{
    return t ? (struct submission *)((char *)t - offsetof(struct submission, alone)) : NULL;
}

/* Who was to be next, where that was settled before; whoever comes meanwhile is not. */
static struct submission *
next_to_begin(struct funnel *f, unsigned allowed)
{
    struct submission *due = submission_alone(f->house.due);

    return due ? due : submission_of(fair_next(&f->queue, allowed, client_may_have_slot, NULL));
}

static bool
begin_one(struct funnel *f)
{
    int64_t ahead = scheduler_ready(f, FAIR_INTERACTIVE) + scheduler_ready(f, FAIR_BATCH), lanes = f->n_lanes;
    unsigned allowed = (ahead < 4 * READY_AHEAD * lanes ? 1u << FAIR_INTERACTIVE : 0) |
                       (ahead < READY_AHEAD * lanes ? 1u << FAIR_BATCH : 0);

    if (f->cpu_running >= f->cpu_jobs || !zygotes_are_ready(f))
        return false;
    struct submission *s = next_to_begin(f, allowed);
    if (!s || !may_begin(f, s))
        return false;
    if (!s->is_looked_up && cache_answers(s)) {
        fair_remove(&f->queue, &s->turn);
        return true;
    }
    if (!judgement_make(s)) {
        log_warn(s->id, "no memory to judge it: it waits");
        submission_try_later(f);
        return false;
    }
    fair_take(&f->queue, &s->turn);
    if (s->is_rerun)
        alone_begin(&f->house, &s->alone);
    if (s->losses > 0)
        f->alone = s;
    f->cpu_running++;
    client_begin_run(s->client);
    s->has_slot = true;
    s->slot_ns = clock_monotonic_ns();
    scheduler_announce(f, false);
    judge_begin(s);
    return true;
}

void
scheduler_announce(const struct funnel *f, bool is_compiled)
{
    for (int i = 0; i < f->n_lanes; i++)
        lane_expect(f->lanes[i], is_compiled, 1.0 / f->n_lanes);
}

static double
seconds_since(int64_t then_ns)
{
    return (double)(clock_monotonic_ns() - then_ns) / 1e9;
}

void
scheduler_release_slot(struct submission *s)
{
    struct funnel *f = s->funnel;

    if (!s->has_slot)
        return;
    s->has_slot = false;
    fair_done(&f->queue, client_cpu(s->client), &s->turn, seconds_since(s->slot_ns));
    client_end_run(s->client);
    f->cpu_running--;
    if (f->alone == s)
        f->alone = NULL;
}

void
scheduler_release_device(struct submission *s)
{
    struct funnel *f = s->funnel;
    double seconds = seconds_since(s->lane_ns);

    fair_done(&f->ready, client_device(s->client), &s->turn, seconds);
    client_used_device(s->client, seconds);
    s->device_s += seconds;
    counters_hold_device(f->counters, seconds);
    client_end_run(s->client);
    f->gpu_running--;
}

/* Whose turn it is on a device; NULL: nobody's. While nothing is judged, tasks are registered nevertheless. */
static struct fair_turn *
next_for_device(struct funnel *f)
{
    struct submission *holder = submission_alone(f->house.holder);

    if (holder)
        return holder->state == STATE_READY && holder->turn.share && !f->config->paused ? &holder->turn
                                                                                        : NULL;
    if (f->house.due)
        return NULL;
    if (f->config->paused)
        return task_oldest_turn(f);
    return fair_next(&f->ready, 1u << FAIR_INTERACTIVE | 1u << FAIR_BATCH, client_may_have_device, NULL);
}

static bool
has_reference(const struct lane *l, const struct submission *s)
{
    char key[LANE_TASK_SIZE];

    judge_reference_key(s, key);
    return lane_has_reference(l, key);
}

/* Another lane that holds its reference, one that is free if there is; NULL: none does. */
static const struct lane *
where_resident(const struct funnel *f, const struct lane *but, const struct submission *s)
{
    const struct lane *found = NULL;

    for (int i = 0; i < f->n_lanes; i++) {
        enum lane_state state = lane_state(f->lanes[i]);
        if (f->lanes[i] == but || (state != LANE_IDLE && state != LANE_BUSY) ||
            !has_reference(f->lanes[i], s))
            continue;
        if (state == LANE_IDLE)
            return f->lanes[i];
        found = f->lanes[i];
    }
    return found;
}

/* Who is to have the lane where first is next. NULL: a free lane has, which is asked in this round or the next. */
static struct submission *
placed(const struct funnel *f, const struct lane *l, struct submission *first)
{
    if (f->n_lanes == 1 || scheduler_is_alone(first) || has_reference(l, first))
        return first;
    const struct lane *where = where_resident(f, l, first);
    if (!where)
        return first;
    if (lane_state(where) == LANE_IDLE)
        return NULL;
    struct fair_turn *t = first->turn.next;
    for (int i = 0; t && i < LOOK_BEHIND && first->overtaken < OVERTAKEN_MOST; i++, t = t->next)
        if (!t->is_registration && has_reference(l, submission_of(t))) {
            first->overtaken++;
            return submission_of(t);
        }
    return first;
}

/* True: the lane has work now. */
static bool
give(struct funnel *f, struct lane *l)
{
    if (lane_state(l) != LANE_IDLE)
        return false;
    struct fair_turn *t = next_for_device(f);
    if (t && t->is_registration) {
        task_give_lane(f, l, t);
        return true;
    }
    struct submission *s = t ? placed(f, l, submission_of(t)) : NULL;
    if (!s)
        return false;
    fair_take(&f->ready, &s->turn);
    f->gpu_running++;
    client_begin_run(s->client);
    s->lane_ns = clock_monotonic_ns();
    device_stages_begin(s, l);
    return true;
}

/* True: a lane has work that had none, and others may have it for that. */
static bool
give_round(struct funnel *f)
{
    bool has_given = false;

    for (int i = 0; i < f->n_lanes && !f->is_draining; i++)
        while (give(f, f->lanes[i])) {
            has_given = true;
            if (lane_state(f->lanes[i]) != LANE_IDLE)
                break;
        }
    return has_given;
}

/* Calls from inside a kick only ask for one more round: what it calls may well call it. */
void
scheduler_kick(struct funnel *f)
{
    counters_touch(f->counters); /* something happened, or nobody would ask for it */
    if (f->is_kicking) {
        f->is_kick_due = true;
        return;
    }
    f->is_kicking = true;
    do {
        f->is_kick_due = false;
        while (give_round(f))
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
