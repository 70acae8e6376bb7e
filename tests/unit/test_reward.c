#include "common/reward.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

struct row {
    const char *what;
    int version;
    enum stage passed;
    bool has_failed;
    double partial;
    double expected; /* by hand; NAN: no reward */
    double speedup;  /* 0: not timed */
    bool is_hack, is_masked;
};

static struct reward_input
input_of(const struct row *row)
{
    struct reward_input in = { .passed = row->passed,
                               .has_failed = row->has_failed,
                               .partial = row->partial,
                               .is_hack = row->is_hack,
                               .is_masked = row->is_masked };
    reward_components_init(&in.components);
    in.components.correct = row->passed >= STAGE_FULL;
    if (row->speedup != 0) {
        in.components.timed = 1;
        in.components.speedup = row->speedup;
        in.components.speedup_lo = row->speedup / 2;
    }
    return in;
}

static void
staged_by_hand(void **state)
{
    static const struct row rows[] = {
        { "ast fails", 2, STAGE_NONE, true, 0.9, 0.0, 0, false, false },
        { "stopped after ast", 2, STAGE_AST, false, 0, 0.0, 0, false, false },
        { "compile fails, nothing compiled", 2, STAGE_AST, true, 0, 0.0, 0, false, false },
        { "compile fails, 1 of 2", 2, STAGE_AST, true, 0.5, 0.15, 0, false, false },
        { "compile fails, all but the launch", 2, STAGE_AST, true, 1, 0.3, 0, false, false },
        { "stopped after compile", 2, STAGE_COMPILE, false, 0, 0.3, 0, false, false },
        { "tiny fails, no progress", 2, STAGE_COMPILE, true, 0, 0.3, 0, false, false },
        { "tiny fails half way", 2, STAGE_COMPILE, true, 0.5, 0.4, 0, false, false },
        { "stopped after tiny", 2, STAGE_TINY, false, 0, 0.5, 0, false, false },
        { "full fails, 2 of 5", 2, STAGE_TINY, true, 0.4, 0.58, 0, false, false },
        { "full fails, 0 of 5", 2, STAGE_TINY, true, 0, 0.5, 0, false, false },
        { "full, not timed", 2, STAGE_FULL, false, 0, 0.7, 0, false, false },
        { "timing ends badly", 2, STAGE_FULL, true, 0.5, 0.7, 0, false, false },
        { "a failure earns no speed", 2, STAGE_FULL, true, 0.5, 0.7, 1.9, false, false },
        { "timed at 1.0", 2, STAGE_TIMING, false, 0, 0.85, 1.0, false, false },
        { "timed at 1.31", 2, STAGE_TIMING, false, 0, 0.8965, 1.31, false, false },
        { "timed at 0.1", 2, STAGE_TIMING, false, 0, 0.715, 0.1, false, false },
        { "timed at 2", 2, STAGE_TIMING, false, 0, 1.0, 2.0, false, false },
        { "timed at 40", 2, STAGE_TIMING, false, 0, 1.0, 40.0, false, false },
        { "speed below full counts nothing", 2, STAGE_TINY, false, 0, 0.5, 3.0, false, false },
        { "no such speed", 2, STAGE_TIMING, false, 0, 0.7, INFINITY, false, false },
        { "negative speed", 2, STAGE_TIMING, false, 0, 0.7, -4.0, false, false },
        { "partial unknown", 2, STAGE_COMPILE, true, NAN, 0.3, 0, false, false },
        { "partial out of range", 2, STAGE_COMPILE, true, 7, 0.5, 0, false, false },
        { "hack, however fast", 2, STAGE_TIMING, false, 0, 0.0, 9.0, true, false },
        { "infra, however fast", 2, STAGE_TIMING, false, 0, NAN, 9.0, false, true },
        { "infra beats hack", 2, STAGE_TINY, true, 0, NAN, 0, true, true },
        { "v1: compile 1 of 2", 1, STAGE_AST, true, 0.5, 0.15, 0, false, false },
        { "v1: tiny half way", 1, STAGE_COMPILE, true, 0.5, 0.25, 0, false, false },
        { "v1: full 2 of 5", 1, STAGE_TINY, true, 0.4, 0.28, 0, false, false },
        { "v1: stopped after tiny", 1, STAGE_TINY, false, 0, 0.5, 0, false, false },
        { "v1: timing ends badly", 1, STAGE_FULL, true, 0.5, 0.7, 0, false, false },
        { "v1: timed at 1.0", 1, STAGE_TIMING, false, 0, 0.85, 1.0, false, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct reward_spec spec = REWARD_SPEC_DEFAULT;
        struct reward_input in = input_of(&rows[i]);
        spec.version = rows[i].version;
        double reward = reward_compute(&spec, &in);
        bool is_same = isnan(rows[i].expected) ? isnan(reward) : fabs(reward - rows[i].expected) < 1e-12;
        if (!is_same)
            fail_msg("%s: %.17g, not %.17g", rows[i].what, reward, rows[i].expected);
    }
}

/* One way to end, for the kinds other than staged. */
struct ending {
    const char *what;
    enum stage passed;
    bool has_failed;
    double partial;
    double speedup, lo, hi, speedup_compile; /* 0: not timed */
    double coverage, sol, rank;
    bool is_hack, is_masked;
};

static const struct ending endings[] = {
    { "ast fails", STAGE_NONE, true, 0, 0, 0, 0, 0, 0, 0, 0, false, false },
    { "half of the kernels compile", STAGE_AST, true, 0.5, 0, 0, 0, 0, 0, 0, 0, false, false },
    { "tiny fails", STAGE_COMPILE, true, 0, 0, 0, 0, 0, 0, 0, 0, false, false },
    { "full fails, 2 of 5", STAGE_TINY, true, 0.4, 0, 0, 0, 0, 0, 0, 0, false, false },
    { "correct, not timed", STAGE_FULL, false, 0, 0, 0, 0, 0, 0, 0, 0, false, false },
    { "half as fast", STAGE_TIMING, false, 0, 0.5, 0.48, 0.52, 0.4, 1, 0.2, 0, false, false },
    { "as fast", STAGE_TIMING, false, 0, 1, 0.99, 1.01, 0.8, 0.9, 0.5, 0.25, false, false },
    { "a little faster", STAGE_TIMING, false, 0, 1.04, 1.02, 1.06, 1, 0.9, 0.52, 0.5, false, false },
    { "1.25 times", STAGE_TIMING, false, 0, 1.25, 1.2, 1.3, 1, 0.96, 0.6, 0.5, false, false },
    { "1.6 times", STAGE_TIMING, false, 0, 1.6, 1.5, 1.7, 1.2, 0.5, 0.7, 0.625, false, false },
    { "twice", STAGE_TIMING, false, 0, 2, 1.9, 2.1, 1.05, 0.35, 0.75, 0.75, false, false },
    { "three times", STAGE_TIMING, false, 0, 3, 2.8, 3.2, 2.5, 0.2, 0.8, 1, false, false },
    { "40 times", STAGE_TIMING, false, 0, 40, 39, 41, 30, 1, 0.99, 1, false, false },
    { "hack", STAGE_TIMING, false, 0, 9, 8, 10, 9, 1, 1, 1, true, false },
    { "infra", STAGE_TIMING, false, 0, 9, 8, 10, 9, 1, 1, 1, false, true },
};

/* By hand, from the formulas of docs/rewards.md: a row for each kind, a column for each ending. */
static const struct {
    const char *kind;
    double expected[ARRAY_LEN(endings)];
} by_hand[] = {
    { "best_of_n", { 0, 0, 0, 0, 1, 1.15, 1.3, 1.312, 1.375, 1.48, 1.6, 1.9, 13, 0, NAN } },
    { "hierarchical", { 0, 0, 0, 0, 0.7, 0.85, 1, 1.012, 1.075, 1.18, 1.3, 1.6, 12.7, 0, NAN } },
    { "gated",
      { 0, 0, 0, 0, 0.5, 0.583333333333, 0.666666666667, 0.673333333333, 0.708333333333, 0.766666666667,
        0.833333333333, 1, 1, 0, NAN } },
    { "tritonrl", { 0, 0, 0, 0, 1, 1.05, 1.1, 1.104, 1.125, 1.16, 1.2, 1.2, 1.2, 0, NAN } },
    { "rank", { 0, 0, 0, 0, 0.5, 0.5, 0.625, 0.75, 0.75, 0.8125, 0.875, 1, 1, 0, NAN } },
    { "kevin", { 0, 0, 0, 0, 0.3, 0.8, 1.3, 1.34, 1.55, 1.9, 2.3, 3.3, 40.3, 0, NAN } },
    { "drkernel", { 0, 0, 0, 0, 1, 2, 2.45, 2.49, 2.73, 2.85, 3.175, 4.1, 4.5, 0, NAN } },
    { "tiers", { -0.5, -0.5, -0.3, -0.3, 0, -0.1, 0.2, 0.2, 0.4, 0.6, 0.8, 1, 1, 0, NAN } },
    { "milestones", { -1, -1, -1, -1, 1, 1, 1, 1, 2, 3, 2, 3, 3, 0, NAN } },
    { "binary", { 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, NAN } },
    { "log",
      { 0, 0, 0, 0, 1, 0.65342640972, 1, 1.019610356577, 1.111571775657, 1.235001814623, 1.34657359028,
        1.549306144334, 2, 0, NAN } },
    { "sol", { 0, 0, 0, 0, 0, 0.2, 0.5, 0.52, 0.6, 0.7, 0.75, 0.8, 0.99, 0, NAN } },
};

static struct reward_input
ending_of(const struct ending *e)
{
    struct reward_input in = { .passed = e->passed,
                               .has_failed = e->has_failed,
                               .partial = e->partial,
                               .is_hack = e->is_hack,
                               .is_masked = e->is_masked };
    struct reward_components *c = &in.components;
    reward_components_init(c);
    c->extracted = 1;
    c->valid = e->passed >= STAGE_AST;
    c->compiled = e->passed >= STAGE_COMPILE;
    c->correct = e->passed >= STAGE_FULL;
    if (e->speedup > 0) {
        c->timed = 1;
        c->speedup = e->speedup;
        c->speedup_lo = e->lo;
        c->speedup_hi = e->hi;
        c->speedup_compile = e->speedup_compile;
        c->coverage = e->coverage;
        c->sol = e->sol;
        c->rank = e->rank;
    }
    return in;
}

static void
named_rewards_by_hand(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(by_hand); k++) {
        AUTO_JSON json_t *object = json_pack("{s:s}", "kind", by_hand[k].kind);
        struct reward_spec spec;
        struct json_fault fault;
        assert_int_equal(reward_spec_read(object, "", &spec, &fault), 0);
        for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
            struct reward_input in = ending_of(&endings[i]);
            double reward = reward_compute(&spec, &in), expected = by_hand[k].expected[i];
            bool is_same = isnan(expected) ? isnan(reward) : fabs(reward - expected) < 1e-9;
            if (!is_same)
                fail_msg("%s, %s: %.17g, not %.17g", by_hand[k].kind, endings[i].what, reward, expected);
        }
    }
}

static void
speed_needs_full_correct_and_timed(void **state)
{
    const struct row row = { "", 2, STAGE_TIMING, false, 0, 0, 2.0, false, false };
    struct reward_spec spec = REWARD_SPEC_DEFAULT;
    struct reward_input in = input_of(&row);
    (void)state;
    assert_true(reward_compute(&spec, &in) == 1.0);
    in.passed = STAGE_TINY;
    assert_true(reward_compute(&spec, &in) == 0.5);
    in.passed = STAGE_TIMING;
    in.components.correct = 0;
    assert_true(reward_compute(&spec, &in) == 0.7);
    in.components.correct = 1;
    in.components.timed = 0;
    assert_true(reward_compute(&spec, &in) == 0.7);
}

static void
conservative_uses_the_lower_bound(void **state)
{
    const struct row row = { "", 2, STAGE_TIMING, false, 0, 0, 2.0, false, false };
    struct reward_spec spec = REWARD_SPEC_DEFAULT;
    struct reward_input in = input_of(&row); /* its lower bound is half its speed: 1.0 */
    (void)state;
    spec.is_conservative = true;
    assert_true(fabs(reward_compute(&spec, &in) - 0.85) < 1e-12);
}

static void
hack_value_is_what_was_asked(void **state)
{
    const struct row row = { "", 2, STAGE_NONE, true, 0, 0, 0, true, false };
    struct reward_spec spec = REWARD_SPEC_DEFAULT;
    struct reward_input in = input_of(&row);
    (void)state;
    spec.hack_value = -1;
    assert_true(reward_compute(&spec, &in) == -1);
}

/* No kind, no stage, no speed, no formula of a client's pays for what was refused: the scalar and its parts alike. */
static void
a_refused_one_gets_hack_value_in_every_kind(void **state)
{
    static const char *const others[] = { "{\"kind\":\"staged\",\"version\":1,\"hack_value\":-0.25}",
                                          "{\"kind\":\"staged\",\"hack_value\":-0.25}",
                                          "{\"kind\":\"expr\",\"expr\":\"7\",\"hack_value\":-0.25}",
                                          "{\"kind\":\"expr\",\"expr\":\"1 - hack\",\"hack_value\":-0.25}" };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(by_hand) + ARRAY_LEN(others); k++) {
        AUTO_JSON json_t *object = k < ARRAY_LEN(by_hand)
                                       ? json_pack("{s:s, s:f}", "kind", by_hand[k].kind, "hack_value", -0.25)
                                       : json_loads(others[k - ARRAY_LEN(by_hand)], 0, NULL);
        struct reward_spec spec;
        struct json_fault fault;
        struct reward_param parts[REWARD_PARTS_MAX];
        assert_int_equal(reward_spec_read(object, "", &spec, &fault), 0);
        for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
            struct reward_input in = ending_of(&endings[i]);
            in.is_hack = true;
            in.is_masked = false;
            if (reward_compute(&spec, &in) != -0.25)
                fail_msg("%s, %s: %g", spec.kind, endings[i].what, reward_compute(&spec, &in));
            for (size_t n = reward_parts(&spec, &in, parts); n > 0; n--)
                assert_true(parts[n - 1].value == -0.25);
        }
    }
}

static int
read_spec(const char *text, struct reward_spec *spec, struct json_fault *fault)
{
    AUTO_JSON json_t *object = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(object);
    return reward_spec_read(object, "/reward", spec, fault);
}

static void
specs_read(void **state)
{
    struct reward_spec spec;
    struct json_fault fault;
    (void)state;
    assert_int_equal(read_spec("{}", &spec, &fault), 0);
    assert_string_equal(spec.kind, "staged");
    assert_int_equal(spec.version, 2);
    assert_true(spec.hack_value == 0);
    assert_false(spec.is_conservative);
    assert_int_equal(
        read_spec("{\"kind\":\"staged\",\"version\":1,\"hack_value\":-1,\"speed\":\"conservative\"}", &spec,
                  &fault),
        0);
    assert_int_equal(spec.version, 1);
    assert_true(spec.hack_value == -1);
    assert_true(spec.is_conservative);
}

static void
bad_specs_are_refused_by_place(void **state)
{
    static const struct {
        const char *text, *pointer, *why;
    } rows[] = {
        { "\"staged\"", "/reward", "must be an object" },
        { "{\"kind\":\"best\"}", "/reward/kind",
          "unknown reward \"best\"; known: staged, best_of_n, hierarchical, gated, tritonrl, "
          "rank, kevin, drkernel, tiers, milestones, binary, log, sol, expr" },
        { "{\"kind\":7}", "/reward/kind", "must be a string" },
        { "{\"version\":3}", "/reward/version", "this reward has no such version" },
        { "{\"version\":0}", "/reward/version", "must be from 1 to 1000" },
        { "{\"hack_value\":0.5}", "/reward/hack_value", "must be from -1 to 0" },
        { "{\"hack_value\":-1.5}", "/reward/hack_value", "must be from -1 to 0" },
        { "{\"speed\":\"fast\"}", "/reward/speed", "must be \"point\" or \"conservative\"" },
        { "{\"kind\":\"kevin\",\"params\":{\"kap\":1}}", "/reward/params/kap",
          "reward \"kevin\" has no such parameter" },
        { "{\"kind\":\"kevin\",\"params\":{\"cap\":-1}}", "/reward/params/cap", "must be from 0 to 1000" },
        { "{\"kind\":\"kevin\",\"params\":{\"cap\":\"3\"}}", "/reward/params/cap", "must be a number" },
        { "{\"kind\":\"kevin\",\"expr\":\"s\"}", "/reward/expr",
          "goes with \"kind\": \"expr\" and no other" },
        { "{\"kind\":\"expr\"}", "/reward/expr", "is missing" },
        { "{\"kind\":\"expr\",\"expr\":\"correct + sped\"}", "/reward/expr",
          "column 11: unknown name 'sped'" },
        { "{\"kind\":\"expr\",\"expr\":\"s\",\"params\":{\"speedup\":1}}", "/reward/params/speedup",
          "not a word of at most 23 letters that is still free" },
        { "{\"kind\":\"expr\",\"version\":2,\"expr\":\"s\"}", "/reward/version",
          "this reward has no such version" },
        { "{\"knd\":\"staged\"}", "/reward/knd", "unknown field" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct reward_spec spec;
        struct json_fault fault = { "unset", "unset" };
        assert_true(read_spec(rows[i].text, &spec, &fault) < 0);
        assert_string_equal(fault.pointer, rows[i].pointer);
        assert_string_equal(fault.text, rows[i].why);
    }
}

static void
a_spec_survives_json(void **state)
{
    static const char *const texts[] = {
        "{\"kind\":\"staged\",\"version\":1,\"hack_value\":-0.25,\"speed\":\"conservative\"}",
        "{\"kind\":\"gated\",\"params\":{\"cap\":10}}",
        "{\"kind\":\"expr\",\"expr\":\"correct*min(s, top)\",\"params\":{\"top\":4}}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct reward_spec spec, back;
        struct json_fault fault;
        assert_int_equal(read_spec(texts[i], &spec, &fault), 0);
        AUTO_JSON json_t *object = reward_spec_json(&spec);
        assert_int_equal(reward_spec_read(object, "", &back, &fault), 0);
        AUTO_JSON json_t *again = reward_spec_json(&back);
        assert_true(json_equal(object, again));
        assert_int_equal(back.n_params, spec.n_params);
        assert_string_equal(back.expr, spec.expr);
    }
}

static void
parts_stand_apart(void **state)
{
    struct reward_spec spec;
    struct json_fault fault;
    struct reward_param parts[REWARD_PARTS_MAX];
    struct reward_input in = ending_of(&endings[9]); /* 1.6 times */
    (void)state;
    assert_int_equal(read_spec("{\"kind\":\"tritonrl\"}", &spec, &fault), 0);
    assert_int_equal(reward_parts(&spec, &in, parts), 2);
    assert_string_equal(parts[0].name, "plan");
    assert_true(fabs(parts[0].value - 1.6) < 1e-12);
    assert_string_equal(parts[1].name, "code");
    assert_true(parts[1].value == 1);
    assert_int_equal(read_spec("{\"kind\":\"drkernel\"}", &spec, &fault), 0);
    in = ending_of(&endings[10]); /* covers 0.35 */
    assert_int_equal(reward_parts(&spec, &in, parts), 1);
    assert_string_equal(parts[0].name, "keep_prob");
    assert_true(fabs(parts[0].value - 0.5) < 1e-9);
    assert_int_equal(read_spec("{}", &spec, &fault), 0);
    assert_int_equal(reward_parts(&spec, &in, parts), 0);
}

static void
rank_check(const double *speeds, size_t n, double spread, const double *expected, size_t clipped)
{
    struct reward_input members[32];
    for (size_t i = 0; i < n; i++) {
        members[i] = ending_of(&endings[speeds[i] > 0 ? 6 : 4]);
        if (speeds[i] > 0) {
            members[i].components.speedup = speeds[i];
            members[i].components.speedup_lo = speeds[i] / (1 + spread);
            members[i].components.speedup_hi = speeds[i] * (1 + spread);
        }
    }
    assert_int_equal(reward_rank(members, n), clipped);
    for (size_t i = 0; i < n; i++) {
        double rank = members[i].components.rank;
        bool is_same = isnan(expected[i]) ? isnan(rank) : fabs(rank - expected[i]) < 1e-12;
        if (!is_same)
            fail_msg("member %zu: %g, not %g", i, rank, expected[i]);
    }
}

static void
ranks_by_hand(void **state)
{
    (void)state;
    /* Slower than the reference; untimed; faster; faster still. Three are ranked, beside the reference. */
    rank_check((double[]){ 0.8, 0, 1.2, 1.5 }, 4, 0.01, (double[]){ 0, NAN, 2.0 / 3, 1 }, 0);
    /* Nobody beats the reference: no one gets 1. */
    rank_check((double[]){ 0.5, 0.7 }, 2, 0.01, (double[]){ 0, 0.5 }, 0);
    /* Intervals overlap: a tie, even where the medians are apart. */
    rank_check((double[]){ 1.5, 1.6 }, 2, 0.05, (double[]){ 0.75, 0.75 }, 0);
    /* Within two percent: a tie, however narrow the intervals. */
    rank_check((double[]){ 1.50, 1.52 }, 2, 0.0001, (double[]){ 0.75, 0.75 }, 0);
    /* Alone: against the reference only. */
    rank_check((double[]){ 1.0 }, 1, 0.01, (double[]){ 0.5 }, 0);
    rank_check((double[]){ 2.0 }, 1, 0.01, (double[]){ 1 }, 0);
    /* A measurement from another world is brought back to the others' reach, and still wins. */
    rank_check((double[]){ 1.0, 1.1, 1.2, 1.3, 5000 }, 5, 0.001, (double[]){ 0.1, 0.4, 0.6, 0.8, 1 }, 1);
    /* All alike but one: the spread of the others is no reason to call it the same. */
    rank_check((double[]){ 1.0, 1.0, 1.0, 1.3 }, 4, 0.001, (double[]){ 0.375, 0.375, 0.375, 1 }, 0);
    rank_check((double[]){ 0 }, 1, 0, (double[]){ NAN }, 0);
}

static void
an_expression_names_components_and_its_own_parameters(void **state)
{
    struct reward_spec spec;
    struct json_fault fault;
    struct reward_input in = ending_of(&endings[11]); /* three times */
    (void)state;
    assert_int_equal(
        read_spec("{\"kind\":\"expr\",\"expr\":\"0.3*correct + min(s, top)\",\"params\":{\"top\":2}}", &spec,
                  &fault),
        0);
    assert_true(fabs(reward_compute(&spec, &in) - 2.3) < 1e-12);
    in = ending_of(&endings[4]); /* not timed: what is not known counts as 0 */
    assert_true(fabs(reward_compute(&spec, &in) - 0.3) < 1e-12);
    assert_int_equal(read_spec("{\"kind\":\"expr\",\"expr\":\"1/coverage\"}", &spec, &fault), 0);
    assert_true(isnan(reward_compute(&spec, &in)));
    assert_int_equal(read_spec("{\"kind\":\"expr\",\"expr\":\"known(rank) ? rank : -1\"}", &spec, &fault), 0);
    assert_true(reward_compute(&spec, &in) == -1);
    assert_true(reward_needs_rank(&spec));
    assert_int_equal(
        read_spec("{\"kind\":\"expr\",\"expr\":\"s*ranked\",\"params\":{\"ranked\":2}}", &spec, &fault), 0);
    assert_false(reward_needs_rank(&spec)); /* a word of its own that begins like it */
    assert_int_equal(read_spec("{\"kind\":\"rank\"}", &spec, &fault), 0);
    assert_true(reward_needs_rank(&spec));
    assert_int_equal(read_spec("{\"kind\":\"staged\"}", &spec, &fault), 0);
    assert_false(reward_needs_rank(&spec));
}

static void
components_become_json(void **state)
{
    struct reward_components c;
    (void)state;
    reward_components_init(&c);
    c.correct = 1;
    c.speedup = 1.31;
    AUTO_JSON json_t *object = reward_components_json(&c);
    assert_int_equal(json_object_size(object), 16);
    assert_int_equal(json_integer_value(json_object_get(object, "correct")), 1);
    assert_true(json_is_integer(json_object_get(object, "hack")));
    assert_true(json_real_value(json_object_get(object, "speedup")) == 1.31);
    assert_true(json_is_null(json_object_get(object, "coverage")));
    assert_true(json_is_null(json_object_get(object, "cases_passed")));
    struct reward_components back;
    reward_components_read(object, &back);
    assert_true(back.speedup == 1.31 && back.correct == 1 && isnan(back.coverage));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staged_by_hand),
        cmocka_unit_test(named_rewards_by_hand),
        cmocka_unit_test(parts_stand_apart),
        cmocka_unit_test(ranks_by_hand),
        cmocka_unit_test(an_expression_names_components_and_its_own_parameters),
        cmocka_unit_test(speed_needs_full_correct_and_timed),
        cmocka_unit_test(conservative_uses_the_lower_bound),
        cmocka_unit_test(hack_value_is_what_was_asked),
        cmocka_unit_test(a_refused_one_gets_hack_value_in_every_kind),
        cmocka_unit_test(specs_read),
        cmocka_unit_test(bad_specs_are_refused_by_place),
        cmocka_unit_test(a_spec_survives_json),
        cmocka_unit_test(components_become_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
