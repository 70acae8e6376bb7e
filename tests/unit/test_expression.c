#include "common/expression.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

static const char *const names[] = { "a", "b", "unknown" };
static const double values[] = { 2, -3, NAN };

static void
values_by_hand(void **state)
{
    static const struct {
        const char *text;
        double expected;
    } rows[] = {
        { "1", 1 },
        { " 0.5e1 ", 5 },
        { ".25", 0.25 },
        { "a", 2 },
        { "a + b*2", -4 },
        { "(a + b)*2", -2 },
        { "a - b - 1", 4 },
        { "8/2/2", 2 },
        { "-a*-b", -6 },
        { "--a", 2 },
        { "!a", 0 },
        { "!!a", 1 },
        { "a != 2", 0 },
        { "!a != 2", 1 },
        { "a >= 2 && b < 0", 1 },
        { "a > 2 || b <= -3", 1 },
        { "0 && 0 || 1", 1 },
        { "1 || 0 && 0", 1 },
        { "a == 2 ? 10 : 20", 10 },
        { "0 ? 1 : 0 ? 2 : 3", 3 },
        { "1 ? 0 ? 1 : 2 : 3", 2 },
        { "min(a, b) + max(a, b)", -1 },
        { "clamp(a, 0, 1)", 1 },
        { "clamp(b, 0, 1)", 0 },
        { "clamp(0.5, 0, 1)", 0.5 },
        { "abs(b)", 3 },
        { "sqrt(a*a)", 2 },
        { "log(exp(a))", 2 },
        { "unknown", 0 },
        { "unknown*a + 1", 1 },
        { "known(unknown)", 0 },
        { "known(a)", 1 },
        { "known( a )+1", 2 },
        { "1/0", INFINITY },
        { "0/0", NAN },
        { "min(0/0, 1)", NAN },
        { "clamp(0/0, 0, 1)", NAN },
        { "log(0 - 1)", NAN },
        { "0 ? 1/0 : 7", 7 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct expression e;
        struct expression_fault fault;
        if (expression_compile(rows[i].text, names, ARRAY_LEN(names), &e, &fault) != 0)
            fail_msg("%s: column %zu: %s", rows[i].text, fault.column, fault.text);
        double x = expression_value(&e, values);
        bool is_same =
            isnan(rows[i].expected) ? isnan(x) : x == rows[i].expected || fabs(x - rows[i].expected) < 1e-12;
        if (!is_same)
            fail_msg("%s: %.17g, not %.17g", rows[i].text, x, rows[i].expected);
    }
}

static void
faults_name_their_place(void **state)
{
    static const struct {
        const char *text;
        size_t column;
        const char *why;
    } rows[] = {
        { "", 1, "a number, a name or '(' is missing here" },
        { "a +", 4, "a number, a name or '(' is missing here" },
        { "a b", 3, "what follows is not understood" },
        { "(a", 3, "')' is missing here" },
        { "a)", 2, "what follows is not understood" },
        { "c", 1, "unknown name 'c'" },
        { "min(a)", 6, "',' is missing here" },
        { "min(a, b, 1)", 9, "')' is missing here" },
        { "known(1)", 7, "a name is missing here" },
        { "known(c)", 7, "unknown name 'c'" },
        { "a ? b", 6, "':' is missing here" },
        { "1.2.3", 1, "'1.2.3' is not a number" },
        { "1e999", 1, "'1e999' is not a number" },
        { "a = b", 3, "what follows is not understood" },
        { "a;b", 2, "what follows is not understood" },
        { "__import__", 1, "unknown name '__import__'" },
        { "system(a)", 1, "unknown name 'system'" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct expression e;
        struct expression_fault fault = { 0, "unset" };
        assert_true(expression_compile(rows[i].text, names, ARRAY_LEN(names), &e, &fault) < 0);
        assert_string_equal(fault.text, rows[i].why);
        assert_int_equal(fault.column, rows[i].column);
    }
}

static void
what_is_too_much_is_refused(void **state)
{
    struct expression e;
    struct expression_fault fault;
    char text[EXPRESSION_TEXT_MAX + 2];
    (void)state;

    memset(text, '(', sizeof(text) - 1);
    text[EXPRESSION_TEXT_MAX + 1] = '\0';
    assert_true(expression_compile(text, names, ARRAY_LEN(names), &e, &fault) < 0);
    assert_string_equal(fault.text, "longer than 512 bytes");
    text[EXPRESSION_TEXT_MAX] = '\0';
    assert_true(expression_compile(text, names, ARRAY_LEN(names), &e, &fault) < 0);
    assert_string_equal(fault.text, "nested more than 32 deep");
    memset(text, '-', EXPRESSION_TEXT_MAX);
    assert_true(expression_compile(text, names, ARRAY_LEN(names), &e, &fault) < 0);
    assert_string_equal(fault.text, "nested more than 32 deep");
    for (size_t i = 0; i < EXPRESSION_TEXT_MAX; i++)
        text[i] = i % 2 ? '+' : '1';
    text[EXPRESSION_TEXT_MAX - 1] = '\0'; /* 256 numbers, 255 sums */
    assert_true(expression_compile(text, names, ARRAY_LEN(names), &e, &fault) < 0);
    assert_string_equal(fault.text, "longer than 256 steps");
    text[255] = '\0'; /* 128 numbers, 127 sums: the stack stays small, the steps are all used */
    assert_int_equal(expression_compile(text, names, ARRAY_LEN(names), &e, &fault), 0);
    assert_true(expression_value(&e, values) == 128);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_by_hand),
        cmocka_unit_test(faults_name_their_place),
        cmocka_unit_test(what_is_too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
