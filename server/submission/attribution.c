#include "server/submission/attribution.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/classes.h"
#include "common/log.h"
#include "common/stages.h"
#include "server/queue/scheduler.h"
#include "server/submission/attempt.h"
#include "server/submission/counters.h"
#include "server/submission/parts.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/workers/contention.h"
#include "server/workers/device_worker.h"
#include "server/workers/scratch.h"
#include "server/workers/zygote.h"

/*
 * Whether a failure may be a neighbour's doing: then it does not count, and the submission is judged once more alone.
 */

/*
 * Of the retryable classes, a call that the GPU refuses, or that breaks its context, is not doubted by itself: contexts
 * do not share their errors. `launch` and `crash` are doubted only where other children on the device ended at the same
 * time, or its memory was used up.
 */
static const char short_of_memory[] = "the machine had not as much memory left as it may have";

/*
 * A launch, a module or a context's stack takes less: with this much free device memory, lack of memory was not the
 * cause.
 */
#define GPU_SPARE (256LL << 20)

/* After the failure of this stage: the part that a neighbour may have caused. Only the first failure counts. */
static void
suspect(struct attempt *j, const char *format, ...)
{
    va_list args;

    if (j->failed_stage != j->stage || j->neighbour[0])
        return;
    va_start(args, format);
    vsnprintf(j->neighbour, sizeof(j->neighbour), format, args);
    va_end(args);
}

static void
attribution_timeout(struct attempt *j, int64_t stolen_ms, int64_t limit_ms)
{
    if (contention_is_starved(stolen_ms < 0 ? -1 : stolen_ms * 1000000, limit_ms))
        suspect(j, "others had the CPU for %.1f s while it was ready to run, of a limit of %g s",
                (double)stolen_ms / 1000, (double)limit_ms / 1000);
}

static void
attribution_memory(struct submission *s, int64_t held_bytes)
{
    if (contention_is_short(s->funnel->config->memory_limit_bytes, held_bytes))
        suspect(s->attempt, "%s", short_of_memory);
}

void
attribution_said_oom(struct attempt *j)
{
    if (j->is_short)
        suspect(j, "%s", short_of_memory);
}

void
attribution_end(struct submission *s, enum verdict_class class_, const struct child_end *end)
{
    if (class_ == CLASS_TIMEOUT)
        attribution_timeout(s->attempt, end->stolen_ms, s->funnel->config->stage_limit_ms);
    if (class_ == CLASS_CRASH && end->is_victim)
        suspect(s->attempt, "it was killed while the machine was out of memory");
}

/*
 * Unattributed work on the device: it is attributed to the candidate only if it was found twice, the second time alone.
 */
static bool
is_background(const struct attempt *j)
{
    return j->class_ == CLASS_HACK && strcmp(j->rule, "background_work") == 0;
}

bool
attribution_may_be_theirs(const struct attempt *j)
{
    return class_info(j->class_)->is_retryable || is_background(j);
}

void
attribution_report(struct submission *s, const struct stage_report *r, enum verdict_class class_)
{
    struct attempt *j = s->attempt;

    if (class_ == CLASS_TIMEOUT) {
        attribution_timeout(j, r->stolen_ms, r->limit_ms);
    } else if (is_background(j)) {
        suspect(j, "what worked on the device is known by its end alone");
    } else if (device_worker_is_gpu(j->device_worker) && class_info(class_)->is_retryable) {
        if (r->neighbours > 0)
            suspect(j, "%d other processes on the device ended at the same time", r->neighbours);
        else if (r->free_bytes >= 0 && r->free_bytes < GPU_SPARE)
            suspect(j, "the device had %lld MiB of memory left", (long long)(r->free_bytes >> 20));
    }
    if (class_ == CLASS_OOM)
        attribution_memory(s, r->held_bytes);
}

static void
excuse(struct attempt *j, const char *why)
{
    if (j->stages[j->failed_stage].outcome == OUTCOME_FAIL)
        j->stages[j->failed_stage].class_ = CLASS_INFRA;
    j->class_ = CLASS_INFRA;
    snprintf(j->text, sizeof(j->text), "%s: %s.", stage_name((enum stage)j->failed_stage), why);
    j->rule[0] = '\0';
    json_decref(j->error);
    j->error = NULL;
}

void
attribution_excuse(struct submission *s)
{
    struct attempt *j = s->attempt;

    if (is_background(j) && j->neighbour[0] && !s->job.is_rerun)
        excuse(j, "somebody's work went on on the GPU while no call was due");
}

void
attribution_excuse_disk(struct attempt *j)
{
    excuse(j, "its files could not be written");
}

bool
attribution_has_no_disk(const struct submission *s)
{
    const struct attempt *j = s->attempt;
    bool is_by_files =
        class_info(j->class_)->is_retryable || j->class_ == CLASS_IMPORT || j->class_ == CLASS_COMPILE;

    return j->failed_stage > STAGE_AST && is_by_files && scratch_trouble(s->funnel->config->scratch);
}

void
attribution_reference(struct attempt *j, const struct stage_report *r)
{
    if (contention_is_starved(r->stolen_ms < 0 ? -1 : r->stolen_ms * 1000000, r->limit_ms))
        snprintf(j->neighbour, sizeof(j->neighbour),
                 "the reference failed while others had the CPU for %.1f s", (double)r->stolen_ms / 1000);
}

/* Once, and only where something of it may be a neighbour's. */
bool
attribution_promises_rerun(struct submission *s, enum verdict_class class_, int stage)
{
    const struct attempt *j = s->attempt;

    if (!j->neighbour[0] || s->rerun.class_ != CLASS_NONE)
        return false;
    s->rerun = (struct rerun){ .class_ = class_, .stage = (enum stage)stage };
    snprintf(s->rerun.why, sizeof(s->rerun.why), "%s", j->neighbour);
    scheduler_promise_rerun(s->funnel->scheduler, &s->job);
    if (!s->job.is_rerun)
        counters_count(s->funnel->counters, RERUN_REFUSED);
    log_info(s->id, "%s at %s is %s: %s", class_name(class_), stage_name(s->rerun.stage),
             s->job.is_rerun ? "judged again alone" : "in doubt, and there is no time to judge it again",
             j->neighbour);
    return s->job.is_rerun;
}
