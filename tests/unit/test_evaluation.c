#include "client/trainer/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

/* One answer: of class "ok" with a speed (0: not timed), or of another class. */
static json_t *
answer(const char *class_, double speedup)
{
    bool is_ok = strcmp(class_, "ok") == 0, is_compiled = is_ok || strcmp(class_, "mismatch") == 0;
    json_t *speed = speedup > 0 ? json_real(speedup) : json_null();
    return json_pack("{s:{s:s, s:{s:i, s:i, s:i, s:i, s:i, s:o}}}", "verdict", "class", class_, "components",
                     "extracted", strcmp(class_, "extract") != 0, "valid", is_compiled, "compiled",
                     is_compiled, "correct", is_ok, "timed", speedup > 0, "speedup", speed);
}

static json_t *
infra(void)
{
    return json_pack("{s:{s:s, s:{s:n}}}", "verdict", "class", "infra", "components", "correct");
}

static double
number(json_t *metrics, const char *name, const char *below)
{
    json_t *value = json_object_get(metrics, name);
    value = below ? json_object_get(value, below) : value;
    return json_is_number(value) ? json_number_value(value) : NAN;
}

#define assert_near(x, want) assert_true(fabs((x) - (want)) < 1e-9)

static void
figures_by_hand(void **state)
{
    struct task tasks[] = { { .level = 1 }, { .level = 1 }, { .level = 2 }, { .level = 2 }, { .level = 2 } };
    struct round_result results[] = {
        { .task = &tasks[0], .answers = json_pack("[o, o]", answer("ok", 2), answer("mismatch", 0)) },
        { .task = &tasks[1], .answers = json_pack("[o, o]", answer("ok", 0.5), answer("ok", 3)) },
        { .task = &tasks[2], .answers = json_pack("[o, o]", answer("mismatch", 0), answer("ok", 9)) },
        { .task = &tasks[3], .answers = json_pack("[o, o]", infra(), answer("extract", 0)) },
        { .task = &tasks[4], .failure = (char *)"the endpoint said no" },
    };
    AUTO_JSON json_t *m = metrics_json(results, 5, 0);
    AUTO_JSON json_t *one = metrics_json(results, 5, 1);
    AUTO_JSON json_t *three = metrics_json(results, 5, 3);
    (void)state;
    assert_int_equal(number(m, "num_tasks", NULL), 5);
    assert_int_equal(number(m, "num_samples", NULL), 8);
    assert_int_equal(number(m, "infra", NULL), 1);
    assert_near(number(m, "extracted_rate", NULL), 60);
    assert_near(number(m, "compiled_rate", NULL), 60);
    assert_near(number(m, "correct_rate", NULL), 40); /* the second sample's 9 does not count */
    assert_near(number(m, "fast_p", "0"), 40);
    assert_near(number(m, "fast_p", "0.5"), 20); /* faster than, not as fast as */
    assert_near(number(m, "fast_p", "1.5"), 20);
    assert_near(number(m, "fast_p", "2"), 0);
    /* pass@1: 1/2, 2/2, 1/2, and of the one that was judged 0; the task without samples is not in the mean. */
    assert_near(number(m, "pass_at", "1"), 50);
    assert_true(isnan(number(m, "pass_at", "5")));
    assert_near(number(m, "speedup_geomean", NULL), 1);
    assert_true(number(m, "speedup_geomean_lo", NULL) <= 1 && number(m, "speedup_geomean_hi", NULL) >= 1);
    assert_near(number(one, "correct_rate", NULL), 100);
    assert_near(number(one, "pass_at", "1"), 75);
    assert_int_equal(number(three, "num_tasks", NULL), 0);
    assert_true(isnan(number(three, "correct_rate", NULL)));
    for (size_t i = 0; i < 4; i++)
        json_decref(results[i].answers);
}

/* 1 - C(n-c, k) / C(n, k) for n = 10, k = 5: by hand. */
static void
pass_at_five_of_ten(void **state)
{
    static const double want[] = { [0] = 0, [1] = 0.5, [2] = 1 - 56.0 / 252, [5] = 1 - 1.0 / 252, [6] = 1 };
    static const int correct[] = { 0, 1, 2, 5, 6 };
    struct task task = { .level = 1 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(correct); i++) {
        struct round_result result = { .task = &task, .answers = json_array() };
        for (int a = 0; a < 10; a++)
            json_array_append_new(result.answers, answer(a < correct[i] ? "ok" : "mismatch", 0));
        AUTO_JSON json_t *m = metrics_json(&result, 1, 0);
        assert_near(number(m, "pass_at", "5"), 100 * want[correct[i]]);
        assert_near(number(m, "pass_at", "1"), 10.0 * correct[i]);
        json_decref(result.answers);
    }
}

/* Two samples of two turns each: the first turn's answers are no samples. */
static void
of_several_turns_the_last_counts(void **state)
{
    struct task task = { .level = 1 };
    json_t *answers = json_pack("[o, o, o, o]", answer("ok", 0), answer("mismatch", 0), answer("mismatch", 0),
                                answer("ok", 4));
    struct round_result result = { .task = &task, .answers = answers };
    (void)state;
    for (size_t i = 0; i < 4; i++)
        json_object_set_new(json_array_get(answers, i), "turn", json_integer((json_int_t)i / 2));
    AUTO_JSON json_t *m = metrics_json(&result, 1, 0);
    assert_int_equal(number(m, "num_samples", NULL), 2);
    assert_near(number(m, "correct_rate", NULL), 0);
    assert_near(number(m, "pass_at", "1"), 50);
    json_decref(answers);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_by_hand),
        cmocka_unit_test(pass_at_five_of_ten),
        cmocka_unit_test(of_several_turns_the_last_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
