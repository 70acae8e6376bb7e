#include "server/workers/private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"

/*
 * A job: a submission, or the registration of a task. Whatever changes leads to job_pump(), which looks at its phase
 * and does what can be done. It ends in one way, close_job(): the candidate is killed and seen to be dead, then the
 * owner is told, then the canary runs if the end was a violent one, then the lane is idle.
 */

#define GRACE_MS 15000 /* from killing a child to the referee's report of it */

/* --- its memory --- */

static void
job_free(struct job *j)
{
    if (!j)
        return;
    free(j->entry);
    free(j->task_entry);
    free(j->cache);
    free(j->source);
    free(j->spec);
    free(j->reference_source);
    free(j->kernels);
    auto_close(&j->images_fd);
    json_decref(j->policy);
    json_decref(j->cases);
    buffer_release(&j->output);
    free(j);
}

static char *
copy(const char *bytes, size_t size)
{
    char *out = bytes ? malloc(size + 1) : NULL;
    if (out) {
        memcpy(out, bytes, size);
        out[size] = '\0';
    }
    return out;
}

static char *
copy_text(const char *text)
{
    return text ? copy(text, strlen(text)) : NULL;
}

static int
job_new(struct lane *l, const char *task_id, const char *source, size_t size, struct job **out,
        struct error *err)
{
    struct job *j = calloc(1, sizeof(*j));

    *out = NULL;
    if (j)
        j->images_fd = -1;
    if (l->state != LANE_IDLE || l->job) {
        free(j);
        error_set(err, ERR_UNAVAILABLE, "%s is %s", l->device.name, lane_state_name(l->state));
        return ERR_UNAVAILABLE;
    }
    if (!j || !(j->source = copy(source, size))) {
        free(j);
        error_set(err, ERR_NOMEM, "no memory for a job");
        return ERR_NOMEM;
    }
    snprintf(j->id, sizeof(j->id), "j%lld", (long long)++l->jobs_made);
    snprintf(j->task_id, sizeof(j->task_id), "%s", task_id);
    j->source_size = size;
    *out = j;
    return 0;
}

void
job_inherit(struct job *j, const struct child *c)
{
    const struct buffer *output = child_output(c);
    const struct child_end *end = child_end(c);

    j->has_end = end != NULL;
    if (end)
        j->end = *end;
    buffer_append(&j->output, output->data ? output->data : "", output->size);
    j->output_lost += child_output_lost(c);
}

/* --- beginning --- */

static void
job_begin(struct lane *l, struct job *j)
{
    l->job = j;
    l->state = LANE_BUSY;
    l->clock++;
    j->wanting_ns = clock_monotonic_ns();
    lane_pump(l);
}

int
lane_open(struct lane *l, const struct lane_submission *s, const struct lane_job_ops *ops, void *arg,
          struct error *err)
{
    struct job *j;

    if (job_new(l, s->task_id, s->source, s->source_size, &j, err) != 0)
        return err->code;
    j->entry = copy_text(s->entry);
    j->task_entry = copy_text(s->task_entry);
    j->cache = copy_text(s->cache);
    j->spec = copy(s->spec, s->spec_size);
    j->spec_size = s->spec_size;
    j->reference_source = copy(s->reference, s->reference_size);
    j->reference_size = s->reference_size;
    j->kernels = json_dumps(s->kernels, JSON_COMPACT);
    j->policy = json_incref(s->policy);
    j->seed = s->seed;
    j->is_grouped = s->is_grouped;
    j->is_alone = s->is_alone;
    if (s->images_fd >= 0)
        j->images_fd = fcntl(s->images_fd, F_DUPFD_CLOEXEC, 0);
    j->ops = ops;
    j->arg = arg;
    if (!j->entry || !j->task_entry || !j->spec || !j->reference_source || !j->kernels ||
        (s->cache && !j->cache) || (s->images_fd >= 0 && j->images_fd < 0)) {
        job_free(j);
        return error_set(err, ERR_NOMEM, "no memory for a job");
    }
    job_begin(l, j);
    return 0;
}

int
lane_register(struct lane *l, const struct lane_registration *r, lane_registered_cb *cb, void *arg,
              struct error *err)
{
    struct job *j;

    if (job_new(l, r->task_id, r->source, r->source_size, &j, err) != 0)
        return err->code;
    j->is_registration = true;
    j->entry = copy_text(r->entry);
    j->cases = r->cases ? json_incref(r->cases) : NULL;
    j->dynamic_shapes = r->dynamic_shapes;
    j->registered = cb;
    j->arg = arg;
    /* Without its name another class would be registered. */
    if (r->entry && !j->entry) {
        job_free(j);
        return error_set(err, ERR_NOMEM, "no memory for a job");
    }
    job_begin(l, j);
    return 0;
}

/* Not the candidate alone: where the reference or the referee was starved, it had to wait for them. */
static void
look_around(const struct lane *l, struct contention_mark *out)
{
    const struct job *j = l->job;
    const int pids[] = { j->candidate ? child_pid(j->candidate->child) : 0,
                         j->reference ? child_pid(j->reference->child) : 0, process_pid(l->referee) };

    contention_read(pids, ARRAY_LEN(pids), out);
}

static int64_t
stolen_ms(const struct lane *l)
{
    struct contention_mark now;

    look_around(l, &now);
    int64_t ns = contention_stolen_ns(&l->job->begun, &now);
    return ns < 0 ? -1 : ns / 1000000;
}

/* A deadline has passed: first the candidate goes, then the reference, then the referee that still says nothing. */
static void
job_timer_cb(uv_timer_t *timer)
{
    struct lane *l = timer->data;
    struct job *j = l->job;

    if (!j || !j->is_asked)
        return;
    j->strikes++;
    j->is_violent = true;
    if (j->phase == PHASE_ASKED && !j->is_limited) {
        j->is_limited = true;
        j->stolen_ms = stolen_ms(l);
    }
    if (j->strikes == 1 && j->candidate)
        child_kill(j->candidate->child);
    else if (j->strikes <= 2 && j->reference)
        child_kill(j->reference->child);
    else
        process_kill(l->referee, "it does not answer");
    uv_timer_start(&l->job_timer, job_timer_cb, GRACE_MS, 0);
}

/* The referee owes a report from here on. */
static void
await(struct lane *l, int64_t limit_ms)
{
    struct job *j = l->job;

    j->phase = PHASE_ASKED;
    j->is_asked = true;
    j->strikes = 0;
    j->stolen_ms = -1;
    j->asked_ms = limit_ms;
    j->lost_before = l->lost;
    look_around(l, &j->begun);
    runners_limit_warming(l);
    uv_timer_start(&l->job_timer, job_timer_cb, (uint64_t)limit_ms, 0);
}

/* The children that the job needs, as far as they are ready. */
static void
acquire(struct lane *l)
{
    struct job *j = l->job;

    if (!j->reference && !j->is_registration) {
        j->reference = runner_find_reference(l, j->task_id);
        l->references.hits += j->reference != NULL;
    }
    if (!j->reference && (j->reference = runner_find_ready(l))) {
        runner_take_as(l, j->reference, USE_REFERENCE);
        l->references.loads++;
        snprintf(j->reference->task_id, sizeof(j->reference->task_id), "%s",
                 j->is_registration ? "" : j->task_id);
    }
    if (!j->is_registration && !j->candidate && (j->candidate = runner_find_ready(l)))
        runner_take_as(l, j->candidate, USE_CANDIDATE);
    if (!j->reference || (!j->is_registration && !j->candidate))
        return;
    if (j->is_alone)
        runners_make_room(l);
    j->reference->used = l->clock;
    l->supply.waited_s += (double)(clock_monotonic_ns() - j->wanting_ns) / 1e9;
    if (j->is_registration) {
        if (referee_ask_register(l))
            await(l, l->config->stage_limit_ms);
    } else if (referee_ask_open(l)) {
        snprintf(j->stage, sizeof(j->stage), "open");
        j->is_opened = true;
        /* A reference that is not loaded yet may take its own time. */
        await(l, l->config->stage_limit_ms * (j->reference->is_loaded ? 1 : 2));
    }
}

static void
ask_stage(struct lane *l)
{
    struct job *j = l->job;

    /* On a GPU the referee has those that are being made stand still; without one nothing is timed. */
    if (strcmp(j->stage, "timing") == 0 && !(lane_gpu(l) ? runners_can_stand_still(l) : runners_are_quiet(l)))
        return;
    referee_ask_stage(l);
    await(l, j->limit_ms);
}

/* --- its owner wants --- */

void
lane_stage(struct lane *l, const char *stage, bool wants_evidence, int64_t limit_ms)
{
    struct job *j = l->job;

    snprintf(j->stage, sizeof(j->stage), "%s", stage);
    j->wants_evidence = wants_evidence;
    j->limit_ms = limit_ms;
    j->phase = PHASE_QUIET;
    lane_pump(l);
}

void
lane_reopen(struct lane *l)
{
    struct job *j = l->job;

    j->phase = PHASE_REOPEN;
    if (j->candidate)
        child_kill(j->candidate->child);
    lane_pump(l);
}

void
lane_reopen_compiled(struct lane *l, json_t *policy)
{
    struct job *j = l->job;

    j->is_compiled = true;
    json_decref(j->policy);
    j->policy = json_incref(policy);
    lane_reopen(l);
}

static void
forget_job(struct lane *l)
{
    struct job *j = l->job;

    if (j->is_opened)
        referee_tell(l, json_pack("{s:s, s:s}", "op", "close", "job", j->id), NULL, 0);
    j->is_opened = false;
}

static void
reopen(struct lane *l)
{
    if (l->job->candidate)
        return;
    forget_job(l);
    l->job->phase = PHASE_ACQUIRE;
    l->job->wanting_ns = clock_monotonic_ns();
    l->job->is_limited = false;
}

/* How the candidate's process ends says nothing more about it. */
static bool
is_heard_out(const struct lane *l)
{
    const struct job *j = l->job;

    return !j->is_asked && !j->is_violent;
}

/*
 * A process with a context on a GPU takes a tenth of a second to end, which neither the verdict nor the next job waits
 * for: it ends like a child that was one too many, beside `tiny` and `full` and never beside `timing`.
 */
static void
let_go(struct lane *l)
{
    struct job *j = l->job;
    struct runner *r = j->candidate;

    child_kill(r->child);
    child_read(r->child);
    job_inherit(j, r->child);
    forget_job(l);
    runner_let_go(r);
    j->candidate = NULL;
}

void
lane_close(struct lane *l)
{
    struct job *j = l->job;

    if (!j || j->phase == PHASE_CLOSE)
        return;
    j->phase = PHASE_CLOSE;
    if (j->candidate && is_heard_out(l))
        let_go(l);
    else if (j->candidate)
        child_kill(j->candidate->child);
    if (j->is_asked) /* the report of what was killed is still to come, and is nobody's any more */
        uv_timer_start(&l->job_timer, job_timer_cb, GRACE_MS, 0);
    lane_pump(l);
}

/* --- the referee has answered --- */

/* Before the candidate's process is ended. A limit of the referee's own is that of a call. */
static void
note_neighbours(struct lane *l, struct lane_report *report)
{
    const struct job *j = l->job;
    struct contention_mark now;

    look_around(l, &now);
    report->held_bytes = now.resident_bytes;
    report->neighbours = (int)(l->lost - j->lost_before);
    if (j->is_limited) {
        report->limit_ms = j->asked_ms;
        report->stolen_ms = j->stolen_ms;
    } else if (report->is_reference || report->class_ == CLASS_TIMEOUT) {
        int64_t ns = contention_stolen_ns(&j->begun, &now);
        report->limit_ms = j->asked_ms < l->config->tiny_limit_ms ? j->asked_ms : l->config->tiny_limit_ms;
        report->stolen_ms = ns < 0 ? -1 : ns / 1000000;
    }
}

bool
job_answered(struct lane *l, struct lane_report *report)
{
    struct job *j = l->job;

    if (report->outcome == LANE_FAIL || j->is_limited)
        note_neighbours(l, report);
    j->is_asked = false;
    runners_limit_warming(l);
    uv_timer_stop(&l->job_timer);
    j->is_violent |= class_info(report->class_)->is_abnormal || report->is_reopen;
    /* Neither of the two processes: the GPU is not what it was when the referee started. */
    const char *blamed = json_string_value(json_object_get(report->error, "type"));
    if (report->is_reference && blamed && strcmp(blamed, "NotTheCandidate") == 0)
        l->drifts++;
    if (report->is_reference && j->reference) {
        runner_discard(j->reference);
        j->reference = NULL;
    } else if (j->reference) {
        j->reference->is_loaded = true;
    }
    if (j->phase != PHASE_CLOSE)
        return true;
    lane_pump(l);
    return false;
}

/* What the referee had found of a candidate stays found: to be slow as well is no way out. */
static bool
is_conviction(const struct lane_report *report)
{
    return report->outcome == LANE_FAIL && class_info(report->class_)->is_cheat;
}

void
job_report(struct lane *l, struct lane_report *report)
{
    struct job *j = l->job;

    if (!report->is_reference) {
        report->stage = j->stage;
        /* What else comes after the limit is a timeout, whatever it says. */
        if (j->is_limited && !is_conviction(report)) {
            report->outcome = LANE_FAIL;
            report->class_ = CLASS_TIMEOUT;
            report->rule = NULL;
            report->is_reopen = false;
        }
    }
    j->phase = PHASE_ANSWERED;
    j->ops->report(j->arg, report);
}

void
job_registered(struct lane *l, const struct buffer *spec, json_t *error)
{
    struct job *j = l->job;
    AUTO_JSON json_t *late = NULL;

    if (j->is_limited) {
        late = json_pack("{s:s, s:s, s:n}", "type", "Timeout", "text", "the reference was not ready in time",
                         "line");
        spec = NULL;
        error = late;
    }
    if (j->reference && !spec) {
        runner_discard(j->reference);
    } else if (j->reference) {
        snprintf(j->reference->task_id, sizeof(j->reference->task_id), "%s", j->task_id);
        j->reference->is_loaded = true;
    }
    l->job = NULL;
    l->state = LANE_CHECKING;
    runners_limit_warming(l);
    j->registered(j->arg, spec, spec ? NULL : error);
    job_free(j);
    if (l->state != LANE_CHECKING)
        return;
    runners_evict(l);
    if (spec)
        lane_become_idle(l);
    else
        canary_send(l);
}

/* --- ending --- */

void
job_tell_closed(struct job *j, const char *why, bool is_others)
{
    struct lane_closing closing = { .is_lost = why != NULL,
                                    .is_others = is_others,
                                    .why = why,
                                    .end = j->has_end ? &j->end : NULL,
                                    .output = &j->output,
                                    .output_lost = j->output_lost };
    if (j->is_registration)
        j->registered(j->arg, NULL, NULL);
    else
        j->ops->closed(j->arg, &closing);
    job_free(j);
}

static void
close_job(struct lane *l)
{
    struct job *j = l->job;
    bool is_violent = j->is_violent;

    uv_timer_stop(&l->job_timer);
    forget_job(l);
    l->job = NULL;
    if (is_violent)
        canary_send(l);
    else
        l->state = LANE_CHECKING; /* not idle before the owner was told */
    job_tell_closed(j, NULL, false);
    if (l->state != LANE_CHECKING)
        return;
    runners_evict(l);
    if (!is_violent)
        lane_become_idle(l);
}

/* --- what can be done now --- */

void
job_pump(struct lane *l)
{
    const struct job *j = l->job;

    if (j->phase == PHASE_REOPEN)
        reopen(l);
    if (j->phase == PHASE_ACQUIRE)
        acquire(l);
    else if (j->phase == PHASE_QUIET)
        ask_stage(l);
    else if (j->phase == PHASE_CLOSE && !j->candidate && !j->is_asked)
        close_job(l);
}
