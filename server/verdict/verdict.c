#include "server/verdict/verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/json.h"
#include "common/policy.h"
#include "common/reward.h"
#include "common/stages.h"
#include "common/statistics.h"
#include "common/utf8.h"
#include "server/submission/attempt.h"
#include "server/submission/request.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/verdict/cause.h"
#include "server/verdict/feedback.h"
#include "server/verdict/rewards.h"
#include "server/verdict/timing.h"

/*
 * The document, as it is sent and stored. No number here is
 * the word of the candidate's module, but how many kernels it has where it is called live. Unknown values are null.
 */

/* --- components and reward --- */

static json_t *
correctness_of(const struct attempt *j)
{
    return j->full && json_object_get(j->full, "cases") ? j->full : j->tiny;
}

/* The results at other sizes, dtypes and arguments, the last part of a verdict; borrowed, NULL if none were tried. */
static json_t *
shapes_of(const struct attempt *j)
{
    json_t *timed = json_object_get(j->timing, "shapes");

    return timed ? timed : json_object_get(j->full, "shapes");
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
speed_of_light(const struct attempt *j, const struct timing *t)
{
    double floor_ms = number_or_nan(j->timing, "floor_ns") / 1e6, took = stats_median(t->candidate, t->n),
           reference = stats_median(t->reference, t->n);

    if (!isfinite(floor_ms))
        return NAN;
    floor_ms = fmin(fmin(floor_ms, took), 0.95 * reference);
    return 1 / (1 + (took - floor_ms) / (reference - floor_ms));
}

/* Share of the candidate's own kernels in the work, by its plan if that is all right; NAN: it has none. */
static double
coverage_of(const struct attempt *j)
{
    return j->failed_stage < 0 ? number_or_nan(j->plan, "coverage") : NAN;
}

static void
fill_components(const struct attempt *j, const struct timing *t, struct reward_components *c)
{
    json_t *detail = correctness_of(j);
    bool is_ok = j->failed_stage < 0;

    reward_components_init(c);
    c->extracted = j->class_ != CLASS_EXTRACT;
    c->valid = j->stages[STAGE_AST].outcome == OUTCOME_PASS;
    c->compiled = j->stages[STAGE_COMPILE].outcome == OUTCOME_PASS;
    c->correct = j->stages[STAGE_FULL].outcome == OUTCOME_PASS && (is_ok || j->failed_stage > STAGE_FULL) &&
                 (is_ok || j->passed >= STAGE_FULL) && j->class_ != CLASS_HACK;
    c->hack = class_info(j->class_)->is_cheat;
    c->timed = t->is_measured && is_ok && !attempt_is_uncredited(j);
    c->coverage = coverage_of(j);
    if (c->timed) {
        c->speedup = t->credited;
        c->speedup_lo = t->credited_lo;
        c->speedup_hi = t->credited_hi;
        c->speedup_compile = timing_baseline_speedup(j, t->credited);
        c->sol = speed_of_light(j, t);
    }
    c->peak_mem_ratio =
        share(number_or_nan(j->plan, "call_bytes"), number_or_nan(detail, "reference_peak_bytes"));
    c->cases_passed =
        share(number_or_nan(detail, "passed"), (double)json_array_size(json_object_get(detail, "cases")));
    if (j->full && j->stages[STAGE_FULL].of > 0)
        c->cases_passed = share(j->stages[STAGE_FULL].done, j->stages[STAGE_FULL].of);
    c->generality = number_or_nan(shapes_of(j), "share");
}

static void
fill_input(const struct attempt *j, bool is_cancelled, const struct timing *t, struct reward_input *in)
{
    *in = (struct reward_input){ .passed = (enum stage)j->passed };
    fill_components(j, t, &in->components);
    in->has_failed = j->failed_stage >= 0;
    if (j->failed_stage >= 0 && j->failed_stage < STAGE_NSTAGES && j->stages[j->failed_stage].of > 0)
        in->partial = fmin(1, (double)j->stages[j->failed_stage].done / j->stages[j->failed_stage].of);
    in->is_hack = class_info(j->class_)->is_cheat;
    in->is_masked = is_cancelled || class_info(j->class_)->fault == FAULT_SERVICE;
}

/* --- the parts of the answer --- */

static json_t *
correctness_json(const struct attempt *j)
{
    json_t *detail = correctness_of(j);

    if (!detail)
        return json_null();
    int stage = detail == j->full ? STAGE_FULL : STAGE_TINY;
    return json_pack("{s:s, s:i, s:i, s:O?, s:o, s:o, s:o, s:o, s:o, s:o}", "stage",
                     stage_name((enum stage)stage), "cases", j->stages[stage].of, "passed",
                     j->stages[stage].done, "shapes", shapes_of(j), "first_mismatch",
                     get_or_null(detail, "first_mismatch"), "max_abs", get_or_null(detail, "max_abs"),
                     "max_rel", get_or_null(detail, "max_rel"), "peak_bytes",
                     get_or_null(j->plan, "call_bytes"), "reference_peak_bytes",
                     get_or_null(detail, "reference_peak_bytes"), "results", get_or_null(detail, "cases"));
}

static const char *
why_skipped(const struct attempt *j, int stage)
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
stages_json(const struct attempt *j)
{
    static const char *const names[] = { NULL, "pass", "fail", "skip" };
    json_t *out = json_array();

    for (int i = 0; i < STAGE_NSTAGES; i++) {
        const struct stage_record *r = &j->stages[i];
        if (r->outcome == OUTCOME_NONE)
            continue;
        json_t *item = json_pack("{s:s, s:s, s:o, s:f, s:f, s:i, s:i}", "stage", stage_name((enum stage)i),
                                 "outcome", names[r->outcome], "class", text_or_null(class_name(r->class_)),
                                 "wait_ms", r->wait_ms, "run_ms", r->run_ms, "done", r->done, "of", r->of);
        if (r->outcome == OUTCOME_SKIP)
            json_object_set_new(item, "why", text_or_null(why_skipped(j, i)));
        json_array_append_new(out, item);
    }
    return out;
}

static void
feedback_ok(const struct attempt *j, const struct timing *t, char *out, size_t size)
{
    const char *passed = j->passed >= 0 ? stage_name((enum stage)j->passed) : "nothing";
    char cases[48] = "its one case";

    if (j->stages[STAGE_FULL].of != 1)
        snprintf(cases, sizeof(cases), "all %d cases", j->stages[STAGE_FULL].of);
    if (t->is_measured && attempt_is_uncredited(j))
        snprintf(out, size, "Correct in %s. Its speed is not credited: %.300s.", cases,
                 attempt_is_not_captured(j) ? json_string_value(json_object_get(j->timing, "not_captured"))
                                            : "no plan can be made of it");
    else if (t->is_measured)
        snprintf(out, size,
                 "Correct in %s, and %.3g times as fast as the reference (%.4g ms for %.4g ms; "
                 "95%% interval %.3g to %.3g).",
                 cases, t->credited, stats_median(t->candidate, t->n), stats_median(t->reference, t->n),
                 t->credited_lo, t->credited_hi);
    else if (j->stages[STAGE_FULL].outcome == OUTCOME_PASS)
        snprintf(out, size, "Correct in %s. Not timed: %.200s.", cases, timing_why_none(j));
    else if (j->stages[STAGE_FULL].outcome == OUTCOME_SKIP)
        snprintf(out, size, "Passed %s; full was skipped: %.200s.", passed,
                 why_skipped(j, STAGE_FULL) ? why_skipped(j, STAGE_FULL) : "no reason is known");
    else
        snprintf(out, size, "Passed everything up to %s, where it was asked to stop.", passed);
}

/* Adds " Why there is no plan: compile: line 19: what runs next depends on a number that only the GPU knows." */
static void
add_why_untraced(const struct attempt *j, char *out, size_t size)
{
    const struct cause cause = { STAGE_COMPILE, CLASS_LAUNCH, j->untraced, "no reason is known" };
    AUTO_BUFFER struct buffer why = BUFFER_INIT;
    const size_t n = strlen(out);

    if (json_is_object(j->untraced) && cause_add(&cause, &why) == 0)
        snprintf(out + n, size - n, " Why there is no plan: %s.", why.data);
}

/* Only these words are known; the referee's word is checked like any other. */
static const char *
bound_of(const struct attempt *j)
{
    if (text_is(j->timing, "bound", "memory"))
        return "memory";
    return text_is(j->timing, "bound", "compute") ? "compute" : NULL;
}

static const char *const cancel_text[] = {
    [CANCEL_ASKED] = "Cancelled before there was a verdict.",
    [CANCEL_DEADLINE] = "Cancelled: its group's deadline had passed.",
    [CANCEL_DECIDED] = "Cancelled: its group was decided without it.",
};

/* The reason's name in a verdict. */
static const char *
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

    return class_find(class_) == CLASS_OK && json_integer_value(json_object_get(components, "correct")) == 1;
}

/* No line of Python begins with the mark of a fence or of reasoning, but for text in quotes. */
static bool
is_answer(const struct attempt *j)
{
    static const char *const marks[] = { "\n```", "\n<think>", "\n</think>" };
    const char *text = j->source.data;

    for (size_t i = 0; text && i < ARRAY_LEN(marks); i++)
        if (strncmp(text, marks[i] + 1, strlen(marks[i] + 1)) == 0 || strstr(text, marks[i]))
            return true;
    return false;
}

static json_t *
verdict_feedback(const struct submission *s, const struct timing *t, bool is_cancelled)
{
    const struct attempt *j = s->attempt;
    json_t *detail = correctness_of(j);
    bool is_ok = j->failed_stage < 0;
    char text[sizeof(j->text) + 64];

    if (is_cancelled)
        return json_pack("{s:n, s:s}", "class", "text", cancel_text[s->cancel_reason]);
    if (is_ok) {
        feedback_ok(j, t, text, sizeof(text));
        add_why_untraced(j, text, sizeof(text));
    } else {
        snprintf(text, sizeof(text), "%s", j->text);
    }
    utf8_clean(text);
    const char *at = is_ok ? verdict_stage(j) : stage_name((enum stage)j->failed_stage);
    const struct stage_record *failed =
        j->failed_stage == STAGE_TINY || j->failed_stage == STAGE_FULL ? &j->stages[j->failed_stage] : NULL;
    const struct feedback feedback = {
        .class_ = verdict_class_of(j),
        .stage = at,
        .passed = stage_name((enum stage)j->passed),
        .headline = text,
        .rule = j->rule,
        .error = j->error || !is_ok ? j->error : j->untraced,
        .untraced = j->failed_stage >= STAGE_TINY ? j->untraced : NULL,
        .mismatch = is_ok ? NULL : json_object_get(detail, "first_mismatch"),
        .max_abs = number_or_nan(detail, "max_abs"),
        .max_rel = number_or_nan(detail, "max_rel"),
        .cases = failed ? failed->of : 0,
        .cases_passed = failed ? failed->done : 0,
        .is_cut = json_has_text(j->flags, "truncated"),
        .is_unended = json_has_text(j->flags, "unended_reasoning"),
        .is_answer = is_answer(j),
        .is_timed = is_ok && t->is_measured && !attempt_is_uncredited(j),
        .is_device_time = text_is(j->timing, "basis", "device"),
        .reference_ms = stats_median(t->reference, t->n),
        .candidate_ms = stats_median(t->candidate, t->n),
        .speedup = t->credited,
        .speedup_lo = t->credited_lo,
        .speedup_hi = t->credited_hi,
        .coverage = coverage_of(j),
        .bound = bound_of(j),
        .floor_ms = number_or_nan(j->timing, "floor_ns") / 1e6,
        .kernels = j->compiled,
    };
    return feedback_json(&feedback);
}

const char *
verdict_stage(const struct attempt *j)
{
    return stage_name((enum stage)(j->failed_stage == STAGE_EXTRACT ? STAGE_EXTRACT : j->stage));
}

enum verdict_class
verdict_class_of(const struct attempt *j)
{
    return j->failed_stage >= 0 ? j->class_ : CLASS_OK;
}

static const char *
state_shown(const struct submission *s)
{
    if (s->state == STATE_CANCELLED)
        return "cancelled";
    if (s->state == STATE_QUEUED)
        return "queued";
    /* Done counts once it is durable; until then a caller has nothing to rely on. */
    return s->state == STATE_DONE && s->attempt && s->attempt->row.finished_ms ? "done" : "running";
}

/* A rank is not known before the whole group is: rewards.c fills it in. */
static void
set_outcome(json_t *out, const struct submission *s, const struct timing *t, const struct reward_input *in)
{
    const struct attempt *j = s->attempt;
    bool is_final = state_is_final(s->state);
    bool is_cancelled = s->state == STATE_CANCELLED;

    json_object_set_new(
        out, "class", !is_final || is_cancelled ? json_null() : json_string(class_name(verdict_class_of(j))));
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
    json_object_set_new(out, "evidence", json_null()); /* earlier versions listed here which kernels ran */
    json_object_set_new(out, "stages", stages_json(j));
    json_object_set_new(out, "feedback", is_final ? verdict_feedback(s, t, is_cancelled) : json_null());
}

/* The failure that did not count, and whether the submission was judged again for that. */
static json_t *
rerun_json(const struct submission *s)
{
    if (s->rerun.class_ == CLASS_NONE)
        return json_null();
    return json_pack("{s:s, s:s, s:s, s:b}", "class", class_name(s->rerun.class_), "stage",
                     stage_name(s->rerun.stage), "why", s->rerun.why, "alone", (int)s->job.is_rerun);
}

/* The plan, with the part of the call's time that each of its steps takes where that was measured. Given. */
static json_t *
plan_with_shares(json_t *plan, json_t *shares)
{
    json_t *steps = json_object_get(plan, "steps");
    size_t n = json_array_size(steps);

    if (n == 0 || json_array_size(shares) < n)
        return json_incref(plan);
    json_t *out = json_copy(plan), *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *step = json_copy(json_array_get(steps, i));
        json_object_set(step, "share", json_array_get(shares, i));
        json_array_append_new(list, step);
    }
    json_object_set_new(out, "steps", list);
    return out;
}

/* A summary of its plan, or the reason why there is none; null where none was asked for. Given. */
static json_t *
plan_json(const struct attempt *j)
{
    if (j->plan)
        return plan_with_shares(j->plan, json_object_get(j->timing, "step_shares"));
    if (j->is_live)
        return json_pack("{s:b, s:O?}", "traced", 0, "error", j->untraced);
    return json_null();
}

/* What compute-sanitizer saw, or why it saw nothing; null where nobody asked. Given. */
static json_t *
sanitize_json(const struct submission *s)
{
    const struct attempt *j = s->attempt;
    json_t *gpu = json_object_get(j->env, "gpu");

    if (!j->policy.sanitize || s->state != STATE_DONE)
        return json_null();
    if (j->sanitize)
        return json_incref(j->sanitize);
    return json_pack("{s:s, s:[]}", "why",
                     !gpu                ? "it did not reach a device"
                     : json_is_null(gpu) ? "there is no GPU"
                     : !j->plan          ? "it has no plan, and only a plan can be replayed"
                                         : "the device let go of it before",
                     "tools");
}

json_t *
verdict_json(const struct submission *s)
{
    const struct attempt *j = s->attempt;
    char policy[POLICY_SHOWN_SIZE];
    struct reward_input in;
    struct timing t;

    timing_read(j, &t);
    fill_input(j, s->state == STATE_CANCELLED, &t, &in);
    json_t *out = json_pack(
        "{s:s, s:o, s:o, s:s, s:o, s:s, s:o, s:o, s:o}", "id", s->id, "group", text_or_null(j->row.group_id),
        "group_index", *j->row.group_id ? json_integer(j->row.group_index) : json_null(), "task",
        j->row.task_id, "task_name", text_or_null(j->task.name), "state", state_shown(s), "stage",
        text_or_null(verdict_stage(j)), "passed_stage", text_or_null(stage_name((enum stage)j->passed)),
        "failed_at", text_or_null(stage_name((enum stage)j->failed_stage)));
    if (!out) {
        timing_release(&t);
        return NULL;
    }
    set_outcome(out, s, &t, &in);
    timing_release(&t);
    json_object_set_new(out, "error", j->error ? json_incref(j->error) : json_null());
    json_object_set_new(out, "kernels", j->compiled ? json_incref(j->compiled) : json_array());
    json_object_set_new(out, "plan", plan_json(j));
    json_object_set_new(out, "sanitize", sanitize_json(s));
    json_object_set_new(out, "env", j->env ? json_incref(j->env) : json_null());
    policy_shown(&j->policy, policy);
    json_object_set_new(out, "policy", json_string(policy));
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
