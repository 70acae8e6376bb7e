#include "server/workers/lane.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "server/workers/process.h"

/*
 * Theory of operation. A lane is up when its zygote and its referee both are;
 * when either dies, the job is lost, the other is killed too, and both begin
 * afresh: what one knows of the other's children would be stale.
 *
 * A run child here is a "runner". It is forked and makes its context before
 * anybody needs it (pool), then serves as a task's reference, again and again,
 * or as one submission's candidate, once.
 *
 * Whatever changes calls pump(), which looks at the job's phase and does what
 * can be done. A job ends in one way, close_job(): the candidate is killed and
 * seen to be dead, then the owner is told, then the canary runs if the end was
 * a violent one, then the lane is idle.
 */

#define REFEREE_START_MS 180000
#define GRACE_MS 15000 /* from killing a child to the referee's report of it */
#define WARM_MS 60000  /* from forking to a context */
#define CANARY_MS 60000
#define RETRY_MS 1000
#define FAILURES_MAX 5 /* children that died unused, one after another: something is wrong with the workers */
#define SPEC_MAX (8 << 20)

enum runner_state { RUNNER_FORKING, RUNNER_WARMING, RUNNER_READY, RUNNER_ENDED };
enum runner_use { USE_POOL, USE_REFERENCE, USE_CANDIDATE };

struct runner {
    struct runner *prev, *next;
    struct lane *lane;
    struct child *child;
    enum runner_state state;
    enum runner_use use;
    bool is_told; /* the referee knows it */
    bool is_loaded;
    char task_id[HASH_TEXT_SIZE];
    int64_t used; /* lane->clock when it was last */
};

enum phase { PHASE_ACQUIRE, PHASE_ASKED, PHASE_ANSWERED, PHASE_QUIET, PHASE_REOPEN, PHASE_CLOSE };

struct job {
    char id[24];
    bool is_registration;
    enum phase phase;
    bool is_asked;   /* the referee owes a report */
    bool is_opened;  /* it knows the job */
    bool is_limited; /* its deadline has passed, and the child was killed for it */
    bool is_violent; /* the canary has to sing before anybody else is served */
    int strikes;     /* how often a deadline passed */
    struct runner *candidate, *reference;
    char task_id[HASH_TEXT_SIZE];
    char *entry, *task_entry, *cache;
    char *source, *spec, *reference_source, *kernels;
    size_t source_size, spec_size, reference_size;
    json_t *policy, *cases;
    bool dynamic_shapes;
    uint64_t seed;
    char stage[16];
    bool wants_evidence;
    int64_t limit_ms;
    struct child_end end;
    bool has_end;
    struct buffer output;
    int64_t output_lost;
    const struct lane_job_ops *ops;
    lane_registered_cb *registered;
    void *arg;
};

struct lane {
    uv_loop_t *loop;
    const struct config *config;
    struct device device;
    lane_idle_cb *idle;
    void *arg;
    struct zygote *zygote;
    struct process *referee;
    enum lane_state state;
    bool is_stopping;
    void (*stopped_cb)(void *arg);
    int stopped;
    struct runner *runners;
    struct job *job;
    uv_timer_t job_timer, retry_timer, canary_timer;
    int handles;
    int64_t clock, jobs_made;
    int failures, canary_failures;
    bool is_suspect; /* the workers were started afresh because of the canary */
    json_t *seen;    /* of the GPU, when something was last timed on it; NULL: nothing was */
};

static void pump(struct lane *l);
static void close_job(struct lane *l);
static void job_timer_cb(uv_timer_t *timer);

const char *
lane_state_name(enum lane_state state)
{
    static const char *const names[] = { "starting", "checking", "idle", "busy", "quarantined", "stopped" };
    _Static_assert(ARRAY_LEN(names) == LANE_NSTATES, "name every state");
    return names[state];
}

static void
tell_referee(struct lane *l, json_t *body, const struct channel_fd *fds, size_t n)
{
    struct error err = { 0 };
    if (process_send(l->referee, body, fds, n, &err) != 0)
        log_debug(l->device.name, "%s", err.text);
}

/* --- runners --- */

static void
runner_free(struct runner *r)
{
    DL_DELETE(r->lane->runners, r);
    free(r);
}

/* Ends it, whatever it was for; a job must not point to it any more. */
static void
runner_discard(struct runner *r)
{
    if (r->is_told)
        tell_referee(r->lane, json_pack("{s:s, s:s}", "op", "drop", "child", child_name(r->child)), NULL, 0);
    child_abandon(r->child);
    runner_free(r);
}

static void
retry_cb(uv_timer_t *timer)
{
    pump(timer->data);
}

/*
 * Children that make their context have their limit only while the referee can
 * say that they have: one that is asked for a report hears nobody before that.
 */
static void
limit_warming(struct lane *l)
{
    bool is_deaf = l->job && l->job->is_asked;
    struct runner *r;

    DL_FOREACH(l->runners, r)
    if (r->state < RUNNER_READY)
        child_limit(r->child, is_deaf ? 0 : WARM_MS);
}

/* A child that nobody had used yet is gone. */
static void
count_failure(struct lane *l, const char *why)
{
    log_warn(l->device.name, "a child was lost before it was used: %s", why);
    if (++l->failures >= FAILURES_MAX) {
        l->failures = 0;
        process_kill(l->referee, "its children die before they are used");
    }
}

/* Keep what the candidate's process leaves behind: its output and how it ended. */
static void
job_inherit(struct job *j, struct child *c)
{
    const struct buffer *output = child_output(c);

    j->end = *child_end(c);
    j->has_end = true;
    buffer_append(&j->output, output->data ? output->data : "", output->size);
    j->output_lost += child_output_lost(c);
}

static void
runner_ended_cb(void *arg, struct child *c)
{
    struct runner *r = arg;
    struct lane *l = r->lane;
    struct job *j = l->job;
    bool is_lost = child_end(c)->is_lost;

    if (r->use == USE_POOL && !(is_lost && !zygote_is_ready(l->zygote)))
        count_failure(l, child_end(c)->error[0] ? child_end(c)->error : "it ended");
    if (j && j->candidate == r) {
        job_inherit(j, c);
        j->candidate = NULL;
    }
    if (j && j->reference == r)
        j->reference = NULL;
    if (r->is_told)
        tell_referee(l, json_pack("{s:s, s:s}", "op", "drop", "child", child_name(c)), NULL, 0);
    child_free(c);
    runner_free(r);
    pump(l);
}

static void
runner_spawned_cb(void *arg, struct child *c)
{
    struct runner *r = arg;
    struct channel_fd fds[] = { { "channel", child_take_channel(c) }, { "pidfd", child_take_pidfd(c) } };

    if (fds[0].fd < 0 || fds[1].fd < 0) {
        auto_close(&fds[0].fd);
        auto_close(&fds[1].fd);
        child_kill(c);
        return;
    }
    r->state = RUNNER_WARMING;
    r->is_told = true;
    tell_referee(r->lane, json_pack("{s:s, s:s}", "op", "child", "child", child_name(c)), fds,
                 ARRAY_LEN(fds));
}

static const struct child_ops runner_ops = { .spawned = runner_spawned_cb, .ended = runner_ended_cb };

static int
runner_new(struct lane *l, struct error *err)
{
    struct runner *r = calloc(1, sizeof(*r));

    if (!r)
        return error_set(err, ERR_NOMEM, "no memory for a child");
    r->lane = l;
    DL_APPEND(l->runners, r);
    if (child_new(l->zygote, CHILD_RUN, &runner_ops, r, &r->child, err) != 0) {
        runner_free(r);
        return err->code;
    }
    limit_warming(l);
    return 0;
}

static struct runner *
find_runner(struct lane *l, const char *name)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (strcmp(child_name(r->child), name) == 0)
        return r;
    return NULL;
}

static struct runner *
find_reference(const struct lane *l, const char *task_id)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->use == USE_REFERENCE && r->state == RUNNER_READY && strcmp(r->task_id, task_id) == 0)
        return r;
    return NULL;
}

static struct runner *
find_ready(struct lane *l)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->use == USE_POOL && r->state == RUNNER_READY)
        return r;
    return NULL;
}

static bool
is_quiet(struct lane *l)
{
    struct runner *r;
    DL_FOREACH(l->runners, r)
    if (r->state < RUNNER_READY)
        return false;
    return true;
}

/* Children are made beside tiny and full, never beside timing. */
static void
fill_pool(struct lane *l)
{
    struct job *j = l->job;
    struct runner *r;
    struct error err = { 0 };
    int64_t have = 0, want = l->config->pool;

    if (j && (j->phase == PHASE_QUIET || (j->is_asked && strcmp(j->stage, "timing") == 0)))
        return;
    if (j && j->phase == PHASE_ACQUIRE)
        want = (want < 1 ? 1 : want) + (j->is_registration || j->reference ? 0 : 1);
    DL_FOREACH(l->runners, r)
    have += r->use == USE_POOL;
    for (; have < want; have++) {
        if (runner_new(l, &err) != 0) {
            log_warn(l->device.name, "%s", err.text);
            uv_timer_start(&l->retry_timer, retry_cb, RETRY_MS, 0);
            return;
        }
    }
}

/* The references used longest ago make room. */
static void
evict_references(struct lane *l)
{
    for (;;) {
        struct runner *r, *oldest = NULL;
        int64_t n = 0;
        DL_FOREACH(l->runners, r)
        {
            if (r->use != USE_REFERENCE)
                continue;
            n++;
            if (!oldest || r->used < oldest->used)
                oldest = r;
        }
        if (n <= l->config->references_kept)
            return;
        runner_discard(oldest);
    }
}

/* --- a job's life --- */

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

static void
job_begin(struct lane *l, struct job *j)
{
    l->job = j;
    l->state = LANE_BUSY;
    l->clock++;
    pump(l);
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
    j->ops = ops;
    j->arg = arg;
    if (!j->entry || !j->task_entry || !j->spec || !j->reference_source || !j->kernels ||
        (s->cache && !j->cache)) {
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
    job_begin(l, j);
    return 0;
}

/* The referee owes a report from here on. */
static void
await(struct lane *l, int64_t limit_ms)
{
    struct job *j = l->job;

    j->phase = PHASE_ASKED;
    j->is_asked = true;
    j->strikes = 0;
    limit_warming(l);
    uv_timer_start(&l->job_timer, job_timer_cb, (uint64_t)limit_ms, 0);
}

/* Descriptors for the message, or false with those made closed again. */
static bool
make_memfds(struct channel_fd *fds, const char *const *bytes, const size_t *sizes, size_t n,
            struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        fds[i].fd = memfd_make(fds[i].name, bytes[i], sizes[i], err);
        if (fds[i].fd < 0) {
            while (i-- > 0)
                close(fds[i].fd);
            return false;
        }
    }
    return true;
}

static void
ask_register(struct lane *l)
{
    struct job *j = l->job;
    struct error err = { 0 };
    struct channel_fd fds[] = { { "source", -1 } };
    const char *bytes[] = { j->source };
    size_t sizes[] = { j->source_size };

    if (!make_memfds(fds, bytes, sizes, ARRAY_LEN(fds), &err)) {
        log_error(l->device.name, "%s", err.text);
        process_kill(l->referee, "no memory for its messages");
        return;
    }
    tell_referee(l,
                 json_pack("{s:s, s:s, s:s, s:s?, s:b, s:O?}", "op", "register", "job", j->id, "child",
                           child_name(j->reference->child), "entry", j->entry, "dynamic_shapes",
                           (int)j->dynamic_shapes, "cases", j->cases),
                 fds, ARRAY_LEN(fds));
    await(l, l->config->stage_limit_ms);
}

static void
ask_open(struct lane *l)
{
    struct job *j = l->job;
    struct error err = { 0 };
    struct channel_fd fds[] = {
        { "source", -1 }, { "spec", -1 }, { "reference_source", -1 }, { "kernels", -1 }
    };
    const char *bytes[] = { j->source, j->spec, j->reference_source, j->kernels };
    size_t sizes[] = { j->source_size, j->spec_size, j->reference_size, strlen(j->kernels) };
    char seed[17];

    if (!make_memfds(fds, bytes, sizes, ARRAY_LEN(fds), &err)) {
        log_error(l->device.name, "%s", err.text);
        process_kill(l->referee, "no memory for its messages");
        return;
    }
    snprintf(seed, sizeof(seed), "%016llx", (unsigned long long)j->seed);
    tell_referee(l,
                 json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:O, s:s, s:s?, s:I}", "op", "open", "job", j->id,
                           "reference", child_name(j->reference->child), "candidate",
                           child_name(j->candidate->child), "entry", j->entry, "task_entry", j->task_entry,
                           "policy", j->policy, "seed", seed, "cache", j->cache, "call_limit_ms",
                           (json_int_t)l->config->tiny_limit_ms),
                 fds, ARRAY_LEN(fds));
    snprintf(j->stage, sizeof(j->stage), "open");
    j->is_opened = true;
    /* A reference that is not loaded yet may take its own time. */
    await(l, l->config->stage_limit_ms * (j->reference->is_loaded ? 1 : 2));
}

static void
take_as(struct lane *l, struct runner *r, enum runner_use use)
{
    r->use = use;
    r->used = l->clock;
    child_limit(r->child, 0);
}

/* The children that the job needs, as far as they are ready. */
static void
acquire(struct lane *l)
{
    struct job *j = l->job;

    if (!j->reference && !j->is_registration)
        j->reference = find_reference(l, j->task_id);
    if (!j->reference && (j->reference = find_ready(l))) {
        take_as(l, j->reference, USE_REFERENCE);
        snprintf(j->reference->task_id, sizeof(j->reference->task_id), "%s",
                 j->is_registration ? "" : j->task_id);
    }
    if (!j->is_registration && !j->candidate && (j->candidate = find_ready(l)))
        take_as(l, j->candidate, USE_CANDIDATE);
    if (!j->reference || (!j->is_registration && !j->candidate))
        return;
    j->reference->used = l->clock;
    if (j->is_registration)
        ask_register(l);
    else
        ask_open(l);
}

void
lane_stage(struct lane *l, const char *stage, bool wants_evidence, int64_t limit_ms)
{
    struct job *j = l->job;

    snprintf(j->stage, sizeof(j->stage), "%s", stage);
    j->wants_evidence = wants_evidence;
    j->limit_ms = limit_ms;
    j->phase = PHASE_QUIET;
    pump(l);
}

static void
ask_stage(struct lane *l)
{
    struct job *j = l->job;

    if (strcmp(j->stage, "timing") == 0 && !is_quiet(l))
        return;
    tell_referee(l,
                 json_pack("{s:s, s:s, s:s, s:b}", "op", "stage", "job", j->id, "stage", j->stage, "evidence",
                           (int)j->wants_evidence),
                 NULL, 0);
    await(l, j->limit_ms);
}

void
lane_reopen(struct lane *l)
{
    struct job *j = l->job;

    j->phase = PHASE_REOPEN;
    if (j->candidate)
        child_kill(j->candidate->child);
    pump(l);
}

static void
forget_job(struct lane *l)
{
    struct job *j = l->job;

    if (j->is_opened)
        tell_referee(l, json_pack("{s:s, s:s}", "op", "close", "job", j->id), NULL, 0);
    j->is_opened = false;
}

static void
reopen(struct lane *l)
{
    if (l->job->candidate)
        return;
    forget_job(l);
    l->job->phase = PHASE_ACQUIRE;
    l->job->is_limited = false;
}

void
lane_close(struct lane *l)
{
    struct job *j = l->job;

    if (!j || j->phase == PHASE_CLOSE)
        return;
    j->phase = PHASE_CLOSE;
    if (j->candidate)
        child_kill(j->candidate->child);
    if (j->is_asked) /* the report of what was killed is still to come, and is nobody's any more */
        uv_timer_start(&l->job_timer, job_timer_cb, GRACE_MS, 0);
    pump(l);
}

static void
pump(struct lane *l)
{
    struct job *j = l->job;

    if (l->state != LANE_BUSY && l->state != LANE_IDLE)
        return;
    if (j && j->phase == PHASE_REOPEN)
        reopen(l);
    if (j && j->phase == PHASE_ACQUIRE)
        acquire(l);
    else if (j && j->phase == PHASE_QUIET)
        ask_stage(l);
    else if (j && j->phase == PHASE_CLOSE && !j->candidate && !j->is_asked)
        close_job(l);
    if (l->state == LANE_BUSY || l->state == LANE_IDLE)
        fill_pool(l);
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
    j->is_limited |= j->phase == PHASE_ASKED;
    if (j->strikes == 1 && j->candidate)
        child_kill(j->candidate->child);
    else if (j->strikes <= 2 && j->reference)
        child_kill(j->reference->child);
    else
        process_kill(l->referee, "it does not answer");
    uv_timer_start(&l->job_timer, job_timer_cb, GRACE_MS, 0);
}

/* --- the end of a job, and the canary --- */

static void
canary_timer_cb(uv_timer_t *timer)
{
    struct lane *l = timer->data;
    process_kill(l->referee, "the canary does not answer");
}

static void
send_canary(struct lane *l)
{
    l->state = LANE_CHECKING;
    tell_referee(l, json_pack("{s:s}", "op", "canary"), NULL, 0);
    uv_timer_start(&l->canary_timer, canary_timer_cb, CANARY_MS, 0);
}

static void
become_idle(struct lane *l)
{
    l->state = LANE_IDLE;
    pump(l);
    if (l->state == LANE_IDLE)
        l->idle(l->arg, l);
}

static void
canary_answered(struct lane *l, const char *outcome)
{
    uv_timer_stop(&l->canary_timer);
    if (l->state != LANE_CHECKING)
        return;
    if (strcmp(outcome, "pass") == 0) {
        l->canary_failures = 0;
        l->is_suspect = false;
        become_idle(l);
        return;
    }
    log_error(l->device.name, "the canary failed");
    if (++l->canary_failures < 2) {
        send_canary(l);
    } else if (!l->is_suspect) {
        l->is_suspect = true;
        l->canary_failures = 0;
        process_kill(l->referee, "the canary failed twice");
    } else {
        l->state = LANE_QUARANTINED;
        log_error(l->device.name, "quarantined: the canary fails with fresh workers too");
    }
}

/* Tells the owner, who may not give the lane another job from there. */
static void
tell_closed(struct job *j, const char *why)
{
    struct lane_closing closing = { .is_lost = why != NULL,
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
        send_canary(l);
    else
        l->state = LANE_CHECKING; /* not idle before the owner was told */
    tell_closed(j, NULL);
    if (l->state != LANE_CHECKING)
        return;
    evict_references(l);
    if (!is_violent)
        become_idle(l);
}

/* --- what the referee says --- */

static bool
is_violent_class(const char *class_)
{
    static const char *const classes[] = { "timeout", "crash", "oom", "launch", "infra" };
    for (size_t i = 0; class_ && i < ARRAY_LEN(classes); i++)
        if (strcmp(class_, classes[i]) == 0)
            return true;
    return false;
}

static json_t *
read_detail(struct lane *l, struct message *m)
{
    AUTO_FD int fd = message_take_fd(m, "detail");
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct error err = { 0 };

    if (fd < 0)
        return NULL;
    json_t *detail = NULL;
    if (memfd_read(fd, WORKER_DETAIL_MAX, &text, &err) == 0)
        detail = json_loadb(text.data, text.size, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(detail)) {
        log_warn(l->device.name, "a report's detail cannot be read: %s",
                 err.code ? err.text : "no JSON object");
        json_decref(detail);
        return NULL;
    }
    return detail;
}

/* 0, or ERR_PROTOCOL. */
static int
read_report(const struct message *m, struct lane_report *out)
{
    const char *outcome = message_text(m, "outcome");
    static const char *const names[] = { "pass", "fail", "skip" };
    size_t i = 0;

    while (outcome && i < ARRAY_LEN(names) && strcmp(outcome, names[i]) != 0)
        i++;
    out->stage = message_text(m, "stage");
    out->class_ = message_text(m, "class");
    if (!outcome || i == ARRAY_LEN(names) || !out->stage || (i == LANE_FAIL && !out->class_))
        return ERR_PROTOCOL;
    out->outcome = (enum lane_outcome)i;
    out->rule = message_text(m, "rule");
    if (out->outcome != LANE_FAIL)
        out->class_ = out->rule = NULL;
    out->run_ms = json_number_value(json_object_get(m->body, "run_ms"));
    out->done = (int)json_integer_value(json_object_get(m->body, "done"));
    out->of = (int)json_integer_value(json_object_get(m->body, "of"));
    json_t *error = json_object_get(m->body, "error");
    out->error = json_is_object(error) ? error : NULL;
    out->generality = message_text(m, "generality");
    out->is_reopen = json_is_true(json_object_get(m->body, "reopen"));
    out->is_reference = strcmp(out->stage, "reference") == 0;
    return 0;
}

/*
 * Clocks, temperature and the like after the newest block of a timing: asking NVML at other times would disturb one
 * that is under way.
 */
static void
note_seen(struct lane *l, json_t *detail)
{
    static const char *const figures[] = { "sm_mhz", "mem_mhz", "temp_c", "power_w" };
    json_t *blocks = json_object_get(json_object_get(detail, "clocks"), "blocks");
    json_t *block = json_array_get(blocks, json_array_size(blocks) - 1);
    char at[CLOCK_TEXT_SIZE];

    if (!json_is_object(block))
        return;
    clock_text(clock_wall_ms(), at);
    json_t *seen = json_pack("{s:s, s:b}", "at", at, "throttled",
                             (json_integer_value(json_object_get(block, "throttle")) & LANE_THROTTLES) != 0);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
        json_t *after = json_array_get(json_object_get(block, figures[i]), 1); /* [before, after] */
        json_object_set_new(seen, figures[i], json_is_number(after) ? json_incref(after) : json_null());
    }
    json_decref(l->seen);
    l->seen = seen;
}

static void
reported(struct lane *l, struct message *m)
{
    struct job *j = l->job;
    struct lane_report report = { 0 };

    if (read_report(m, &report) != 0) {
        process_kill(l->referee, "it broke the protocol");
        return;
    }
    j->is_asked = false;
    limit_warming(l);
    uv_timer_stop(&l->job_timer);
    j->is_violent |= is_violent_class(report.class_) || report.is_reopen;
    if (report.is_reference && j->reference) {
        runner_discard(j->reference);
        j->reference = NULL;
    } else if (j->reference) {
        j->reference->is_loaded = true;
    }
    if (j->phase == PHASE_CLOSE) {
        pump(l);
        return;
    }
    AUTO_JSON json_t *detail = read_detail(l, m);
    report.detail = detail;
    note_seen(l, detail);
    if (!report.is_reference) {
        report.stage = j->stage;
        if (j->is_limited) {
            report.outcome = LANE_FAIL;
            report.class_ = "timeout";
            report.rule = NULL;
            report.is_reopen = false;
        }
    }
    j->phase = PHASE_ANSWERED;
    j->ops->report(j->arg, &report);
}

static void
registered(struct lane *l, struct message *m, bool is_refused)
{
    struct job *j = l->job;
    AUTO_BUFFER struct buffer spec = BUFFER_INIT;
    AUTO_FD int fd = message_take_fd(m, "spec");
    AUTO_JSON json_t *error = json_incref(json_object_get(m->body, "error"));
    struct error err = { 0 };

    uv_timer_stop(&l->job_timer);
    if (!is_refused && (fd < 0 || memfd_read(fd, SPEC_MAX, &spec, &err) != 0)) {
        process_kill(l->referee, "it broke the protocol");
        return;
    }
    if (j->is_limited) {
        json_decref(error);
        error = json_pack("{s:s, s:s, s:n}", "type", "Timeout", "text", "the reference was not ready in time",
                          "line");
        is_refused = true;
    }
    if (j->reference && is_refused) {
        runner_discard(j->reference);
    } else if (j->reference) {
        snprintf(j->reference->task_id, sizeof(j->reference->task_id), "%s", j->task_id);
        j->reference->is_loaded = true;
    }
    l->job = NULL;
    l->state = LANE_CHECKING;
    limit_warming(l);
    j->registered(j->arg, is_refused ? NULL : &spec, is_refused ? error : NULL);
    job_free(j);
    if (l->state != LANE_CHECKING)
        return;
    evict_references(l);
    if (is_refused)
        send_canary(l);
    else
        become_idle(l);
}

static void
child_ready(struct lane *l, struct runner *r)
{
    if (r->state != RUNNER_WARMING)
        return;
    r->state = RUNNER_READY;
    child_limit(r->child, 0);
    l->failures = 0;
    pump(l);
}

static void
referee_message_cb(void *arg, struct message *m)
{
    struct lane *l = arg;
    const char *event = message_text(m, "ev"), *child = message_text(m, "child"),
               *job = message_text(m, "job");
    bool is_ours = l->job && job && strcmp(job, l->job->id) == 0 && l->job->is_asked;
    struct runner *r = child ? find_runner(l, child) : NULL;

    if (strcmp(event, "child_ready") == 0 && r) {
        child_ready(l, r);
    } else if (strcmp(event, "child_gone") == 0 && r) {
        r->is_told = false;
        child_kill(r->child);
    } else if (strcmp(event, "stage") == 0 && is_ours) {
        reported(l, m);
    } else if (strcmp(event, "registered") == 0 && is_ours) {
        registered(l, m, false);
    } else if (strcmp(event, "refused") == 0 && is_ours) {
        registered(l, m, true);
    } else if (strcmp(event, "canary") == 0) {
        const char *outcome = message_text(m, "outcome");
        canary_answered(l, outcome ? outcome : "");
    }
    /* "dropped", "closed", and news of what is forgotten here already: nothing depends on them. */
}

/* --- up and down --- */

static void
became_ready(struct lane *l)
{
    if (l->state == LANE_STARTING && zygote_is_ready(l->zygote) && process_state(l->referee) == PROCESS_READY)
        send_canary(l);
}

/* Either worker is gone, and with it what the other knew. */
static void
went_down(struct lane *l, const char *why)
{
    struct runner *r, *next;
    struct job *j = l->job;

    if (l->state == LANE_STARTING || l->state == LANE_STOPPED)
        return;
    l->state = LANE_STARTING;
    uv_timer_stop(&l->job_timer);
    uv_timer_stop(&l->canary_timer);
    uv_timer_stop(&l->retry_timer);
    l->job = NULL;
    zygote_kill(l->zygote, "started again with its referee");
    process_kill(l->referee, "started again with its zygote");
    DL_FOREACH_SAFE(l->runners, r, next)
    {
        child_abandon(r->child);
        runner_free(r);
    }
    if (j)
        tell_closed(j, why);
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

static void
referee_ready_cb(void *arg, json_t *message)
{
    (void)message;
    became_ready(arg);
}

static void
referee_down_cb(void *arg, const char *why)
{
    went_down(arg, why);
}

static const struct process_ops referee_ops = { referee_ready_cb, referee_message_cb, referee_down_cb };

static int
make_referee(struct lane *l, struct error *err)
{
    AUTO_FREE char *script = NULL;
    char name[48], elements[24];

    snprintf(name, sizeof(name), "referee %.31s", l->device.name);
    snprintf(elements, sizeof(elements), "%lld", (long long)l->config->interpreter_elements);
    if (asprintf(&script, "%s/referee.py", l->config->harness) < 0)
        return error_set(err, ERR_NOMEM, "no memory for the referee");
    const char *args[] = { l->config->python, script,           "--device", l->device.name, "--cores",
                           l->device.cores,   "--fd",           "3",        "--elements",   elements,
                           "--peaks",         l->config->peaks, NULL };
    return process_new(l->loop, name, args, REFEREE_START_MS, &referee_ops, l, &l->referee, err);
}

int
lane_new(uv_loop_t *loop, const struct config *config, struct uids *uids, struct cgroups *cgroups,
         const struct device *device, lane_idle_cb *idle, void *arg, struct lane **out, struct error *err)
{
    struct lane *l = calloc(1, sizeof(*l));
    char name[48];

    *out = NULL;
    if (!l)
        return error_set(err, ERR_NOMEM, "no memory for device %s", device->name);
    l->device = *device;
    l->loop = loop;
    l->config = config;
    l->idle = idle;
    l->arg = arg;
    uv_timer_t *const timers[] = { &l->job_timer, &l->retry_timer, &l->canary_timer };
    for (size_t i = 0; i < ARRAY_LEN(timers); i++) {
        uv_timer_init(loop, timers[i]);
        timers[i]->data = l;
        l->handles++;
    }
    snprintf(name, sizeof(name), "run zygote %.31s", device->name);
    int rc = zygote_new(loop, config, uids, cgroups, name, "run", device, &zygote_ops, l, &l->zygote, err);
    if (rc == 0)
        rc = make_referee(l, err);
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
    went_down(l, "the daemon stops");
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
    return find_reference(l, task_id) != NULL;
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

json_t *
lane_sandbox(const struct lane *l)
{
    return json_object_get(json_object_get(zygote_ready_message(l->zygote), "sandbox"), "layers");
}

static int
count_runners(const struct lane *l, enum runner_use use, bool is_ready_only)
{
    struct runner *r;
    int n = 0;

    DL_FOREACH(l->runners, r)
    n += r->use == use && (!is_ready_only || r->state == RUNNER_READY);
    return n;
}

void
lane_status(const struct lane *l, json_t *workers, json_t *gpus)
{
    int pid = process_pid(l->referee);
    const char *why = process_why(l->referee);

    json_array_append_new(workers, zygote_status(l->zygote));
    json_array_append_new(workers, json_pack("{s:s+, s:s, s:s, s:o, s:s, s:I, s:s?, s:s, s:{s:i, s:i, s:i}}",
                                             "name", "referee ", l->device.name, "kind", "referee", "device",
                                             l->device.name, "pid", pid ? json_integer(pid) : json_null(),
                                             "state", process_state_name(process_state(l->referee)), "starts",
                                             (json_int_t)process_starts(l->referee), "why", *why ? why : NULL,
                                             "lane", lane_state_name(l->state), "children", "ready",
                                             count_runners(l, USE_POOL, true), "references",
                                             count_runners(l, USE_REFERENCE, false), "candidates",
                                             count_runners(l, USE_CANDIDATE, false)));
    json_t *gpu = lane_gpu(l) ? json_copy(lane_gpu(l)) : NULL;
    if (gpu) {
        json_object_set_new(gpu, "device", json_string(l->device.name));
        json_object_set_new(gpu, "state", json_string(lane_state_name(l->state)));
        json_object_set_new(gpu, "seen", l->seen ? json_incref(l->seen) : json_null());
        json_array_append_new(gpus, gpu);
    }
}
