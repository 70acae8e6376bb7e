#include "server/queue/scheduler.h"

#include <stdlib.h>

#include "common/clock.h"

/*
 * fair.h chooses the next turn, for the CPU slots and for the devices. A registration takes its client's turn on a
 * device as a submission does, since it holds the device as well. Few submissions may wait for a device in advance:
 * each holds sources and caches in memory and on disk.
 *
 * A submission is placed on a device worker that holds its task's reference. If that one is busy, and one of the next
 * jobs in the same client's queue has its reference on the free one, that job goes first. No device stays free for it.
 */

#define READY_AHEAD 32   /* for each device worker */
#define LOOK_BEHIND 16   /* jobs that are examined for a reference on the device worker */
#define OVERTAKEN_MOST 4 /* times that others go first */

struct scheduler {
    struct fair queue, ready;              /* for the CPU slots, for the devices */
    int64_t registrations[FAIR_URGENCIES]; /* of those in `ready` */
    struct device_worker *const *device_workers;
    int n_device_workers;
    int64_t slots, cpu_running, gpu_running;
    const struct scheduler_job *sole; /* a suspect that has the CPU slots to itself; NULL: none */
    struct isolation reruns;
    const struct scheduler_ops *ops;
    void *arg;
    bool is_paused, is_draining, is_kicking, is_kick_due;
};

struct scheduler *
scheduler_new(int64_t slots, struct device_worker *const *device_workers, int n,
              const struct scheduler_ops *ops, void *arg)
{
    struct scheduler *q = calloc(1, sizeof(*q));

    if (q) {
        q->slots = slots;
        q->device_workers = device_workers;
        q->n_device_workers = n;
        q->ops = ops;
        q->arg = arg;
    }
    return q;
}

void
scheduler_free(struct scheduler *q)
{
    free(q);
}

void
scheduler_pause(struct scheduler *q, bool is_paused)
{
    q->is_paused = is_paused;
}

void
scheduler_drain(struct scheduler *q)
{
    q->is_draining = true;
}

/* --- waiting --- */

static struct scheduler_job *
job_of(struct fair_turn *t)
{
    return t ? scheduler_owner(t, struct scheduler_job, turn) : NULL;
}

void
scheduler_add_for_slot(struct scheduler *q, struct scheduler_job *job, bool at_head)
{
    job->waits_for_device = false;
    fair_add(&q->queue, client_cpu(job->client), &job->turn, job->urgency, at_head);
}

void
scheduler_add_for_device(struct scheduler *q, struct scheduler_job *job, bool at_head)
{
    job->waits_for_device = true;
    job->turn.is_registration = job->is_registration;
    q->registrations[job->urgency] += job->is_registration;
    fair_add(&q->ready, client_device(job->client), &job->turn, job->urgency, at_head);
}

bool
scheduler_waits(const struct scheduler_job *job)
{
    return job->turn.share != NULL;
}

void
scheduler_remove(struct scheduler *q, struct scheduler_job *job)
{
    q->registrations[job->turn.urgency] -= job->is_registration;
    fair_remove(job->waits_for_device ? &q->ready : &q->queue, &job->turn);
}

void
scheduler_hurry(struct scheduler *q, struct scheduler_job *job, int urgency)
{
    bool waits = scheduler_waits(job);

    if (urgency >= job->urgency)
        return;
    if (waits)
        scheduler_remove(q, job);
    job->urgency = urgency;
    if (waits && job->waits_for_device)
        scheduler_add_for_device(q, job, false);
    else if (waits)
        scheduler_add_for_slot(q, job, false);
}

static int64_t
ready(const struct scheduler *q, int urgency)
{
    return q->ready.n[urgency] - q->registrations[urgency];
}

int64_t
scheduler_waiting(const struct scheduler *q)
{
    return fair_waiting(&q->queue) + ready(q, FAIR_INTERACTIVE) + ready(q, FAIR_BATCH);
}

void
scheduler_count(const struct scheduler *q, struct scheduler_counts *out)
{
    for (int i = 0; i < FAIR_URGENCIES; i++) {
        out->queued[i] = q->queue.n[i];
        out->ready[i] = ready(q, i);
    }
    out->slots = q->slots;
    out->cpu_running = q->cpu_running;
    out->gpu_running = q->gpu_running;
    out->rerun_held_s = q->reruns.held_s;
}

/* --- having --- */

static double
seconds_since(int64_t then_ns)
{
    return (double)(clock_monotonic_ns() - then_ns) / 1e9;
}

static void
take_slot(struct scheduler *q, struct scheduler_job *job)
{
    fair_take(&q->queue, &job->turn);
    if (job->is_rerun)
        isolation_begin(&q->reruns, &job->rerun);
    if (job->is_suspect)
        q->sole = job;
    q->cpu_running++;
    client_begin_run(job->client);
    job->has_slot = true;
    job->slot_ns = clock_monotonic_ns();
}

void
scheduler_release_slot(struct scheduler *q, struct scheduler_job *job)
{
    if (!job->has_slot)
        return;
    job->has_slot = false;
    fair_done(&q->queue, client_cpu(job->client), &job->turn, seconds_since(job->slot_ns));
    client_end_run(job->client);
    q->cpu_running--;
    if (q->sole == job)
        q->sole = NULL;
}

static void
take_device(struct scheduler *q, struct scheduler_job *job)
{
    q->registrations[job->turn.urgency] -= job->is_registration;
    fair_take(&q->ready, &job->turn);
    q->gpu_running += !job->is_registration;
    client_begin_run(job->client);
    job->has_device = true;
    job->device_ns = clock_monotonic_ns();
}

double
scheduler_release_device(struct scheduler *q, struct scheduler_job *job)
{
    double seconds = seconds_since(job->device_ns);

    if (!job->has_device)
        return 0;
    job->has_device = false;
    fair_done(&q->ready, client_device(job->client), &job->turn, seconds);
    client_used_device(job->client, seconds);
    client_end_run(job->client);
    q->gpu_running -= !job->is_registration;
    return seconds;
}

bool
scheduler_is_sole(const struct scheduler *q, const struct scheduler_job *job)
{
    return q->sole == job || scheduler_is_isolated(q, job);
}

/* --- reruns --- */

bool
scheduler_promise_rerun(struct scheduler *q, struct scheduler_job *job)
{
    job->is_rerun = isolation_promise(&q->reruns, &job->rerun, clock_monotonic_ns());
    return job->is_rerun;
}

bool
scheduler_is_isolated(const struct scheduler *q, const struct scheduler_job *job)
{
    return q->reruns.begun == &job->rerun;
}

void
scheduler_end_rerun(struct scheduler *q, struct scheduler_job *job)
{
    isolation_end(&q->reruns, &job->rerun, clock_monotonic_ns());
}

static struct scheduler_job *
rerun_of(const struct isolated_rerun *t)
{
    return t ? scheduler_owner(t, struct scheduler_job, rerun) : NULL;
}

/* --- CPU slots --- */

/* All that runs anywhere, registrations included. */
static int64_t
running(const struct scheduler *q)
{
    int64_t n = q->cpu_running + q->gpu_running;

    for (int i = 0; i < q->n_device_workers; i++)
        n += device_worker_state(q->device_workers[i]) == DEVICE_BUSY;
    return n;
}

/*
 * A suspect has the CPU slots to itself: it waits until all others are through, and they wait for it. A rerun has
 * everything to itself.
 */
static bool
may_begin(struct scheduler *q, struct scheduler_job *job)
{
    if (job->is_rerun)
        isolation_becomes_due(&q->reruns, &job->rerun, clock_monotonic_ns());
    if (q->sole || !isolation_may_begin(&q->reruns, job->is_rerun ? &job->rerun : NULL, running(q)))
        return false;
    return !job->is_suspect || q->cpu_running == 0;
}

/* Urgencies that may begin: batch only while few are ready. */
static unsigned
allowed(const struct scheduler *q)
{
    int64_t ahead = ready(q, FAIR_INTERACTIVE) + ready(q, FAIR_BATCH);

    return (ahead < 4 * READY_AHEAD * q->n_device_workers ? 1U << FAIR_INTERACTIVE : 0) |
           (ahead < READY_AHEAD * q->n_device_workers ? 1U << FAIR_BATCH : 0);
}

bool
scheduler_is_open(const struct scheduler *q)
{
    return !q->is_draining && !q->is_paused && !q->sole && !q->reruns.due && !q->reruns.begun &&
           (allowed(q) & 1U << FAIR_BATCH) != 0;
}

bool
scheduler_has_room(const struct scheduler *q)
{
    return scheduler_is_open(q) && q->cpu_running < q->slots &&
           !fair_next(&q->queue, allowed(q), client_may_have_slot, NULL);
}

/* A rerun that is due was settled on before; what came meanwhile is not next. */
static struct scheduler_job *
next_to_begin(struct scheduler *q)
{
    struct scheduler_job *due = rerun_of(q->reruns.due);

    return due ? due : job_of(fair_next(&q->queue, allowed(q), client_may_have_slot, NULL));
}

static bool
begin_one(struct scheduler *q)
{
    if (q->cpu_running >= q->slots || !q->ops->has_cpu(q->arg))
        return false;
    struct scheduler_job *job = next_to_begin(q);
    if (!job || !may_begin(q, job))
        return false;
    enum scheduler_prepared found = q->ops->prepare(q->arg, job);
    if (found == SCHEDULER_LEAVES)
        scheduler_remove(q, job);
    if (found != SCHEDULER_BEGIN)
        return found == SCHEDULER_LEAVES;
    take_slot(q, job);
    q->ops->begin(q->arg, job);
    return true;
}

/* --- devices --- */

/* Registrations alone run while nothing is judged. arg: an urgency, of type int. */
static bool
may_register(void *arg, const struct fair_share *device)
{
    const int *urgency = arg;
    const struct fair_turn *first = device->flows[*urgency]; /* registrations stand before all others */

    return first && first->is_registration && client_may_have_device(NULL, device);
}

static struct scheduler_job *
next_registration(struct scheduler *q)
{
    struct fair_turn *found = NULL;

    for (int i = 0; !found && i < FAIR_URGENCIES; i++)
        found = fair_next(&q->ready, 1U << i, may_register, &i);
    return job_of(found);
}

/* NULL: no turn is due. */
static struct scheduler_job *
next_for_device(struct scheduler *q)
{
    struct scheduler_job *holder = rerun_of(q->reruns.begun);

    if (holder)
        return scheduler_waits(holder) && holder->waits_for_device && !q->is_paused ? holder : NULL;
    if (q->reruns.due)
        return NULL;
    if (q->is_paused)
        return next_registration(q);
    return job_of(
        fair_next(&q->ready, 1U << FAIR_INTERACTIVE | 1U << FAIR_BATCH, client_may_have_device, NULL));
}

static bool
has_reference(const struct device_worker *w, const struct scheduler_job *job)
{
    return device_worker_has_reference(w, job->reference);
}

/* Another device worker that holds its reference, one that is free if there is; NULL: none does. */
static const struct device_worker *
where_resident(const struct scheduler *q, const struct device_worker *but, const struct scheduler_job *job)
{
    const struct device_worker *found = NULL;

    for (int i = 0; i < q->n_device_workers; i++) {
        const struct device_worker *w = q->device_workers[i];
        enum device_state state = device_worker_state(w);
        if (w == but || (state != DEVICE_IDLE && state != DEVICE_BUSY) || !has_reference(w, job))
            continue;
        if (state == DEVICE_IDLE)
            return w;
        found = w;
    }
    return found;
}

/*
 * The job that gets the device when `first` is next. NULL: a free device has its reference, and is tried in this round
 * or the next.
 */
static struct scheduler_job *
placed(const struct scheduler *q, const struct device_worker *w, struct scheduler_job *first)
{
    if (q->n_device_workers == 1 || first->is_registration || scheduler_is_isolated(q, first) ||
        has_reference(w, first))
        return first;
    const struct device_worker *where = where_resident(q, w, first);
    if (!where)
        return first;
    if (device_worker_state(where) == DEVICE_IDLE)
        return NULL;
    struct fair_turn *t = first->turn.next;
    for (int i = 0; t && i < LOOK_BEHIND && first->overtaken < OVERTAKEN_MOST; i++, t = t->next)
        if (!t->is_registration && has_reference(w, job_of(t))) {
            first->overtaken++;
            return job_of(t);
        }
    return first;
}

/* True: a job was given the device worker. */
static bool
give(struct scheduler *q, struct device_worker *w)
{
    if (device_worker_state(w) != DEVICE_IDLE)
        return false;
    struct scheduler_job *next = next_for_device(q), *job = next ? placed(q, w, next) : NULL;
    if (!job)
        return false;
    take_device(q, job);
    q->ops->place(q->arg, job, w);
    return true;
}

/* True: a device worker has work that had none, and others may have it for that. */
static bool
give_round(struct scheduler *q)
{
    bool has_given = false;

    for (int i = 0; i < q->n_device_workers && !q->is_draining; i++)
        while (give(q, q->device_workers[i])) {
            has_given = true;
            if (device_worker_state(q->device_workers[i]) != DEVICE_IDLE)
                break;
        }
    return has_given;
}

void
scheduler_kick(struct scheduler *q)
{
    if (q->is_kicking) {
        q->is_kick_due = true;
        return;
    }
    q->is_kicking = true;
    do {
        q->is_kick_due = false;
        while (give_round(q))
            ;
        while (!q->is_draining && !q->is_paused && begin_one(q))
            ;
    } while (q->is_kick_due);
    q->is_kicking = false;
    q->ops->kicked(q->arg);
}
