#include "common/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/auto.h"

static void
text_is_rfc3339(void **state)
{
    static const struct {
        int64_t wall_ms;
        const char *text;
    } rows[] = {
        { 0, "1970-01-01T00:00:00.000Z" },
        { 951782400007, "2000-02-29T00:00:00.007Z" },
        { 1795260977123, "2026-11-21T11:36:17.123Z" },
        { 253402300799999, "9999-12-31T23:59:59.999Z" },
        { INT64_MAX, "9999-12-31T23:59:59.999Z" },
        { -1, "1970-01-01T00:00:00.000Z" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char out[CLOCK_TEXT_SIZE];
        clock_text(rows[i].wall_ms, out);
        assert_string_equal(out, rows[i].text);
    }
}

static void
monotonic_counts_nanoseconds(void **state)
{
    const struct timespec pause = { 0, 20 * 1000 * 1000 };
    (void)state;
    int64_t before = clock_monotonic_ns();
    nanosleep(&pause, NULL);
    int64_t passed = clock_monotonic_ns() - before;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    assert_true(clock_monotonic_ns() / 1000000000 - now.tv_sec <= 60);
    assert_true(clock_monotonic_ns() / 1000000000 >= now.tv_sec);
    assert_true(passed >= 20 * 1000 * 1000);
    assert_true(passed < INT64_C(20) * 1000 * 1000 * 1000);
}

static void
wall_counts_milliseconds_since_1970(void **state)
{
    (void)state;
    int64_t seconds = (int64_t)time(NULL);
    int64_t wall_ms = clock_wall_ms();
    assert_true(wall_ms / 1000 >= seconds - 1 && wall_ms / 1000 <= seconds + 60);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_rfc3339),
        cmocka_unit_test(monotonic_counts_nanoseconds),
        cmocka_unit_test(wall_counts_milliseconds_since_1970),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
