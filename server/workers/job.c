#include "server/workers/job.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/json.h"
#include "server/workers/contention.h"
#include "server/workers/handle.h"

/*
 * A job is in one phase of the table phases[]. A call of its owner or a report of the referee moves it; any other
 * change leads to job_pump(), which does what the phase waits to do. A job ends in one way: its candidate is killed and
 * has ended, or is kept as an executor, its owner is notified, then the device, which runs the canary after an abnormal end.
 */

#define GRACE_MS 15000 /* from killing a child to the referee's report of it */

enum phase {
    PHASE_NONE,     /* there is no job */
    PHASE_ACQUIRE,  /* it waits for children */
    PHASE_ASKED,    /* the referee owes a report */
    PHASE_ANSWERED, /* the owner decides what is next */
    PHASE_QUIET,    /* a stage waits until no child disturbs it */
    PHASE_REOPEN,   /* it waits until its candidate has ended, for another one */
    PHASE_CLOSE,    /* it waits until its candidate has ended and the referee owes nothing */
    PHASE_N
};

/* The state of one job. All zero if there is none. */
struct work {
    bool is_registration;
    bool is_opened;     /* the referee knows the job */
    bool is_limited;    /* its deadline has passed, and the child was killed for it */
    bool is_abnormal;   /* the device may have been harmed */
    int64_t wanting_ns; /* monotonic: since when it waits for children */
    struct gpu_child *candidate, *reference, *tool;
    struct job_submission what; /* a reference to its policy is owned */
    struct job_registration task;
    const char *task_id; /* of either */
    char stage[16];
    int64_t limit_ms;
    struct child_end end;
    bool has_end;
    struct buffer output;
    int64_t output_lost;
    const struct job_ops *ops;
    job_registered_cb *registered;
    void *arg;
};

/* The last request to the referee. */
struct asked {
    bool is_due;                  /* it owes a report */
    int strikes;                  /* how often a deadline passed */
    int64_t limit_ms;             /* the deadline */
    struct contention_mark begun; /* of the candidate, the reference and the referee */
    int64_t stolen_ms;            /* up to when the deadline passed; -1: it did not, or not known */
    int64_t lost_before;          /* gpu_children_lost() then */
};

struct job {
    const struct config *config;
    struct referee *referee;
    struct gpu_children *children;
    job_ended_cb *ended;
    void *arg;
    enum phase phase;
    char id[24];
    struct work work;
    struct asked asked;
    uv_timer_t timer;
    int64_t made, hits, drifts;
    double waited_s;
};

static void acquire(struct job *j);
static void ask_stage(struct job *j);
static void reopen(struct job *j);
static void finish(struct job *j);

#define TO(phase) (1U << (phase))

static const struct {
    void (*pump)(struct job *j); /* does what can be done now; NULL: the phase waits for a call */
    unsigned next;
} phases[] = {
    [PHASE_NONE] = { NULL, TO(PHASE_ACQUIRE) },
    [PHASE_ACQUIRE] = { acquire, TO(PHASE_ASKED) | TO(PHASE_CLOSE) | TO(PHASE_NONE) },
    [PHASE_ASKED] = { NULL, TO(PHASE_ANSWERED) | TO(PHASE_CLOSE) | TO(PHASE_NONE) },
    [PHASE_ANSWERED] = { NULL, TO(PHASE_QUIET) | TO(PHASE_REOPEN) | TO(PHASE_CLOSE) | TO(PHASE_NONE) },
    [PHASE_QUIET] = { ask_stage, TO(PHASE_ASKED) | TO(PHASE_CLOSE) | TO(PHASE_NONE) },
    [PHASE_REOPEN] = { reopen, TO(PHASE_ACQUIRE) | TO(PHASE_CLOSE) | TO(PHASE_NONE) },
    [PHASE_CLOSE] = { finish, TO(PHASE_NONE) },
};
_Static_assert(ARRAY_LEN(phases) == PHASE_N, "describe every phase");

static void
move(struct job *j, enum phase to)
{
    assert(phases[j->phase].next & TO(to));
    j->phase = to;
}

void
job_pump(struct job *j)
{
    if (phases[j->phase].pump)
        phases[j->phase].pump(j);
}

bool
job_is_none(const struct job *j)
{
    return j->phase == PHASE_NONE;
}

/* --- beginning --- */

static void
begin(struct job *j, const struct work *w)
{
    j->work = *w;
    j->asked = (struct asked){ .stolen_ms = -1 };
    j->work.wanting_ns = clock_monotonic_ns();
    snprintf(j->id, sizeof(j->id), "j%lld", (long long)++j->made);
    move(j, PHASE_ACQUIRE);
}

void
job_open(struct job *j, const struct job_submission *s, const struct job_ops *ops, void *arg)
{
    json_incref(s->policy);
    begin(j, &(struct work){ .what = *s, .task_id = s->task_id, .ops = ops, .arg = arg });
}

void
job_register(struct job *j, const struct job_registration *r, job_registered_cb *cb, void *arg)
{
    begin(j, &(struct work){ .is_registration = true,
                             .what.images_fd = -1,
                             .task = *r,
                             .task_id = r->task_id,
                             .registered = cb,
                             .arg = arg });
}

/* --- asking the referee --- */

/* Not the candidate alone: where the reference or the referee was starved, it had to wait for them. */
static void
look_around(const struct job *j, struct contention_mark *out)
{
    const struct gpu_child *candidate = j->work.candidate, *reference = j->work.reference;
    const int pids[] = { candidate ? child_pid(gpu_child_process(candidate)) : 0,
                         reference ? child_pid(gpu_child_process(reference)) : 0,
                         process_pid(referee_process(j->referee)) };

    contention_read(pids, ARRAY_LEN(pids), out);
}

static int64_t
stolen_ms(const struct job *j, const struct contention_mark *now)
{
    int64_t ns = contention_stolen_ns(&j->asked.begun, now);
    return ns < 0 ? -1 : ns / 1000000;
}

/*
 * A deadline has passed: first the candidate is killed, then the reference, then a referee that still does not answer.
 */
static void
timer_cb(uv_timer_t *timer)
{
    struct job *j = timer->data;
    struct work *w = &j->work;

    if (!j->asked.is_due)
        return;
    j->asked.strikes++;
    w->is_abnormal = true;
    if (j->phase == PHASE_ASKED && !w->is_limited) {
        struct contention_mark now;
        look_around(j, &now);
        w->is_limited = true;
        j->asked.stolen_ms = stolen_ms(j, &now);
    }
    if (j->asked.strikes == 1 && (w->tool || w->candidate))
        child_kill(gpu_child_process(w->tool ? w->tool : w->candidate));
    else if (j->asked.strikes <= 2 && w->reference)
        child_kill(gpu_child_process(w->reference));
    else
        referee_kill(j->referee, "it does not answer");
    uv_timer_start(&j->timer, timer_cb, GRACE_MS, 0);
}

/* The referee owes a report from here on. */
static void
await(struct job *j, int64_t limit_ms)
{
    move(j, PHASE_ASKED);
    j->asked = (struct asked){
        .is_due = true, .limit_ms = limit_ms, .stolen_ms = -1, .lost_before = gpu_children_lost(j->children)
    };
    look_around(j, &j->asked.begun);
    gpu_children_note_busy(j->children, true);
    uv_timer_start(&j->timer, timer_cb, (uint64_t)limit_ms, 0);
}

static void
answered(struct job *j)
{
    j->asked.is_due = false;
    gpu_children_note_busy(j->children, false);
    uv_timer_stop(&j->timer);
}

/* A plan, which no neighbour's is to be kept from. */
static bool
shares_executor(const struct work *w)
{
    return w->what.images_fd >= 0 && !w->what.is_compiled && !w->what.is_isolated;
}

/* The children that the job needs, as far as they are ready. False: one is missing. */
static bool
has_children(struct job *j)
{
    struct work *w = &j->work;

    if (!w->reference && !w->is_registration) {
        w->reference = gpu_children_reference(j->children, w->task_id);
        j->hits += w->reference != NULL;
    }
    if (!w->reference)
        w->reference =
            gpu_children_take(j->children, GPU_CHILD_REFERENCE, w->is_registration ? NULL : w->task_id);
    if (shares_executor(w) && !w->candidate)
        w->candidate = gpu_children_take_executor(j->children);
    if (shares_executor(w) && !w->candidate && gpu_children_are_renewing(j->children))
        return false;
    if (!w->is_registration && !w->candidate)
        w->candidate = gpu_children_take(j->children, GPU_CHILD_CANDIDATE, NULL);
    return w->reference && (w->is_registration || w->candidate);
}

static bool
ask_open(struct job *j)
{
    const struct work *w = &j->work;
    struct job_submission what = w->what;

    if (what.is_compiled) {
        what.entry = what.task_entry;
        what.cache = NULL;
        what.source = what.reference;
        what.source_size = what.reference_size;
        what.images_fd = -1;
    }
    return referee_open(j->referee, j->id, child_name(gpu_child_process(w->reference)),
                        child_name(gpu_child_process(w->candidate)), &what);
}

static void
acquire(struct job *j)
{
    struct work *w = &j->work;

    if (!has_children(j))
        return;
    if (w->what.is_isolated)
        gpu_children_make_room(j->children, w->candidate, w->reference);
    gpu_child_note_used(w->reference);
    j->waited_s += (double)(clock_monotonic_ns() - w->wanting_ns) / 1e9;
    if (w->is_registration) {
        if (referee_register(j->referee, j->id, child_name(gpu_child_process(w->reference)), &w->task))
            await(j, j->config->stage_limit_ms);
    } else if (ask_open(j)) {
        snprintf(w->stage, sizeof(w->stage), "open");
        w->is_opened = true;
        /* A reference that is not loaded yet may take its own time. */
        await(j, j->config->stage_limit_ms * (gpu_child_is_loaded(w->reference) ? 1 : 2));
    }
}

static void
ask_stage(struct job *j)
{
    const struct work *w = &j->work;

    /* On a GPU the referee has those that are being made stand still; without one nothing is timed. */
    if (strcmp(w->stage, "timing") == 0 &&
        !(referee_gpu(j->referee) ? gpu_children_can_stand_still(j->children)
                                  : gpu_children_are_quiet(j->children)))
        return;
    if (w->tool && !gpu_child_is_known(w->tool))
        return;
    referee_stage(j->referee, j->id, w->stage, w->tool ? child_name(gpu_child_process(w->tool)) : NULL);
    await(j, w->limit_ms);
}

/* --- its owner wants --- */

void
job_stage(struct job *j, const char *stage, int64_t limit_ms)
{
    snprintf(j->work.stage, sizeof(j->work.stage), "%s", stage);
    j->work.limit_ms = limit_ms;
    move(j, PHASE_QUIET);
}

void
job_sanitize(struct job *j, int64_t limit_ms)
{
    j->work.tool = gpu_children_take_tool(j->children);
    job_stage(j, "sanitize", limit_ms);
}

static void
end_tool(struct work *w)
{
    if (!w->tool)
        return;
    child_kill(gpu_child_process(w->tool));
    gpu_child_let_go(w->tool);
    w->tool = NULL;
}

void
job_reopen(struct job *j)
{
    move(j, PHASE_REOPEN);
    if (j->work.candidate)
        child_kill(gpu_child_process(j->work.candidate));
}

void
job_reopen_compiled(struct job *j, json_t *policy)
{
    j->work.what.is_compiled = true;
    json_decref(j->work.what.policy);
    j->work.what.policy = json_incref(policy);
    job_reopen(j);
}

static void
forget_opened(struct job *j, bool is_kept)
{
    if (j->work.is_opened)
        referee_close(j->referee, j->id, is_kept);
    j->work.is_opened = false;
}

static void
reopen(struct job *j)
{
    if (j->work.candidate)
        return;
    forget_opened(j, false);
    j->work.wanting_ns = clock_monotonic_ns();
    j->work.is_limited = false;
    move(j, PHASE_ACQUIRE);
    job_pump(j);
}

/* Keep what the candidate's process leaves behind: its output so far and, if it has ended, how. */
static void
inherit(struct work *w, const struct child *c)
{
    const struct buffer *output = child_output(c);
    const struct child_end *end = child_end(c);

    w->has_end = end != NULL;
    if (end)
        w->end = *end;
    buffer_append(&w->output, output->data ? output->data : "", output->size);
    w->output_lost += child_output_lost(c);
}

bool
job_child_ended(struct job *j, const struct gpu_child *c)
{
    struct work *w = &j->work;

    if (job_is_none(j) || (c != w->candidate && c != w->reference && c != w->tool))
        return false;
    if (c == w->tool) {
        w->tool = NULL;
    } else if (c == w->reference) {
        w->reference = NULL;
    } else {
        inherit(w, gpu_child_process(c));
        w->candidate = NULL;
    }
    return true;
}

/*
 * A process with a context on a GPU takes a tenth of a second to end. Neither the verdict nor the next job waits for
 * that if its end has no further information. Only `timing` waits for it.
 */
static void
let_go(struct job *j)
{
    struct child *c = gpu_child_process(j->work.candidate);

    child_kill(c);
    child_read(c);
    inherit(&j->work, c);
    forget_opened(j, false);
    gpu_child_let_go(j->work.candidate);
    j->work.candidate = NULL;
}

/* A plan has run, and nothing is amiss: on a GPU its process, with a context that took long to make, runs the next. */
static bool
keeps_executor(struct job *j)
{
    struct work *w = &j->work;

    if (!w->is_opened || !shares_executor(w) || !referee_gpu(j->referee) || !gpu_child_keep(w->candidate))
        return false;
    struct child *c = gpu_child_process(w->candidate);
    child_read(c);
    inherit(w, c);
    forget_opened(j, true);
    w->candidate = NULL;
    return true;
}

void
job_close(struct job *j)
{
    if (j->phase == PHASE_NONE || j->phase == PHASE_CLOSE)
        return;
    move(j, PHASE_CLOSE);
    if (j->work.tool && j->asked.is_due)
        child_kill(gpu_child_process(j->work.tool));
    else
        end_tool(&j->work);
    if (j->work.candidate && !j->asked.is_due && !j->work.is_abnormal) {
        if (!keeps_executor(j))
            let_go(j);
    } else if (j->work.candidate)
        child_kill(gpu_child_process(j->work.candidate));
    if (j->asked.is_due) /* the report on the killed child is still to come, and is ignored */
        uv_timer_start(&j->timer, timer_cb, GRACE_MS, 0);
}

/* --- the referee has answered --- */

/* Before the candidate's process is ended. A limit of the referee's own is that of a call. */
static void
note_neighbours(const struct job *j, struct stage_report *report)
{
    const struct asked *a = &j->asked;
    struct contention_mark now;

    look_around(j, &now);
    report->held_bytes = now.resident_bytes;
    report->neighbours = (int)(gpu_children_lost(j->children) - a->lost_before);
    if (j->work.is_limited) {
        report->limit_ms = a->limit_ms;
        report->stolen_ms = a->stolen_ms;
    } else if (report->is_reference || report->class_ == CLASS_TIMEOUT) {
        report->limit_ms = a->limit_ms < j->config->tiny_limit_ms ? a->limit_ms : j->config->tiny_limit_ms;
        report->stolen_ms = stolen_ms(j, &now);
    }
}

/* Neither of the two processes is to blame: the GPU is not what it was when the referee started. */
static bool
is_drift(const struct stage_report *report)
{
    return report->is_reference && text_is(report->error, "type", "NotTheCandidate");
}

/* A finding of the referee stands: that the candidate is slow as well does not excuse it. */
static bool
is_conviction(const struct stage_report *report)
{
    return report->outcome == REPORT_FAIL && class_info(report->class_)->is_cheat;
}

/* Any other report after the limit is a timeout. */
static void
judge_report(const struct job *j, struct stage_report *report)
{
    if (report->is_reference)
        return;
    report->stage = j->work.stage;
    if (!j->work.is_limited || is_conviction(report))
        return;
    report->outcome = REPORT_FAIL;
    report->class_ = CLASS_TIMEOUT;
    report->rule = NULL;
    report->is_reopen = false;
}

static bool
is_awaited(const struct job *j, const char *id, bool is_registration)
{
    return j->asked.is_due && strcmp(id, j->id) == 0 && j->work.is_registration == is_registration;
}

void
job_reported(struct job *j, const char *id, struct stage_report *report)
{
    struct work *w = &j->work;

    if (!is_awaited(j, id, false))
        return;
    if (report->outcome == REPORT_FAIL || w->is_limited)
        note_neighbours(j, report);
    answered(j);
    end_tool(w);
    w->is_abnormal |= class_info(report->class_)->is_abnormal || report->is_reopen;
    j->drifts += is_drift(report);
    if (report->is_reference && w->reference) {
        gpu_child_discard(w->reference);
        w->reference = NULL;
    } else if (w->reference) {
        gpu_child_note_loaded(w->reference, w->task_id);
    }
    if (j->phase == PHASE_CLOSE)
        return;
    judge_report(j, report);
    move(j, PHASE_ANSWERED);
    w->ops->report(w->arg, report);
}

/* --- ending --- */

/* The work of a job that is over: the caller's, and there is none here any more. */
static struct work
take_work(struct job *j)
{
    struct work w = j->work;

    j->work = (struct work){ 0 };
    j->asked = (struct asked){ .stolen_ms = -1 };
    uv_timer_stop(&j->timer);
    gpu_children_note_busy(j->children, false);
    move(j, PHASE_NONE);
    return w;
}

void
job_registered(struct job *j, const char *id, const struct buffer *spec, json_t *error)
{
    AUTO_JSON json_t *late = NULL;

    if (!is_awaited(j, id, true))
        return;
    answered(j);
    if (j->work.is_limited) {
        late = json_pack("{s:s, s:s, s:n}", "type", "Timeout", "text", "the reference was not ready in time",
                         "line");
        spec = NULL;
        error = late;
    }
    struct work w = take_work(j);
    if (w.reference && !spec)
        gpu_child_discard(w.reference);
    else if (w.reference)
        gpu_child_note_loaded(w.reference, w.task_id);
    w.registered(w.arg, spec, spec ? NULL : error);
    j->ended(j->arg, !spec);
}

static void
tell_closed(struct work *w, const char *why, bool is_others)
{
    struct job_closing closing = { .is_lost = why != NULL,
                                   .is_others = is_others,
                                   .why = why,
                                   .end = w->has_end ? &w->end : NULL,
                                   .output = &w->output,
                                   .output_lost = w->output_lost };
    if (w->is_registration)
        w->registered(w->arg, NULL, NULL);
    else
        w->ops->closed(w->arg, &closing);
    json_decref(w->what.policy);
    buffer_release(&w->output);
}

static void
finish(struct job *j)
{
    if (j->work.candidate || j->asked.is_due)
        return;
    forget_opened(j, false);
    struct work w = take_work(j);
    bool is_abnormal = w.is_abnormal;
    tell_closed(&w, NULL, false);
    j->ended(j->arg, is_abnormal);
}

void
job_lose(struct job *j, const char *why, bool is_others)
{
    if (job_is_none(j))
        return;
    struct work w = take_work(j);
    tell_closed(&w, why, is_others || !w.is_opened); /* a job that has not begun did not end the worker */
}

/* --- looking --- */

bool
job_allows_making(const struct job *j)
{
    if (j->phase == PHASE_NONE || j->phase == PHASE_ACQUIRE)
        return true;
    return !j->work.what.is_isolated && j->phase != PHASE_QUIET &&
           !(j->asked.is_due && strcmp(j->work.stage, "timing") == 0);
}

int64_t
job_wants_children(const struct job *j)
{
    return j->phase == PHASE_ACQUIRE && !j->work.is_registration && !j->work.reference;
}

double
job_waited_s(const struct job *j)
{
    return j->waited_s;
}

int64_t
job_reference_hits(const struct job *j)
{
    return j->hits;
}

int64_t
job_drifts(const struct job *j)
{
    return j->drifts;
}

/* --- its life --- */

int
job_new(uv_loop_t *loop, const struct config *config, struct referee *referee, struct gpu_children *children,
        job_ended_cb *ended, void *arg, struct job **out, struct error *err)
{
    struct job *j = calloc(1, sizeof(*j));

    *out = NULL;
    if (!j)
        return error_set(err, ERR_NOMEM, "no memory for a device's job");
    *j = (struct job){
        .config = config, .referee = referee, .children = children, .ended = ended, .arg = arg
    };
    uv_timer_init(loop, &j->timer);
    j->timer.data = j;
    *out = j;
    return 0;
}

void
job_free(struct job *j)
{
    if (j)
        uv_close((uv_handle_t *)&j->timer, handle_free_cb);
}
