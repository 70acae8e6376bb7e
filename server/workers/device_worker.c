#include "server/workers/device_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "server/workers/canary.h"
#include "server/workers/gpu_child.h"
#include "server/workers/handle.h"
#include "server/workers/referee.h"

/*
 * Theory of operation. A device worker is up when its zygote and its referee both are; when either ends, the job is
 * lost, the other is killed too, and both are started anew: the state that one has of the other's children would be
 * stale.
 *
 * It has four parts, which use neither each other's internals nor the device worker: the referee (referee.c), the
 * children of the run zygote (gpu_child.c), the job (job.c) and the canary (canary.c). They report here through their
 * ops, and each report leads to pump(), which does what can be done now.
 */

struct device_worker {
    const struct config *config;
    struct device device;
    device_worker_idle_cb *idle;
    void *arg;
    struct zygote *zygote;
    struct referee *referee;
    struct gpu_children *children;
    struct job *job;
    struct canary *canary;
    enum device_state state;
    bool is_stopping;
    void (*stopped_cb)(void *arg);
    int stopped;
    uv_timer_t look_timer; /* the next canary by time */
};

const char *
device_state_name(enum device_state state)
{
    static const char *const names[] = { "starting", "checking", "idle", "busy", "quarantined", "stopped" };
    _Static_assert(ARRAY_LEN(names) == DEVICE_NSTATES, "name every state");
    return names[state];
}

static void
pump(struct device_worker *w)
{
    if (w->state == DEVICE_CHECKING)
        canary_pump(w->canary, gpu_children_are_quiet(w->children));
    if (w->state != DEVICE_BUSY && w->state != DEVICE_IDLE)
        return;
    job_pump(w->job);
    if ((w->state == DEVICE_BUSY || w->state == DEVICE_IDLE) && job_allows_making(w->job))
        gpu_children_fill(w->children, job_wants_children(w->job));
}

/* --- the canary, at its time --- */

static void
check(struct device_worker *w)
{
    w->state = DEVICE_CHECKING;
    canary_begin(w->canary);
    pump(w);
}

static void look_timer_cb(uv_timer_t *timer);

static void
schedule(struct device_worker *w)
{
    int64_t ms = w->state == DEVICE_QUARANTINED ? canary_again_ms(w->canary)
                 : w->state == DEVICE_IDLE      ? canary_due_ms(w->canary)
                                                : -1;

    uv_timer_stop(&w->look_timer);
    if (ms >= 0)
        uv_timer_start(&w->look_timer, look_timer_cb, (uint64_t)ms, 0);
}

static void
look_timer_cb(uv_timer_t *timer)
{
    struct device_worker *w = timer->data;

    device_worker_look_again(w);
    if (w->state == DEVICE_IDLE && canary_due_ms(w->canary) == 0)
        check(w);
    else
        schedule(w);
}

void
device_worker_look_again(struct device_worker *w)
{
    if (w->state == DEVICE_QUARANTINED && canary_is_slow_only(w->canary))
        referee_kill(w->referee, "its device is quarantined, and looked at again");
}

void
device_worker_reconfigured(struct device_worker *w)
{
    schedule(w);
}

/* Its owner may give it a job now. */
static void
become_idle(struct device_worker *w)
{
    if (canary_due_ms(w->canary) == 0) {
        check(w);
        return;
    }
    w->state = DEVICE_IDLE;
    schedule(w);
    pump(w);
    if (w->state == DEVICE_IDLE)
        w->idle(w->arg, w);
}

static void
canary_cb(void *arg, const json_t *body)
{
    struct device_worker *w = arg;

    switch (w->state == DEVICE_CHECKING ? canary_answered(w->canary, body) : CANARY_NOT_ASKED) {
    case CANARY_NOT_ASKED:
        break;
    case CANARY_PASSED:
        become_idle(w);
        break;
    case CANARY_AGAIN:
        check(w);
        break;
    case CANARY_RESTART:
        referee_kill(w->referee, "the canary failed twice");
        break;
    case CANARY_QUARANTINE:
        w->state = DEVICE_QUARANTINED;
        schedule(w);
        break;
    }
}

/* --- up and down --- */

static void
became_ready_cb(void *arg)
{
    struct device_worker *w = arg;

    if (w->state == DEVICE_STARTING && zygote_is_ready(w->zygote) &&
        process_state(referee_process(w->referee)) == PROCESS_READY)
        check(w);
}

/* Either worker is gone, and with it what the other knew; why: how, for the owner of the job that is lost. */
static void
went_down_cb(void *arg, const char *why)
{
    struct device_worker *w = arg;
    bool is_others = gpu_children_take_stuck(w->children) || process_was_killed(zygote_process(w->zygote)) ||
                     process_was_killed(referee_process(w->referee));

    if (w->state == DEVICE_STARTING || w->state == DEVICE_STOPPED)
        return;
    w->state = DEVICE_STARTING;
    canary_abandon(w->canary);
    uv_timer_stop(&w->look_timer);
    if (!w->is_stopping) {
        process_kill(zygote_process(w->zygote), "started again with its referee");
        referee_kill(w->referee, "started again with its zygote");
    }
    gpu_children_abandon(w->children);
    job_lose(w->job, why, is_others);
}

static const struct zygote_ops zygote_ops = { became_ready_cb, went_down_cb };

/* --- what its parts report --- */

static void
child_ready_cb(void *arg, const char *child)
{
    struct device_worker *w = arg;
    gpu_children_became_ready(w->children, child);
}

static void
child_gone_cb(void *arg, const char *child)
{
    struct device_worker *w = arg;
    gpu_children_went(w->children, child);
}

static void
report_cb(void *arg, const char *job, struct stage_report *report)
{
    struct device_worker *w = arg;

    job_reported(w->job, job, report);
    pump(w);
}

static void
registered_cb(void *arg, const char *job, const struct buffer *spec, json_t *error)
{
    struct device_worker *w = arg;

    job_registered(w->job, job, spec, error);
    pump(w);
}

static const struct referee_ops referee_ops = { .ready = became_ready_cb,
                                                .down = went_down_cb,
                                                .child_ready = child_ready_cb,
                                                .child_gone = child_gone_cb,
                                                .report = report_cb,
                                                .registered = registered_cb,
                                                .canary = canary_cb };

static bool
child_ended_cb(void *arg, const struct gpu_child *c)
{
    struct device_worker *w = arg;
    return job_child_ended(w->job, c);
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
    struct device_worker *w = arg;

    if (w->state != DEVICE_BUSY)
        return;
    gpu_children_evict(w->children);
    if (needs_canary)
        check(w);
    else
        become_idle(w);
}

/* --- its life --- */

static int
make_parts(struct device_worker *w, uv_loop_t *loop, struct uids *uids, struct cgroups *cgroups,
           struct norms *norms, struct error *err)
{
    const struct config *config = w->config;
    const char *device = w->device.name;
    char name[64];

    snprintf(name, sizeof(name), "run zygote %s", device);
    int rc =
        zygote_new(loop, config, uids, cgroups, name, "run", &w->device, &zygote_ops, w, &w->zygote, err);
    if (rc == 0)
        rc = referee_new(loop, config, &w->device, &referee_ops, w, &w->referee, err);
    if (rc == 0)
        rc = gpu_children_new(loop, config, device, w->zygote, w->referee, &children_ops, w, &w->children,
                              err);
    if (rc == 0)
        rc = job_new(loop, config, w->referee, w->children, job_over_cb, w, &w->job, err);
    if (rc == 0)
        rc = canary_new(loop, config, device, w->referee, norms, &w->canary, err);
    return rc;
}

int
device_worker_new(uv_loop_t *loop, const struct config *config, struct uids *uids, struct cgroups *cgroups,
                  struct norms *norms, const struct device *device, device_worker_idle_cb *idle, void *arg,
                  struct device_worker **out, struct error *err)
{
    struct device_worker *w = calloc(1, sizeof(*w));

    *out = NULL;
    if (!w)
        return error_set(err, ERR_NOMEM, "no memory for device %s", device->name);
    *w = (struct device_worker){ .config = config, .device = *device, .idle = idle, .arg = arg };
    uv_timer_init(loop, &w->look_timer);
    w->look_timer.data = w;
    int rc = make_parts(w, loop, uids, cgroups, norms, err);
    if (rc != 0) {
        device_worker_free(w);
        return rc;
    }
    *out = w;
    process_start(zygote_process(w->zygote));
    process_start(referee_process(w->referee));
    return 0;
}

static void
worker_stopped_cb(void *arg)
{
    struct device_worker *w = arg;
    if (++w->stopped == 2 && w->stopped_cb)
        w->stopped_cb(w->arg);
}

void
device_worker_stop(struct device_worker *w, void (*stopped_cb)(void *arg))
{
    if (w->is_stopping)
        return;
    w->is_stopping = true;
    w->stopped_cb = stopped_cb;
    went_down_cb(w, "the daemon stops");
    w->state = DEVICE_STOPPED;
    process_stop(zygote_process(w->zygote), worker_stopped_cb, w);
    process_stop(referee_process(w->referee), worker_stopped_cb, w);
}

void
device_worker_free(struct device_worker *w)
{
    if (!w)
        return;
    canary_free(w->canary);
    job_free(w->job);
    gpu_children_free(w->children);
    zygote_free(w->zygote);
    referee_free(w->referee);
    uv_close((uv_handle_t *)&w->look_timer, handle_free_cb);
}

/* --- what its owner wants --- */

/* False, with err: it takes no job. */
static bool
is_idle(const struct device_worker *w, struct error *err)
{
    if (w->state != DEVICE_IDLE)
        error_set(err, ERR_UNAVAILABLE, "%s is %s", w->device.name, device_state_name(w->state));
    return w->state == DEVICE_IDLE;
}

static int
begin(struct device_worker *w)
{
    w->state = DEVICE_BUSY;
    pump(w);
    return 0;
}

int
device_worker_open(struct device_worker *w, const struct job_submission *s, const struct job_ops *ops,
                   void *arg, struct error *err)
{
    if (!is_idle(w, err))
        return ERR_UNAVAILABLE;
    job_open(w->job, s, ops, arg);
    return begin(w);
}

int
device_worker_register(struct device_worker *w, const struct job_registration *r, job_registered_cb *cb,
                       void *arg, struct error *err)
{
    if (!is_idle(w, err))
        return ERR_UNAVAILABLE;
    job_register(w->job, r, cb, arg);
    return begin(w);
}

void
device_worker_stage(struct device_worker *w, const char *stage, int64_t limit_ms)
{
    job_stage(w->job, stage, limit_ms);
    pump(w);
}

void
device_worker_sanitize(struct device_worker *w, int64_t limit_ms)
{
    job_sanitize(w->job, limit_ms);
    pump(w);
}

void
device_worker_reopen(struct device_worker *w)
{
    job_reopen(w->job);
    pump(w);
}

void
device_worker_reopen_compiled(struct device_worker *w, json_t *policy)
{
    job_reopen_compiled(w->job, policy);
    pump(w);
}

void
device_worker_close(struct device_worker *w)
{
    job_close(w->job);
    pump(w);
}

/* --- looking --- */

enum device_state
device_worker_state(const struct device_worker *w)
{
    return w->state;
}

const char *
device_worker_device(const struct device_worker *w)
{
    return w->device.name;
}

bool
device_worker_is_gpu(const struct device_worker *w)
{
    return strncmp(w->device.name, "cuda", 4) == 0;
}

bool
device_worker_has_reference(const struct device_worker *w, const char *task_id)
{
    return gpu_children_reference(w->children, task_id) != NULL;
}

json_t *
device_worker_gpu(const struct device_worker *w)
{
    return referee_gpu(w->referee);
}

json_t *
device_worker_versions(const struct device_worker *w)
{
    return json_object_get(zygote_ready_message(w->zygote), "versions");
}

bool
device_worker_is_suspect(const struct device_worker *w)
{
    return canary_is_suspect(w->canary);
}

int64_t
device_worker_drifts(const struct device_worker *w)
{
    return canary_drifts(w->canary) + job_drifts(w->job);
}

const struct zygote *
device_worker_zygote(const struct device_worker *w)
{
    return w->zygote;
}

json_t *
device_worker_sandbox(const struct device_worker *w)
{
    return json_object_get(json_object_get(zygote_ready_message(w->zygote), "sandbox"), "layers");
}

static json_t *
referee_json(const struct device_worker *w)
{
    json_t *out = process_json(referee_process(w->referee));

    json_object_set_new(out, "kind", json_string("referee"));
    json_object_set_new(out, "device", json_string(w->device.name));
    json_object_set_new(out, "lane", json_string(device_state_name(w->state)));
    gpu_children_show(w->children, job_waited_s(w->job), out);
    json_t *references = json_object_get(out, "references");
    json_object_set_new(references, "hits", json_integer(job_reference_hits(w->job)));
    json_object_set_new(references, "recalled", json_integer(referee_recalled(w->referee)));
    json_object_set_new(out, "canary", canary_json(w->canary));
    return out;
}

void
device_worker_status(const struct device_worker *w, json_t *workers, json_t *gpus)
{
    json_array_append_new(workers, zygote_status(w->zygote));
    json_array_append_new(workers, referee_json(w));
    if (!device_worker_gpu(w))
        return;
    json_t *gpu = json_copy(device_worker_gpu(w)), *seen = referee_seen(w->referee);
    json_object_set_new(gpu, "canary", canary_json(w->canary));
    json_object_set_new(gpu, "device", json_string(w->device.name));
    json_object_set_new(gpu, "state", json_string(device_state_name(w->state)));
    json_object_set_new(gpu, "seen", seen ? json_incref(seen) : json_null());
    json_array_append_new(gpus, gpu);
}
