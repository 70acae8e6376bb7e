/* test_watchdog.c - a turn of the loop is long by what it did, not by how long it slept. */
#include "server/watchdog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MS = 1000000 };

static void
sleep_does_not_count(void **state)
{
    struct watchdog w = { .loop = NULL };

    (void)state;
    watchdog_count(&w, 1000 * MS, 0); /* nothing is known of the time before */
    watchdog_count(&w, 2000 * MS, 999 * MS);
    assert_int_equal(w.n_long, 0);
    assert_int_equal(w.longest_ns, 1 * MS);
}

static void
long_turns_are_counted_and_the_longest_is_kept(void **state)
{
    struct watchdog w = { .loop = NULL };

    (void)state;
    watchdog_count(&w, 100 * MS, 0);
    watchdog_count(&w, 107 * MS, 0);
    watchdog_count(&w, 110 * MS, 0);
    watchdog_count(&w, 112 * MS, 0); /* no longer than it may be */
    assert_int_equal(w.n_long, 2);
    assert_int_equal(w.longest_ns, 7 * MS);
}

static void
block_5_ms(uv_timer_t *timer)
{
    uint64_t end_ns = uv_hrtime() + 5 * MS;

    while (uv_hrtime() < end_ns)
        ;
    uv_close((uv_handle_t *)timer, NULL);
}

static void
end_turn(uv_prepare_t *prepare)
{
    watchdog_turn(prepare->data);
}

static void
a_callback_that_blocks_the_loop_is_seen(void **state)
{
    struct watchdog w;
    uv_loop_t loop;
    uv_prepare_t prepare;
    uv_timer_t block;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    watchdog_init(&w, &loop);
    uv_prepare_init(&loop, &prepare);
    prepare.data = &w;
    uv_prepare_start(&prepare, end_turn);
    uv_unref((uv_handle_t *)&prepare);
    uv_timer_init(&loop, &block);
    uv_timer_start(&block, block_5_ms, 300, 0); /* the sleep before is no turn */
    uv_run(&loop, UV_RUN_DEFAULT);
    watchdog_turn(&w);
    assert_true(w.n_long >= 1);
    assert_true(w.longest_ns >= 5 * MS && w.longest_ns < 300 * MS);
    uv_close((uv_handle_t *)&prepare, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sleep_does_not_count),
        cmocka_unit_test(long_turns_are_counted_and_the_longest_is_kept),
        cmocka_unit_test(a_callback_that_blocks_the_loop_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
