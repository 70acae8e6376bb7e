#include "server/workers/lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/workers/private.h"

/*
 * Theory of operation. A lane is up when its zygote and its referee both are;
 * when either dies, the job is lost, the other is killed too, and both begin
 * afresh: what one knows of the other's children would be stale.
 *
 * A run child here is a "runner" (runner.c). It is forked and makes its context
 * before anybody needs it (as many as the setting `pool` says), then serves as a task's
 * reference, again and again, or as one submission's candidate, once. What the lane does for others
 * is a job (job.c), one at a time. Both speak with the referee (referee.c), and
 * the canary (canary.c) says whether the device and its workers are sound.
 *
 * Whatever changes calls lane_pump().
 */

const char *
lane_state_name(enum lane_state state)
{
    static const char *const names[] = { "starting", "checking", "idle", "busy", "quarantined", "stopped" };
    _Static_assert(ARRAY_LEN(names) == LANE_NSTATES, "name every state");
    return names[state];
}

void
lane_pump(struct lane *l)
{
    if (l->state == LANE_CHECKING)
        canary_pump(l);
    if (l->state != LANE_BUSY && l->state != LANE_IDLE)
        return;
    if (l->job)
        job_pump(l);
    if (l->state == LANE_BUSY || l->state == LANE_IDLE)
        runners_fill_pool(l);
}

void
lane_become_idle(struct lane *l)
{
    if (canary_is_due(l)) {
        canary_send(l);
        return;
    }
    l->state = LANE_IDLE;
    canary_schedule(l);
    lane_pump(l);
    if (l->state == LANE_IDLE)
        l->idle(l->arg, l);
}

/* --- up and down --- */

void
lane_became_ready(struct lane *l)
{
    if (l->state == LANE_STARTING && zygote_is_ready(l->zygote) && process_state(l->referee) == PROCESS_READY)
        canary_send(l);
}

void
lane_went_down(struct lane *l, const char *why)
{
    struct job *j = l->job;
    bool is_others = l->is_stuck || zygote_was_killed(l->zygote) || process_was_killed(l->referee);

    l->is_stuck = false;
    if (l->state == LANE_STARTING || l->state == LANE_STOPPED)
        return;
    l->state = LANE_STARTING;
    uv_timer_stop(&l->job_timer);
    canary_abandon(l);
    uv_timer_stop(&l->retry_timer);
    l->job = NULL;
    if (!l->is_stopping) {
        zygote_kill(l->zygote, "started again with its referee");
        process_kill(l->referee, "started again with its zygote");
    }
    runners_abandon(l);
    if (j)
        job_tell_closed(j, why, is_others);
}

static void
zygote_ready_cb(void *arg)
{
    lane_became_ready(arg);
}

static void
zygote_down_cb(void *arg, const char *why)
{
    lane_went_down(arg, why);
}

static const struct zygote_ops zygote_ops = { zygote_ready_cb, zygote_down_cb };

int
lane_new(uv_loop_t *loop, const struct config *config, struct uids *uids, struct cgroups *cgroups,
         const struct device *device, lane_idle_cb *idle, void *arg, struct lane **out, struct error *err)
{
    struct lane *l = calloc(1, sizeof(*l));
    char name[64];

    *out = NULL;
    if (!l)
        return error_set(err, ERR_NOMEM, "no memory for device %s", device->name);
    l->device = *device;
    l->loop = loop;
    l->config = config;
    l->idle = idle;
    l->arg = arg;
    uv_timer_t *const timers[] = { &l->job_timer, &l->retry_timer, &l->canary_timer, &l->look_timer };
    for (size_t i = 0; i < ARRAY_LEN(timers); i++) {
        uv_timer_init(loop, timers[i]);
        timers[i]->data = l;
        l->handles++;
    }
    snprintf(name, sizeof(name), "run zygote %s", device->name);
    int rc = zygote_new(loop, config, uids, cgroups, name, "run", device, &zygote_ops, l, &l->zygote, err);
    if (rc == 0)
        rc = referee_new(l, err);
    if (rc != 0) {
        lane_free(l);
        return rc;
    }
    *out = l;
    zygote_start(l->zygote);
    process_start(l->referee);
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
    lane_went_down(l, "the daemon stops");
    l->state = LANE_STOPPED;
    zygote_stop(l->zygote, worker_stopped_cb);
    process_stop(l->referee, worker_stopped_cb);
}

static void
timer_closed_cb(uv_handle_t *handle)
{
    struct lane *l = handle->data;

    if (--l->handles > 0)
        return;
    free(l);
}

void
lane_free(struct lane *l)
{
    if (!l)
        return;
    zygote_free(l->zygote);
    process_free(l->referee);
    json_decref(l->seen);
    uv_close((uv_handle_t *)&l->job_timer, timer_closed_cb);
    uv_close((uv_handle_t *)&l->retry_timer, timer_closed_cb);
    uv_close((uv_handle_t *)&l->canary_timer, timer_closed_cb);
    uv_close((uv_handle_t *)&l->look_timer, timer_closed_cb);
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
    return runner_find_reference(l, task_id) != NULL;
}

json_t *
lane_gpu(const struct lane *l)
{
    json_t *gpu = json_object_get(process_ready_message(l->referee), "gpu");
    return json_is_object(gpu) ? gpu : NULL;
}

json_t *
lane_versions(const struct lane *l)
{
    return json_object_get(zygote_ready_message(l->zygote), "versions");
}

bool
lane_is_doubted(const struct lane *l)
{
    return l->is_suspect;
}

void
lane_use_norms(struct lane *l, struct norms *norms)
{
    l->norms = norms;
}

void
lane_look_again(struct lane *l)
{
    canary_look_again(l);
}

void
lane_reconfigured(struct lane *l)
{
    canary_schedule(l);
}

int64_t
lane_drifts(const struct lane *l)
{
    return l->drifts;
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

void
lane_status(const struct lane *l, json_t *workers, json_t *gpus)
{
    int pid = process_pid(l->referee);
    const char *why = process_why(l->referee);

    json_array_append_new(workers, zygote_status(l->zygote));
    json_array_append_new(
        workers,
        json_pack("{s:s+, s:s, s:s, s:o, s:s, s:I, s:s?, s:s, s:{s:i, s:i, s:i}, s:o, s:{s:i, s:I, s:I, s:I, "
                  "s:I, s:I}}",
                  "name", "referee ", l->device.name, "kind", "referee", "device", l->device.name, "pid",
                  pid ? json_integer(pid) : json_null(), "state",
                  process_state_name(process_state(l->referee)), "starts",
                  (json_int_t)process_starts(l->referee), "why", *why ? why : NULL, "lane",
                  lane_state_name(l->state), "children", "ready", runners_count(l, USE_POOL, true),
                  "references", runners_count(l, USE_REFERENCE, false), "candidates",
                  runners_count(l, USE_CANDIDATE, false), "pool", runners_pool_json(l), "references", "kept",
                  runners_count(l, USE_REFERENCE, false), "most", (json_int_t)l->config->references_kept,
                  "hits", (json_int_t)l->references.hits, "loads", (json_int_t)l->references.loads, "evicted",
                  (json_int_t)l->references.evicted, "recalled", (json_int_t)l->references.recalled));
    json_t *canary = canary_json(l);
    json_object_set(json_array_get(workers, json_array_size(workers) - 1), "canary", canary);
    json_t *gpu = lane_gpu(l) ? json_copy(lane_gpu(l)) : NULL;
    if (gpu) {
        json_object_set(gpu, "canary", canary);
        json_object_set_new(gpu, "device", json_string(l->device.name));
        json_object_set_new(gpu, "state", json_string(lane_state_name(l->state)));
        json_object_set_new(gpu, "seen", l->seen ? json_incref(l->seen) : json_null());
        json_array_append_new(gpus, gpu);
    }
    json_decref(canary);
}
