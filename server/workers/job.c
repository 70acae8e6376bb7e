#include "server/workers/job.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/workers/contention.h"

/*
 * A job is in one phase of the table phases[]. What its owner asks for and what the referee answers moves it; whatever
 * else changes leads to job_pump(), which does what the phase waits to do. A job ends in one way: its candidate is
 * killed and has ended, its owner learns of it, then the device, which runs the canary after an abnormal end.
 */

#define GRACE_MS 15000 /* from killing a child to the referee's report of it */

enum phase {
    PHASE_NONE,     /* there is no job */
    PHASE_ACQUIRE,  /* it waits for children */
    PHASE_ASKED,    /* the referee owes a report */
    PHASE_ANSWERED, /* the owner says what is next */
    PHASE_QUIET,    /* a stage waits until no child disturbs it */
    PHASE_REOPEN,   /* it waits until its candidate has ended, for another one */
    PHASE_CLOSE,    /* it waits until its candidate has ended and the referee owes nothing */
    PHASE_N
};

/* What one job is. All zero but images_fd where there is none. */
struct work {
    bool is_registration;
    bool is_opened;     /* the referee knows the job */
    bool is_limited;    /* its deadline has passed, and the child was killed for it */
    bool is_abnormal;   /* the device may have been harmed */
    bool is_compiled;   /* the candidate is the reference itself, for torch to compile */
    int64_t wanting_ns; /* monotonic: since when it waits for children */
    struct gpu_child *candidate, *reference;
    char task_id[REFERENCE_ID_SIZE];
    char *entry, *task_entry, *cache;
    int images_fd; /* -1: none */
    char *source, *spec, *reference_source;
    size_t source_size, spec_size, reference_size;
    json_t *policy, *cases;
    bool dynamic_shapes, is_grouped;
    bool is_isolated; /* nobody but its own children on the device */
    uint64_t seed;
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

/* What the referee was asked last. */
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
    void (*pump)(struct job *j); /* what can be done now; NULL: the phase waits for somebody's call */
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

/* --- its memory --- */

static void
work_release(struct work *w)
{
    free(w->entry);
    free(w->task_entry);
    free(w->cache);
    free(w->source);
    free(w->spec);
    free(w->reference_source);
    auto_close(&w->images_fd);
    json_decref(w->policy);
    json_decref(w->cases);
    buffer_release(&w->output);
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

/* --- beginning --- */

static int
begin(struct job *j, struct work *w, bool is_whole, struct error *err)
{
    if (!is_whole) {
        work_release(w);
        return error_set(err, ERR_NOMEM, "no memory for a job");
    }
    j->work = *w;
    j->asked = (struct asked){ .stolen_ms = -1 };
    j->work.wanting_ns = clock_monotonic_ns();
    snprintf(j->id, sizeof(j->id), "j%lld", (long long)++j->made);
    move(j, PHASE_ACQUIRE);
    return 0;
}

int
job_open(struct job *j, const struct job_submission *s, const struct job_ops *ops, void *arg,
         struct error *err)
{
    struct work w = {
        .entry = copy_text(s->entry),
        .task_entry = copy_text(s->task_entry),
        .cache = copy_text(s->cache),
        .source = copy(s->source, s->source_size),
        .source_size = s->source_size,
        .spec = copy(s->spec, s->spec_size),
        .spec_size = s->spec_size,
        .reference_source = copy(s->reference, s->reference_size),
        .reference_size = s->reference_size,
        .policy = json_incref(s->policy),
        .seed = s->seed,
        .is_grouped = s->is_grouped,
        .is_isolated = s->is_isolated,
        .images_fd = s->images_fd >= 0 ? fcntl(s->images_fd, F_DUPFD_CLOEXEC, 0) : -1,
        .ops = ops,
        .arg = arg,
    };

    snprintf(w.task_id, sizeof(w.task_id), "%s", s->task_id);
    return begin(j, &w,
                 w.entry && w.task_entry && w.source && w.spec && w.reference_source &&
                     (!s->cache || w.cache) && (s->images_fd < 0 || w.images_fd >= 0),
                 err);
}

int
job_register(struct job *j, const struct job_registration *r, job_registered_cb *cb, void *arg,
             struct error *err)
{
    struct work w = {
        .is_registration = true,
        .entry = copy_text(r->entry),
        .source = copy(r->source, r->source_size),
        .source_size = r->source_size,
        .cases = json_incref(r->cases),
        .dynamic_shapes = r->dynamic_shapes,
        .images_fd = -1,
        .registered = cb,
        .arg = arg,
    };

    snprintf(w.task_id, sizeof(w.task_id), "%s", r->task_id);
    /* Without its name another class would be registered. */
    return begin(j, &w, w.source && (!r->entry || w.entry), err);
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

/* A deadline has passed: first the candidate goes, then the reference, then the referee that still says nothing. */
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
    if (j->asked.strikes == 1 && w->candidate)
        child_kill(gpu_child_process(w->candidate));
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
    return w->images_fd >= 0 && !w->is_compiled && !w->is_isolated;
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
ask_register(struct job *j)
{
    const struct work *w = &j->work;
    const struct referee_registration what = {
        .job = j->id,
        .child = child_name(gpu_child_process(w->reference)),
        .entry = w->entry,
        .source = w->source,
        .source_size = w->source_size,
        .dynamic_shapes = w->dynamic_shapes,
        .cases = w->cases,
    };

    return referee_register(j->referee, &what);
}

static bool
ask_open(struct job *j)
{
    const struct work *w = &j->work;
    struct referee_opening what = {
        .job = j->id,
        .reference = child_name(gpu_child_process(w->reference)),
        .candidate = child_name(gpu_child_process(w->candidate)),
        .entry = w->entry,
        .task_entry = w->task_entry,
        .cache = w->cache,
        .source = w->source,
        .source_size = w->source_size,
        .spec = w->spec,
        .spec_size = w->spec_size,
        .reference_source = w->reference_source,
        .reference_size = w->reference_size,
        .policy = w->policy,
        .seed = w->seed,
        .call_limit_ms = j->config->tiny_limit_ms,
        .images_fd = w->images_fd,
        .is_grouped = w->is_grouped,
    };

    if (w->is_compiled) {
        what.is_compiled = true;
        what.entry = w->task_entry;
        what.cache = NULL;
        what.source = w->reference_source;
        what.source_size = w->reference_size;
        what.images_fd = -1;
    }
    return referee_open(j->referee, &what);
}

static void
acquire(struct job *j)
{
    struct work *w = &j->work;

    if (!has_children(j))
        return;
    if (w->is_isolated)
        gpu_children_make_room(j->children, w->candidate, w->reference);
    gpu_child_note_used(w->reference);
    j->waited_s += (double)(clock_monotonic_ns() - w->wanting_ns) / 1e9;
    if (w->is_registration) {
        if (ask_register(j))
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
    referee_stage(j->referee, j->id, w->stage);
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
job_reopen(struct job *j)
{
    move(j, PHASE_REOPEN);
    if (j->work.candidate)
        child_kill(gpu_child_process(j->work.candidate));
}

void
job_reopen_compiled(struct job *j, json_t *policy)
{
    j->work.is_compiled = true;
    json_decref(j->work.policy);
    j->work.policy = json_incref(policy);
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

    if (job_is_none(j) || (c != w->candidate && c != w->reference))
        return false;
    if (c == w->reference) {
        w->reference = NULL;
    } else {
        inherit(w, gpu_child_process(c));
        w->candidate = NULL;
    }
    return true;
}

/*
 * A process with a context on a GPU takes a tenth of a second to end, which neither the verdict nor the next job waits
 * for where how it ends says nothing more about it. Only `timing` waits for its end.
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
    if (j->work.candidate && !j->asked.is_due && !j->work.is_abnormal) {
        if (!keeps_executor(j))
            let_go(j);
    } else if (j->work.candidate)
        child_kill(gpu_child_process(j->work.candidate));
    if (j->asked.is_due) /* the report of what was killed is still to come, and is nobody's any more */
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
    const char *blamed = json_string_value(json_object_get(report->error, "type"));

    return report->is_reference && blamed && strcmp(blamed, "NotTheCandidate") == 0;
}

/* What the referee had found of a candidate stays found: to be slow as well is no way out. */
static bool
is_conviction(const struct stage_report *report)
{
    return report->outcome == REPORT_FAIL && class_info(report->class_)->is_cheat;
}

/* What else comes after the limit is a timeout, whatever it says. */
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

    j->work = (struct work){ .images_fd = -1 };
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
    work_release(&w);
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
    work_release(w);
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
    tell_closed(&w, why, is_others || !w.is_opened); /* what has not begun took nothing down */
}

/* --- looking --- */

bool
job_allows_making(const struct job *j)
{
    if (j->phase == PHASE_NONE || j->phase == PHASE_ACQUIRE)
        return true;
    return !j->work.is_isolated && j->phase != PHASE_QUIET &&
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
    j->work.images_fd = -1;
    uv_timer_init(loop, &j->timer);
    j->timer.data = j;
    *out = j;
    return 0;
}

static void
closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

void
job_free(struct job *j)
{
    if (j)
        uv_close((uv_handle_t *)&j->timer, closed_cb);
}
