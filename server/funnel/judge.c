#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/funnel/private.h"
#include "server/workers/contention.h"

/*
 * The story of one submission, read top down: begun, read (ast), compiled,
 * given a device, tried small (tiny), tried in full, timed. Each stage ends in
 * decide(), which notes the outcome and goes on, or finishes.
 *
 * What goes wrong is either the candidate's, and then judgement_fail() names its
 * class; or ours, and then lose() has it done again.
 */

/* --- noting outcomes --- */

static bool
is_one_of(const char *word, const char *const *words)
{
    for (; word && *words; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

static double
ms_since(int64_t then_ns)
{
    return (double)(clock_monotonic_ns() - then_ns) / 1e6;
}

/* It waited for this stage. */
static void
note_wait(struct submission *s, int stage, double wait_ms)
{
    struct stats_stage *now = &funnel_now(s->funnel)->stages[stage];

    s->judgement->stages[stage].wait_ms = wait_ms;
    s->funnel->stages[stage].waited++;
    s->funnel->stages[stage].wait_ms += wait_ms;
    now->waited++;
    now->wait_ms += wait_ms;
    now->wait_max_ms = fmaxf(now->wait_max_ms, (float)wait_ms);
}

static void
note(struct submission *s, enum outcome outcome, const char *class_, int done, int of)
{
    struct judgement *j = s->judgement;
    struct stage_record *r = &j->stages[j->stage];
    struct stage_figures *figures = &s->funnel->stages[j->stage];

    s->funnel->generation++;
    r->outcome = outcome;
    r->done = done;
    r->of = of;
    r->run_ms = fmax(0, ms_since(j->started_ns) - j->turn_ms);
    r->wait_ms += j->turn_ms;
    j->turn_ms = 0;
    snprintf(r->class_, sizeof(r->class_), "%s", outcome == OUTCOME_FAIL && class_ ? class_ : "");
    figures->by_outcome[outcome]++;
    figures->run_ms += r->run_ms;
    histogram_add(&s->funnel->run_seconds[j->stage], &histogram_seconds, r->run_ms / 1000);
    struct stats_stage *now = &funnel_now(s->funnel)->stages[j->stage];
    now->by_outcome[outcome == OUTCOME_PASS   ? STATS_PASS
                    : outcome == OUTCOME_FAIL ? STATS_FAIL
                                              : STATS_SKIP]++;
    now->run_ms += r->run_ms;
    now->run_max_ms = fmaxf(now->run_max_ms, (float)r->run_ms);
    if (j->lane) {
        figures->device_s += r->run_ms / 1000;
        now->device_s += r->run_ms / 1000;
    }
    if (outcome == OUTCOME_PASS && j->failed_stage < 0)
        j->passed = j->stage;
    log_info(s->id, "%s: %s%s%s, %.0f ms", stage_name((enum stage)j->stage),
             outcome == OUTCOME_PASS   ? "pass"
             : outcome == OUTCOME_FAIL ? "fail"
                                       : "skip",
             *r->class_ ? " " : "", r->class_, r->run_ms);
}

static void
add_flags(struct judgement *j, json_t *flags)
{
    json_t *flag, *had;
    size_t i, k;

    json_array_foreach(flags, i, flag)
    {
        bool is_known = !json_is_string(flag);
        json_array_foreach(j->flags, k, had) is_known |= json_equal(flag, had) != 0;
        if (!is_known)
            json_array_append(j->flags, flag);
    }
}

static void
add_flag(struct judgement *j, const char *name)
{
    AUTO_JSON json_t *flags = json_pack("[s]", name);
    add_flags(j, flags);
}

static void
take_output(struct judgement *j, const struct buffer *output, int64_t lost, int64_t limit)
{
    size_t room = (size_t)limit > j->log.size ? (size_t)limit - j->log.size : 0;
    size_t kept = output->size < room ? output->size : room;

    if (kept > 0 && buffer_append(&j->log, output->data, kept) != 0)
        kept = 0;
    j->log_lost += lost + (int64_t)(output->size - kept);
}

/* --- ours --- */

static void
conclude_lost(struct submission *s, const char *why)
{
    struct judgement *j = s->judgement;
    int stage = j->stage < 0 ? STAGE_AST : j->stage;

    /* It was alone on its worker each time but the first, when nobody could tell whose doing it was. */
    if (s->lonely_losses > 0 && s->lonely_losses >= s->losses - 1)
        judgement_fail(j, stage, "crash", NULL, "It took its worker down %d times; the last time: %s.",
                       s->losses, why);
    else
        judgement_fail(j, stage, "infra", NULL, "It could not be judged in %d attempts: %s.", s->attempts,
                       why);
    submission_conclude(s, EVENT_FINISH);
}

/* A worker of ours failed it. Its processes are gone. */
static void
lose(struct submission *s, bool is_alone, const char *why)
{
    scheduler_release_slot(s);
    s->losses++;
    s->lonely_losses += is_alone;
    log_warn(s->id, "lost in attempt %d: %s", s->attempts, why);
    if (s->losses >= s->funnel->config->max_attempts)
        conclude_lost(s, why);
    else
        submission_return(s, false);
}

/* Its processes are gone. True: that was all that was waited for. */
static bool
is_stopped(struct submission *s)
{
    if (!s->is_cancelled && !s->is_returned)
        return false;
    scheduler_release_slot(s);
    if (s->is_cancelled)
        submission_conclude(s, EVENT_CANCEL);
    else
        submission_return(s, true);
    return true;
}

void
judge_untimed(struct submission *s)
{
    static const char why[] = "it is not among the best of its group";
    struct judgement *j = s->judgement;

    j->stage = STAGE_TIMING;
    j->stages[STAGE_TIMING] = (struct stage_record){ .outcome = OUTCOME_SKIP, .why = why };
    s->funnel->stages[STAGE_TIMING].by_outcome[OUTCOME_SKIP]++;
    j->timing = json_pack("{s:s, s:s}", "outcome", "skipped", "why", why);
    submission_conclude(s, EVENT_FINISH);
}

void
judge_stop(struct submission *s)
{
    struct judgement *j = s->judgement;

    if (j->lane)
        lane_close(j->lane);
    else if (j->child)
        child_kill(j->child);
}

/* --- a neighbour's --- */

/*
 * Failures that somebody else may bring about. A call that the GPU refuses, or that breaks its context, is not one of
 * them by itself: contexts do not share their errors. `launch` and `crash` are doubted only where other children on
 * the device ended at the same time, or its memory was used up.
 */
static const char *const provisional[] = { "timeout", "oom", "launch", "crash", NULL };

static const char short_of_memory[] = "the machine had not as much memory left as it may have";

/* A launch, a module or a context's stack takes less: with so much of the device's memory free it was not for want. */
#define GPU_SPARE (256LL << 20)

/* After the failure of this stage: what of it may be a neighbour's. Only the first failure counts, so only its doubt does. */
static void
doubt(struct judgement *j, const char *format, ...)
{
    va_list args;

    if (j->failed_stage != j->stage || j->doubt[0])
        return;
    va_start(args, format);
    vsnprintf(j->doubt, sizeof(j->doubt), format, args);
    va_end(args);
}

static void
doubt_timeout(struct judgement *j, int64_t stolen_ms, int64_t limit_ms)
{
    if (contention_is_starved(stolen_ms < 0 ? -1 : stolen_ms * 1000000, limit_ms))
        doubt(j, "others had the CPU for %.1f s while it was ready to run, of a limit of %g s",
              (double)stolen_ms / 1000, (double)limit_ms / 1000);
}

static void
doubt_memory(struct submission *s, int64_t held_bytes)
{
    if (contention_is_short(s->funnel->config->memory_limit_bytes, held_bytes))
        doubt(s->judgement, "%s", short_of_memory);
}

static void
doubt_end(struct submission *s, const char *class_, const struct child_end *end)
{
    if (strcmp(class_, "timeout") == 0)
        doubt_timeout(s->judgement, end->stolen_ms, s->funnel->config->stage_limit_ms);
    if (strcmp(class_, "crash") == 0 && end->is_victim)
        doubt(s->judgement, "it was killed while the machine was out of memory");
}

/* Work on the device that was found to be its own; whose it is can be said for certain only where nobody else is. */
static bool
is_background(const struct judgement *j)
{
    static const char *const hack[] = { "hack", NULL };

    return is_one_of(j->class_, hack) && strcmp(j->rule, "background_work") == 0;
}

static void
doubt_report(struct submission *s, const struct lane_report *r, const char *class_)
{
    struct judgement *j = s->judgement;

    if (strcmp(class_, "timeout") == 0) {
        doubt_timeout(j, r->stolen_ms, r->limit_ms);
        if (r->is_beside && lane_gpu(j->lane))
            doubt(j, "others used the device at the same time");
    } else if (is_background(j)) {
        if (r->is_beside)
            doubt(j, "others were on the device at the same time");
    } else if (lane_is_gpu(j->lane) && is_one_of(class_, provisional)) {
        if (r->neighbours > 0)
            doubt(j, "%d other processes on the device ended at the same time", r->neighbours);
        else if (r->free_bytes >= 0 && r->free_bytes < GPU_SPARE)
            doubt(j, "the device had %lld MiB of memory left", (long long)(r->free_bytes >> 20));
    }
    if (strcmp(class_, "oom") == 0)
        doubt_memory(s, r->held_bytes);
}

/* True: the next time it is judged alone. Once, and only where there is something to doubt. */
static bool
is_promised_rerun(struct submission *s, const char *class_, int stage)
{
    const struct judgement *j = s->judgement;

    if (!j->doubt[0] || s->rerun.class_[0])
        return false;
    s->rerun = (struct rerun){ .stage = (enum stage)stage };
    snprintf(s->rerun.class_, sizeof(s->rerun.class_), "%s", class_);
    snprintf(s->rerun.why, sizeof(s->rerun.why), "%s", j->doubt);
    s->is_rerun = alone_promise(&s->funnel->house, &s->alone, clock_monotonic_ns());
    s->funnel->reruns.refused += !s->is_rerun;
    log_info(s->id, "%s at %s is %s: %s", class_, stage_name(s->rerun.stage),
             s->is_rerun ? "judged again alone" : "in doubt, and there is no time to judge it again",
             j->doubt);
    return s->is_rerun;
}

/* Its processes are gone, and its verdict is clear. */
static void
conclude(struct submission *s)
{
    const struct judgement *j = s->judgement;

    if (!s->is_cancelled && (is_one_of(j->class_, provisional) || is_background(j)) &&
        is_promised_rerun(s, j->class_, j->failed_stage))
        submission_return(s, true);
    else
        submission_conclude(s, EVENT_FINISH);
}

/* --- from stage to stage --- */

static void begin_compile(struct submission *s);
static void begin_stage_on_lane(struct submission *s);

static void
finish(struct submission *s)
{
    struct judgement *j = s->judgement;

    scheduler_release_slot(s);
    if (j->lane && baseline_begin(s))
        return;
    if (j->lane) {
        j->is_finishing = true;
        lane_close(j->lane);
        return;
    }
    conclude(s);
}

static void
get_ready(struct submission *s)
{
    struct funnel *f = s->funnel;

    submission_move(s, EVENT_NEXT);
    scheduler_release_slot(s);
    /* No device is given to anybody any more. */
    if (f->is_draining) {
        submission_return(s, true);
        return;
    }
    submission_waits(s);
    scheduler_announce(f, true);
    scheduler_add(s, false);
    scheduler_kick(f);
}

/* Whether the next stage follows on the one that was just decided. */
static bool
goes_on(const struct judgement *j)
{
    if (j->stage == STAGE_TIMING || j->until == j->stage)
        return false;
    if (j->failed_stage < 0)
        return true;
    if (j->stage + 1 == STAGE_TIMING)
        return !j->policy.skip_timing_on_failure && (!j->policy.staged || j->failed_stage == STAGE_FULL);
    return !j->policy.staged;
}

static void
park(struct submission *s)
{
    struct judgement *j = s->judgement;
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(j->full, "cases"), i, item)
    {
        json_t *took = json_object_get(item, "call_ms");
        if (json_is_number(took) && json_number_value(took) > 0)
            s->rough_ms = fmin(s->rough_ms, json_number_value(took)); /* fmin() leaves a NAN for a number */
    }
    j->is_parking = true;
    lane_close(j->lane);
}

static void
decide(struct submission *s, enum outcome outcome, const char *class_, int done, int of)
{
    struct judgement *j = s->judgement;

    note(s, outcome, class_, done, of);
    if (!goes_on(j)) {
        finish(s);
    } else if (j->stage == STAGE_AST) {
        submission_move(s, EVENT_NEXT);
        begin_compile(s);
    } else if (j->stage == STAGE_COMPILE) {
        get_ready(s);
    } else if (j->stage == STAGE_FULL && group_chooses(s)) {
        park(s);
    } else {
        submission_move(s, EVENT_NEXT);
        begin_stage_on_lane(s);
    }
}

/* --- children of the CPU stages --- */

static void
child_message_cb(void *arg, struct child *c, struct message *m)
{
    struct submission *s = arg;
    struct judgement *j = s->judgement;
    const struct config *config = s->funnel->config;
    const char *event = message_text(m, "ev");

    if (event && strcmp(event, "result") == 0 && !j->result) {
        j->result = json_incref(m->body);
        j->is_short = contention_is_short(config->memory_limit_bytes, child_held_bytes(c));
    }
}

static void ast_ended(struct submission *s, const struct child_end *end);
static void compile_ended(struct submission *s, const struct child_end *end);
static void inspect_ended(struct submission *s, const struct child_end *end);

static void
drop_child(struct judgement *j)
{
    child_free(ptr_take(&j->child));
    json_decref(ptr_take(&j->result));
}

static void
child_ended_cb(void *arg, struct child *c)
{
    static const enum child_role roles[] = {
        [STEP_AST] = CHILD_AST, [STEP_COMPILE] = CHILD_COMPILE, [STEP_INSPECT] = CHILD_INSPECT
    };
    struct submission *s = arg;
    struct judgement *j = s->judgement;
    struct spares *spares = s->funnel->spares[roles[j->step]];
    struct child_end end = *child_end(c);

    if (j->step != STEP_INSPECT)
        take_output(j, child_output(c), child_output_lost(c), s->funnel->config->output_limit_bytes);
    if (s->is_cancelled || s->is_returned || end.is_lost) {
        drop_child(j);
        if (!is_stopped(s))
            lose(s, s->funnel->alone == s || scheduler_is_alone(s),
                 end.error[0] ? end.error : "its process could not be made");
    } else if (j->step == STEP_AST) {
        ast_ended(s, &end);
    } else if (j->step == STEP_COMPILE) {
        compile_ended(s, &end);
    } else {
        inspect_ended(s, &end);
    }
    spares_fill(spares); /* s may be gone; and its answer comes first */
}

static const struct child_ops child_ops = { .message = child_message_cb, .ended = child_ended_cb };

/* A child with its request on the way. body is taken. False: the submission is lost, touch it no more. */
static bool
ask_child(struct submission *s, enum child_role role, json_t *body, bool has_source, bool has_spec)
{
    struct judgement *j = s->judgement;
    struct channel_fd fds[2];
    struct error err = { 0 };
    size_t n = 0;

    int rc = spares_take(s->funnel->spares[role], &child_ops, s, &j->child, &err);
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
        return true;
    child_abandon(ptr_take(&j->child));
    lose(s, false, err.text);
    return false;
}

/* "SIGSEGV" and not only its number. */
void
crash_text(const struct child_end *end, char *out, size_t size)
{
    const char *name = end && end->signal ? sigabbrev_np(end->signal) : NULL;

    if (!end)
        snprintf(out, size, "ended before answering");
    else if (name)
        snprintf(out, size, "was killed by signal %d (SIG%s) before answering", end->signal, name);
    else if (end->signal)
        snprintf(out, size, "was killed by signal %d before answering", end->signal);
    else
        snprintf(out, size, "exited with status %d before answering", end->code);
}

/* It was killed for what it held, or by the kernel's own killer, which takes whoever holds most. NULL: neither. */
static const char *
used_up(const struct funnel *f, const struct child_end *end)
{
    if (!end)
        return NULL;
    if (strcmp(end->over, "disk") == 0)
        return "the space for its files";
    if (strcmp(end->over, "descriptors") == 0)
        return "its descriptors";
    if (*end->over || (end->signal == SIGKILL && !end->was_killed &&
                       (double)end->max_rss_kb * 1024 > 0.9 * (double)f->config->memory_limit_bytes))
        return "its memory";
    return NULL;
}

/* A child ended without a result: the candidate's doing. Gives the class. */
static const char *
fail_by_end(struct submission *s, const struct child_end *end)
{
    struct judgement *j = s->judgement;
    const char *stage = stage_name((enum stage)j->stage);
    const char *what = used_up(s->funnel, end);
    char how[128];

    if (what) {
        judgement_fail(j, j->stage, "oom", NULL, "%s: the process used up %s and was killed.", stage, what);
        return "oom";
    }
    if (end->was_limited) {
        judgement_fail(j, j->stage, "timeout", NULL,
                       "%s: the process did not finish within %g s and was stopped.", stage,
                       (double)s->funnel->config->stage_limit_ms / 1000);
        doubt_end(s, "timeout", end);
        return "timeout";
    }
    crash_text(end, how, sizeof(how));
    judgement_fail(j, j->stage, "crash", NULL, "%s: the candidate's process %s.", stage, how);
    doubt_end(s, "crash", end);
    return "crash";
}

/* "compile: CompilationError at line 12: text" */
static void
fail_by_error(struct judgement *j, const char *class_, json_t *error, const char *otherwise)
{
    const char *type = json_string_value(json_object_get(error, "type"));
    const char *text = json_string_value(json_object_get(error, "text"));
    json_t *line = json_object_get(error, "line");
    char where[32] = "";

    if (json_is_integer(line))
        snprintf(where, sizeof(where), " at line %lld", (long long)json_integer_value(line));
    if (!text)
        text = otherwise;
    /* The last lines of a traceback say what happened. */
    size_t size = strlen(text);
    const char *tail = size > 1200 ? text + size - 1200 : text;
    while (tail != text && (*tail & 0xc0) == 0x80)
        tail++;
    judgement_fail(j, j->stage, class_, error, "%s: %s%s: %s%s", stage_name((enum stage)j->stage),
                   type ? type : class_, where, tail == text ? "" : "… ", tail);
}

/* After the failure of this stage. Only the first failure counts, so only its rule does. */
static void
note_rule(struct judgement *j, const char *rule)
{
    if (rule && j->failed_stage == j->stage)
        snprintf(j->rule, sizeof(j->rule), "%s", rule);
}

/* --- ast --- */

static void
begin_ast(struct submission *s)
{
    struct judgement *j = s->judgement;

    j->step = STEP_AST;
    ask_child(s, CHILD_AST,
              json_pack("{s:s, s:s, s:O}", "op", "ast", "entry", j->entry, "policy", j->policy_json), true,
              false);
}

static void
ast_ended(struct submission *s, const struct child_end *end)
{
    static const char *const classes[] = { "syntax", "policy", NULL };
    struct judgement *j = s->judgement;
    AUTO_JSON json_t *result = ptr_take(&j->result);

    drop_child(j);
    const char *outcome = json_string_value(json_object_get(result, "outcome"));
    j->kernels = json_incref(json_object_get(result, "kernels"));
    add_flags(j, json_object_get(result, "flags"));
    if (!outcome) {
        decide(s, OUTCOME_FAIL, fail_by_end(s, end), 0, 1);
    } else if (strcmp(outcome, "pass") == 0) {
        decide(s, OUTCOME_PASS, NULL, 1, 1);
    } else {
        const char *class_ = json_string_value(json_object_get(result, "class"));
        class_ = is_one_of(class_, classes) ? class_ : "syntax";
        /* The whole answer was taken for code, for want of a fence, and it is none. */
        if (strcmp(class_, "syntax") == 0 && json_is_true(json_object_get(j->request, "is_guess")))
            class_ = "extract";
        json_t *error = json_object_get(result, "error");
        fail_by_error(j, class_, json_is_object(error) ? error : NULL, "the source was refused");
        note_rule(j, json_string_value(json_object_get(result, "rule")));
        decide(s, OUTCOME_FAIL, class_, 0, 1);
    }
}

/* --- compile: a child that runs the candidate's module, then one that looks at what it left --- */

static void
begin_compile(struct submission *s)
{
    struct judgement *j = s->judgement;

    j->step = STEP_COMPILE;
    ask_child(s, CHILD_COMPILE,
              json_pack("{s:s, s:s, s:s, s:O}", "op", "compile", "entry", j->entry, "target",
                        s->funnel->config->target, "policy", j->policy_json),
              true, true);
}

static void decide_compile(struct submission *s);

static void
begin_inspect(struct submission *s)
{
    struct judgement *j = s->judgement;

    j->step = STEP_INSPECT;
    ask_child(s, CHILD_INSPECT,
              json_pack("{s:s, s:s, s:s, s:O}", "op", "inspect", "target", s->funnel->config->target, "cache",
                        j->cache, "kernels", j->kernels),
              false, false);
}

static void
published_cb(void *arg, int code, const struct error *err)
{
    struct submission *s = arg;
    struct judgement *j = s->judgement;

    drop_child(j);
    if (code == ERR_NOTFOUND)
        j->cache[0] = '\0';
    if (is_stopped(s))
        return;
    if (code == ERR_FULL) {
        judgement_fail(j, STAGE_COMPILE, "compile", NULL,
                       "compile: the compiled files are too many or too large.");
        decide(s, OUTCOME_FAIL, "compile", 0, 1);
    } else if (code != 0 && code != ERR_NOTFOUND) {
        lose(s, false, err->text);
    } else if (code == 0 && json_array_size(j->kernels) > 0) {
        begin_inspect(s);
    } else {
        decide_compile(s);
    }
}

static void
compile_ended(struct submission *s, const struct child_end *end)
{
    struct judgement *j = s->judgement;
    struct error err = { 0 };
    char from[SCRATCH_PATH_SIZE + 8];

    j->claim = ptr_take(&j->result);
    if (!json_is_string(json_object_get(j->claim, "outcome"))) {
        drop_child(j);
        decide(s, OUTCOME_FAIL, fail_by_end(s, end), 0, 1);
        return;
    }
    /* Its directory goes with the child, so the child is kept until the cache has left it. */
    j->step = STEP_PUBLISH;
    snprintf(from, sizeof(from), "%s/cache", child_scratch(j->child));
    /* A rerun is the same attempt once more: what the first one left may still be on its way out. */
    snprintf(j->cache, sizeof(j->cache), "%.400s/cache-%s-%d%s", s->funnel->config->scratch, s->id,
             s->attempts, s->is_rerun ? "-alone" : "");
    if (scratch_publish(s->funnel->loop, from, j->cache, published_cb, s, &err) != 0) {
        j->cache[0] = '\0';
        drop_child(j);
        lose(s, false, err.text);
    }
}

static void
inspect_ended(struct submission *s, const struct child_end *end)
{
    struct judgement *j = s->judgement;
    AUTO_JSON json_t *result = ptr_take(&j->result);

    drop_child(j);
    json_t *kernels = json_object_get(result, "kernels");
    if (!json_is_array(kernels)) {
        decide(s, OUTCOME_FAIL, fail_by_end(s, end), 0, 1);
        return;
    }
    j->compiled = json_incref(kernels);
    decide_compile(s);
}

/* How many of the kernels that the syntax tree names were found compiled. */
static int
count_compiled(const struct judgement *j)
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
count_wanted(const struct judgement *j, int compiled)
{
    size_t told = json_array_size(json_object_get(j->claim, "kernels")) +
                  json_array_size(json_object_get(j->claim, "unreached"));
    size_t named = json_array_size(j->kernels);
    int wanted = (int)(told < named ? told : named);
    return wanted > compiled ? wanted : compiled;
}

static bool
has_flag(json_t *flags, const char *name)
{
    json_t *flag;
    size_t i;

    json_array_foreach(flags, i, flag) if (json_is_string(flag) &&
                                           strcmp(json_string_value(flag), name) == 0) return true;
    return false;
}

static void
decide_compile(struct submission *s)
{
    static const char *const classes[] = { "import", "compile", "oom", "launch", "crash", NULL };
    /* A claim: it may set no flag of another stage's, and none that nobody knows. */
    static const char *const claimed[] = { "compile_deferred", "no_launch", "autotune_bounded",
                                           "launcher_not_built", NULL };
    struct judgement *j = s->judgement;
    bool is_pass = strcmp(json_string_value(json_object_get(j->claim, "outcome")), "pass") == 0;
    json_t *flags = json_object_get(j->claim, "flags"), *error = json_object_get(j->claim, "error");
    int done = count_compiled(j), of = count_wanted(j, done);

    for (const char *const *flag = claimed; *flag; flag++)
        if (has_flag(flags, *flag))
            add_flag(j, *flag);
    if (json_array_size(json_object_get(j->claim, "unreached")) > 0 || has_flag(flags, "no_launch"))
        add_flag(j, "compile_deferred");
    if (is_pass && done == 0 && strcmp(j->policy.name, "kernelbench") != 0 &&
        !has_flag(j->flags, "compile_deferred")) {
        judgement_fail(j, STAGE_COMPILE, "compile", NULL,
                       "compile: no kernel of the candidate's was compiled for the target %s.",
                       s->funnel->config->target);
        decide(s, OUTCOME_FAIL, "compile", 0, of > 0 ? of : 1);
    } else if (is_pass) {
        decide(s, OUTCOME_PASS, NULL, done, of);
    } else {
        const char *class_ = json_string_value(json_object_get(j->claim, "class"));
        class_ = is_one_of(class_, classes) ? class_ : "import";
        fail_by_error(j, class_, json_is_object(error) ? error : NULL, "the module could not be compiled");
        if (strcmp(class_, "oom") == 0 && j->is_short)
            doubt(j, "%s", short_of_memory);
        decide(s, OUTCOME_FAIL, class_, done, of > done ? of : done + 1);
    }
}

/* --- begun --- */

/* What is known of where it will be judged; a lane says more. */
static void
note_env(struct judgement *j, json_t *versions)
{
    const char *key;
    json_t *value;

    if (!j->env)
        j->env = json_object();
    json_object_foreach(versions, key, value) json_object_set(j->env, key, value);
}

static void
fail_extract(struct submission *s, const char *why)
{
    struct judgement *j = s->judgement;

    judgement_fail(j, STAGE_NSTAGES, "extract", NULL, "extract: %s.", why);
    scheduler_release_slot(s);
    submission_conclude(s, EVENT_FINISH);
}

void
judge_begin(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct error err = { 0 };
    double wait_ms = ms_since(s->queued_ns);

    s->attempts++;
    if (judgement_new(s, &err) != 0) {
        log_error(s->id, "%s", err.text);
        scheduler_release_slot(s);
        judgement_fail(s->judgement, STAGE_AST, "infra", NULL, "It could not be judged: %s.", err.text);
        submission_conclude(s, EVENT_FINISH);
        return;
    }
    const char *extract_fault = json_string_value(json_object_get(s->judgement->request, "extract_fault"));
    if (extract_fault) {
        fail_extract(s, extract_fault);
        return;
    }
    /* Not waited for: were it lost, a restart would begin it once more, that is all. */
    if (store_begin_submission(f->store, s->id, s->attempts, NULL, NULL, &err) != 0)
        log_warn(s->id, "%s", err.text);
    submission_move(s, EVENT_BEGIN);
    note_wait(s, STAGE_AST, wait_ms);
    note_env(s->judgement, json_object_get(zygote_ready_message(f->zygote), "versions"));
    begin_ast(s);
}

/* --- on a lane: tiny, full, timing --- */

static void report_cb(void *arg, const struct lane_report *r);
static void closed_cb(void *arg, const struct lane_closing *c);

static const struct lane_job_ops lane_ops = { report_cb, closed_cb };

/* The last stage in which the candidate is called: whose kernels did the work is asked at its end. */
static bool
is_last_judged(const struct submission *s)
{
    const struct judgement *j = s->judgement;

    return j->stage == STAGE_TIMING ||
           (j->stage == STAGE_FULL && (j->until == STAGE_FULL || !lane_is_gpu(j->lane) || group_chooses(s)));
}

/* Given: the names of its kernels, and what `inspect` found compiled. */
static json_t *
known_kernels(const struct judgement *j)
{
    return json_pack("{s:O?, s:O?}", "names", j->kernels, "compiled", j->compiled);
}

void
judge_on_lane(struct submission *s, struct lane *l)
{
    struct judgement *j = s->judgement;
    const char *task_entry = j->task.entry_point ? j->task.entry_point : "Model";
    struct error err = { 0 };

    submission_move(s, EVENT_LANE);
    note_wait(s, STAGE_TINY, ms_since(s->queued_ns));
    note_env(j, lane_versions(l));
    json_object_set(j->env, "gpu", lane_gpu(l) ? json_object_get(lane_gpu(l), "name") : json_null());
    json_object_set(j->env, "driver", lane_gpu(l) ? json_object_get(lane_gpu(l), "driver") : json_null());
    json_object_set_new(j->env, "device", json_string(lane_device(l)));
    json_object_set_new(j->env, "calibration",
                        calibration_brief(s->funnel, json_string_value(json_object_get(j->env, "gpu"))));
    AUTO_JSON json_t *kernels = known_kernels(j);
    const struct lane_submission job = {
        .task_id = j->row.task_id,
        .entry = j->entry,
        .task_entry = task_entry,
        .source = j->source.data ? j->source.data : "",
        .spec = j->task.spec,
        .reference = j->task.reference,
        .source_size = j->source.size,
        .spec_size = strlen(j->task.spec),
        .reference_size = j->task.reference_size,
        .policy = j->policy_json,
        .kernels = kernels,
        .seed = j->seed,
        .cache = lane_is_gpu(l) && j->cache[0] ? j->cache : NULL,
        .is_alone = scheduler_is_alone(s),
    };
    j->lane = l;
    if (lane_open(l, &job, &lane_ops, s, &err) == 0)
        return;
    j->lane = NULL;
    scheduler_release_device(s);
    lose(s, false, err.text);
}

static void
begin_stage_on_lane(struct submission *s)
{
    struct judgement *j = s->judgement;
    const struct config *config = s->funnel->config;

    if (j->stage == STAGE_TINY && !j->policy.tiny_first) {
        j->stages[STAGE_TINY].why = "tiny_first is off";
        decide(s, OUTCOME_SKIP, NULL, 0, 0);
        return;
    }
    int64_t limit_ms = j->stage == STAGE_TINY ? config->tiny_limit_ms : config->stage_limit_ms;
    bool is_last = is_last_judged(s);

    /* What is timed beside the time that counts has a stage's time of its own. */
    if (j->stage == STAGE_TIMING && (j->policy.timing.variations || j->policy.timing.batched))
        limit_ms += config->stage_limit_ms;
    /* The evidence pass makes a few calls more, which must not cost a slow candidate its verdict. */
    lane_stage(j->lane, stage_name((enum stage)j->stage), is_last,
               limit_ms + (is_last ? config->tiny_limit_ms : 0));
}

/* "full: 5 of 4096 values differ; the first at [0, 3] of output 0 in case "spikes": expected 1.5, got 1.25." */
static bool
fail_by_mismatch(struct judgement *j, const char *class_, json_t *error, json_t *detail)
{
    json_t *first = json_object_get(detail, "first_mismatch");
    const char *name = json_string_value(json_object_get(first, "case"));

    if (!json_is_object(first) || !json_object_get(first, "expected"))
        return false;
    AUTO_FREE char *index = json_dumps(json_object_get(first, "index"), JSON_ENCODE_ANY | JSON_COMPACT);
    AUTO_FREE char *output = json_dumps(json_object_get(first, "output"), JSON_ENCODE_ANY);
    AUTO_FREE char *expected =
        json_dumps(json_object_get(first, "expected"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    AUTO_FREE char *got = json_dumps(json_object_get(first, "got"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    if (!index || !output || !expected || !got)
        return false;
    judgement_fail(j, j->stage, class_, error,
                   "%s: %lld of %lld values differ in case \"%.60s\"; the first at %.80s of output %.60s: "
                   "expected %.60s, got %.60s.",
                   stage_name((enum stage)j->stage),
                   (long long)json_integer_value(json_object_get(first, "differing")),
                   (long long)json_integer_value(json_object_get(first, "of")), name ? name : "?", index,
                   output, expected, got);
    return true;
}

static const char *
checked_class(const char *class_)
{
    static const char *const classes[] = {
        "import",    "compile",  "launch",           "timeout",       "oom",  "crash",  "shape", "dtype",
        "nonfinite", "mismatch", "nondeterministic", "mutated_input", "hack", "policy", NULL
    };
    return is_one_of(class_, classes) ? class_ : "crash";
}

static void
fail_by_report(struct submission *s, const struct lane_report *r, const char *class_)
{
    struct judgement *j = s->judgement;
    const struct config *config = s->funnel->config;

    if (strcmp(class_, "timeout") == 0) {
        const char *text = json_string_value(json_object_get(r->error, "text"));
        int64_t limit_ms = j->stage == STAGE_TINY && strcmp(r->stage, "tiny") == 0 ? config->tiny_limit_ms
                                                                                   : config->stage_limit_ms;
        if (text && strncmp(text, "no answer", 9) == 0)
            judgement_fail(j, j->stage, class_, r->error, "%s: %.300s; the process was stopped.",
                           stage_name((enum stage)j->stage), text);
        else
            judgement_fail(j, j->stage, class_, NULL, "%s: it did not finish within %g s and was stopped.",
                           stage_name((enum stage)j->stage), (double)limit_ms / 1000);
    } else if (strcmp(class_, "hack") == 0 || !fail_by_mismatch(j, class_, r->error, r->detail)) {
        fail_by_error(j, class_, r->error, class_);
    }
}

static void
keep_detail(struct judgement *j, const struct lane_report *r)
{
    json_t **const details[STAGE_NSTAGES] = {
        [STAGE_TINY] = &j->tiny, [STAGE_FULL] = &j->full, [STAGE_TIMING] = &j->timing
    };
    json_t **place = details[j->stage];

    if (place && r->detail) {
        json_decref(*place);
        *place = json_incref(r->detail);
        add_flags(j, json_object_get(r->detail, "flags"));
    }
    if (r->generality && !j->generality)
        j->generality = strdup(r->generality);
    add_flags(j, json_object_get(json_object_get(r->detail, "evidence"), "flags"));
}

static void
opened(struct submission *s, const struct lane_report *r)
{
    if (r->outcome == LANE_FAIL) {
        const char *class_ = checked_class(r->class_);
        fail_by_report(s, r, class_);
        note_rule(s->judgement, r->rule);
        doubt_report(s, r, class_);
        note(s, OUTCOME_FAIL, class_, 0, 1);
        finish(s); /* without a loaded module there is nothing that a later stage could do */
        return;
    }
    begin_stage_on_lane(s);
}

static void
report_cb(void *arg, const struct lane_report *r)
{
    struct submission *s = arg;
    struct judgement *j = s->judgement;

    if (j->is_comparing) {
        if (baseline_report(s, r)) {
            j->is_finishing = true;
            lane_close(j->lane);
        }
        return;
    }
    j->turn_ms += r->waited_ms;
    if (r->is_reference) {
        const char *text = json_string_value(json_object_get(r->error, "text"));
        log_warn(s->id, "the reference failed: %s", text ? text : "no reason given");
        j->is_reference_lost = true;
        if (contention_is_starved(r->stolen_ms < 0 ? -1 : r->stolen_ms * 1000000, r->limit_ms))
            snprintf(j->doubt, sizeof(j->doubt), "the reference failed while others had the CPU for %.1f s",
                     (double)r->stolen_ms / 1000);
        snprintf(j->reference_error, sizeof(j->reference_error), "%s", text ? text : "no reason given");
        lane_close(j->lane);
        return;
    }
    if (strcmp(r->stage, "open") == 0) {
        opened(s, r);
        return;
    }
    keep_detail(j, r);
    if (r->outcome == LANE_FAIL) {
        const char *class_ = checked_class(r->class_);
        fail_by_report(s, r, class_);
        note_rule(j, r->rule);
        doubt_report(s, r, class_);
        decide(s, OUTCOME_FAIL, class_, r->done, r->of);
    } else if (r->is_reopen && goes_on(j)) {
        note(s, OUTCOME_SKIP, NULL, r->done, r->of);
        submission_move(s, EVENT_NEXT);
        lane_reopen(j->lane);
    } else {
        decide(s, r->outcome == LANE_PASS ? OUTCOME_PASS : OUTCOME_SKIP, NULL, r->done, r->of);
    }
}

/* Only now is it known how the process ended; the referee could only say that it did. */
static void
refine_crash(struct submission *s, const struct child_end *end)
{
    struct judgement *j = s->judgement;
    const char *type = json_string_value(json_object_get(j->error, "type"));
    struct stage_record *r =
        j->failed_stage >= STAGE_TINY && j->failed_stage < STAGE_NSTAGES ? &j->stages[j->failed_stage] : NULL;
    const char *what = used_up(s->funnel, end);
    char how[128];

    /* A SystemExit in the candidate's code is a crash too, and has its own words. */
    if (!r || strcmp(j->class_, "crash") != 0 || (type && strcmp(type, "crash") != 0))
        return;
    if (what) {
        snprintf(j->class_, sizeof(j->class_), "oom");
        snprintf(r->class_, sizeof(r->class_), "oom");
        j->doubt[0] = '\0'; /* its own limit is nobody else's doing */
        snprintf(j->text, sizeof(j->text), "%s: the process used up %s and was killed.",
                 stage_name((enum stage)j->failed_stage), what);
        return;
    }
    if (end->is_victim && !j->doubt[0])
        snprintf(j->doubt, sizeof(j->doubt), "it was killed while the machine was out of memory");
    if (end->was_killed && end->signal == SIGKILL) /* that may have been ours */
        return;
    crash_text(end, how, sizeof(how));
    snprintf(j->text, sizeof(j->text), "%s: the candidate's process %s.",
             stage_name((enum stage)j->failed_stage), how);
}

static void
closed_cb(void *arg, const struct lane_closing *c)
{
    struct submission *s = arg;
    struct judgement *j = s->judgement;

    j->lane = NULL;
    scheduler_release_device(s);
    take_output(j, c->output, c->output_lost, s->funnel->config->output_limit_bytes);
    /* Whatever became of the compiled reference, the candidate's own verdict stands. */
    if (j->is_comparing && !j->is_finishing && !s->is_cancelled && !s->is_returned) {
        baseline_lost(s, c->is_lost ? c->why : "the lane let go of it");
        j->is_finishing = true;
    }
    if (j->is_finishing) {
        if (c->end && !j->is_comparing)
            refine_crash(s, c->end);
        conclude(s);
    } else if (is_stopped(s)) {
        return;
    } else if (j->is_parking) {
        j->is_parking = false;
        group_park(s);
    } else {
        if (j->is_reference_lost) {
            is_promised_rerun(s, "infra", j->stage);
            lose(s, false, j->reference_error);
        } else {
            lose(s, c->is_lost, c->is_lost ? c->why : "the lane let go of it");
        }
    }
}
