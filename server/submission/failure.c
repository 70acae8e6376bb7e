#include "server/submission/failure.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/stages.h"
#include "server/submission/attempt.h"
#include "server/submission/attribution.h"
#include "server/submission/parts.h"
#include "server/submission/submission.h"
#include "server/verdict/cause.h"
#include "server/workers/zygote.h"

/*
 * The class and text of a candidate's failure: a class that is allowed in that stage, and one sentence in plain
 * English. From the end of a process, from the report of a child of a CPU stage, or from the referee's report.
 */

/* --- how a process ended --- */

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

/*
 * The resource for whose use it was killed, also by the kernel's OOM killer, which ends the largest process. NULL:
 * none.
 */
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

enum verdict_class
failure_by_end(struct submission *s, const struct child_end *end)
{
    struct attempt *j = s->attempt;
    const char *stage = stage_name((enum stage)j->stage);
    const char *what = used_up(s->funnel, end);
    char how[128];

    if (what) {
        attempt_fail(j, j->stage, CLASS_OOM, NULL, "%s: the process used up %s and was killed.", stage, what);
        return CLASS_OOM;
    }
    if (end->was_limited) {
        char built[64] = "";
        if (j->step == STEP_BUILD && j->to_build > 0)
            snprintf(built, sizeof(built), "; %d of %d kernels were compiled", j->built, j->to_build);
        attempt_fail(j, j->stage, CLASS_TIMEOUT, NULL,
                     "%s: the process did not finish within %g s and was stopped%s.", stage,
                     (double)s->funnel->config->stage_limit_ms / 1000, built);
        attribution_end(s, CLASS_TIMEOUT, end);
        return CLASS_TIMEOUT;
    }
    crash_text(end, how, sizeof(how));
    attempt_fail(j, j->stage, CLASS_CRASH, NULL, "%s: the candidate's process %s.", stage, how);
    attribution_end(s, CLASS_CRASH, end);
    return CLASS_CRASH;
}

void
failure_refine(struct submission *s, const struct child_end *end)
{
    struct attempt *j = s->attempt;
    const char *type = json_string_value(json_object_get(j->error, "type"));
    struct stage_record *r =
        j->failed_stage >= STAGE_TINY && j->failed_stage < STAGE_NSTAGES ? &j->stages[j->failed_stage] : NULL;
    const char *what = used_up(s->funnel, end);
    char how[128];

    /* A SystemExit in the candidate's code is a crash too, and has its own words. */
    if (!r || j->class_ != CLASS_CRASH || (type && strcmp(type, "crash") != 0))
        return;
    if (what) {
        j->class_ = r->class_ = CLASS_OOM;
        j->neighbour[0] = '\0'; /* a neighbour cannot cause the use of its own limit */
        snprintf(j->text, sizeof(j->text), "%s: the process used up %s and was killed.",
                 stage_name((enum stage)j->failed_stage), what);
        return;
    }
    if (end->is_victim && !j->neighbour[0])
        snprintf(j->neighbour, sizeof(j->neighbour), "it was killed while the machine was out of memory");
    if (end->was_killed && end->signal == SIGKILL) /* that may have been ours */
        return;
    crash_text(end, how, sizeof(how));
    snprintf(j->text, sizeof(j->text), "%s: the candidate's process %s.",
             stage_name((enum stage)j->failed_stage), how);
}

/* --- reports of a failure --- */

void
failure_note_rule(struct attempt *j, const char *rule)
{
    if (rule && j->failed_stage == j->stage)
        snprintf(j->rule, sizeof(j->rule), "%s", rule);
}

/* "compile: line 12, kernel add_kernel: name 'x' is not defined": cause.h */
static void
fail_by_cause(struct attempt *j, enum verdict_class class_, const struct cause *cause)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    bool is_told = cause_add(cause, &text) == 0;
    attempt_fail(j, j->stage, class_, cause->error, "%s", is_told ? text.data : cause->otherwise);
}

void
failure_by_error(struct attempt *j, enum verdict_class class_, json_t *error, const char *otherwise)
{
    fail_by_cause(j, class_, &(struct cause){ (enum stage)j->stage, class_, error, otherwise });
}

/* The reporting process has run the candidate: its message is trusted as little as that of a launch. */
void
failure_without_plan(struct attempt *j)
{
    fail_by_cause(
        j, CLASS_FORM,
        &(struct cause){ (enum stage)j->stage, CLASS_LAUNCH, j->untraced, "no plan could be made of it" });
}

/* "full: 5 of 4096 values differ; the first at [0, 3] of output 0 in case "spikes": expected 1.5, got 1.25." */
static bool
fail_by_mismatch(struct attempt *j, enum verdict_class class_, json_t *error, json_t *detail)
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
    attempt_fail(j, j->stage, class_, error,
                 "%s: %lld of %lld values differ in case \"%.60s\"; the first at %.80s of output %.60s: "
                 "expected %.60s, got %.60s.",
                 stage_name((enum stage)j->stage),
                 (long long)json_integer_value(json_object_get(first, "differing")),
                 (long long)json_integer_value(json_object_get(first, "of")), name ? name : "?", index,
                 output, expected, got);
    return true;
}

enum verdict_class
failure_by_report(struct submission *s, const struct stage_report *r)
{
    struct attempt *j = s->attempt;
    enum verdict_class class_ = class_reported(r->class_, (enum stage)j->stage, CLASS_CRASH);

    if (class_ == CLASS_TIMEOUT) {
        /* If the daemon's own limit passed, the report is of the end that the daemon made. */
        const char *type = json_string_value(json_object_get(r->error, "type"));
        const char *text = json_string_value(json_object_get(r->error, "text"));
        if (type && strcmp(type, "timeout") == 0 && text && *text)
            attempt_fail(j, j->stage, class_, r->error, "%s: %.300s; the process was stopped.",
                         stage_name((enum stage)j->stage), text);
        else
            attempt_fail(j, j->stage, class_, NULL, "%s: it did not finish within %g s and was stopped.",
                         stage_name((enum stage)j->stage), (double)r->limit_ms / 1000);
    } else if (class_ == CLASS_HACK || !fail_by_mismatch(j, class_, r->error, r->detail)) {
        failure_by_error(j, class_, r->error, class_name(class_));
    }
    failure_note_rule(j, r->rule);
    attribution_report(s, r, class_);
    return class_;
}
