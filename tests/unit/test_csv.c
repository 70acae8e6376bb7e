/* test_csv.c - rows of an export as CSV: nothing in a cell acts. */
#include "client/cli/csv.h"

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

/* The first cell of a row whose id is value. */
static char *
cell_of(json_t *value)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    AUTO_JSON json_t *document = json_pack("{s:o}", "id", value);

    assert_non_null(document);
    assert_int_equal(csv_row(&out, CSV_REWARDS, document), 0);
    char *text = buffer_take(&out, NULL);
    char *end = strstr(text, ",,,,,");
    assert_non_null(end);
    assert_string_equal(text + strlen(text) - 3, ",\r\n");
    *end = '\0';
    return text;
}

static void
cells_are_inert(void **state)
{
    static const struct {
        const char *text, *cell;
    } rows[] = {
        { "plain", "\"plain\"" },
        { "", "\"\"" },
        { "a \"b\", c", "\"a \"\"b\"\", c\"" },
        { "=1+1", "\"'=1+1\"" },
        { "+1", "\"'+1\"" },
        { "-1", "\"'-1\"" },
        { "@SUM(A1)", "\"'@SUM(A1)\"" },
        { "|calc", "\"'|calc\"" },
        { "%0A=1", "\"'%0A=1\"" },
        { "  =1", "\"'  =1\"" },
        { "\t=1", "\"'\\u0009=1\"" },
        { "\r=1", "\"'\\u000d=1\"" },
        { "\n=1", "\"'\\u000a=1\"" },
        { "\xef\xbc\x9d"
          "1",
          "\"'\xef\xbc\x9d"
          "1\"" },
        { "\xef\xbc\x8b"
          "1",
          "\"'\xef\xbc\x8b"
          "1\"" },
        { "\xef\xbc\x8d"
          "1",
          "\"'\xef\xbc\x8d"
          "1\"" },
        { "\xef\xbc\xa0"
          "1",
          "\"'\xef\xbc\xa0"
          "1\"" },
        { "a=1", "\"a=1\"" },
        { "\x1b[31mred", "\"\\u001b[31mred\"" },
        { "a\x7f"
          "b",
          "\"a\\u007fb\"" },
        { "a\xc2\x9b"
          "31m",
          "\"a\\u009b31m\"" },
        { "a\r\nb", "\"a\\u000d\\u000ab\"" },
        { "a\xe2\x80\xa8"
          "b",
          "\"a\\u2028b\"" },
        { "a\xe2\x80\xae"
          "b",
          "\"a\\u202eb\"" },
        { "a\xe2\x81\xa6"
          "b",
          "\"a\\u2066b\"" },
        { "\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\"" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO_FREE char *cell = cell_of(json_string(rows[i].text));
        assert_string_equal(cell, rows[i].cell);
    }
    AUTO_FREE char *nul = cell_of(json_stringn("a\0=", 3));
    assert_string_equal(nul, "\"a\\u0000=\"");
}

static void
values_that_are_no_text(void **state)
{
    AUTO_FREE char *negative = cell_of(json_real(-0.25)), *integer = cell_of(json_integer(-3)),
                   *none = cell_of(json_null()), *yes = cell_of(json_true()),
                   *list = cell_of(json_pack("[s, s]", "=1", "\x1b"));

    (void)state;
    assert_string_equal(negative, "-0.25");
    assert_string_equal(integer, "-3");
    assert_string_equal(none, "");
    assert_string_equal(yes, "true");
    assert_string_equal(list, "\"[\"\"=1\"\",\"\"\\u001B\"\"]\"");
}

static size_t
count(const char *text, char c)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == c;
    return n;
}

static void
every_row_has_as_many_cells_as_titles(void **state)
{
    (void)state;
    for (int i = 0; i < CSV_TABLES; i++) {
        AUTO_BUFFER struct buffer titles = BUFFER_INIT, row = BUFFER_INIT;
        AUTO_JSON json_t *document = json_object();
        assert_int_equal(csv_titles(&titles, (enum csv_table)i), 0);
        assert_int_equal(csv_row(&row, (enum csv_table)i, document), 0);
        assert_int_equal(count(titles.data, ','), count(row.data, ','));
        assert_true(count(titles.data, ',') > 15);
        assert_int_equal(strncmp(titles.data, "id,group,", 9), 0);
        assert_null(strchr(titles.data, '/'));
    }
    assert_int_equal(csv_find("rewards"), CSV_REWARDS);
    assert_int_equal(csv_find("tokens"), -1);
}

static void
members_of_members(void **state)
{
    AUTO_BUFFER struct buffer out = BUFFER_INIT;
    AUTO_JSON json_t *document = json_pack("{s:s, s:{s:f, s:i}, s:{s:s}}", "id", "x", "components", "speedup",
                                           1.5, "correct", 1, "reward_spec", "kind", "=staged");

    (void)state;
    assert_int_equal(csv_row(&out, CSV_REWARDS, document), 0);
    assert_string_equal(out.data, "\"x\",,,,,,,,\"'=staged\",,,,,1,,,1.5,,,,,,,,,\r\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_inert),
        cmocka_unit_test(values_that_are_no_text),
        cmocka_unit_test(every_row_has_as_many_cells_as_titles),
        cmocka_unit_test(members_of_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
