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

static void
new_ids_are_valid_and_rise(void **state)
{
    char last[ID_SIZE] = "", id[ID_SIZE];
    (void)state;
    /* Far more than the counter holds in one millisecond, so that it runs over as well. */
    for (int i = 0; i < 50000; i++) {
        id_new(id);
        assert_true(id_is_valid(id));
        assert_true(strcmp(id, last) > 0);
        memcpy(last, id, sizeof(last));
    }
}

static void
the_stamp_is_the_wall_clock(void **state)
{
    char id[ID_SIZE], digits[13];
    (void)state;
    id_new(id);
    memcpy(digits, id, 8);
    memcpy(digits + 8, id + 9, 4);
    digits[12] = '\0';
    long long stamp = strtoll(digits, NULL, 16);
    /* Counters that ran over in other tests may have carried the stamp some milliseconds ahead. */
    assert_in_range(stamp - clock_wall_ms() + 60000, 0, 120000);
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
        cmocka_unit_test(new_ids_are_valid_and_rise),
        cmocka_unit_test(the_stamp_is_the_wall_clock),
        cmocka_unit_test(other_texts_are_not_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
