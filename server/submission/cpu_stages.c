#include "server/submission/cpu_stages.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/stages.h"
#include "server/queue/scheduler.h"
#include "server/submission/attempt.h"
#include "server/submission/attribution.h"
#include "server/submission/failure.h"
#include "server/submission/parts.h"
#include "server/submission/stage_end.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/workers/channel.h"
#include "server/workers/contention.h"
#include "server/workers/device_worker.h"
#include "server/workers/scratch.h"
#include "server/workers/prefork_pool.h"
#include "server/workers/zygote.h"

/*
 * The two stages that need no device, each in children of a zygote that serve one submission: `ast`, whose child only
 * reads the source; then `compile`, first a child that runs the candidate's module, which is believed
 * for its own failure, four flags and the number of its kernels, and never for a cheat. Where candidates are judged by their plan, that child traces the module, and a second one checks the plan
 * and compiles its kernels from the source's text (`build`). Else, and where either reports that this cannot be done, a
 * child compiles what the module launches, and another inspects the files that it left (`inspect`).
 */

/* Bytes of a plan and its kernels (server/harness/shared/plan.py); bytes of one with its images (server/harness/executor/archive.py). */
#define PLAN_MAX (16LL << 20)
#define KERNELS_MAX 4096
#define IMAGES_MAX (1LL << 30)

/* --- their children --- */

/* A memfd of at most `most` bytes: it is kept for as long as the submission, also after its sender has ended. */
static int
take_memfd(struct message *m, const char *name, off_t most)
{
    AUTO_FD int fd = message_take_fd(m, name);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && st.st_size <= most ? fd_take(&fd) : -1;
}

static void
child_message_cb(void *arg, struct child *c, struct message *m)
{
    struct submission *s = arg;
    struct attempt *j = s->attempt;
    const struct config *config = s->funnel->config;
    const char *event = message_text(m, "ev");

    if (event && strcmp(event, "progress") == 0 && j->step == STEP_BUILD) {
        json_int_t done = json_integer_value(json_object_get(m->body, "done"));
        json_int_t of = json_integer_value(json_object_get(m->body, "of"));
        if (done >= 0 && done <= of && of <= KERNELS_MAX) {
            j->built = (int)done;
            j->to_build = (int)of;
        }
    }
    if (event && strcmp(event, "result") == 0 && !j->result) {
        j->result = json_incref(m->body);
        if (j->step == STEP_COMPILE && j->is_traced && j->plan_fd < 0)
            j->plan_fd = take_memfd(m, "plan", PLAN_MAX);
        if (j->step == STEP_BUILD && j->images_fd < 0)
            j->images_fd = take_memfd(m, "images", IMAGES_MAX);
        j->is_short = contention_is_short(config->memory_limit_bytes, child_held_bytes(c));
    }
}

static struct stage_end ast_ended(struct submission *s, const struct child_end *end);
static struct stage_end compile_ended(struct submission *s, const struct child_end *end);
static struct stage_end inspect_ended(struct submission *s, const struct child_end *end);
static struct stage_end build_ended(struct submission *s, const struct child_end *end);

static void
drop_child(struct attempt *j)
{
    child_free(ptr_take(&j->child));
    json_decref(ptr_take(&j->result));
}

/* The worker that ended had no other submission, and ran the candidate's code: `ast` and `inspect` only read. */
static bool
is_suspect(const struct submission *s)
{
    return s->attempt->step == STEP_COMPILE && scheduler_is_sole(s->funnel->scheduler, &s->job);
}

static struct stage_end
after_child(struct submission *s, const struct child_end *end)
{
    struct attempt *j = s->attempt;

    if (submission_is_stopped(s) || end->is_lost) {
        bool is_others =
            end->is_others || zygote_is_ready(s->funnel->zygote); /* then no child could be made */
        drop_child(j);
        return stage_lost(is_suspect(s) && !is_others,
                          end->error[0] ? end->error : "its process could not be made");
    }
    switch (j->step) {
    case STEP_AST:
        return ast_ended(s, end);
    case STEP_COMPILE:
        return compile_ended(s, end);
    case STEP_BUILD:
        return build_ended(s, end);
    case STEP_INSPECT:
    case STEP_PUBLISH: /* it has no child that could end */
        break;
    }
    return inspect_ended(s, end);
}

/* s is the driver's from here on. */
static void
report(struct submission *s, struct stage_end end)
{
    if (end.event != STAGE_PENDING)
        s->attempt->ended(s, &end);
}

static void
child_ended_cb(void *arg, struct child *c)
{
    static const enum child_role roles[] = {
        [STEP_AST] = CHILD_AST,
        [STEP_COMPILE] = CHILD_COMPILE,
        [STEP_INSPECT] = CHILD_INSPECT,
        [STEP_BUILD] = CHILD_BUILD,
    };
    struct submission *s = arg;
    struct attempt *j = s->attempt;
    struct prefork_pool *pool = s->funnel->stage_pools[roles[j->step]];
    struct child_end end = *child_end(c);

    if (j->step == STEP_AST || j->step == STEP_COMPILE)
        attempt_take_output(j, child_output(c), child_output_lost(c), s->funnel->config->output_limit_bytes);
    report(s, after_child(s, &end));
    prefork_pool_fill(pool, 0); /* after the report: a child that this starts has the cores first */
}

static const struct child_ops child_ops = { .message = child_message_cb, .ended = child_ended_cb };

/* A child with its request on the way. body is taken. */
static struct stage_end
ask_child(struct submission *s, enum child_role role, json_t *body, bool has_source, bool has_spec)
{
    struct attempt *j = s->attempt;
    struct channel_fd fds[3];
    struct error err = { 0 };
    size_t n = 0;

    j->child = prefork_pool_take(s->funnel->stage_pools[role], &child_ops, s);
    int rc =
        j->child ? 0 : child_new(funnel_zygote_of(s->funnel, role), role, &child_ops, s, &j->child, &err);
    if (rc == 0 && has_source) {
        fds[n] = (struct channel_fd){ "source", memfd_make("source", j->source.data, j->source.size, &err) };
        rc = fds[n].fd < 0 ? err.code : 0;
        n += rc == 0;
    }
    if (rc == 0 && has_spec) {
        fds[n] = (struct channel_fd){ "spec", memfd_make("spec", j->task.spec, strlen(j->task.spec), &err) };
        rc = fds[n].fd < 0 ? err.code : 0;
        n += rc == 0;
    }
    if (rc == 0 && role == CHILD_BUILD)
        fds[n++] = (struct channel_fd){ "plan", fd_take(&j->plan_fd) };
    if (rc == 0 && role == CHILD_COMPILE) {
        char cache[SCRATCH_PATH_SIZE + 8];
        snprintf(cache, sizeof(cache), "%s/cache", child_scratch(j->child));
        json_object_set_new(body, "cache", json_string(cache));
    }
    if (rc == 0) {
        child_limit(j->child, s->funnel->config->stage_limit_ms);
        rc = child_send(j->child, body, fds, n, &err);
    } else {
        while (n-- > 0)
            close(fds[n].fd);
        json_decref(body);
    }
    if (rc == 0)
        return stage_pending();
    child_abandon(ptr_take(&j->child));
    return stage_lost(false, err.text);
}

/* KernelBench's own rule is about a process that calls: it has no plan. */
static bool
is_planned(const struct submission *s)
{
    return strcmp(s->attempt->policy.name, "kernelbench") != 0 && !s->attempt->is_live;
}

/* Another node has passed it: it took what it took there. */
static struct stage_end
carried_stage(struct attempt *j, int done, int of)
{
    j->started_ns -= (int64_t)(j->carried_ms[j->stage] * 1e6);
    return stage_decided(OUTCOME_PASS, CLASS_NONE, done, of);
}

/* --- ast --- */

struct stage_end
cpu_stages_ast(struct submission *s, stage_ended_cb *ended)
{
    struct attempt *j = s->attempt;

    if (j->is_carried)
        return carried_stage(j, 1, 1);
    j->ended = ended;
    j->step = STEP_AST;
    return ask_child(s, CHILD_AST,
                     json_pack("{s:s, s:s, s:O}", "op", "ast", "entry", j->entry, "policy", j->policy_json),
                     true, false);
}

static enum verdict_class
reported_class(json_t *result, enum stage stage, enum verdict_class otherwise)
{
    return class_reported(class_find(json_string_value(json_object_get(result, "class"))), stage, otherwise);
}

static struct stage_end
ast_ended(struct submission *s, const struct child_end *end)
{
    struct attempt *j = s->attempt;
    AUTO_JSON json_t *result = ptr_take(&j->result);

    drop_child(j);
    const char *outcome = json_string_value(json_object_get(result, "outcome"));
    j->kernels = json_incref(json_object_get(result, "kernels"));
    attempt_add_flags(j, json_object_get(result, "flags"));
    if (!outcome) {
        return stage_decided(OUTCOME_FAIL, failure_by_end(s, end), 0, 1);
    } else if (strcmp(outcome, "pass") == 0) {
        return stage_decided(OUTCOME_PASS, CLASS_NONE, 1, 1);
    } else {
        enum verdict_class class_ = reported_class(result, STAGE_AST, CLASS_SYNTAX);
        /* Without a fence the whole answer was used as code, and it is not code. */
        if (class_ == CLASS_SYNTAX && json_is_true(json_object_get(j->request, "is_guess")))
            class_ = CLASS_EXTRACT;
        json_t *error = json_object_get(result, "error");
        bool is_told = json_is_object(error) && class_ != CLASS_EXTRACT;
        failure_by_error(j, class_, is_told ? error : NULL,
                         class_ == CLASS_EXTRACT
                             ? "no code block is in the answer, and its text is not a Python module"
                             : "the source was refused");
        failure_note_rule(j, json_string_value(json_object_get(result, "rule")));
        return stage_decided(OUTCOME_FAIL, class_, 0, 1);
    }
}

/* --- compile --- */

struct stage_end
cpu_stages_compile(struct submission *s, stage_ended_cb *ended)
{
    struct attempt *j = s->attempt;

    if (j->is_carried)
        return carried_stage(j, j->carried_done, j->carried_of);
    j->ended = ended;
    j->is_traced = is_planned(s);
    j->step = STEP_COMPILE;
    return ask_child(s, CHILD_COMPILE,
                     json_pack("{s:s, s:s, s:s, s:O, s:b}", "op", "compile", "entry", j->entry, "target",
                               s->funnel->config->target, "policy", j->policy_json, "trace",
                               (int)j->is_traced),
                     true, true);
}

static struct stage_end
begin_build(struct submission *s)
{
    struct attempt *j = s->attempt;

    j->step = STEP_BUILD;
    j->built = j->to_build = 0;
    return ask_child(s, CHILD_BUILD,
                     json_pack("{s:s, s:s, s:O, s:b}", "op", "build", "target", s->funnel->config->target,
                               "policy", j->policy_json, "others",
                               (int)device_worker_is_gpu(s->funnel->device_workers[0])),
                     true, false);
}

/*
 * A child reported, with this reason, that no plan can be made: it is judged live, unless the policy requires a plan.
 */
static struct stage_end
go_live(struct submission *s, json_t *error)
{
    struct attempt *j = s->attempt;

    j->is_live = true;
    j->untraced = json_is_object(error) ? json_incref(error) : NULL;
    auto_close(&j->plan_fd);
    auto_close(&j->images_fd);
    attempt_add_flag(j, "untraced");
    if (j->policy.require_plan) {
        failure_without_plan(j);
        failure_note_rule(j, "require_plan");
        return stage_decided(OUTCOME_FAIL, CLASS_FORM, 0, 1);
    }
    return cpu_stages_compile(s, j->ended);
}

static struct stage_end decide_compile(struct submission *s);

static struct stage_end
begin_inspect(struct submission *s)
{
    struct attempt *j = s->attempt;

    j->step = STEP_INSPECT;
    return ask_child(s, CHILD_INSPECT,
                     json_pack("{s:s, s:s, s:s, s:O}", "op", "inspect", "target", s->funnel->config->target,
                               "cache", j->cache, "kernels", j->kernels),
                     false, false);
}

static struct stage_end
after_publishing(struct submission *s, int code, const struct error *err)
{
    struct attempt *j = s->attempt;

    if (submission_is_stopped(s))
        return stage_lost(false, "it was stopped");
    if (code == ERR_FULL) {
        attempt_fail(j, STAGE_COMPILE, CLASS_COMPILE, NULL,
                     "compile: the compiled files are too many or too large.");
        return stage_decided(OUTCOME_FAIL, CLASS_COMPILE, 0, 1);
    }
    if (code != 0 && code != ERR_NOTFOUND)
        return stage_lost(false, err->text);
    return code == 0 && json_array_size(j->kernels) > 0 ? begin_inspect(s) : decide_compile(s);
}

static void
published_cb(void *arg, int code, const struct error *err)
{
    struct submission *s = arg;

    drop_child(s->attempt);
    if (code == ERR_NOTFOUND)
        s->attempt->cache[0] = '\0';
    report(s, after_publishing(s, code, err));
}

static struct stage_end
compile_ended(struct submission *s, const struct child_end *end)
{
    struct attempt *j = s->attempt;
    struct error err = { 0 };
    char from[SCRATCH_PATH_SIZE + 8];

    json_decref(ptr_take(&j->report));
    j->report = ptr_take(&j->result);
    if (j->plan_fd >= 0 && text_is(j->report, "outcome", "pass")) {
        drop_child(j);
        return begin_build(s);
    }
    /* A child that claims success and sent no plan is treated as one that reports that there is none. */
    if (j->is_traced &&
        (text_is(j->report, "outcome", "untraced") || text_is(j->report, "outcome", "pass"))) {
        drop_child(j);
        return go_live(s, json_object_get(j->report, "error"));
    }
    if (!json_is_string(json_object_get(j->report, "outcome"))) {
        drop_child(j);
        return stage_decided(OUTCOME_FAIL, failure_by_end(s, end), 0, 1);
    }
    /* Its directory goes with the child, so the child is kept until the cache has left it. */
    j->step = STEP_PUBLISH;
    snprintf(from, sizeof(from), "%s/cache", child_scratch(j->child));
    /* A rerun is the same attempt once more: what the first one left may still be on its way out. */
    snprintf(j->cache, sizeof(j->cache), "%.400s/cache-%s-%d%s", s->funnel->config->scratch, s->id,
             s->attempts, s->job.is_rerun ? "-alone" : "");
    if (scratch_publish(s->funnel->loop, from, j->cache, published_cb, s, &err) != 0) {
        j->cache[0] = '\0';
        drop_child(j);
        return stage_lost(false, err.text);
    }
    return stage_pending();
}

static struct stage_end
inspect_ended(struct submission *s, const struct child_end *end)
{
    struct attempt *j = s->attempt;
    AUTO_JSON json_t *result = ptr_take(&j->result);

    drop_child(j);
    json_t *kernels = json_object_get(result, "kernels");
    if (!json_is_array(kernels)) {
        return stage_decided(OUTCOME_FAIL, failure_by_end(s, end), 0, 1);
    }
    j->compiled = json_incref(kernels);
    return decide_compile(s);
}

static struct stage_end
build_ended(struct submission *s, const struct child_end *end)
{
    struct attempt *j = s->attempt;
    AUTO_JSON json_t *result = ptr_take(&j->result);
    json_t *error = json_object_get(result, "error");
    int done = (int)json_integer_value(json_object_get(result, "done"));
    int of = (int)json_integer_value(json_object_get(result, "of"));

    drop_child(j);
    attempt_add_flags(j, json_object_get(result, "flags"));
    if (text_is(result, "outcome", "untraced")) {
        return go_live(s, error);
    } else if (text_is(result, "outcome", "pass") && j->images_fd >= 0) {
        j->compiled = json_incref(json_object_get(result, "kernels"));
        j->plan = json_incref(json_object_get(result, "plan"));
        return stage_decided(OUTCOME_PASS, CLASS_NONE, done, of);
    } else if (text_is(result, "outcome", "fail")) {
        enum verdict_class class_ = reported_class(result, STAGE_COMPILE, CLASS_COMPILE);
        failure_by_error(j, class_, json_is_object(error) ? error : NULL, "its plan was refused");
        failure_note_rule(j, json_string_value(json_object_get(result, "rule")));
        return stage_decided(OUTCOME_FAIL, class_, done, of > done ? of : done + 1);
    } else {
        of = j->to_build > j->built ? j->to_build : j->built + 1;
        return stage_decided(OUTCOME_FAIL, failure_by_end(s, end), j->built, of);
    }
}

/* How many of the kernels that the syntax tree names were found compiled. */
static int
count_compiled(const struct attempt *j)
{
    json_t *name, *kernel;
    size_t i, k;
    int n = 0;

    json_array_foreach(j->kernels, i, name)
    {
        bool is_found = false;
        json_array_foreach(j->compiled, k, kernel) is_found |=
            json_equal(name, json_object_get(kernel, "name")) != 0;
        n += is_found;
    }
    return n;
}

/* The names that count: jitted functions that only serve others are compiled as part of those. */
static int
count_wanted(const struct attempt *j, int compiled)
{
    size_t told = json_array_size(json_object_get(j->report, "kernels")) +
                  json_array_size(json_object_get(j->report, "unreached"));
    size_t named = json_array_size(j->kernels);
    int wanted = (int)(told < named ? told : named);
    return wanted > compiled ? wanted : compiled;
}

static struct stage_end
decide_compile(struct submission *s)
{
    /* Its child may set these flags alone, and none of another stage. */
    static const char *const claimed[] = { "compile_deferred", "no_launch", "autotune_bounded",
                                           "launcher_not_built", NULL };
    struct attempt *j = s->attempt;
    bool is_pass = text_is(j->report, "outcome", "pass");
    json_t *flags = json_object_get(j->report, "flags"), *error = json_object_get(j->report, "error");
    int done = count_compiled(j), of = count_wanted(j, done);

    for (const char *const *flag = claimed; *flag; flag++)
        if (json_has_text(flags, *flag))
            attempt_add_flag(j, *flag);
    if (json_array_size(json_object_get(j->report, "unreached")) > 0 || json_has_text(flags, "no_launch"))
        attempt_add_flag(j, "compile_deferred");
    if (is_pass && done == 0 && strcmp(j->policy.name, "kernelbench") != 0 &&
        !json_has_text(j->flags, "compile_deferred")) {
        attempt_fail(j, STAGE_COMPILE, CLASS_COMPILE, NULL,
                     "compile: no kernel of the candidate's was compiled for the target %s.",
                     s->funnel->config->target);
        return stage_decided(OUTCOME_FAIL, CLASS_COMPILE, 0, of > 0 ? of : 1);
    } else if (is_pass) {
        return stage_decided(OUTCOME_PASS, CLASS_NONE, done, of);
    } else {
        enum verdict_class class_ = reported_class(j->report, STAGE_COMPILE, CLASS_IMPORT);
        if (class_info(class_)->is_cheat) /* its own process does not say that: trusted ones find it */
            class_ = CLASS_IMPORT;
        failure_by_error(j, class_, json_is_object(error) ? error : NULL, "the module could not be compiled");
        if (class_ == CLASS_OOM)
            attribution_said_oom(j);
        return stage_decided(OUTCOME_FAIL, class_, done, of > done ? of : done + 1);
    }
}
