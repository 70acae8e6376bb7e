#include "server/workers/lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "server/workers/canary.h"
#include "server/workers/gpu_child.h"
#include "server/workers/referee.h"

/*
 * Theory of operation. A lane is up when its zygote and its referee both are;
 * when either dies, the job is lost, the other is killed too, and both begin
 * afresh: what one knows of the other's children would be stale.
 *
 * It has four parts, which do not know each other's insides and do not know the
 * lane: the referee (referee.c), the children of the run zygote (gpu_child.c),
 * the job (job.c) and the canary (canary.c). They report here through their ops,
 * and whatever they report leads to pump(), which does what can be done now.
 */

struct lane {
    const struct config *config;
    struct device device;
    lane_idle_cb *idle;
    void *arg;
    struct zygote *zygote;
    struct referee *referee;
    struct gpu_children *children;
    struct job *job;
    struct canary *canary;
    enum lane_state state;
    bool is_stopping;
    void (*stopped_cb)(void *arg);
    int stopped;
    uv_timer_t look_timer; /* the next canary by time */
};

const char *
lane_state_name(enum lane_state state)
{
    static const char *const names[] = { "starting", "checking", "idle", "busy", "quarantined", "stopped" };
    _Static_assert(ARRAY_LEN(names) == LANE_NSTATES, "name every state");
    return names[state];
}

static void
pump(struct lane *l)
{
    if (l->state == LANE_CHECKING)
        canary_pump(l->canary, gpu_children_are_quiet(l->children));
    if (l->state != LANE_BUSY && l->state != LANE_IDLE)
        return;
    job_pump(l->job);
    if ((l->state == LANE_BUSY || l->state == LANE_IDLE) && job_allows_making(l->job))
        gpu_children_fill(l->children, job_wants_children(l->job));
}

/* --- the canary, at its time --- */

static void
check(struct lane *l)
{
    l->state = LANE_CHECKING;
    canary_begin(l->canary);
    pump(l);
}

static void look_timer_cb(uv_timer_t *timer);

static void
schedule(struct lane *l)
{
    int64_t ms = l->state == LANE_QUARANTINED ? canary_again_ms(l->canary)
                 : l->state == LANE_IDLE      ? canary_due_ms(l->canary)
                                              : -1;

    uv_timer_stop(&l->look_timer);
    if (ms >= 0)
        uv_timer_start(&l->look_timer, look_timer_cb, (uint64_t)ms, 0);
}

static void
look_timer_cb(uv_timer_t *timer)
{
    struct lane *l = timer->data;

    lane_look_again(l);
    if (l->state == LANE_IDLE && canary_due_ms(l->canary) == 0)
        check(l);
    else
        schedule(l);
}

void
lane_look_again(struct lane *l)
{
    if (l->state == LANE_QUARANTINED && canary_is_slow_only(l->canary))
        referee_kill(l->referee, "its device is quarantined, and looked at again");
}

void
lane_reconfigured(struct lane *l)
{
    schedule(l);
}

/* Its owner may give it a job now. */
static void
become_idle(struct lane *l)
{
    if (canary_due_ms(l->canary) == 0) {
        check(l);
        return;
    }
    l->state = LANE_IDLE;
    schedule(l);
    pump(l);
    if (l->state == LANE_IDLE)
        l->idle(l->arg, l);
}

static void
canary_cb(void *arg, const json_t *body)
{
    struct lane *l = arg;

    switch (l->state == LANE_CHECKING ? canary_answered(l->canary, body) : CANARY_NOT_ASKED) {
    case CANARY_NOT_ASKED:
        break;
    case CANARY_PASSED:
        become_idle(l);
        break;
    case CANARY_AGAIN:
        check(l);
        break;
    case CANARY_RESTART:
        referee_kill(l->referee, "the canary failed twice");
        break;
    case CANARY_QUARANTINE:
        l->state = LANE_QUARANTINED;
        schedule(l);
        break;
    }
}

/* --- up and down --- */

static void
became_ready(struct lane *l)
{
    if (l->state == LANE_STARTING && zygote_is_ready(l->zygote) &&
        process_state(referee_process(l->referee)) == PROCESS_READY)
        check(l);
}

/* Either worker is gone, and with it what the other knew; why: how, for the owner of the job that is lost. */
static void
went_down(struct lane *l, const char *why)
{
    bool is_others = gpu_children_take_stuck(l->children) || zygote_was_killed(l->zygote) ||
                     process_was_killed(referee_process(l->referee));

    if (l->state == LANE_STARTING || l->state == LANE_STOPPED)
        return;
    l->state = LANE_STARTING;
    canary_abandon(l->canary);
    uv_timer_stop(&l->look_timer);
    if (!l->is_stopping) {
        zygote_kill(l->zygote, "started again with its referee");
        referee_kill(l->referee, "started again with its zygote");
    }
    gpu_children_abandon(l->children);
    job_lose(l->job, why, is_others);
}

static void
zygote_ready_cb(void *arg)
{
    became_ready(arg);
}

static void
zygote_down_cb(void *arg, const char *why)
{
    went_down(arg, why);
}

static const struct zygote_ops zygote_ops = { zygote_ready_cb, zygote_down_cb };

/* --- what its parts report --- */

static void
referee_ready_cb(void *arg)
{
    became_ready(arg);
}

static void
referee_down_cb(void *arg, const char *why)
{
    went_down(arg, why);
}

static void
child_ready_cb(void *arg, const char *child)
{
    struct lane *l = arg;
    gpu_children_became_ready(l->children, child);
}

static void
child_gone_cb(void *arg, const char *child)
{
    struct lane *l = arg;
    gpu_children_went(l->children, child);
}

static void
report_cb(void *arg, const char *job, struct lane_report *report)
{
    struct lane *l = arg;

    job_reported(l->job, job, report);
    pump(l);
}

static void
registered_cb(void *arg, const char *job, const struct buffer *spec, json_t *error)
{
    struct lane *l = arg;

    job_registered(l->job, job, spec, error);
    pump(l);
}

static const struct referee_ops referee_ops = { .ready = referee_ready_cb,
                                                .down = referee_down_cb,
                                                .child_ready = child_ready_cb,
                                                .child_gone = child_gone_cb,
                                                .report = report_cb,
                                                .registered = registered_cb,
                                                .canary = canary_cb };

static bool
child_ended_cb(void *arg, const struct gpu_child *c)
{
    struct lane *l = arg;
    return job_child_ended(l->job, c);
}

static void
children_changed_cb(void *arg)
{
    pump(arg);
}

static const struct gpu_children_ops children_ops = { child_ended_cb, children_changed_cb };

static void
job_over_cb(void *arg, bool needs_canary)
{
    struct lane *l = arg;

    if (l->state != LANE_BUSY)
        return;
    gpu_children_evict(l->children);
    if (needs_canary)
        check(l);
    else
        become_idle(l);
}

/* --- its life --- */

static int
make_parts(struct lane *l, uv_loop_t *loop, struct uids *uids, struct cgroups *cgroups, struct error *err)
{
    const struct config *config = l->config;
    const char *device = l->device.name;
    char name[64];

    snprintf(name, sizeof(name), "run zygote %s", device);
    int rc =
        zygote_new(loop, config, uids, cgroups, name, "run", &l->device, &zygote_ops, l, &l->zygote, err);
    if (rc == 0)
        rc = referee_new(loop, config, &l->device, &referee_ops, l, &l->referee, err);
    if (rc == 0)
        rc = gpu_children_new(loop, config, device, l->zygote, l->referee, &children_ops, l, &l->children,
                              err);
    if (rc == 0)
        rc = job_new(loop, config, l->referee, l->children, job_over_cb, l, &l->job, err);
    if (rc == 0)
        rc = canary_new(loop, config, device, l->referee, &l->canary, err);
    return rc;
}

int
lane_new(uv_loop_t *loop, const struct config *config, struct uids *uids, struct cgroups *cgroups,
         const struct device *device, lane_idle_cb *idle, void *arg, struct lane **out, struct error *err)
{
    struct lane *l = calloc(1, sizeof(*l));

    *out = NULL;
    if (!l)
        return error_set(err, ERR_NOMEM, "no memory for device %s", device->name);
    *l = (struct lane){ .config = config, .device = *device, .idle = idle, .arg = arg };
    uv_timer_init(loop, &l->look_timer);
    l->look_timer.data = l;
    int rc = make_parts(l, loop, uids, cgroups, err);
    if (rc != 0) {
        lane_free(l);
        return rc;
    }
    *out = l;
    zygote_start(l->zygote);
    process_start(referee_process(l->referee));
    return 0;
}

static void
worker_stopped_cb(void *arg)
{
    struct lane *l = arg;
    if (++l->stopped == 2 && l->stopped_cb)
        l->stopped_cb(l->arg);
}

void
lane_stop(struct lane *l, void (*stopped_cb)(void *arg))
{
    if (l->is_stopping)
        return;
    l->is_stopping = true;
    l->stopped_cb = stopped_cb;
    went_down(l, "the daemon stops");
    l->state = LANE_STOPPED;
    zygote_stop(l->zygote, worker_stopped_cb);
    referee_stop(l->referee, worker_stopped_cb);
}

static void
closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

void
lane_free(struct lane *l)
{
    if (!l)
        return;
    canary_free(l->canary);
    job_free(l->job);
    gpu_children_free(l->children);
    zygote_free(l->zygote);
    referee_free(l->referee);
    uv_close((uv_handle_t *)&l->look_timer, closed_cb);
}

/* --- what its owner wants --- */

static int
refuse(const struct lane *l, struct error *err)
{
    return error_set(err, ERR_UNAVAILABLE, "%s is %s", l->device.name, lane_state_name(l->state));
}

static void
begin(struct lane *l)
{
    l->state = LANE_BUSY;
    pump(l);
}

int
lane_open(struct lane *l, const struct lane_submission *s, const struct lane_job_ops *ops, void *arg,
          struct error *err)
{
    int rc = l->state == LANE_IDLE ? job_open(l->job, s, ops, arg, err) : refuse(l, err);

    if (rc == 0)
        begin(l);
    return rc;
}

int
lane_register(struct lane *l, const struct lane_registration *r, lane_registered_cb *cb, void *arg,
              struct error *err)
{
    int rc = l->state == LANE_IDLE ? job_register(l->job, r, cb, arg, err) : refuse(l, err);

    if (rc == 0)
        begin(l);
    return rc;
}

void
lane_stage(struct lane *l, const char *stage, bool wants_evidence, int64_t limit_ms)
{
    job_stage(l->job, stage, wants_evidence, limit_ms);
    pump(l);
}

void
lane_reopen(struct lane *l)
{
    job_reopen(l->job);
    pump(l);
}

void
lane_reopen_compiled(struct lane *l, json_t *policy)
{
    job_reopen_compiled(l->job, policy);
    pump(l);
}

void
lane_close(struct lane *l)
{
    job_close(l->job);
    pump(l);
}

/* --- looking --- */

enum lane_state
lane_state(const struct lane *l)
{
    return l->state;
}

const char *
lane_device(const struct lane *l)
{
    return l->device.name;
}

bool
lane_is_gpu(const struct lane *l)
{
    return strncmp(l->device.name, "cuda", 4) == 0;
}

bool
lane_has_reference(const struct lane *l, const char *task_id)
{
    return gpu_children_reference(l->children, task_id) != NULL;
}

json_t *
lane_gpu(const struct lane *l)
{
    return referee_gpu(l->referee);
}

json_t *
lane_versions(const struct lane *l)
{
    return json_object_get(zygote_ready_message(l->zygote), "versions");
}

bool
lane_is_doubted(const struct lane *l)
{
    return canary_is_suspect(l->canary);
}

void
lane_use_norms(struct lane *l, struct norms *norms)
{
    canary_use_norms(l->canary, norms);
}

int64_t
lane_drifts(const struct lane *l)
{
    return canary_drifts(l->canary) + job_drifts(l->job);
}

const struct zygote *
lane_zygote(const struct lane *l)
{
    return l->zygote;
}

json_t *
lane_sandbox(const struct lane *l)
{
    return json_object_get(json_object_get(zygote_ready_message(l->zygote), "sandbox"), "layers");
}

static json_t *
referee_json(const struct lane *l)
{
    const struct process *p = referee_process(l->referee);
    const struct gpu_children *all = l->children;
    const char *device = l->device.name, *why = process_why(p);
    int pid = process_pid(p);

    return json_pack(
        "{s:s+, s:s, s:s, s:o, s:s, s:I, s:s?, s:s, s:{s:i, s:i, s:i}, s:o, s:{s:i, s:I, s:I, s:I, s:I, "
        "s:I}, s:o}",
        "name", "referee ", device, "kind", "referee", "device", device, "pid",
        pid ? json_integer(pid) : json_null(), "state", process_state_name(process_state(p)), "starts",
        (json_int_t)process_starts(p), "why", *why ? why : NULL, "lane", lane_state_name(l->state),
        "children", "ready", gpu_children_count(all, GPU_CHILD_POOL, true), "references",
        gpu_children_count(all, GPU_CHILD_REFERENCE, false), "candidates",
        gpu_children_count(all, GPU_CHILD_CANDIDATE, false), "pool",
        gpu_children_pool_json(all, job_waited_s(l->job)), "references", "kept",
        gpu_children_count(all, GPU_CHILD_REFERENCE, false), "most", (json_int_t)l->config->references_kept,
        "hits", (json_int_t)job_reference_hits(l->job), "loads", (json_int_t)gpu_children_loads(all),
        "evicted", (json_int_t)gpu_children_evicted(all), "recalled",
        (json_int_t)referee_recalled(l->referee), "canary", canary_json(l->canary));
}

void
lane_status(const struct lane *l, json_t *workers, json_t *gpus)
{
    json_array_append_new(workers, zygote_status(l->zygote));
    json_array_append_new(workers, referee_json(l));
    if (!lane_gpu(l))
        return;
    json_t *gpu = json_copy(lane_gpu(l)), *seen = referee_seen(l->referee);
    json_object_set_new(gpu, "canary", canary_json(l->canary));
    json_object_set_new(gpu, "device", json_string(l->device.name));
    json_object_set_new(gpu, "state", json_string(lane_state_name(l->state)));
    json_object_set_new(gpu, "seen", seen ? json_incref(seen) : json_null());
    json_array_append_new(gpus, gpu);
}
