#include "server/submission/funnel.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/adopt.h"
#include "server/submission/attempt.h"
#include "server/submission/conclude.h"
#include "server/submission/counters.h"
#include "server/submission/driver.h"
#include "server/submission/elsewhere.h"
#include "server/submission/ended.h"
#include "server/submission/group_progress.h"
#include "server/submission/groups.h"
#include "server/submission/node.h"
#include "server/submission/others.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/registry.h"
#include "server/submission/reuse.h"
#include "server/submission/reuse_keys.h"
#include "server/submission/single_flight.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/task/baseline.h"
#include "server/task/calibration.h"
#include "server/task/canaries.h"
#include "server/task/registrar.h"
#include "server/workers/cgroup.h"
#include "server/workers/check.h"
#include "server/workers/devices.h"
#include "server/workers/handle.h"
#include "server/workers/device_worker.h"
#include "server/workers/norms.h"
#include "server/workers/scratch.h"
#include "server/workers/prefork_pool.h"
#include "server/workers/uids.h"
#include "server/workers/zygote.h"

/*
 * The funnel from its start to its end: the parts that it makes, the workers that it starts, the unfinished submissions
 * of the store that it adopts, and how it drains. How a submission comes in is in submit.c. The casts are for the parts
 * that take others to make: the list of them (parts.h) is constant for all other files.
 */

/* --- devices --- */

static void
idle_cb(void *arg, struct device_worker *w)
{
    struct funnel *f = arg;

    (void)w;
    scheduler_kick(f->scheduler);
}

static int
add_device_workers(struct funnel *f, const struct devices *devices, struct error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < devices->n; i++) {
        rc = device_worker_new(f->loop, f->config, f->uids, f->cgroups, f->norms, &devices->all[i], idle_cb,
                               f, (struct device_worker **)&f->device_workers[i], err);
        *(int *)&f->n_device_workers += rc == 0;
    }
    return rc;
}

/* --- taking up what was left --- */

struct recovery {
    struct funnel *funnel;
    int64_t n;
    bool is_short;
};

static bool
recover_cb(void *arg, const struct submission_row *row)
{
    struct recovery *r = arg;
    struct funnel *f = r->funnel;
    struct group *g = groups_find(f->groups, row->group_id);
    struct adopted_group group = { 0 };

    if (*row->group_id && !(g && group_is_configured(g)))
        adopt_read_group(store_reader(f->store), row->group_id, &group);
    struct submission *s = adopt(f, row, &group, false);
    json_decref(group.request);
    bool is_exhausted = row->is_lost && row->attempts >= f->config->max_attempts;
    r->is_short = !s || (is_exhausted && !adopt_give_up(s));
    if (!r->is_short && !is_exhausted)
        reuse_enqueue(s);
    r->n++;
    return !r->is_short;
}

static int
recover(struct funnel *f, struct error *err)
{
    struct recovery r = { .funnel = f };

    int rc = reader_each_unfinished(store_reader(f->store), recover_cb, &r, err);
    if (rc == 0 && r.is_short)
        rc = error_set(err, ERR_NOMEM, "no memory for what the store says is unfinished");
    if (rc != 0)
        return rc;
    if (r.n > 0)
        log_info(NULL, "taking up %lld unfinished submissions", (long long)r.n);
    for (struct registry_entry *e = registry_first(f->registry); e; e = registry_after(e)) {
        struct group *g = scheduler_owner(e, struct submission, entry)->group;
        if (g)
            group_progress_decision(f, g);
    }
    return 0;
}

/* --- the zygotes of the CPU stages --- */

static void
log_absent_layers(json_t *layers)
{
    const char *name;
    json_t *state;

    json_object_foreach(layers, name, state) if (json_is_string(state) &&
                                                 strcmp(json_string_value(state), "on") != 0 &&
                                                 !strstr(json_string_value(state), "not needed"))
        log_warn("sandbox", "%s: %s", name, json_string_value(state));
}

static void
static_zygote_ready_cb(void *arg)
{
    struct funnel *f = arg;

    for (int role = 0; role < CHILD_RUN; role++)
        prefork_pool_fill(f->stage_pools[role], 0); /* nothing happens where its zygote is not ready */
    scheduler_kick(f->scheduler);
}

static void
zygote_ready_cb(void *arg)
{
    struct funnel *f = arg;

    log_absent_layers(json_object_get(json_object_get(zygote_ready_message(f->zygote), "sandbox"), "layers"));
    static_zygote_ready_cb(f);
}

static const struct zygote_ops zygote_ops = { .ready = zygote_ready_cb };
static const struct zygote_ops static_zygote_ops = { .ready = static_zygote_ready_cb };

/* --- life --- */

struct lifetime {
    int scratch_lock; /* keeps other daemons out of the scratch directory */
    bool is_full;     /* its disk, as of the last look */
    struct pending_retry kick;
    uv_timer_t timer; /* the end of a drain's grace, and then of its patience */
    int workers;      /* that are being stopped */
    void (*done_cb)(void *arg);
    void *arg;
};

static struct lifetime *
lifetime_new(uv_loop_t *loop, struct funnel *f)
{
    struct lifetime *l = calloc(1, sizeof(*l));

    if (l) {
        uv_timer_init(loop, &l->timer);
        l->timer.data = f;
        l->scratch_lock = -1;
    }
    return l;
}

static void check_drained(void *arg);

static int
make_stage_pool(struct funnel *f, enum child_role role, int64_t slots, struct error *err)
{
    int64_t most = f->config->stage_pool < slots ? f->config->stage_pool : slots;
    const struct prefork_rules rules = { .most = most };

    return prefork_pool_new(f->loop, child_role_name(role), funnel_zygote_of(f, role), role, &rules,
                            (struct prefork_pool **)&f->stage_pools[role], err);
}

/* --- what the scheduler decides --- */

static void
kick_cb(void *arg)
{
    struct funnel *f = arg;

    scheduler_kick(f->scheduler);
}

/* A candidate would fail for it. */
static bool
has_disk(struct funnel *f)
{
    const char *trouble = scratch_trouble(f->config->scratch);

    if (trouble && !f->lifetime->is_full)
        log_error(NULL, "%s: %s: nothing begins", f->config->scratch, trouble);
    f->lifetime->is_full = trouble != NULL;
    if (trouble)
        pending_retry(f->pending, &f->lifetime->kick, kick_cb, f);
    return !trouble;
}

static bool
has_cpu(void *arg)
{
    struct funnel *f = arg;

    return zygotes_are_ready(f) && !node_is_ahead(f->node) && has_disk(f);
}

static enum scheduler_prepared
prepare(void *arg, struct scheduler_job *job)
{
    struct funnel *f = arg;
    struct submission *s = scheduler_owner(job, struct submission, job);

    if (reuse_asks(s))
        return SCHEDULER_LEAVES;
    if (submission_make_attempt(s))
        return SCHEDULER_BEGIN;
    log_warn(s->id, "no memory to judge it: it waits");
    pending_retry(f->pending, &f->lifetime->kick, kick_cb, f);
    return SCHEDULER_WAIT;
}

static void
begin(void *arg, struct scheduler_job *job)
{
    (void)arg;
    driver_begin(scheduler_owner(job, struct submission, job));
}

static void
place(void *arg, struct scheduler_job *job, struct device_worker *w)
{
    (void)arg;
    if (job->is_registration)
        task_give_device_worker(w, job);
    else
        driver_place(scheduler_owner(job, struct submission, job), w);
}

static void
kicked(void *arg)
{
    struct funnel *f = arg;

    counters_touch(f->counters); /* the caller changed something that is counted */
    pending_check(f->pending);
}

static const struct scheduler_ops scheduler_ops = { has_cpu, prepare, begin, place, kicked };

static bool
judges_nothing(const struct config *config)
{
    return config->paused || config_has_role(config, "http");
}

static int
start_workers(struct funnel *f, struct error *err)
{
    static const struct device anywhere = { "cpu", "" };
    struct devices devices;

    int rc = devices_find(f->config, &devices, err);
    if (rc == 0)
        rc = devices_stay_off(&devices, err);
    int64_t slots = f->config->cpu_jobs > 0 ? f->config->cpu_jobs : CPU_COUNT(&devices.rest);
    if (rc == 0)
        rc = zygote_new(f->loop, f->config, f->uids, f->cgroups, "compile zygote", "compile", &anywhere,
                        &zygote_ops, f, (struct zygote **)&f->zygote, err);
    if (rc == 0)
        rc = zygote_new(f->loop, f->config, f->uids, f->cgroups, "static zygote", "static", &anywhere,
                        &static_zygote_ops, f, (struct zygote **)&f->static_zygote, err);
    for (int role = 0; role < CHILD_RUN && rc == 0; role++)
        rc = make_stage_pool(f, (enum child_role)role, slots, err);
    if (rc == 0)
        rc = add_device_workers(f, &devices, err);
    if (rc == 0 && !(*(struct scheduler **)&f->scheduler =
                         scheduler_new(slots, f->device_workers, f->n_device_workers, &scheduler_ops, f)))
        rc = error_set(err, ERR_NOMEM, "no memory for the scheduler");
    if (rc == 0) {
        scheduler_pause(f->scheduler, judges_nothing(f->config));
        process_start(zygote_process(f->static_zygote));
        process_start(zygote_process(f->zygote));
    }
    return rc;
}

/* False: no memory. */
static bool
make_parts(struct funnel *f, uv_loop_t *loop, const struct config *config, struct store *store)
{
    const struct funnel made = {
        .loop = loop,
        .config = config,
        .store = store,
        .registry = registry_new(),
        .elsewhere = elsewhere_new(loop, store, others_seen_cb, f),
        .groups = groups_new(loop, group_progress_deadline_cb, f),
        .registrar = registrar_new(),
        .calibrations = calibrations_new(),
        .baselines = baselines_new(),
        .reuse = reuse_new(),
        .flight = flight_new(),
        .reuse_keys = reuse_keys_new(config->harness),
        .clients = clients_new(),
        .counters = counters_new(),
        .pending = pending_new(loop, check_drained, f),
        .lifetime = lifetime_new(loop, f),
        .follower = follower_new(),
        .begin = driver_begin,
        .ended = submission_ended,
        .taken = others_take,
    };

    memcpy(f, &made, sizeof(made));
    return f->registry && f->elsewhere && f->groups && f->registrar && f->calibrations && f->baselines &&
           f->reuse && f->flight && f->reuse_keys && f->clients && f->counters && f->pending && f->lifetime &&
           f->follower;
}

static int
start(struct funnel *f, struct error *err)
{
    int rc = scratch_prepare(f->config->scratch, &f->lifetime->scratch_lock, err);
    if (rc == 0)
        rc = uids_new(f->config->uid_first, f->config->uid_count, (struct uids **)&f->uids, err);
    if (rc == 0)
        rc = cgroups_open(f->config->cgroup, (struct cgroups **)&f->cgroups, err);
    if (rc == 0)
        rc = cgroups_check(f->config->sandbox_require, f->cgroups, err);
    if (rc == 0)
        rc = canaries_load(f, (struct norms **)&f->norms, err);
    if (rc == 0)
        rc = start_workers(f, err);
    if (rc == 0)
        rc = reader_each_calibration(store_reader(f->store), calibrations_add_cb, f->calibrations, err);
    clients_configure(f->clients, f->config->quotas);
    if (rc == 0)
        rc = clients_restore(f->clients, f->store, err);
    if (rc == 0 && !(*(struct node **)&f->node = node_new(f)))
        rc = error_set(err, ERR_NOMEM, "no memory for the node");
    if (rc == 0 &&
        store_lease_ms(f->store) == STORE_LEASE_ENDLESS) /* else it claims what waits, as other nodes do */
        rc = recover(f, err);
    return rc;
}

int
funnel_new(uv_loop_t *loop, const struct config *config, struct store *store, struct funnel **out,
           struct error *err)
{
    struct funnel *f = calloc(1, sizeof(*f));

    *out = NULL;
    /* On failure the process ends: what was started dies with its channels. */
    if (!f || !make_parts(f, loop, config, store))
        return error_set(err, ERR_NOMEM, "no memory for the funnel");
    int rc = start(f, err);
    if (rc == 0)
        *out = f;
    return rc;
}

void
funnel_free(struct funnel *f)
{
    if (!f)
        return;
    assert(pending_is(f->pending, PENDING_STOPPED));
    for (struct registry_entry *e = registry_first(f->registry), *next; e; e = next) {
        struct submission *s = scheduler_owner(e, struct submission, entry);
        next = registry_after(e);
        registry_remove(f->registry, &s->entry);
        flight_land(f->flight, &s->flight);
        attempt_free(f, s->attempt);
        free(s);
    }
    free(f->registry);
    free(f->flight);
    elsewhere_free(f->elsewhere);
    node_free(f->node);
    groups_free(f->groups);
    scheduler_free(f->scheduler);
    clients_free(f->clients);
    free(f->follower);
    free(f->reuse);
    reuse_keys_free(f->reuse_keys);
    free(f->counters);
    registrar_free(f->registrar);
    pending_free(f->pending);
    calibrations_free(f->calibrations);
    baselines_free(f->baselines);
    for (int role = 0; role < CHILD_RUN; role++)
        prefork_pool_free(f->stage_pools[role]);
    zygote_free(f->static_zygote);
    zygote_free(f->zygote);
    for (int i = 0; i < f->n_device_workers; i++)
        device_worker_free(f->device_workers[i]);
    norms_free(f->norms);
    uids_free(f->uids);
    cgroups_free(f->cgroups);
    if (f->lifetime->scratch_lock >= 0)
        close(f->lifetime->scratch_lock);
    f->lifetime->timer.data = f->lifetime;
    uv_close((uv_handle_t *)&f->lifetime->timer, handle_free_cb);
    free(f);
}

void
funnel_reload(struct funnel *f)
{
    clients_configure(f->clients, f->config->quotas);
    scheduler_pause(f->scheduler, judges_nothing(f->config));
    reuse_keys_forget(f->reuse_keys);
    for (int i = 0; i < f->n_device_workers; i++)
        device_worker_reconfigured(f->device_workers[i]);
    scheduler_kick(f->scheduler);
}

/* --- draining --- */

#define FORCE_MS 5000 /* from the end of the grace to that of the workers, also of busy ones */

/* The slots of those that have no process yet, as they wait for the store: its answer releases them (driver.c). */
static int64_t
slots_before_processes(const struct funnel *f)
{
    int64_t n = 0;

    for (struct registry_entry *e = registry_first(f->registry); e; e = registry_after(e)) {
        const struct submission *s = scheduler_owner(e, struct submission, entry);
        n += s->job.has_slot && s->is_claiming;
    }
    return n;
}

/*
 * Nothing runs any more, also no work without a process, such as a write of a cache to the disk. A database that is
 * away is not waited for: the last writes fail or are made when all has stopped (main.c).
 */
static void
check_stopped(struct funnel *f)
{
    struct scheduler_counts n;

    scheduler_count(f->scheduler, &n);
    if (pending_is(f->pending, PENDING_STOPPED) || f->lifetime->workers > 0 ||
        n.cpu_running > slots_before_processes(f) || pending_in_pool(f->pending) > 0)
        return;
    pending_enter(f->pending, PENDING_STOPPED);
    f->lifetime->done_cb(f->lifetime->arg);
}

static void
worker_stopped_cb(void *arg)
{
    struct funnel *f = arg;

    f->lifetime->workers--;
    check_stopped(f);
}

static void
stop_workers(struct funnel *f)
{
    pending_enter(f->pending, PENDING_STOPPING);
    f->lifetime->workers = f->n_device_workers + 2;
    uv_timer_stop(&f->lifetime->timer);
    for (int i = 0; i < f->n_device_workers; i++)
        device_worker_stop(f->device_workers[i], worker_stopped_cb);
    process_stop(zygote_process(f->static_zygote), worker_stopped_cb, f);
    process_stop(zygote_process(f->zygote), worker_stopped_cb, f);
}

/* Nothing runs and nothing is being written: the workers can go. */
static void
check_drained(void *arg)
{
    struct funnel *f = arg;
    struct scheduler_counts n;

    scheduler_count(f->scheduler, &n);
    if (pending_is(f->pending, PENDING_STOPPING))
        check_stopped(f);
    else if (pending_is_draining(f->pending) && n.cpu_running == 0 && n.gpu_running == 0 &&
             pending_writes(f->pending) == 0 && registrar_registering(f->registrar) == 0)
        stop_workers(f);
}

static void
force_timer_cb(uv_timer_t *timer)
{
    struct funnel *f = timer->data;
    struct scheduler_counts n;

    scheduler_count(f->scheduler, &n);
    log_warn(NULL, "%lld CPU slots, %lld devices and %lld writes are still busy: stopping all the same",
             (long long)n.cpu_running, (long long)n.gpu_running, (long long)pending_writes(f->pending));
    stop_workers(f);
}

/* A running submission goes back to the queue; if the store refuses, it stays "running" there, and is begun again. */
static void
drain_timer_cb(uv_timer_t *timer)
{
    struct funnel *f = timer->data;

    for (struct registry_entry *e = registry_first(f->registry), *next; e; e = next) {
        struct submission *s = scheduler_owner(e, struct submission, entry);
        next = registry_after(e);
        s->is_returned = s->is_claiming; /* as soon as it has begun */
        if (stage_of_state(s->state) < 0 || !s->attempt || s->attempt->is_finishing)
            continue;
        s->is_returned = true;
        submission_stop(s);
    }
    check_drained(f);
    if (pending_is(f->pending, PENDING_STOPPING))
        return;
    if (registrar_registering(f->registrar) > 0)
        stop_workers(f);
    else
        uv_timer_start(timer, force_timer_cb, FORCE_MS, 0);
}

/* No device is assigned any more, and what is claimed and has not begun is released to other nodes at once. */
static void
return_waiting(struct funnel *f)
{
    for (struct registry_entry *e = registry_first(f->registry); e; e = registry_after(e)) {
        struct submission *s = scheduler_owner(e, struct submission, entry);
        if (s->state == STATE_READY && (s->member.is_parked || scheduler_waits(&s->job))) {
            submission_leave_queue(s);
            submission_return(s, true);
        } else if (s->is_claimed && s->state == STATE_QUEUED && !s->is_claiming) {
            submission_release(s);
        }
    }
}

void
funnel_drain(struct funnel *f, int64_t grace_ms, void (*cb)(void *arg), void *arg)
{
    f->lifetime->done_cb = cb;
    f->lifetime->arg = arg;
    if (pending_is(f->pending, PENDING_STOPPED)) {
        cb(arg);
        return;
    }
    pending_enter(f->pending, PENDING_DRAINING);
    node_drain(f->node);
    scheduler_drain(f->scheduler);
    if (pending_is(f->pending, PENDING_STOPPING))
        return;
    task_refuse_all(f);
    uv_timer_start(&f->lifetime->timer, drain_timer_cb, (uint64_t)(grace_ms > 0 ? grace_ms : 0), 0);
    return_waiting(f);
    check_drained(f);
}
