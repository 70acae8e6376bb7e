#include "server/submission/device_stages.h"

#include <stdio.h>
#include <string.h>

#include "common/classes.h"
#include "common/log.h"
#include "common/stages.h"
#include "server/queue/scheduler.h"
#include "server/submission/attempt.h"
#include "server/submission/counters.h"
#include "server/submission/attribution.h"
#include "server/submission/failure.h"
#include "server/submission/parts.h"
#include "server/submission/stage_end.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/task/baseline.h"
#include "server/task/calibration.h"
#include "server/verdict/timing.h"
#include "server/workers/device_worker.h"

/*
 * The stages on a device: `tiny`, `full`, `timing`. One process of the candidate's serves all three, but where
 * the referee asks for another one, and what a stage found is what the referee reports of it.
 */

/* The referee keeps a shorter one (server/harness/executor/sanitize.py). */
#define SANITIZE_LIMIT_MS 120000

static void report_cb(void *arg, const struct stage_report *r);
static void closed_cb(void *arg, const struct job_closing *c);

static const struct job_ops device_worker_ops = { report_cb, closed_cb };

static void
release_device(struct submission *s)
{
    struct funnel *f = s->funnel;
    double seconds = scheduler_release_device(f->scheduler, &s->job);

    s->device_s += seconds;
    counters_hold_device(f->counters, seconds);
}

struct stage_end
device_stages_open(struct submission *s, struct device_worker *l, stage_ended_cb *ended)
{
    struct attempt *j = s->attempt;
    const char *task_entry = j->task.entry_point ? j->task.entry_point : "Model";
    struct error err = { 0 };

    j->ended = ended;
    attempt_note_env(j, device_worker_versions(l));
    json_object_set(j->env, "gpu",
                    device_worker_gpu(l) ? json_object_get(device_worker_gpu(l), "name") : json_null());
    json_object_set(j->env, "driver",
                    device_worker_gpu(l) ? json_object_get(device_worker_gpu(l), "driver") : json_null());
    json_object_set_new(j->env, "device", json_string(device_worker_device(l)));
    json_object_set_new(
        j->env, "calibration",
        calibration_brief(s->funnel->calibrations, json_string_value(json_object_get(j->env, "gpu"))));
    const struct job_submission job = {
        .task_id = s->job.reference,
        .entry = j->entry,
        .task_entry = task_entry,
        .source = j->source.data ? j->source.data : "",
        .spec = j->task.spec,
        .reference = j->task.reference,
        .source_size = j->source.size,
        .spec_size = strlen(j->task.spec),
        .reference_size = j->task.reference_size,
        .policy = j->policy_json,
        .seed = j->seed,
        .is_grouped = *j->row.group_id,
        .cache = device_worker_is_gpu(l) && j->cache[0] ? j->cache : NULL,
        .images_fd = j->images_fd,
        .is_isolated = scheduler_is_isolated(s->funnel->scheduler, &s->job),
    };
    j->device_worker = l;
    if (device_worker_open(l, &job, &device_worker_ops, s, &err) == 0)
        return stage_pending();
    j->device_worker = NULL;
    release_device(s);
    return stage_lost(false, err.text);
}

struct stage_end
device_stages_run(struct submission *s)
{
    struct attempt *j = s->attempt;
    const struct config *config = s->funnel->config;

    if (j->stage == STAGE_TINY && !j->policy.tiny_first) {
        j->stages[STAGE_TINY].why = "tiny_first is off";
        return stage_decided(OUTCOME_SKIP, CLASS_NONE, 0, 0);
    }
    int64_t limit_ms = j->stage == STAGE_TINY ? config->tiny_limit_ms : config->stage_limit_ms;

    if (j->stage == STAGE_TIMING)
        limit_ms = timing_limit_ms(&j->policy, config->stage_limit_ms);
    /* In its last stage a plan is run at other sizes, too, which must not cost a slow candidate its verdict. */
    if (j->stage == (device_worker_is_gpu(j->device_worker) ? STAGE_TIMING : STAGE_FULL))
        limit_ms += config->tiny_limit_ms;
    device_worker_stage(j->device_worker, stage_name((enum stage)j->stage), limit_ms);
    return stage_pending();
}

struct stage_end
device_stages_reopen(struct submission *s)
{
    device_worker_reopen(s->attempt->device_worker);
    return stage_pending();
}

static void
keep_detail(struct attempt *j, const struct stage_report *r)
{
    json_t **const details[STAGE_NSTAGES] = {
        [STAGE_TINY] = &j->tiny, [STAGE_FULL] = &j->full, [STAGE_TIMING] = &j->timing
    };
    json_t **place = details[j->stage];

    if (place && r->detail) {
        json_decref(*place);
        *place = json_incref(r->detail);
        attempt_add_flags(j, json_object_get(r->detail, "flags"));
    }
    if (r->generality && !j->generality)
        j->generality = strdup(r->generality);
}

/* s is the driver's from here on. */
static void
report(struct submission *s, struct stage_end end)
{
    s->attempt->ended(s, &end);
}

/* Without a loaded module there is nothing that a later stage could do. */
static struct stage_end
opened(struct submission *s, const struct stage_report *r)
{
    struct stage_end end = { .event = STAGE_OPENED };

    if (r->outcome == REPORT_FAIL) {
        end = stage_decided(OUTCOME_FAIL, failure_by_report(s, r), 0, 1);
        end.is_last = true;
    }
    return end;
}

static struct stage_end
judged(struct submission *s, const struct stage_report *r)
{
    struct attempt *j = s->attempt;

    keep_detail(j, r);
    if (r->outcome == REPORT_FAIL)
        return stage_decided(OUTCOME_FAIL, failure_by_report(s, r), r->done, r->of);
    bool needs_fresh = r->is_reopen && attempt_goes_on(j);
    struct stage_end end = stage_decided(
        r->outcome == REPORT_PASS && !needs_fresh ? OUTCOME_PASS : OUTCOME_SKIP, CLASS_NONE, r->done, r->of);
    end.needs_fresh = needs_fresh;
    return end;
}

static void
close_for_reference(struct submission *s, const struct stage_report *r)
{
    struct attempt *j = s->attempt;
    const char *text = json_string_value(json_object_get(r->error, "text"));

    log_warn(s->id, "the reference failed: %s", text ? text : "no reason given");
    j->is_reference_lost = true;
    attribution_reference(j, r);
    snprintf(j->reference_error, sizeof(j->reference_error), "%s", text ? text : "no reason given");
    device_worker_close(j->device_worker);
}

void
device_stages_finish(struct submission *s)
{
    struct attempt *j = s->attempt;

    if (j->policy.sanitize && !j->is_sanitized && j->plan && device_worker_gpu(j->device_worker)) {
        j->is_sanitized = true;
        device_worker_sanitize(j->device_worker, SANITIZE_LIMIT_MS);
    } else if (!baseline_begin(s)) {
        j->is_finishing = true;
        device_worker_close(j->device_worker);
    }
}

static void
report_cb(void *arg, const struct stage_report *r)
{
    struct submission *s = arg;
    struct attempt *j = s->attempt;

    if (j->is_sanitized && !j->is_comparing) {
        j->sanitize = json_incref(r->detail);
        device_stages_finish(s);
        return;
    }
    if (j->is_comparing) {
        if (baseline_report(s, r)) {
            j->is_finishing = true;
            device_worker_close(j->device_worker);
        }
        return;
    }
    if (r->is_reference)
        close_for_reference(s, r);
    else
        report(s, strcmp(r->stage, "open") == 0 ? opened(s, r) : judged(s, r));
}

/*
 * A crash of the candidate that the referee reported may have been the end of its zygote, which ends its children, too.
 */
static bool
went_with_worker(const struct attempt *j, const struct job_closing *c)
{
    bool is_its_own = c->end && !c->end->is_lost;

    return j->class_ == CLASS_CRASH && j->failed_stage == j->stage && !j->is_comparing && !is_its_own &&
           (c->is_lost || c->end);
}

/* The device worker has released it. If that was not requested, it is a loss of ours. */
static struct stage_end
after_device_worker(struct submission *s, const struct job_closing *c)
{
    struct attempt *j = s->attempt;
    bool is_sole = c->is_lost && !c->is_others;
    const char *why = c->is_lost ? c->why : "the device let go of it";

    if (j->is_finishing && went_with_worker(j, c)) {
        j->failed_stage = -1;
        j->class_ = CLASS_NONE;
        j->stages[j->stage].outcome = OUTCOME_NONE;
        j->stages[j->stage].class_ = CLASS_NONE;
        j->is_finishing = false;
        return stage_lost(is_sole, c->is_lost ? c->why : c->end->error);
    }
    if (j->is_finishing && c->end && !j->is_comparing)
        failure_refine(s, c->end);
    if (j->is_finishing || j->is_parking)
        return (struct stage_end){ .event = STAGE_CLOSED };
    if (j->is_reference_lost && !submission_is_stopped(s)) {
        attribution_promises_rerun(s, CLASS_INFRA, j->stage);
        return stage_lost(false, j->reference_error);
    }
    return stage_lost(is_sole, why);
}

static void
closed_cb(void *arg, const struct job_closing *c)
{
    struct submission *s = arg;
    struct attempt *j = s->attempt;

    j->device_worker = NULL;
    release_device(s);
    attempt_take_output(j, c->output, c->output_lost, s->funnel->config->output_limit_bytes);
    /* The candidate's own verdict stands, whatever the result of the policy's further requests. */
    if ((j->is_sanitized || j->is_comparing) && !j->is_finishing && !submission_is_stopped(s)) {
        if (j->is_comparing)
            baseline_lost(s, c->is_lost ? c->why : "the device let go of it");
        j->is_finishing = true;
    }
    report(s, after_device_worker(s, c));
}
