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
    enum reward_stage passed;
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
    in.components.correct = row->passed >= REWARD_FULL;
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
        { "ast fails", 2, REWARD_NOTHING, true, 0.9, 0.0, 0, false, false },
        { "stopped after ast", 2, REWARD_AST, false, 0, 0.0, 0, false, false },
        { "compile fails, nothing compiled", 2, REWARD_AST, true, 0, 0.0, 0, false, false },
        { "compile fails, 1 of 2", 2, REWARD_AST, true, 0.5, 0.15, 0, false, false },
        { "compile fails, all but the launch", 2, REWARD_AST, true, 1, 0.3, 0, false, false },
        { "stopped after compile", 2, REWARD_COMPILE, false, 0, 0.3, 0, false, false },
        { "tiny fails, no progress", 2, REWARD_COMPILE, true, 0, 0.3, 0, false, false },
        { "tiny fails half way", 2, REWARD_COMPILE, true, 0.5, 0.4, 0, false, false },
        { "stopped after tiny", 2, REWARD_TINY, false, 0, 0.5, 0, false, false },
        { "full fails, 2 of 5", 2, REWARD_TINY, true, 0.4, 0.58, 0, false, false },
        { "full fails, 0 of 5", 2, REWARD_TINY, true, 0, 0.5, 0, false, false },
        { "full, not timed", 2, REWARD_FULL, false, 0, 0.7, 0, false, false },
        { "timing ends badly", 2, REWARD_FULL, true, 0.5, 0.7, 0, false, false },
        { "a failure earns no speed", 2, REWARD_FULL, true, 0.5, 0.7, 1.9, false, false },
        { "timed at 1.0", 2, REWARD_TIMING, false, 0, 0.85, 1.0, false, false },
        { "timed at 1.31", 2, REWARD_TIMING, false, 0, 0.8965, 1.31, false, false },
        { "timed at 0.1", 2, REWARD_TIMING, false, 0, 0.715, 0.1, false, false },
        { "timed at 2", 2, REWARD_TIMING, false, 0, 1.0, 2.0, false, false },
        { "timed at 40", 2, REWARD_TIMING, false, 0, 1.0, 40.0, false, false },
        { "speed below full counts nothing", 2, REWARD_TINY, false, 0, 0.5, 3.0, false, false },
        { "no such speed", 2, REWARD_TIMING, false, 0, 0.7, INFINITY, false, false },
        { "negative speed", 2, REWARD_TIMING, false, 0, 0.7, -4.0, false, false },
        { "partial unknown", 2, REWARD_COMPILE, true, NAN, 0.3, 0, false, false },
        { "partial out of range", 2, REWARD_COMPILE, true, 7, 0.5, 0, false, false },
        { "hack, however fast", 2, REWARD_TIMING, false, 0, 0.0, 9.0, true, false },
        { "infra, however fast", 2, REWARD_TIMING, false, 0, NAN, 9.0, false, true },
        { "infra beats hack", 2, REWARD_TINY, true, 0, NAN, 0, true, true },
        { "v1: compile 1 of 2", 1, REWARD_AST, true, 0.5, 0.15, 0, false, false },
        { "v1: tiny half way", 1, REWARD_COMPILE, true, 0.5, 0.25, 0, false, false },
        { "v1: full 2 of 5", 1, REWARD_TINY, true, 0.4, 0.28, 0, false, false },
        { "v1: stopped after tiny", 1, REWARD_TINY, false, 0, 0.5, 0, false, false },
        { "v1: timing ends badly", 1, REWARD_FULL, true, 0.5, 0.7, 0, false, false },
        { "v1: timed at 1.0", 1, REWARD_TIMING, false, 0, 0.85, 1.0, false, false },
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

static void
speed_needs_full_correct_and_timed(void **state)
{
    const struct row row = { "", 2, REWARD_TIMING, false, 0, 0, 2.0, false, false };
    struct reward_spec spec = REWARD_SPEC_DEFAULT;
    struct reward_input in = input_of(&row);
    (void)state;
    assert_true(reward_compute(&spec, &in) == 1.0);
    in.passed = REWARD_TINY;
    assert_true(reward_compute(&spec, &in) == 0.5);
    in.passed = REWARD_TIMING;
    in.components.correct = 0;
    assert_true(reward_compute(&spec, &in) == 0.7);
    in.components.correct = 1;
    in.components.timed = 0;
    assert_true(reward_compute(&spec, &in) == 0.7);
}

static void
conservative_uses_the_lower_bound(void **state)
{
    const struct row row = { "", 2, REWARD_TIMING, false, 0, 0, 2.0, false, false };
    struct reward_spec spec = REWARD_SPEC_DEFAULT;
    struct reward_input in = input_of(&row); /* its lower bound is half its speed: 1.0 */
    (void)state;
    spec.is_conservative = true;
    assert_true(fabs(reward_compute(&spec, &in) - 0.85) < 1e-12);
}

static void
hack_value_is_what_was_asked(void **state)
{
    const struct row row = { "", 2, REWARD_NOTHING, true, 0, 0, 0, true, false };
    struct reward_spec spec = REWARD_SPEC_DEFAULT;
    struct reward_input in = input_of(&row);
    (void)state;
    spec.hack_value = -1;
    assert_true(reward_compute(&spec, &in) == -1);
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
        { "{\"kind\":\"best\"}", "/reward/kind", "unknown reward \"best\"; known: staged" },
        { "{\"kind\":7}", "/reward/kind", "must be a string" },
        { "{\"version\":3}", "/reward/version", "this reward has no such version" },
        { "{\"version\":0}", "/reward/version", "must be from 1 to 1000" },
        { "{\"hack_value\":0.5}", "/reward/hack_value", "must be from -1 to 0" },
        { "{\"hack_value\":-1.5}", "/reward/hack_value", "must be from -1 to 0" },
        { "{\"speed\":\"fast\"}", "/reward/speed", "must be \"point\" or \"conservative\"" },
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
    const struct reward_spec spec = { "staged", 1, -0.25, true };
    struct reward_spec back;
    struct json_fault fault;
    (void)state;
    AUTO_JSON json_t *object = reward_spec_json(&spec);
    assert_non_null(object);
    assert_int_equal(reward_spec_read(object, "", &back, &fault), 0);
    assert_string_equal(back.kind, "staged");
    assert_int_equal(back.version, 1);
    assert_true(back.hack_value == -0.25);
    assert_true(back.is_conservative);
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
    assert_int_equal(json_object_size(object), 14);
    assert_int_equal(json_integer_value(json_object_get(object, "correct")), 1);
    assert_true(json_is_integer(json_object_get(object, "hack")));
    assert_true(json_real_value(json_object_get(object, "speedup")) == 1.31);
    assert_true(json_is_null(json_object_get(object, "coverage")));
    assert_true(json_is_null(json_object_get(object, "cases_passed")));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staged_by_hand),
        cmocka_unit_test(speed_needs_full_correct_and_timed),
        cmocka_unit_test(conservative_uses_the_lower_bound),
        cmocka_unit_test(hack_value_is_what_was_asked),
        cmocka_unit_test(specs_read),
        cmocka_unit_test(bad_specs_are_refused_by_place),
        cmocka_unit_test(a_spec_survives_json),
        cmocka_unit_test(components_become_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
