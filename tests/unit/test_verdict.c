/* test_verdict.c - the answer that is made of what the stages left behind. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/policy.h"
#include "common/stages.h"
#include "server/submission/attempt.h"
#include "server/submission/failure.h"
#include "server/verdict/rewards.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/task/calibration.h"
#include "server/verdict/verdict.h"
#include "server/workers/zygote.h"

struct rig {
    struct submission s;
    struct attempt j;
};

static int
set_up(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));
    const struct reward_spec standard = REWARD_SPEC_DEFAULT;

    r->s.attempt = &r->j;
    r->s.state = STATE_DONE;
    r->s.attempts = 1;
    r->s.cache = "miss";
    snprintf(r->s.id, sizeof(r->s.id), "0199f2c4-0000-7000-8000-000000000000");
    r->j.row.finished_ms = r->j.row.created_ms = 1700000000000;
    r->j.stage = r->j.passed = r->j.failed_stage = r->j.until = -1;
    r->j.reward = standard;
    r->j.flags = json_array();
    r->j.request = json_pack("{s:s}", "seed", "00000000000000ff");
    assert_int_equal(policy_find("strict", &r->j.policy), 0);
    *state = r;
    return 0;
}

static int
tear_down(void **state)
{
    struct rig *r = *state;
    json_t *const owned[] = { r->j.flags, r->j.request, r->j.tiny, r->j.full, r->j.timing, r->j.error };

    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        json_decref(owned[i]);
    free(r->j.generality);
    free(r);
    return 0;
}

static void
set_stage(struct rig *r, enum stage stage, enum outcome outcome, int done, int of)
{
    r->j.stage = stage;
    r->j.stages[stage] = (struct stage_record){ .outcome = outcome, .done = done, .of = of, .run_ms = 1 };
    if (outcome == OUTCOME_PASS && r->j.failed_stage < 0)
        r->j.passed = stage;
}

static void
pass_up_to(struct rig *r, enum stage last)
{
    for (int i = 0; i <= (int)last; i++)
        set_stage(r, (enum stage)i, OUTCOME_PASS, 5, 5);
}

static void
set_timing(struct rig *r, const char *outcome, double reference_ns, double candidate_ns)
{
    json_t *reference = json_array(), *candidate = json_array();

    for (int i = 0; i < 20; i++) {
        json_array_append_new(reference, json_real(reference_ns * (1 + 0.001 * i)));
        json_array_append_new(candidate, json_real(candidate_ns * (1 + 0.001 * i)));
    }
    r->j.timing = json_pack("{s:s, s:o, s:o}", "outcome", outcome, "reference_ns", reference, "candidate_ns",
                            candidate);
}

static double
number_at(json_t *v, const char *object, const char *key)
{
    json_t *value = json_object_get(object ? json_object_get(v, object) : v, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *
text_at(json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

/* Every field of the answer is there in every verdict: absent figures are null. */
static void
the_shape_is_always_the_same(void **state)
{
    static const char *const keys[] = {
        "id",       "task",     "task_name",   "state", "stage",      "passed_stage", "failed_at",
        "class",    "reward",   "reward_spec", "flags", "generality", "components",   "correctness",
        "timing",   "stages",   "feedback",    "env",   "policy",     "policy_on",    "cache",
        "attempts", "created",  "finished",    "group", "metadata",   "seed",         "error",
        "rule",     "evidence", "cached_from", "rerun"
    };
    struct rig *r = *state;

    for (int i = 0; i < 3; i++) {
        if (i == 1)
            pass_up_to(r, STAGE_TIMING);
        if (i == 2)
            r->s.state = STATE_CANCELLED;
        AUTO_JSON json_t *v = verdict_json(&r->s);
        assert_non_null(v);
        for (size_t k = 0; k < ARRAY_LEN(keys); k++)
            if (!json_object_get(v, keys[k]))
                fail_msg("%s is missing in round %d", keys[k], i);
    }
}

static void
a_measured_one_is_worth_its_speed(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "measured", 3e6, 2e6);
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_string_equal(text_at(v, "class"), "ok");
    assert_string_equal(text_at(v, "passed_stage"), "timing");
    assert_true(fabs(number_at(v, "components", "speedup") - 1.5) < 1e-9);
    assert_true(fabs(number_at(v, NULL, "reward") - (0.7 + 0.3 * 0.75)) < 1e-9);
    assert_true(fabs(number_at(v, "timing", "candidate_ms") - 2.019) < 1e-9);
    assert_true(number_at(v, "components", "timed") == 1);
    assert_non_null(strstr(text_at(json_object_get(v, "feedback"), "text"), "1.5 times"));
}

/* What limits it is the referee's word, checked like its figures; a call shorter than its launches is limited by these. */
static void
feedback_says_what_limits_it(void **state)
{
    static const struct {
        const char *told;
        double candidate_ns;
        const char *bound;
    } rows[] = {
        { "memory", 2e6, "memory" },
        { "compute", 2e6, "compute" },
        { "luck", 2e6, NULL },
        { "memory", 1e4, "launch" },
    };
    struct rig *r = *state;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        pass_up_to(r, STAGE_TIMING);
        set_timing(r, "measured", 3e6, rows[i].candidate_ns);
        json_object_set_new(r->j.timing, "bound", json_string(rows[i].told));
        json_object_set_new(r->j.timing, "floor_ns", json_real(1e6));
        AUTO_JSON json_t *v = verdict_json(&r->s);
        json_t *feedback = json_object_get(v, "feedback");
        if (rows[i].bound)
            assert_string_equal(text_at(feedback, "bound"), rows[i].bound);
        else
            assert_true(json_is_null(json_object_get(feedback, "bound")));
        assert_int_equal(rows[i].bound != NULL, strstr(text_at(feedback, "text"), "is bound by") != NULL);
        assert_true(fabs(number_at(feedback, "timing", "floor_ms") - 1) < 1e-9);
        assert_true(number_at(feedback, "timing", "speedup") > 1);
        json_decref(ptr_take(&r->j.timing));
    }
}

/* 1 at the roofline floor, 1/2 where it is as fast as the reference, null where no floor is known. */
static void
speed_of_light_is_between_floor_and_reference(void **state)
{
    static const struct {
        double floor_ns, candidate_ns, sol;
    } rows[] = { { 1e6, 2e6, 0.5 },   { 1e6, 1e6, 1 }, { 1e6, 1.5e6, 2.0 / 3 }, { 1e6, 4e6, 0.25 },
                 { 1.9e6, 0.5e6, 1 }, { 3e6, 1e6, 1 }, { 3e6, 2e6, 0.5 },       { 0, 1e6, 2.0 / 3 } };
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_decref(r->j.timing);
        set_timing(r, "measured", 2e6, rows[i].candidate_ns);
        AUTO_JSON json_t *unknown = verdict_json(&r->s);
        assert_true(json_is_null(json_object_get(json_object_get(unknown, "components"), "sol")));
        assert_true(json_is_null(json_object_get(json_object_get(unknown, "timing"), "floor_ms")));
        json_object_set_new(r->j.timing, "floor_ns", json_real(rows[i].floor_ns));
        AUTO_JSON json_t *v = verdict_json(&r->s);
        assert_true(fabs(number_at(v, "components", "sol") - rows[i].sol) < 0.02);
        assert_true(fabs(number_at(v, "timing", "floor_ms") - rows[i].floor_ns / 1e6) < 1e-9);
    }
}

/* As measured, beside each step; and none where they are not as many. */
static void
steps_have_the_shares_of_the_time_that_were_measured(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "measured", 3e6, 2e6);
    r->j.plan = json_pack("{s:[{s:i}, {s:i}]}", "steps", "line", 4, "line", 5);
    json_object_set_new(r->j.timing, "step_shares", json_pack("[f, f]", 0.25, 0.75));
    AUTO_JSON json_t *v = verdict_json(&r->s);
    json_t *steps = json_object_get(json_object_get(v, "plan"), "steps");
    assert_true(number_at(json_array_get(steps, 0), NULL, "share") == 0.25);
    assert_true(number_at(json_array_get(steps, 1), NULL, "share") == 0.75);
    assert_true(number_at(json_array_get(steps, 1), NULL, "line") == 5);
    json_object_set_new(r->j.timing, "step_shares", json_pack("[f]", 1.0));
    AUTO_JSON json_t *other = verdict_json(&r->s);
    assert_null(json_object_get(json_array_get(json_object_get(json_object_get(other, "plan"), "steps"), 0),
                                "share"));
    json_decref(r->j.plan);
    r->j.plan = NULL;
}

/* What let no plan be made of itself: its time stands and is not paid for. */
static void
coverage_is_of_the_plan_and_no_plan_is_no_credit(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "measured", 3e6, 2e6);
    r->j.plan = json_pack("{s:f}", "coverage", 0.75);
    AUTO_JSON json_t *planned = verdict_json(&r->s);
    assert_true(number_at(planned, "components", "coverage") == 0.75);
    assert_true(number_at(planned, "components", "timed") == 1 && number_at(planned, NULL, "reward") > 0.8);
    json_decref(r->j.plan);
    r->j.plan = NULL;
    r->j.is_live = true;
    AUTO_JSON json_t *live = verdict_json(&r->s);
    assert_true(isnan(number_at(live, "components", "coverage")));
    assert_true(number_at(live, "components", "timed") == 0);
    assert_true(isnan(number_at(live, "components", "speedup")) &&
                isnan(number_at(live, "components", "sol")));
    assert_string_equal(text_at(json_object_get(live, "timing"), "outcome"), "measured");
    assert_true(fabs(number_at(live, NULL, "reward") - 0.7) < 1e-9);
    r->j.policy.credit_untraced = true;
    AUTO_JSON json_t *credited = verdict_json(&r->s);
    assert_true(number_at(credited, "components", "timed") == 1 && number_at(credited, NULL, "reward") > 0.8);
}

/* The live clock asks for less, and whoever keeps a plan from being a graph must not gain by that. */
static void
a_plan_that_is_no_graph_is_no_credit(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "measured", 3e6, 2e6);
    json_object_set_new(r->j.timing, "not_captured", json_string("the candidate: it reads a number"));
    AUTO_JSON json_t *theirs = verdict_json(&r->s);
    assert_true(number_at(theirs, "components", "timed") == 0);
    assert_non_null(strstr(text_at(json_object_get(theirs, "feedback"), "text"), "it reads a number"));
    json_object_set_new(r->j.timing, "not_captured", json_string("the reference: it reads a number"));
    AUTO_JSON json_t *ours = verdict_json(&r->s);
    assert_true(number_at(ours, "components", "timed") == 1);
}

/* A reference that is slow now and then: pairs and trimmed means differ, and the policy says which is paid for. */
static void
the_policy_says_which_estimator_counts(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "measured", 3e6, 2e6);
    for (int i = 0; i < 6; i++)
        json_array_set_new(json_object_get(r->j.timing, "reference_ns"), (size_t)i, json_real(9e6));
    AUTO_JSON json_t *paired = verdict_json(&r->s);
    snprintf(r->j.policy.timing.estimator, sizeof(r->j.policy.timing.estimator), "trimmed");
    AUTO_JSON json_t *trimmed = verdict_json(&r->s);
    double of_pairs = number_at(paired, "components", "speedup"),
           of_means = number_at(trimmed, "components", "speedup");
    assert_true(fabs(of_pairs - 1.5) < 1e-6 && of_means > 1.9);
    assert_true(number_at(paired, "timing", "speedup_trimmed") == of_means);
    assert_true(number_at(trimmed, "timing", "speedup") == of_pairs);
    assert_true(number_at(trimmed, "components", "speedup_lo") ==
                number_at(trimmed, "timing", "speedup_trimmed_lo"));
    assert_true(number_at(trimmed, "components", "speedup_lo") < of_means);
    assert_string_equal(text_at(json_object_get(trimmed, "timing"), "estimator"), "trimmed");
    assert_true(number_at(trimmed, "timing", "reference_cv") > 0.5);
}

/* A round trip of 340 us plus 50 us for each call, one measurement disturbed: the slope is a call's time. */
static void
what_the_referee_saw_is_told(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "measured", 5e4, 5e4);
    AUTO_JSON json_t *seen = json_loads(
        "{\"calls\":8,\"one_call\":\"shared\",\"not_captured\":\"it reads a number\",\"stopped\":\"the "
        "interval is narrow "
        "enough\",\"cold\":true,\"host_candidate_ns\":21000,"
        "\"slopes\":{\"calls\":[8,16,8,16,8],\"reference_ns\":[740000,1140000,740000,1140000,9000000],"
        "\"candidate_ns\":[1]},"
        "\"baseline_ns\":40000,\"bells\":20,"
        "\"clocks\":{\"before\":{},\"blocks\":[{\"bells\":5,\"void\":null,\"temp_c\":[40,44],\"throttle\":1},"
        "{\"bells\":5,\"void\":\"background\",\"temp_c\":[null,81],\"sm_mhz\":[null,null]},"
        "{\"bells\":5,\"void\":\"the GPU throttles\",\"temp_c\":[41,42],\"throttle\":8}]}}",
        0, NULL);
    assert_non_null(seen);
    json_object_update(r->j.timing, seen);
    AUTO_JSON json_t *v = verdict_json(&r->s);
    json_t *t = json_object_get(v, "timing"), *gpu = json_object_get(t, "gpu");
    assert_true(number_at(v, "timing", "calls") == 8);
    assert_string_equal(json_string_value(json_object_get(t, "one_call")), "shared");
    assert_string_equal(json_string_value(json_object_get(t, "not_captured")), "it reads a number");
    assert_true(json_is_true(json_object_get(t, "cold")));
    assert_true(fabs(number_at(v, "timing", "host_candidate_ms") - 0.021) < 1e-12);
    assert_true(json_is_null(json_object_get(t, "host_reference_ms")));
    assert_true(fabs(number_at(v, "timing", "reference_slope_ms") - 0.05) < 1e-12);
    assert_true(json_is_null(json_object_get(t, "candidate_slope_ms")));
    assert_true(number_at(v, "timing", "baseline_ms") == 0.04 && number_at(v, "timing", "bells") == 20);
    assert_true(number_at(t, "gpu", "blocks") == 3 && number_at(t, "gpu", "void") == 1);
    assert_true(number_at(t, "gpu", "background") == 1 && number_at(t, "gpu", "throttled") == 1);
    json_t *temperature = json_object_get(gpu, "temp_c");
    assert_true(json_number_value(json_array_get(temperature, 0)) == 40);
    assert_true(json_number_value(json_array_get(temperature, 1)) == 81);
    assert_true(json_is_null(json_object_get(gpu, "sm_mhz")) &&
                json_is_null(json_object_get(gpu, "power_w")));
    assert_int_equal(json_array_size(json_object_get(json_object_get(t, "clocks"), "blocks")), 3);
}

/* Samples that were taken but not accepted are shown, and earn nothing. */
static void
an_unmeasured_speed_earns_nothing(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "inconclusive", 3e6, 1e6);
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_true(fabs(number_at(v, NULL, "reward") - 0.7) < 1e-9);
    assert_true(isnan(number_at(v, "components", "speedup")));
    assert_true(fabs(number_at(v, "timing", "speedup") - 3) < 1e-9);
}

static void
senseless_samples_are_none(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TIMING);
    set_timing(r, "measured", 3e6, 1e6);
    json_array_set_new(json_object_get(r->j.timing, "candidate_ns"), 3, json_real(-1));
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_true(number_at(v, "components", "timed") == 0);
    assert_true(fabs(number_at(v, NULL, "reward") - 0.7) < 1e-9);
    json_array_remove(json_object_get(r->j.timing, "candidate_ns"), 3);
    AUTO_JSON json_t *uneven = verdict_json(&r->s);
    assert_true(number_at(uneven, "components", "timed") == 0);
}

static void
the_way_inside_a_stage_counts(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TINY);
    attempt_fail(&r->j, STAGE_FULL, CLASS_MISMATCH, NULL, "full: wrong");
    set_stage(r, STAGE_FULL, OUTCOME_FAIL, 3, 5);
    r->j.full = json_pack("{s:[], s:i}", "cases", "passed", 3);
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_true(fabs(number_at(v, NULL, "reward") - (0.5 + 0.6 * 0.2)) < 1e-9);
    assert_true(fabs(number_at(v, "components", "cases_passed") - 0.6) < 1e-9);
    assert_string_equal(text_at(v, "failed_at"), "full");
    assert_string_equal(text_at(v, "passed_stage"), "tiny");
    assert_true(number_at(v, "components", "correct") == 0);
    assert_string_equal(text_at(json_object_get(v, "timing"), "outcome"), "skipped");
}

/* Under a policy that goes on after a failure, later passes count for nothing. */
static void
the_first_failure_is_the_verdict(void **state)
{
    struct rig *r = *state;

    set_stage(r, STAGE_AST, OUTCOME_PASS, 1, 1);
    attempt_fail(&r->j, STAGE_COMPILE, CLASS_COMPILE, NULL, "compile: first");
    set_stage(r, STAGE_COMPILE, OUTCOME_FAIL, 1, 2);
    set_stage(r, STAGE_TINY, OUTCOME_PASS, 1, 1);
    set_stage(r, STAGE_FULL, OUTCOME_PASS, 5, 5);
    attempt_fail(&r->j, STAGE_TIMING, CLASS_TIMEOUT, NULL, "timing: second");
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_string_equal(text_at(v, "class"), "compile");
    assert_string_equal(text_at(v, "stage"), "full");
    assert_string_equal(text_at(v, "passed_stage"), "ast");
    json_t *feedback = json_object_get(v, "feedback");
    assert_int_equal(strncmp(text_at(feedback, "text"), "compile: first\nHint: ", 21), 0);
    assert_string_equal(text_at(feedback, "stage"), "compile");
    assert_string_equal(text_at(feedback, "passed"), "ast");
    assert_true(fabs(number_at(v, NULL, "reward") - 0.15) < 1e-9);
    assert_true(number_at(v, "components", "correct") == 0);
}

/* With staged off, one that fails a stage honestly and is found out in a later one. */
static void
a_hack_found_later_is_the_verdict(void **state)
{
    struct rig *r = *state;
    AUTO_JSON json_t *error = json_pack("{s:s}", "type", "mismatch");

    pass_up_to(r, STAGE_COMPILE);
    attempt_fail(&r->j, STAGE_TINY, CLASS_TIMEOUT, error, "tiny: first");
    snprintf(r->j.neighbour, sizeof(r->j.neighbour), "others had the CPU");
    set_stage(r, STAGE_TINY, OUTCOME_FAIL, 0, 1);
    attempt_fail(&r->j, STAGE_FULL, CLASS_HACK, NULL, "full: a cheat");
    assert_string_equal(r->j.neighbour, ""); /* it was of the timeout, which does not count any more */
    set_stage(r, STAGE_FULL, OUTCOME_FAIL, 4, 5);
    attempt_fail(&r->j, STAGE_TIMING, CLASS_CRASH, NULL, "timing: third");
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_string_equal(text_at(v, "class"), "hack");
    assert_string_equal(text_at(v, "failed_at"), "full");
    assert_string_equal(text_at(v, "passed_stage"), "compile");
    assert_string_equal(text_at(json_object_get(v, "feedback"), "text"), "full: a cheat");
    assert_true(json_is_null(json_object_get(v, "error")));
    assert_true(number_at(v, NULL, "reward") == 0);
}

static void
ours_and_cancelled_have_no_reward(void **state)
{
    struct rig *r = *state;

    attempt_fail(&r->j, STAGE_COMPILE, CLASS_INFRA, NULL, "ours");
    AUTO_JSON json_t *infra = verdict_json(&r->s);
    assert_true(json_is_null(json_object_get(infra, "reward")));
    r->s.state = STATE_CANCELLED;
    AUTO_JSON json_t *cancelled = verdict_json(&r->s);
    assert_true(json_is_null(json_object_get(cancelled, "reward")));
    assert_true(json_is_null(json_object_get(cancelled, "class")));
    assert_string_equal(text_at(cancelled, "state"), "cancelled");
}

static void
an_unfinished_one_says_nothing_of_the_end(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_COMPILE);
    r->s.state = STATE_TINY;
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_string_equal(text_at(v, "state"), "running");
    static const char *const nothing[] = { "class", "reward", "feedback", "finished", "seed" };
    for (size_t i = 0; i < ARRAY_LEN(nothing); i++)
        assert_true(json_is_null(json_object_get(v, nothing[i])));
    assert_int_equal(json_array_size(json_object_get(v, "stages")), 2);
    r->s.state = STATE_QUEUED;
    AUTO_JSON json_t *queued = verdict_json(&r->s);
    assert_string_equal(text_at(queued, "state"), "queued");
}

/* An answer without a class or a kernel is worth what one that does not parse is: hack_value is for cheats. */
static void
a_slip_of_form_is_worth_what_a_slip_of_syntax_is(void **state)
{
    struct rig *r = *state;

    r->j.reward.hack_value = -1;
    set_stage(r, STAGE_AST, OUTCOME_FAIL, 0, 1);
    attempt_fail(&r->j, STAGE_AST, CLASS_FORM, NULL, "ast: no class");
    AUTO_JSON json_t *form = verdict_json(&r->s);
    r->j.class_ = CLASS_SYNTAX;
    AUTO_JSON json_t *syntax = verdict_json(&r->s);
    r->j.class_ = CLASS_POLICY;
    AUTO_JSON json_t *policy = verdict_json(&r->s);
    assert_true(number_at(form, NULL, "reward") == number_at(syntax, NULL, "reward"));
    assert_true(number_at(form, "components", "hack") == 0);
    assert_true(number_at(policy, NULL, "reward") == -1);
    assert_true(number_at(policy, "components", "hack") == 1);
}

/* docs/store.md: before there was a class `form`, what it means was stored as `policy`. */
static void
a_stored_slip_of_before_is_no_cheat_when_it_is_scored_again(void **state)
{
    static const struct {
        const char *class_, *rule, *failed_at;
        bool is_hack;
    } rows[] = {
        { "policy", "entry_class", "ast", false },      { "policy", "kernel_required", "ast", false },
        { "policy", "kernel_reachable", "ast", false }, { "policy", "kernel_required", "compile", true },
        { "policy", "import_ctypes", "ast", true },     { "policy", NULL, "ast", true },
        { "form", "entry_class", "ast", false },        { "hack", "entry_class", "ast", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_JSON json_t *stored =
            json_pack("{s:s, s:s, s:s?, s:s, s:{s:i}}", "state", "done", "class", rows[i].class_, "rule",
                      rows[i].rule, "failed_at", rows[i].failed_at, "components", "hack", 1);
        struct reward_input in;
        assert_true(verdict_input(stored, &in));
        if (in.is_hack != rows[i].is_hack || in.components.hack != rows[i].is_hack)
            fail_msg("row %zu: %s by %s", i, rows[i].class_, rows[i].rule ? rows[i].rule : "no rule");
    }
}

/* The rule is told with the class, and not before there is one. */
static void
the_rule_is_told_with_the_class(void **state)
{
    struct rig *r = *state;

    pass_up_to(r, STAGE_TINY);
    set_stage(r, STAGE_FULL, OUTCOME_FAIL, 0, 5);
    attempt_fail(&r->j, STAGE_FULL, CLASS_HACK, NULL, "full: hack");
    snprintf(r->j.rule, sizeof(r->j.rule), "outside_heap");
    r->s.state = STATE_FULL;
    AUTO_JSON json_t *unfinished = verdict_json(&r->s);
    assert_true(json_is_null(json_object_get(unfinished, "rule")));
    r->s.state = STATE_DONE;
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_string_equal(text_at(v, "rule"), "outside_heap");
    r->j.rule[0] = '\0';
    AUTO_JSON json_t *without = verdict_json(&r->s);
    assert_true(json_is_null(json_object_get(without, "rule")));
}

static void
a_text_cut_inside_a_character_is_still_text(void **state)
{
    struct rig *r = *state;
    char text[4000];

    memset(text, 'x', sizeof(text));
    text[10] = '\n'; /* the headline ends there; what is cut lies behind it */
    memcpy(text + sizeof(r->j.text) - 3, "\xe2\x82\xac", 3); /* the last byte falls off */
    text[sizeof(text) - 1] = '\0';
    attempt_fail(&r->j, STAGE_AST, CLASS_SYNTAX, NULL, "%s", text);
    AUTO_JSON json_t *v = verdict_json(&r->s);
    assert_int_equal(strncmp(text_at(json_object_get(v, "feedback"), "text"), "xxxxxxxxxx\nHint: ", 17), 0);
}

static void
ends_are_told_in_words(void **state)
{
    static const struct {
        struct child_end end;
        const char *words;
    } rows[] = {
        { { .code = 0 }, "exited with status 0 before answering" },
        { { .code = 3 }, "exited with status 3 before answering" },
        { { .code = -1, .signal = 11 }, "was killed by signal 11 (SIGSEGV) before answering" },
        { { .code = -1, .signal = 200 }, "was killed by signal 200 before answering" },
    };
    char text[128];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        crash_text(&rows[i].end, text, sizeof(text));
        assert_string_equal(text, rows[i].words);
    }
}

static void
a_calibration_is_told_of_its_own_gpu(void **state)
{
    const struct calibration_row row = { .id = "x",
                                         .gpu = "H200",
                                         .document = "{\"bias\":0.001,\"spread\":0.002,\"runs\":[]}" };
    struct calibrations *all = calibrations_new();
    (void)state;
    calibrations_add_cb(all, &row);
    AUTO_JSON json_t *known = calibration_brief(all, "H200");
    AUTO_JSON json_t *other = calibration_brief(all, "B200");
    AUTO_JSON json_t *none = calibration_brief(all, NULL);
    assert_true(number_at(known, NULL, "bias") == 0.001 && number_at(known, NULL, "spread") == 0.002);
    assert_string_equal(text_at(known, "id"), "x");
    assert_null(json_object_get(known, "runs"));
    assert_true(json_is_null(other) && json_is_null(none));
    calibrations_free(all);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_shape_is_always_the_same),
        TEST(a_measured_one_is_worth_its_speed),
        TEST(feedback_says_what_limits_it),
        TEST(speed_of_light_is_between_floor_and_reference),
        TEST(steps_have_the_shares_of_the_time_that_were_measured),
        TEST(coverage_is_of_the_plan_and_no_plan_is_no_credit),
        TEST(a_plan_that_is_no_graph_is_no_credit),
        TEST(the_policy_says_which_estimator_counts),
        TEST(what_the_referee_saw_is_told),
        TEST(an_unmeasured_speed_earns_nothing),
        TEST(senseless_samples_are_none),
        TEST(the_way_inside_a_stage_counts),
        TEST(the_first_failure_is_the_verdict),
        TEST(a_hack_found_later_is_the_verdict),
        TEST(ours_and_cancelled_have_no_reward),
        TEST(an_unfinished_one_says_nothing_of_the_end),
        TEST(a_slip_of_form_is_worth_what_a_slip_of_syntax_is),
        TEST(a_stored_slip_of_before_is_no_cheat_when_it_is_scored_again),
        TEST(the_rule_is_told_with_the_class),
        TEST(a_text_cut_inside_a_character_is_still_text),
        TEST(ends_are_told_in_words),
        TEST(a_calibration_is_told_of_its_own_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
