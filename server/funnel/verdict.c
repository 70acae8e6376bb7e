#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/statistics.h"
#include "common/utf8.h"
#include "server/funnel/feedback.h"
#include "server/funnel/private.h"

/*
 * The answer, as it is sent and stored. Every number here comes from a process
 * that never ran the candidate; what is not known is null.
 */

json_t *
real_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *
text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static json_t *
get_or_null(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value ? json_incref(value) : json_null();
}

static double
number(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* --- timing --- */

struct timing {
    bool is_measured;
    size_t n;
    double *reference, *candidate; /* milliseconds */
    struct stats_speedup speedup;
    double credited, credited_lo, credited_hi; /* of these, by the policy's estimator */
};

static void
timing_release(struct timing *t)
{
    free(t->reference);
    free(t->candidate);
}

static double *
samples_ms(json_t *array, size_t n)
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
    t->reference = samples_ms(reference, n);
    t->candidate = samples_ms(candidate, n);
    if (!t->reference || !t->candidate ||
        stats_paired_speedup(t->reference, t->candidate, n, STATS_SEED, &t->speedup) != 0)
        t->n = 0;
}

static void
read_timing(const struct judgement *j, struct timing *t)
{
    const char *outcome = json_string_value(json_object_get(j->timing, "outcome"));

    read_samples(j->timing, t);
    bool is_trimmed = strcmp(j->policy.timing.estimator, "trimmed") == 0;
    t->credited = is_trimmed ? t->speedup.speedup_trimmed : t->speedup.speedup;
    t->credited_lo = is_trimmed ? t->speedup.trimmed_lo : t->speedup.lo;
    t->credited_hi = is_trimmed ? t->speedup.trimmed_hi : t->speedup.hi;
    t->is_measured = t->n > 0 && outcome && strcmp(outcome, "measured") == 0 &&
                     j->stages[STAGE_TIMING].outcome == OUTCOME_PASS;
}

static const char *
why_untimed(const struct judgement *j)
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
        throttled += (json_integer_value(json_object_get(block, "throttle")) & LANE_THROTTLES) != 0;
    }
    json_object_set_new(out, "blocks", json_integer((json_int_t)json_array_size(blocks)));
    json_object_set_new(out, "void", json_integer(n_void));
    json_object_set_new(out, "background", json_integer(background));
    json_object_set_new(out, "throttled", json_integer(throttled));
    return out;
}

/* --- the timing as it is told --- */

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

/* What CUPTI recorded of the candidate's calls in the evidence pass, milliseconds of GPU work in each; NAN without it. */
static double
cupti_ms(const struct judgement *j)
{
    json_t *evidence = json_object_get(j->timing, "evidence");
    const char *method = json_string_value(json_object_get(evidence, "method"));

    return method && strcmp(method, "cupti") == 0 ? number(evidence, "all_ms") : NAN;
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

/* One of the timings that are told beside the one that counts; the speed-up is the paired one. */
static json_t *
beside_json(json_t *one)
{
    static const char *const as_told[] = { "name",  "overrides", "outcome",      "class",       "why",
                                           "calls", "bells",     "reference_ns", "candidate_ns" };
    json_t *out = json_object();
    struct timing t;

    read_samples(one, &t);
    for (size_t i = 0; i < ARRAY_LEN(as_told); i++)
        json_object_set_new(out, as_told[i], get_or_null(one, as_told[i]));
    json_object_set_new(out, "empty_ms", real_or_null(number(one, "empty_ns") / 1e6));
    json_object_set_new(out, "reference_ms", real_or_null(stats_median(t.reference, t.n)));
    json_object_set_new(out, "candidate_ms", real_or_null(stats_median(t.candidate, t.n)));
    json_object_set_new(out, "speedup", real_or_null(t.n ? t.speedup.speedup : NAN));
    json_object_set_new(out, "speedup_lo", real_or_null(t.n ? t.speedup.lo : NAN));
    json_object_set_new(out, "speedup_hi", real_or_null(t.n ? t.speedup.hi : NAN));
    timing_release(&t);
    return out;
}

/* By the other shapes that `full` ran; empty where none was timed. */
static json_t *
variations_json(const struct judgement *j)
{
    json_t *out = json_array(), *one;
    size_t i;

    json_array_foreach(json_object_get(j->timing, "variations"), i, one)
        json_array_append_new(out, beside_json(one));
    return out;
}

static json_t *
timing_json(const struct judgement *j, const struct timing *t)
{
    static const char *const as_told[] = { "method", "warmup",       "trials",      "calls",
                                           "bells",  "one_call",     "stopped",     "cold",
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
                            t->is_measured ? json_null() : json_string(why_untimed(j)), "estimator",
                            j->policy.timing.estimator);
    for (size_t i = 0; i < ARRAY_LEN(as_told); i++)
        json_object_set_new(out, as_told[i], get_or_null(j->timing, as_told[i]));
    set_statistics(out, t);
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        json_object_set_new(out, times[i].key, real_or_null(number(j->timing, times[i].told) / 1e6));
    json_object_set_new(out, "cupti_candidate_ms", real_or_null(cupti_ms(j)));
    json_object_set_new(out, "reference_slope_ms", real_or_null(slope_ms(j->timing, "reference_ns")));
    json_object_set_new(out, "candidate_slope_ms", real_or_null(slope_ms(j->timing, "candidate_ns")));
    json_object_set_new(out, "gpu", gpu_json(j->timing));
    if (j->policy.timing.compile_baseline)
        json_object_set_new(out, "baselines", baseline_json(j));
    if (j->policy.timing.variations)
        json_object_set_new(out, "variations", variations_json(j));
    json_t *batched = json_object_get(j->timing, "batched");
    if (j->policy.timing.batched)
        json_object_set_new(out, "batched", batched ? beside_json(batched) : json_null());
    return out;
}

/* --- components and reward --- */

static json_t *
correctness_of(const struct judgement *j)
{
    return j->full && json_object_get(j->full, "cases") ? j->full : j->tiny;
}

static double
share(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/*
 * Speed against the roofline floor: 1 at the floor, 1/2 where the candidate is as fast as the reference. The floor
 * counts as 95 % of the reference's time at most, so that noise does not decide where the reference is at the roof.
 */
static double
speed_of_light(const struct judgement *j, const struct timing *t)
{
    double floor_ms = number(j->timing, "floor_ns") / 1e6, took = stats_median(t->candidate, t->n),
           reference = stats_median(t->reference, t->n);

    if (!isfinite(floor_ms))
        return NAN;
    floor_ms = fmin(fmin(floor_ms, took), 0.95 * reference);
    return 1 / (1 + (took - floor_ms) / (reference - floor_ms));
}

/* Of the last stage that the candidate was called in, or NULL. */
static json_t *
evidence_of(const struct judgement *j)
{
    json_t *found = json_object_get(j->timing, "evidence");

    return found ? found : json_object_get(j->full, "evidence");
}

static json_t *
evidence_json(const struct judgement *j)
{
    static const char *const keys[] = { "method", "why",     "coverage", "own_ms", "all_ms",     "calls",
                                        "lost",   "kernels", "foreign",  "decoys", "is_withheld" };
    json_t *found = evidence_of(j);

    if (!found)
        return json_null();
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        json_object_set_new(out, keys[i], get_or_null(found, keys[i]));
    return out;
}

/* The candidate kept from us what it had the GPU do. */
static bool
is_withheld(const struct judgement *j)
{
    return json_is_true(json_object_get(evidence_of(j), "is_withheld"));
}

static void
fill_components(const struct judgement *j, const struct timing *t, struct reward_components *c)
{
    json_t *detail = correctness_of(j);
    bool is_ok = j->failed_stage < 0;

    reward_components_init(c);
    c->extracted = strcmp(j->class_, "extract") != 0;
    c->valid = j->stages[STAGE_AST].outcome == OUTCOME_PASS;
    c->compiled = j->stages[STAGE_COMPILE].outcome == OUTCOME_PASS;
    c->correct = j->stages[STAGE_FULL].outcome == OUTCOME_PASS && (is_ok || j->failed_stage > STAGE_FULL) &&
                 strcmp(j->class_, "hack") != 0;
    c->hack = strcmp(j->class_, "hack") == 0;
    /* Where records can be had and there are none, somebody saw to it: no speed is credited. */
    c->timed = t->is_measured && is_ok && !is_withheld(j);
    c->coverage = number(evidence_of(j), "coverage");
    if (t->is_measured) {
        c->speedup = t->credited;
        c->speedup_lo = t->credited_lo;
        c->speedup_hi = t->credited_hi;
        c->speedup_compile = baseline_speedup(j, t->credited);
        c->sol = speed_of_light(j, t);
    }
    c->peak_mem_ratio = share(number(detail, "peak_bytes"), number(detail, "reference_peak_bytes"));
    c->cases_passed =
        share(number(detail, "passed"), (double)json_array_size(json_object_get(detail, "cases")));
    if (j->full && j->stages[STAGE_FULL].of > 0)
        c->cases_passed = share(j->stages[STAGE_FULL].done, j->stages[STAGE_FULL].of);
}

static void
fill_input(const struct judgement *j, bool is_cancelled, const struct timing *t, struct reward_input *in)
{
    static const enum reward_stage passed[] = { REWARD_AST, REWARD_COMPILE, REWARD_TINY, REWARD_FULL,
                                                REWARD_TIMING };
    _Static_assert(ARRAY_LEN(passed) == STAGE_NSTAGES, "one for each stage");

    *in = (struct reward_input){ .passed = j->passed >= 0 ? passed[j->passed] : REWARD_NOTHING };
    fill_components(j, t, &in->components);
    in->has_failed = j->failed_stage >= 0;
    if (j->failed_stage >= 0 && j->failed_stage < STAGE_NSTAGES && j->stages[j->failed_stage].of > 0)
        in->partial = fmin(1, (double)j->stages[j->failed_stage].done / j->stages[j->failed_stage].of);
    in->is_hack = strcmp(j->class_, "hack") == 0 || strcmp(j->class_, "policy") == 0;
    in->is_masked = is_cancelled || strcmp(j->class_, "infra") == 0;
}

/* --- the parts of the answer --- */

static json_t *
correctness_json(const struct judgement *j)
{
    json_t *detail = correctness_of(j);

    if (!detail)
        return json_null();
    int stage = detail == j->full ? STAGE_FULL : STAGE_TINY;
    return json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "stage", stage_name((enum stage)stage),
                     "cases", j->stages[stage].of, "passed", j->stages[stage].done, "first_mismatch",
                     get_or_null(detail, "first_mismatch"), "max_abs", get_or_null(detail, "max_abs"),
                     "max_rel", get_or_null(detail, "max_rel"), "peak_bytes",
                     get_or_null(detail, "peak_bytes"), "reference_peak_bytes",
                     get_or_null(detail, "reference_peak_bytes"), "results", get_or_null(detail, "cases"));
}

static const char *
why_skipped(const struct judgement *j, int stage)
{
    json_t *const details[STAGE_NSTAGES] = {
        [STAGE_TINY] = j->tiny, [STAGE_FULL] = j->full, [STAGE_TIMING] = j->timing
    };

    if (j->stages[stage].why)
        return j->stages[stage].why;
    const char *why = json_string_value(json_object_get(details[stage], "why"));
    return why ? why : stage == STAGE_TINY ? j->generality : NULL;
}

static json_t *
stages_json(const struct judgement *j)
{
    static const char *const names[] = { NULL, "pass", "fail", "skip" };
    json_t *out = json_array();

    for (int i = 0; i < STAGE_NSTAGES; i++) {
        const struct stage_record *r = &j->stages[i];
        if (r->outcome == OUTCOME_NONE)
            continue;
        json_t *item = json_pack("{s:s, s:s, s:o, s:f, s:f, s:i, s:i}", "stage", stage_name((enum stage)i),
                                 "outcome", names[r->outcome], "class", text_or_null(r->class_), "wait_ms",
                                 r->wait_ms, "run_ms", r->run_ms, "done", r->done, "of", r->of);
        if (r->outcome == OUTCOME_SKIP)
            json_object_set_new(item, "why", text_or_null(why_skipped(j, i)));
        json_array_append_new(out, item);
    }
    return out;
}

static void
feedback_ok(const struct judgement *j, const struct timing *t, char *out, size_t size)
{
    const char *passed = j->passed >= 0 ? stage_name((enum stage)j->passed) : "nothing";
    char cases[48] = "its one case";

    if (j->stages[STAGE_FULL].of != 1)
        snprintf(cases, sizeof(cases), "all %d cases", j->stages[STAGE_FULL].of);
    if (t->is_measured && is_withheld(j))
        snprintf(out, size, "Correct in %s. Its speed is not credited.", cases);
    else if (t->is_measured)
        snprintf(out, size,
                 "Correct in %s, and %.3g times as fast as the reference (%.4g ms for %.4g ms; "
                 "95%% interval %.3g to %.3g).",
                 cases, t->credited, stats_median(t->candidate, t->n), stats_median(t->reference, t->n),
                 t->credited_lo, t->credited_hi);
    else if (j->stages[STAGE_FULL].outcome == OUTCOME_PASS)
        snprintf(out, size, "Correct in %s. Not timed: %.200s.", cases, why_untimed(j));
    else if (j->stages[STAGE_FULL].outcome == OUTCOME_SKIP)
        snprintf(out, size, "Passed %s; full was skipped: %.200s.", passed,
                 why_skipped(j, STAGE_FULL) ? why_skipped(j, STAGE_FULL) : "no reason is known");
    else
        snprintf(out, size, "Passed everything up to %s, where it was asked to stop.", passed);
}

/* Only these words are known; the referee's word is checked like any other. */
static const char *
bound_of(const struct judgement *j)
{
    const char *bound = json_string_value(json_object_get(j->timing, "bound"));

    if (bound && strcmp(bound, "memory") == 0)
        return "memory";
    return bound && strcmp(bound, "compute") == 0 ? "compute" : NULL;
}

static const char *const cancel_text[] = {
    [CANCEL_ASKED] = "Cancelled before there was a verdict.",
    [CANCEL_DEADLINE] = "Cancelled: its group's deadline had passed.",
    [CANCEL_DECIDED] = "Cancelled: its group was decided without it.",
};

const char *
cancel_reason_name(enum cancel_reason why)
{
    static const char *const names[] = { "asked", "deadline", "group_decided" };
    _Static_assert(ARRAY_LEN(names) == ARRAY_LEN(cancel_text), "name every reason");
    return names[why];
}

bool
verdict_is_correct(json_t *verdict)
{
    const char *class_ = json_string_value(json_object_get(verdict, "class"));
    json_t *components = json_object_get(verdict, "components");

    return class_ && strcmp(class_, "ok") == 0 &&
           json_integer_value(json_object_get(components, "correct")) == 1;
}

static json_t *
verdict_feedback(const struct submission *s, const struct timing *t, bool is_cancelled)
{
    const struct judgement *j = s->judgement;
    json_t *detail = correctness_of(j);
    bool is_ok = j->failed_stage < 0;
    char text[sizeof(j->text) + 64];

    if (is_cancelled)
        return json_pack("{s:n, s:s}", "class", "text", cancel_text[s->cancel_reason]);
    if (is_ok)
        feedback_ok(j, t, text, sizeof(text));
    else
        snprintf(text, sizeof(text), "%s", j->text);
    utf8_clean(text);
    const char *at = j->failed_stage == STAGE_NSTAGES ? "extract"
                     : !is_ok                         ? stage_name((enum stage)j->failed_stage)
                                                      : verdict_stage(j);
    const struct feedback feedback = {
        .class_ = is_ok ? "ok" : j->class_,
        .stage = at,
        .passed = j->passed >= 0 ? stage_name((enum stage)j->passed) : NULL,
        .headline = text,
        .error = j->error,
        .mismatch = is_ok ? NULL : json_object_get(detail, "first_mismatch"),
        .max_abs = number(detail, "max_abs"),
        .max_rel = number(detail, "max_rel"),
        .is_timed = is_ok && t->is_measured && !is_withheld(j),
        .reference_ms = stats_median(t->reference, t->n),
        .candidate_ms = stats_median(t->candidate, t->n),
        .speedup = t->credited,
        .speedup_lo = t->credited_lo,
        .speedup_hi = t->credited_hi,
        .coverage = number(evidence_of(j), "coverage"),
        .bound = bound_of(j),
        .floor_ms = number(j->timing, "floor_ns") / 1e6,
        .kernels = j->compiled,
    };
    return feedback_json(&feedback);
}

static json_t *
time_or_null(int64_t wall_ms)
{
    char text[CLOCK_TEXT_SIZE];

    if (wall_ms <= 0)
        return json_null();
    clock_text(wall_ms, text);
    return json_string(text);
}

static json_t *
failed_at(const struct judgement *j)
{
    if (j->failed_stage < 0)
        return json_null();
    return json_string(j->failed_stage == STAGE_NSTAGES ? "extract"
                                                        : stage_name((enum stage)j->failed_stage));
}

const char *
verdict_stage(const struct judgement *j)
{
    if (j->failed_stage == STAGE_NSTAGES)
        return "extract";
    return j->stage >= 0 ? stage_name((enum stage)j->stage) : NULL;
}

static const char *
state_shown(const struct submission *s)
{
    if (s->state == STATE_CANCELLED)
        return "cancelled";
    if (s->state == STATE_QUEUED)
        return "queued";
    /* Done counts once it is durable; until then a caller has nothing to rely on. */
    return s->state == STATE_DONE && s->judgement && s->judgement->row.finished_ms ? "done" : "running";
}

/* A rank is not known before the whole group is: group.c fills it in. */
double
verdict_reward(const struct reward_spec *spec, const struct reward_input *in)
{
    return reward_needs_rank(spec) && !in->is_hack ? NAN : reward_compute(spec, in);
}

static void
set_outcome(json_t *out, const struct submission *s, const struct timing *t, const struct reward_input *in)
{
    const struct judgement *j = s->judgement;
    bool is_final = state_is_final(s->state);
    bool is_cancelled = s->state == STATE_CANCELLED;

    json_object_set_new(out, "class",
                        !is_final || is_cancelled ? json_null()
                                                  : json_string(j->failed_stage >= 0 ? j->class_ : "ok"));
    json_object_set_new(out, "rule", is_final && !is_cancelled ? text_or_null(j->rule) : json_null());
    json_object_set_new(out, "cancel_reason",
                        is_cancelled ? json_string(cancel_reason_name(s->cancel_reason)) : json_null());
    json_object_set_new(out, "reward", is_final ? real_or_null(verdict_reward(&j->reward, in)) : json_null());
    json_object_set_new(out, "reward_parts", is_final ? reward_parts_json(&j->reward, in) : json_null());
    json_object_set_new(out, "reward_spec", reward_spec_json(&j->reward));
    json_object_set(out, "flags", j->flags);
    json_object_set_new(out, "generality", text_or_null(j->generality));
    json_object_set_new(out, "components", is_final ? reward_components_json(&in->components) : json_null());
    json_object_set_new(out, "correctness", correctness_json(j));
    json_object_set_new(out, "timing", is_final && !is_cancelled ? timing_json(j, t) : json_null());
    json_object_set_new(out, "evidence", is_final && !is_cancelled ? evidence_json(j) : json_null());
    json_object_set_new(out, "stages", stages_json(j));
    json_object_set_new(out, "feedback", is_final ? verdict_feedback(s, t, is_cancelled) : json_null());
}

/* What did not count, and whether it was judged again for that. */
static json_t *
rerun_json(const struct submission *s)
{
    if (!s->rerun.class_[0])
        return json_null();
    return json_pack("{s:s, s:s, s:s, s:b}", "class", s->rerun.class_, "stage", stage_name(s->rerun.stage),
                     "why", s->rerun.why, "alone", (int)s->is_rerun);
}

json_t *
verdict_json(const struct submission *s)
{
    const struct judgement *j = s->judgement;
    struct reward_input in;
    struct timing t;

    read_timing(j, &t);
    fill_input(j, s->state == STATE_CANCELLED, &t, &in);
    json_t *out = json_pack("{s:s, s:o, s:o, s:s, s:o, s:s, s:o, s:o, s:o}", "id", s->id, "group",
                            text_or_null(j->row.group_id), "group_index",
                            *j->row.group_id ? json_integer(j->row.group_index) : json_null(), "task",
                            j->row.task_id, "task_name", text_or_null(j->task.name), "state", state_shown(s),
                            "stage", text_or_null(verdict_stage(j)), "passed_stage",
                            j->passed >= 0 ? json_string(stage_name((enum stage)j->passed)) : json_null(),
                            "failed_at", failed_at(j));
    if (!out) {
        timing_release(&t);
        return NULL;
    }
    set_outcome(out, s, &t, &in);
    timing_release(&t);
    json_object_set_new(out, "error", j->error ? json_incref(j->error) : json_null());
    json_object_set_new(out, "kernels", j->compiled ? json_incref(j->compiled) : json_array());
    json_object_set_new(out, "env", j->env ? json_incref(j->env) : json_null());
    json_object_set_new(out, "policy", json_string(j->policy.name));
    json_object_set_new(out, "policy_on", policy_parts_json(&j->policy));
    json_object_set_new(out, "until", get_or_null(j->request, "until"));
    json_object_set_new(out, "seed",
                        state_is_final(s->state) ? get_or_null(j->request, "seed") : json_null());
    json_object_set_new(out, "entry_point", get_or_null(j->request, "entry_point"));
    json_object_set_new(out, "source", json_string(j->row.source_hash));
    json_object_set_new(out, "client", text_or_null(j->row.client));
    json_object_set_new(out, "priority",
                        json_string(s->priority == PRIORITY_BATCH ? "batch" : "interactive"));
    json_object_set_new(out, "metadata", get_or_null(j->request, "metadata"));
    json_object_set_new(out, "cache", json_string(s->cache));
    json_object_set_new(out, "cached_from", json_null());
    json_object_set_new(out, "attempts", json_integer(s->attempts));
    json_object_set_new(out, "rerun", state_is_final(s->state) ? rerun_json(s) : json_null());
    json_object_set_new(out, "created", time_or_null(j->row.created_ms));
    json_object_set_new(out, "finished", time_or_null(state_is_final(s->state) ? j->row.finished_ms : 0));
    return out;
}
