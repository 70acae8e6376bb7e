#include "server/verdict/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/statistics.h"
#include "server/workers/device_worker.h"

/* More trials than the usual may take so long each: BUDGET_S of server/harness/oracle/clock.py. */
#define USUAL_TRIALS 50
#define TRIAL_MS 600

int64_t
timing_limit_ms(const struct policy *p, int64_t stage_limit_ms)
{
    int64_t more = p->timing.trials - USUAL_TRIALS;

    return stage_limit_ms + (more > 0 ? more * TRIAL_MS : 0);
}

/* --- from samples to figures --- */

void
timing_release(struct timing *t)
{
    free(t->reference);
    free(t->candidate);
}

double *
timing_samples_ms(json_t *array, size_t n)
{
    double *out = n ? calloc(n, sizeof(*out)) : NULL;

    for (size_t i = 0; out && i < n; i++) {
        out[i] = json_number_value(json_array_get(array, i)) / 1e6;
        if (!(out[i] > 0)) {
            free(out);
            return NULL;
        }
    }
    return out;
}

/* From raw samples; those that make no sense are none. */
static void
read_samples(json_t *from, struct timing *t)
{
    json_t *reference = json_object_get(from, "reference_ns"),
           *candidate = json_object_get(from, "candidate_ns");
    size_t n = json_array_size(reference);

    *t = (struct timing){ .speedup = { NAN, NAN, NAN, NAN, NAN, NAN } };
    if (n == 0 || n != json_array_size(candidate))
        return;
    t->n = n;
    t->reference = timing_samples_ms(reference, n);
    t->candidate = timing_samples_ms(candidate, n);
    if (!t->reference || !t->candidate || stats_told_speedup(t->reference, t->candidate, n, &t->speedup) != 0)
        t->n = 0;
}

void
timing_read(const struct attempt *j, struct timing *t)
{
    read_samples(j->timing, t);
    bool is_trimmed = strcmp(j->policy.timing.estimator, "trimmed") == 0;
    t->credited = is_trimmed ? t->speedup.speedup_trimmed : t->speedup.speedup;
    t->credited_lo = is_trimmed ? t->speedup.trimmed_lo : t->speedup.lo;
    t->credited_hi = is_trimmed ? t->speedup.trimmed_hi : t->speedup.hi;
    t->is_measured = t->n > 0 && text_is(j->timing, "outcome", "measured") &&
                     j->stages[STAGE_TIMING].outcome == OUTCOME_PASS;
}

const char *
timing_why_none(const struct attempt *j)
{
    const char *why = json_string_value(json_object_get(j->timing, "why"));
    if (why)
        return why;
    if (j->stages[STAGE_TIMING].outcome == OUTCOME_FAIL)
        return "it failed while it was timed";
    if (j->failed_stage >= 0)
        return "it failed before";
    return "it was not asked for";
}

/* --- what NVML saw around the blocks --- */

struct range {
    double lo, hi;
};

/* A number, or a list of them; anything else is not known. */
static void
range_add(struct range *r, json_t *value)
{
    json_t *item;
    size_t i;

    json_array_foreach(value, i, item) range_add(r, item);
    if (!json_is_number(value))
        return;
    r->lo = fmin(r->lo, json_number_value(value)); /* fmin() and fmax() leave a NAN for a number */
    r->hi = fmax(r->hi, json_number_value(value));
}

static json_t *
range_json(const struct range *r)
{
    return isfinite(r->lo) ? json_pack("[f, f]", r->lo, r->hi) : json_null();
}

/*
 * {"blocks","void","background","throttled","sm_mhz":[least,greatest],…}: all blocks; those measured again because
 * something disturbed them; because of the candidate's own work; those that saw a throttle.
 */
static json_t *
gpu_json(json_t *timing)
{
    static const char *const figures[] = { "sm_mhz", "mem_mhz", "temp_c", "power_w" };
    json_t *blocks = json_object_get(json_object_get(timing, "clocks"), "blocks"), *block;
    int n_void = 0, background = 0, throttled = 0;
    size_t i;

    if (json_array_size(blocks) == 0)
        return json_null();
    json_t *out = json_object();
    for (size_t k = 0; k < ARRAY_LEN(figures); k++) {
        struct range range = { NAN, NAN };
        json_array_foreach(blocks, i, block) range_add(&range, json_object_get(block, figures[k]));
        json_object_set_new(out, figures[k], range_json(&range));
    }
    json_array_foreach(blocks, i, block)
    {
        const char *why = json_string_value(json_object_get(block, "void"));
        bool is_background = why && strcmp(why, "background") == 0;
        background += is_background;
        n_void += why && !is_background;
        throttled += (json_integer_value(json_object_get(block, "throttle")) & DEVICE_THROTTLES) != 0;
    }
    json_object_set_new(out, "blocks", json_integer((json_int_t)json_array_size(blocks)));
    json_object_set_new(out, "void", json_integer(n_void));
    json_object_set_new(out, "background", json_integer(background));
    json_object_set_new(out, "throttled", json_integer(throttled));
    return out;
}

/* --- the timing in a verdict --- */

/* Milliseconds a call takes, by the slope of whole round trips over the number of calls; NAN where it was not made. */
static double
slope_ms(json_t *timing, const char *side)
{
    json_t *slopes = json_object_get(timing, "slopes");
    json_t *calls = json_object_get(slopes, "calls"), *times = json_object_get(slopes, side);
    size_t n = json_array_size(calls);

    if (n == 0 || n != json_array_size(times))
        return NAN;
    AUTO_FREE double *x = calloc(n, sizeof(*x));
    AUTO_FREE double *y = calloc(n, sizeof(*y));
    for (size_t i = 0; x && y && i < n; i++) {
        x[i] = json_number_value(json_array_get(calls, i));
        y[i] = json_number_value(json_array_get(times, i)) / 1e6;
    }
    return x && y ? stats_slope(x, y, n) : NAN;
}

static void
set_statistics(json_t *out, const struct timing *t)
{
    const struct {
        const char *key;
        double value;
    } rows[] = {
        { "reference_ms", stats_median(t->reference, t->n) },
        { "candidate_ms", stats_median(t->candidate, t->n) },
        { "reference_trimmed_ms", stats_trimmed_mean(t->reference, t->n, STATS_TRIM) },
        { "candidate_trimmed_ms", stats_trimmed_mean(t->candidate, t->n, STATS_TRIM) },
        { "reference_cv", stats_variation(t->reference, t->n) },
        { "candidate_cv", stats_variation(t->candidate, t->n) },
        { "speedup", t->speedup.speedup },
        { "speedup_lo", t->speedup.lo },
        { "speedup_hi", t->speedup.hi },
        { "speedup_trimmed", t->speedup.speedup_trimmed },
        { "speedup_trimmed_lo", t->speedup.trimmed_lo },
        { "speedup_trimmed_hi", t->speedup.trimmed_hi },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        json_object_set_new(out, rows[i].key, real_or_null(rows[i].value));
}

/* The compiled reference, under timing.baselines. */
static json_t *
baselines_json(const struct attempt *j)
{
    static const char why[] = "the candidate was not timed";

    if (j->baseline)
        return json_pack("{s:O}", "compile", j->baseline);
    return json_pack("{s:{s:s, s:s, s:n, s:b, s:n, s:n, s:n, s:n, s:n, s:n}}", "compile", "outcome",
                     "skipped", "why", why, "measured", "cached", 0, "speedup", "speedup_lo", "speedup_hi",
                     "reference_ms", "compiled_ms", "pairs");
}

json_t *
timing_json(const struct attempt *j, const struct timing *t)
{
    static const char *const as_told[] = { "method", "basis",        "warmup",       "trials",  "calls",
                                           "bells",  "one_call",     "not_captured", "stopped", "cold",
                                           "clocks", "reference_ns", "candidate_ns" };
    static const struct {
        const char *key, *told; /* nanoseconds */
    } times[] = {
        { "empty_ms", "empty_ns" },
        { "baseline_ms", "baseline_ns" },
        { "host_reference_ms", "host_reference_ns" },
        { "host_candidate_ms", "host_candidate_ns" },
        { "events_reference_ms", "events_reference_ns" },
        { "events_candidate_ms", "events_candidate_ns" },
        { "floor_ms", "floor_ns" },
        { "hard_floor_ms", "hard_floor_ns" },
    };
    const char *outcome = json_string_value(json_object_get(j->timing, "outcome"));

    if (!outcome || j->stages[STAGE_TIMING].outcome == OUTCOME_NONE)
        outcome = "skipped";
    json_t *out = json_pack("{s:s, s:o, s:s}", "outcome", outcome, "why",
                            t->is_measured ? json_null() : json_string(timing_why_none(j)), "estimator",
                            j->policy.timing.estimator);
    for (size_t i = 0; i < ARRAY_LEN(as_told); i++)
        json_object_set_new(out, as_told[i], get_or_null(j->timing, as_told[i]));
    set_statistics(out, t);
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        json_object_set_new(out, times[i].key, real_or_null(number_or_nan(j->timing, times[i].told) / 1e6));
    json_object_set_new(out, "reference_slope_ms", real_or_null(slope_ms(j->timing, "reference_ns")));
    json_object_set_new(out, "candidate_slope_ms", real_or_null(slope_ms(j->timing, "candidate_ns")));
    json_object_set_new(out, "gpu", gpu_json(j->timing));
    if (j->policy.timing.compile_baseline)
        json_object_set_new(out, "baselines", baselines_json(j));
    return out;
}

double
timing_baseline_speedup(const struct attempt *j, double speedup)
{
    json_t *ratio = json_object_get(j->baseline, "speedup");

    return json_is_number(ratio) ? speedup / json_number_value(ratio) : NAN;
}
