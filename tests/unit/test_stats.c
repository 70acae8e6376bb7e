/* test_stats.c - sums over windows, under a simulated clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/verdict/stats.h"

#define START 1003

static void
a_window_has_what_happened_in_it(void **state)
{
    struct stats *st = stats_new(START);
    struct stats_sum sum;

    (void)state;
    assert_non_null(st);
    /* One that ends in each second, for an hour. */
    for (int64_t s = START; s < START + 3600; s++) {
        struct stats_sum *now = stats_now(st, s);
        struct stats_stage *stage = &now->stages[STAGE_FULL];
        now->finished++;
        now->saved_s[STATS_BY_CACHE] += 0.5;
        stage->by_outcome[STATS_FAIL]++;
        stage->waited++;
        stage->wait_ms += 2;
        stage->wait_max_ms = (float)(s - START);
    }
    int64_t now_s = START + 3599;
    assert_in_range(stats_read(st, now_s, 60, &sum), 50, 60);
    assert_in_range(sum.finished, 51, 61);
    assert_int_equal(sum.stages[STAGE_FULL].by_outcome[STATS_FAIL], sum.finished);
    assert_true(sum.stages[STAGE_FULL].wait_ms == 2.0 * sum.finished);
    assert_true(sum.stages[STAGE_FULL].wait_max_ms == 3599);
    assert_true(sum.saved_s[STATS_BY_CACHE] == 0.5 * sum.finished);
    assert_int_equal(sum.stages[STAGE_AST].by_outcome[STATS_FAIL], 0);
    /* No more than there is, and no longer than it is there. */
    assert_int_equal(stats_read(st, now_s, STATS_WINDOW_MAX_S, &sum), 3599);
    assert_int_equal(sum.finished, 3600);
    stats_free(st);
}

static void
what_is_older_than_a_day_is_gone(void **state)
{
    struct stats *st = stats_new(START);
    struct stats_sum sum;

    (void)state;
    stats_now(st, START)->finished = 7;
    stats_read(st, START + STATS_WINDOW_MAX_S - STATS_STEP_S, STATS_WINDOW_MAX_S, &sum);
    assert_int_equal(sum.finished, 7);
    assert_int_equal(stats_read(st, START + 2 * STATS_WINDOW_MAX_S, STATS_WINDOW_MAX_S, &sum) / STATS_STEP_S,
                     STATS_WINDOW_MAX_S / STATS_STEP_S - 1);
    assert_int_equal(sum.finished, 0);
    /* The same place in memory serves another day. */
    for (int64_t s = START; s < START + 3 * STATS_WINDOW_MAX_S; s += STATS_STEP_S)
        stats_now(st, s)->finished++;
    stats_read(st, START + 3 * STATS_WINDOW_MAX_S - STATS_STEP_S, STATS_WINDOW_MAX_S, &sum);
    assert_int_equal(sum.finished, STATS_WINDOW_MAX_S / STATS_STEP_S);
    stats_free(st);
}

static void
the_first_second_is_one(void **state)
{
    struct stats *st = stats_new(START);
    struct stats_sum sum;

    (void)state;
    assert_int_equal(stats_read(st, START, 60, &sum), 1);
    stats_free(st);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_has_what_happened_in_it),
        cmocka_unit_test(what_is_older_than_a_day_is_gone),
        cmocka_unit_test(the_first_second_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
