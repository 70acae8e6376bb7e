#include "common/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/clock.h"

/* Takes the place of the one in common/clock.c: the linker looks into the library for what is missing only. */
static int64_t now_ms = 1795260977123;

int64_t
clock_wall_ms(void)
{
    return now_ms;
}

static int64_t
stamp_of(const char *id)
{
    char digits[13];
    memcpy(digits, id, 8);
    memcpy(digits + 8, id + 9, 4);
    digits[12] = '\0';
    return strtoll(digits, NULL, 16);
}

static void
make_rising_ids(int n, char last[ID_SIZE])
{
    for (int i = 0; i < n; i++) {
        char id[ID_SIZE];
        id_new(id);
        assert_true(id_is_valid(id));
        assert_true(strcmp(id, last) > 0);
        memcpy(last, id, ID_SIZE);
    }
}

static void
the_stamp_is_the_wall_clock(void **state)
{
    char id[ID_SIZE] = "";
    (void)state;
    now_ms += 1000;
    make_rising_ids(1, id);
    assert_int_equal(stamp_of(id), now_ms);
    now_ms += 5;
    make_rising_ids(1, id);
    assert_int_equal(stamp_of(id), now_ms);
}

static void
a_full_millisecond_borrows_from_the_next(void **state)
{
    char id[ID_SIZE] = "";
    (void)state;
    now_ms += 1000;
    make_rising_ids(2048, id); /* always fits: the counter begins below 2048 of 4096 */
    assert_int_equal(stamp_of(id), now_ms);
    make_rising_ids(4096, id);
    assert_int_equal(stamp_of(id), now_ms + 1);
    now_ms += 1;
    make_rising_ids(1, id);
}

static void
ids_rise_while_the_clock_steps_back(void **state)
{
    char id[ID_SIZE] = "";
    (void)state;
    now_ms += 1000;
    make_rising_ids(10, id);
    now_ms -= 500000;
    make_rising_ids(10000, id);
    now_ms += 500000;
    make_rising_ids(10, id);
}

static void
other_texts_are_not_ids(void **state)
{
    static const struct {
        const char *text;
        bool is_valid;
    } rows[] = {
        { "0199f2c4-0000-7000-8000-000000000000", true },
        { "0199f2c4-abcd-7fff-bfff-ffffffffffff", true },
        { "0199f2c4-0000-4000-8000-000000000000", false }, /* version 4 */
        { "0199f2c4-0000-7000-c000-000000000000", false }, /* variant */
        { "0199F2C4-0000-7000-8000-000000000000", false },
        { "0199f2c4-0000-7000-8000-00000000000", false },
        { "0199f2c4-0000-7000-8000-0000000000000", false },
        { "0199f2c4x0000-7000-8000-000000000000", false },
        { "0199f2cg-0000-7000-8000-000000000000", false },
        { "0199f2c4-0000-7000-8000-00000000000-", false },
        { "", false },
        { NULL, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(id_is_valid(rows[i].text), rows[i].is_valid);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stamp_is_the_wall_clock),
        cmocka_unit_test(a_full_millisecond_borrows_from_the_next),
        cmocka_unit_test(ids_rise_while_the_clock_steps_back),
        cmocka_unit_test(other_texts_are_not_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
