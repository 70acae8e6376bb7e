#include "server/task/baseline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/policy.h"
#include "common/stages.h"
#include "common/statistics.h"
#include "common/utf8.h"
#include "server/submission/attempt.h"
#include "server/submission/parts.h"
#include "server/submission/submission.h"
#include "server/verdict/timing.h"
#include "server/workers/device_worker.h"

/*
 * The other baseline: the task's reference under torch.compile, where a policy asks for it (timing.compile_baseline).
 *
 * It is judged like a candidate, in a process of its own: its answers are compared with the reference's in `full`,
 * then the two are timed in pairs by the same clock. What comes of it is the ratio of their times. That ratio is kept
 * for the task, the device and its software, and every candidate's speed-up is divided by it: pairing each candidate
 * with the compiled reference would compile it anew for each, and the two ratios share the eager reference, timed in
 * the same pairs both times. A canary that fails ends what was kept.
 *
 * The candidate's verdict is clear before this begins, and nothing here changes it.
 */

#define BASELINES_MAX 4096
#define COMPILE_STAGES 3 /* stage limits that compiling and checking may take together */

struct baselines {
    json_t *kept; /* by the hash of what a ratio depends on */
};

struct baselines *
baselines_new(void)
{
    struct baselines *b = calloc(1, sizeof(*b));

    if (b)
        b->kept = json_object();
    return b;
}

void
baselines_free(struct baselines *b)
{
    if (b)
        json_decref(b->kept);
    free(b);
}

/*
 * Everything that the ratio may depend on, the whole policy included, so that ratios of few trials are not used for
 * another policy. "": no memory.
 */
static void
key_of(const struct attempt *j, char out[HASH_TEXT_SIZE])
{
    json_t *gpu = device_worker_gpu(j->device_worker);
    json_hash(json_pack("{s:s, s:s, s:O?, s:O?, s:O?, s:O?, s:O, s:I}", "task", j->row.task_id, "device",
                        device_worker_device(j->device_worker), "gpu", json_object_get(gpu, "name"), "uuid",
                        json_object_get(gpu, "uuid"), "driver", json_object_get(gpu, "driver"), "versions",
                        device_worker_versions(j->device_worker), "policy", j->policy_json, "drifts",
                        (json_int_t)device_worker_drifts(j->device_worker)),
              out);
}

/* Kept are answers, and not that there was none. */
static void
keep(struct submission *s)
{
    json_t *kept = s->funnel->baselines->kept;
    const struct attempt *j = s->attempt;
    const char *outcome = json_string_value(json_object_get(j->baseline, "outcome"));
    char key[HASH_TEXT_SIZE] = "";

    key_of(j, key);
    if (!*key || !outcome || strcmp(outcome, "inconclusive") == 0 || strcmp(outcome, "lost") == 0)
        return;
    if (!json_object_get(kept, key) && json_object_size(kept) >= BASELINES_MAX)
        json_object_del(kept, json_object_iter_key(json_object_iter(kept))); /* the oldest */
    json_object_set(kept, key, j->baseline);
}

/* --- how it went --- */

/* For good, unless it is measured; why is printed as it is. */
static void
tell(struct submission *s, const char *outcome, const char *why)
{
    struct attempt *j = s->attempt;
    char text[512];

    snprintf(text, sizeof(text), "%s", why ? why : "");
    utf8_clean(text);
    json_decref(j->baseline);
    j->baseline =
        json_pack("{s:s, s:o, s:o, s:b, s:n, s:n, s:n, s:n, s:n, s:n}", "outcome", outcome, "why",
                  why ? json_string(text) : json_null(), "measured", time_json(clock_wall_ms()), "cached", 0,
                  "speedup", "speedup_lo", "speedup_hi", "reference_ms", "compiled_ms", "pairs");
    log_info(s->id, "torch.compile: %s%s%s", outcome, why ? ", " : "", why ? text : "");
}

static void
tell_times(struct submission *s, json_t *detail)
{
    json_t *eager = json_object_get(detail, "reference_ns"),
           *compiled = json_object_get(detail, "candidate_ns");
    const char *outcome = json_string_value(json_object_get(detail, "outcome"));
    size_t n = json_array_size(eager);
    struct stats_speedup found;

    if (!outcome || strcmp(outcome, "measured") != 0) {
        bool is_known = outcome && (strcmp(outcome, "too_small") == 0 || strcmp(outcome, "skipped") == 0);
        const char *why = json_string_value(json_object_get(detail, "why"));
        tell(s, is_known ? outcome : "inconclusive", why ? why : "no reason is known");
        return;
    }
    AUTO_FREE double *a = timing_samples_ms(eager, n);
    AUTO_FREE double *b = n == json_array_size(compiled) ? timing_samples_ms(compiled, n) : NULL;
    if (!a || !b || stats_told_speedup(a, b, n, &found) != 0) {
        tell(s, "inconclusive", "its samples make no sense");
        return;
    }
    tell(s, "measured", NULL);
    json_t *told = s->attempt->baseline;
    json_object_set_new(told, "speedup", real_or_null(found.speedup));
    json_object_set_new(told, "speedup_lo", real_or_null(found.lo));
    json_object_set_new(told, "speedup_hi", real_or_null(found.hi));
    json_object_set_new(told, "reference_ms", real_or_null(stats_median(a, n)));
    json_object_set_new(told, "compiled_ms", real_or_null(stats_median(b, n)));
    json_object_set_new(told, "pairs", json_integer((json_int_t)n));
}

/* "full: mismatch: text", and whether that would be so again. */
static void
tell_failure(struct submission *s, const struct stage_report *r)
{
    const char *text = json_string_value(json_object_get(r->error, "text"));
    bool is_of_the_moment = r->is_reference || !class_info(r->class_)->is_reusable;
    char why[400];

    snprintf(why, sizeof(why), "%s: %s: %.300s", r->stage, class_name(r->class_),
             text ? text : "no reason given");
    tell(s, is_of_the_moment ? "lost" : "failed", why);
}

/* --- the story --- */

static bool
is_wanted(const struct attempt *j)
{
    return j->policy.timing.compile_baseline && !j->baseline && j->stage == STAGE_TIMING &&
           j->failed_stage < 0 && text_is(j->timing, "outcome", "measured");
}

/* The candidate's own rules, but that torch may do the work, and that one shape is enough. */
static json_t *
policy_of(const struct attempt *j)
{
    json_t *out = json_deep_copy(j->policy_json);
    json_t *variations = json_object_get(out, "variations");

    json_object_set_new(out, "foreign", json_string("any"));
    json_object_set_new(variations, "count", json_integer(3));
    json_object_set_new(variations, "shape", json_false());
    return out;
}

bool
baseline_begin(struct submission *s)
{
    struct attempt *j = s->attempt;
    char key[HASH_TEXT_SIZE] = "";

    if (!is_wanted(j))
        return false;
    key_of(j, key);
    json_t *known = json_object_get(s->funnel->baselines->kept, key);
    if (known) {
        j->baseline = json_deep_copy(known);
        json_object_set_new(j->baseline, "cached", json_true());
        return false;
    }
    AUTO_JSON json_t *policy = policy_of(j);
    j->is_comparing = true;
    device_worker_reopen_compiled(j->device_worker, policy);
    return true;
}

bool
baseline_report(struct submission *s, const struct stage_report *r)
{
    struct attempt *j = s->attempt;
    int64_t limit_ms = s->funnel->config->stage_limit_ms;

    if (r->outcome == REPORT_FAIL) {
        tell_failure(s, r);
    } else if (r->outcome == REPORT_SKIP) {
        const char *why = json_string_value(json_object_get(r->detail, "why"));
        tell(s, "skipped", why ? why : "no reason is known");
    } else if (strcmp(r->stage, "open") == 0) {
        device_worker_stage(j->device_worker, "full", COMPILE_STAGES * limit_ms);
        return false;
    } else if (strcmp(r->stage, "full") == 0) {
        device_worker_stage(j->device_worker, "timing", timing_limit_ms(&s->attempt->policy, limit_ms));
        return false;
    } else {
        tell_times(s, r->detail);
    }
    keep(s);
    return true;
}

void
baseline_lost(struct submission *s, const char *why)
{
    tell(s, "lost", why);
}
