/* test_counters.c - what is counted since the start, and that each change is seen. */
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
#include "server/submission/counters.h"

static int
begin(void **state)
{
    *state = counters_new();
    return *state ? 0 : -1;
}

static int
end(void **state)
{
    free(*state);
    return 0;
}

/* "a.b.c" in the document. */
static double
number_at(json_t *document, const char *path)
{
    char text[128], *rest = text;

    snprintf(text, sizeof(text), "%s", path);
    for (char *key; (key = strsep(&rest, ".")) != NULL;)
        document = json_object_get(document, key);
    if (!json_is_number(document))
        fail_msg("%s is not a number", path);
    return json_number_value(document);
}

static void
a_stage_is_counted_by_how_it_ended(void **state)
{
    struct counters *c = *state;

    counters_enter_stage(c, STAGE_TINY);
    counters_wait(c, STAGE_TINY, 250);
    counters_end_stage(c, STAGE_TINY, OUTCOME_PASS, 1500, true);
    counters_end_stage(c, STAGE_TINY, OUTCOME_FAIL, 500, false);
    counters_skip_stage(c, STAGE_TIMING);
    AUTO_JSON json_t *counts = counters_json(c, 2.5);
    assert_true(number_at(counts, "stages.tiny.entered") == 1);
    assert_true(number_at(counts, "stages.tiny.pass") == 1);
    assert_true(number_at(counts, "stages.tiny.fail") == 1);
    assert_true(number_at(counts, "stages.tiny.wait_ms") == 250);
    assert_true(number_at(counts, "stages.tiny.run_ms") == 2000);
    assert_true(number_at(counts, "stages.tiny.device_s") == 1.5);
    assert_true(number_at(counts, "stages.timing.skip") == 1);
    assert_true(number_at(counts, "stages.timing.run_ms") == 0);
    assert_true(number_at(counts, "reruns.held_s") == 2.5);
}

/* What a failure saves is what the stage usually takes of a device. */
static void
a_spared_stage_saves_what_the_stage_took_of_a_device_so_far(void **state)
{
    struct counters *c = *state;

    counters_spare_stage(c, STAGE_FULL); /* none came through yet: nothing is known */
    counters_end_stage(c, STAGE_FULL, OUTCOME_PASS, 1000, true);
    counters_end_stage(c, STAGE_FULL, OUTCOME_FAIL, 3000, true);
    counters_spare_stage(c, STAGE_FULL);
    counters_save_by_reuse(c, 7);
    AUTO_JSON json_t *counts = counters_json(c, 0);
    assert_true(number_at(counts, "stages.full.spared") == 2);
    assert_true(number_at(counts, "device_s.saved_by_rejection") == 2);
    assert_true(number_at(counts, "device_s.saved_by_cache") == 7);
}

static void
verdicts_are_counted_by_class_and_rejections_by_rule(void **state)
{
    struct counters *c = *state;

    counters_finish(c, CLASS_OK, 2, false);
    counters_finish(c, CLASS_HACK, 3, true);
    counters_finish(c, CLASS_NONE, 1, false);
    counters_reject(c, CLASS_HACK, "");
    counters_reject(c, CLASS_HACK, "background_work");
    counters_reject(c, CLASS_HACK, "background_work");
    AUTO_JSON json_t *counts = counters_json(c, 0);
    assert_true(number_at(counts, "finished") == 3);
    assert_true(number_at(counts, "verdict_s") == 6);
    assert_true(number_at(counts, "classes.ok") == 1);
    assert_true(number_at(counts, "classes.hack") == 1);
    assert_true(number_at(counts, "classes.cancelled") == 1);
    json_t *rejections = json_object_get(counts, "rejections");
    assert_int_equal(json_array_size(rejections), 2);
    assert_true(number_at(json_array_get(rejections, 0), "n") == 1);
    assert_true(number_at(json_array_get(rejections, 1), "n") == 2);
}

static void
a_full_table_of_rules_counts_on_for_those_it_has(void **state)
{
    struct counters *c = *state;
    char rule[16];

    for (int i = 0; i < 1000; i++) {
        snprintf(rule, sizeof(rule), "rule-%d", i);
        counters_reject(c, CLASS_POLICY, rule);
    }
    counters_reject(c, CLASS_POLICY, "rule-0");
    AUTO_JSON json_t *counts = counters_json(c, 0);
    json_t *rejections = json_object_get(counts, "rejections");
    assert_int_equal(json_array_size(rejections), 256);
    assert_true(number_at(json_array_get(rejections, 0), "n") == 2);
}

/* A shared verdict took no work: it says nothing about how fast work is done. */
static void
only_verdicts_made_here_tell_how_long_one_takes(void **state)
{
    struct counters *c = *state;

    counters_finish(c, CLASS_OK, 1, true);
    counters_finish(c, CLASS_OK, 1, true);
    assert_true(counters_service_s(c) == 0);
    counters_finish(c, CLASS_OK, 1, false);
    counters_finish(c, CLASS_OK, 1, false);
    assert_true(counters_service_s(c) > 0);
}

/* A kept status is made anew by this number alone. */
static void
every_count_changes_the_generation(void **state)
{
    struct counters *c = *state;
    uint64_t last = counters_generation(c);

#define CHANGES(call)                          \
    do {                                       \
        call;                                  \
        if (counters_generation(c) <= last)    \
            fail_msg("%s is not seen", #call); \
        last = counters_generation(c);         \
    } while (0)

    CHANGES(counters_touch(c));
    CHANGES(counters_enter_stage(c, STAGE_AST));
    CHANGES(counters_wait(c, STAGE_AST, 1));
    CHANGES(counters_end_stage(c, STAGE_AST, OUTCOME_PASS, 1, false));
    CHANGES(counters_skip_stage(c, STAGE_AST));
    CHANGES(counters_spare_stage(c, STAGE_AST));
    CHANGES(counters_hold_device(c, 1));
    CHANGES(counters_count(c, COUNT_RETURNED));
    CHANGES(counters_add_reward(c, 1, NAN));
    CHANGES(counters_finish(c, CLASS_OK, 1, false));
    CHANGES(counters_reject(c, CLASS_HACK, ""));
    CHANGES(counters_count(c, REUSE_HIT));
    CHANGES(counters_save_by_reuse(c, 1));
    CHANGES(counters_count(c, RERUN_CLEARED));
}

#define COUNTING(test) cmocka_unit_test_setup_teardown(test, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        COUNTING(a_stage_is_counted_by_how_it_ended),
        COUNTING(a_spared_stage_saves_what_the_stage_took_of_a_device_so_far),
        COUNTING(verdicts_are_counted_by_class_and_rejections_by_rule),
        COUNTING(a_full_table_of_rules_counts_on_for_those_it_has),
        COUNTING(only_verdicts_made_here_tell_how_long_one_takes),
        COUNTING(every_count_changes_the_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
