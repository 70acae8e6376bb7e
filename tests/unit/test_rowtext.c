/* test_rowtext.c - rows of an export: nothing in a line acts, and what was written can be read back. */
#include "server/http/rowtext.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

static void
lines_are_ascii_and_can_be_read_back(void **state)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    AUTO_JSON json_t *document = json_pack("{s:s, s:s%, s:f, s:s}", "id", "a\x7f\x1b\n\xc2\x9b\xe2\x80\xae",
                                           "feedback", "\0", (size_t)1, "reward", -0.5, "stage", "tiny");

    (void)state;
    AUTO_JSON json_t *picked = rowtext_pick(ROWTEXT_VERDICTS, document);
    assert_int_equal(rowtext_json(&out, picked), 0);
    for (size_t i = 0; i + 1 < out.size; i++)
        assert_true(out.data[i] >= 0x20 && out.data[i] < 0x7f);
    assert_int_equal(out.data[out.size - 1], '\n');
    AUTO_JSON json_t *again = json_loadb(out.data, out.size, JSON_ALLOW_NUL, NULL);
    assert_true(json_equal(again, document));
}

static void
a_table_has_its_members_and_no_others(void **state)
{
    AUTO_JSON json_t *document = json_pack("{s:s, s:f, s:{s:i}, s:s}", "id", "x", "reward", 0.5, "components",
                                           "correct", 1, "timing", "large");

    (void)state;
    AUTO_JSON json_t *picked = rowtext_pick(ROWTEXT_REWARDS, document);
    assert_null(json_object_get(picked, "timing"));
    assert_true(json_is_null(json_object_get(picked, "class")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(picked, "components"), "correct")),
                     1);
}

static void
tables_are_found_by_name(void **state)
{
    (void)state;
    assert_int_equal(rowtext_find("rewards"), ROWTEXT_REWARDS);
    assert_int_equal(rowtext_find("tokens"), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_ascii_and_can_be_read_back),
        cmocka_unit_test(a_table_has_its_members_and_no_others),
        cmocka_unit_test(tables_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
