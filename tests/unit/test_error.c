#include "common/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/utf8.h"

static void
set_fills_and_returns_the_code(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(error_set(&err, ERR_NOTFOUND, "no task %d", 7), ERR_NOTFOUND);
    assert_int_equal(err.code, ERR_NOTFOUND);
    assert_int_equal(err.sys_errno, 0);
    assert_string_equal(err.text, "no task 7");
}

static void
set_without_an_error_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, ERR_FULL, "x"), ERR_FULL);
    error_prefix(NULL, "x");
}

static void
sys_appends_the_reason_and_keeps_errno(void **state)
{
    struct error err;
    (void)state;
    errno = ENOENT;
    assert_int_equal(error_set(&err, ERR_SYS, "open %s", "/x"), ERR_SYS);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_string_equal(err.text, "open /x: No such file or directory");
}

static void
prefix_goes_before(void **state)
{
    struct error err;
    (void)state;
    error_set(&err, ERR_INPUT, "bad number");
    error_prefix(&err, "%s:%d", "file", 3);
    assert_string_equal(err.text, "file:3: bad number");
    assert_int_equal(err.code, ERR_INPUT);
}

static void
long_texts_are_cut_and_terminated(void **state)
{
    struct error err;
    char big[1000];
    (void)state;
    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    error_set(&err, ERR_INPUT, "%s", big);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    error_prefix(&err, "p");
    assert_memory_equal(err.text, "p: aaa", 6);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    errno = ENOENT;
    error_set(&err, ERR_SYS, "%s", big);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

static void
a_cut_never_leaves_half_a_character(void **state)
{
    struct error err;
    char big[300];
    (void)state;
    for (size_t i = 0; i + 2 < sizeof(big); i += 2)
        memcpy(big + i, "\xc3\xa9", 3);
    error_set(&err, ERR_INPUT, "%s", big);
    assert_true(utf8_is_valid(err.text, strlen(err.text)));
    assert_int_equal(err.text[sizeof(err.text) - 2], '?');
}

static void
utf8_knows_what_is_a_character(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
    } rows[] = {
        { "a", 1 },
        { "\xc3\xa9", 2 },
        { "\xe2\x82\xac", 3 },
        { "\xf0\x9f\x98\x80", 4 },
        { "\x80", 0 },
        { "\xc0\xaf", 0 },
        { "\xe0\x80\x80", 0 },
        { "\xed\xa0\x80", 0 },
        { "\xf4\x90\x80\x80", 0 },
        { "\xf5\x80\x80\x80", 0 },
        { "\xe2\x82", 0 },
        { "\xc3"
          "a",
          0 },
        { "\xf0\x80\x80\x80", 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(utf8_char_size(rows[i].bytes, strlen(rows[i].bytes)), rows[i].size);
    assert_int_equal(utf8_char_size("", 0), 0);
    char text[] = "a\xff\xc3\xa9\xe2";
    utf8_clean(text);
    assert_string_equal(text, "a?\xc3\xa9?");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_fills_and_returns_the_code),
        cmocka_unit_test(set_without_an_error_returns_the_code),
        cmocka_unit_test(sys_appends_the_reason_and_keeps_errno),
        cmocka_unit_test(prefix_goes_before),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
        cmocka_unit_test(a_cut_never_leaves_half_a_character),
        cmocka_unit_test(utf8_knows_what_is_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
