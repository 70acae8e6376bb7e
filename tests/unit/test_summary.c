/* test_summary.c - what sums are made of: a verdict's few facts, and messages without their figures. */
#include "server/store/summary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

static void
messages_lose_their_figures_and_keep_their_names(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        { "12 of 4096 values differ", "# of # values differ" },
        { "expected -0.25, got 1.5e-07", "expected #, got #" },
        { "at 0x7f2bdfccea40>", "at #>" },
        { "tl.float32 and int8", "tl.float32 and int8" },
        { "a2b c3", "a2b c3" },
        { "line one\n\tline\r\n two ", "line one line two" },
        { "\x1b[31mred\x7f", "[#mred" },
        { "3.", "#." },
        { "v1.2.3", "v1.#" },
        { "1e", "#e" },
        { "2E+5,7", "#,#" },
        { "-", "-" },
        { "ends-", "ends-" },
        { "été 5", "été #" },
        { "", "" },
    };
    char out[SUMMARY_MESSAGE_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        summary_message(rows[i].in, strlen(rows[i].in), out);
        assert_string_equal(out, rows[i].out);
    }
    summary_message("a\0b", 3, out);
    assert_string_equal(out, "a b");
}

static void
a_long_message_is_cut_between_characters(void **state)
{
    char text[600], out[SUMMARY_MESSAGE_SIZE];

    (void)state;
    /* Every way that 200 bytes can fall within characters of two and of three bytes. */
    for (size_t lead = 0; lead < 4; lead++) {
        const char *const characters[] = { "é", "€" };
        for (size_t c = 0; c < ARRAY_LEN(characters); c++) {
            memset(text, 0, sizeof(text));
            memset(text, 'x', lead);
            while (strlen(text) + 4 < sizeof(text))
                strcat(text, characters[c]);
            summary_message(text, strlen(text), out);
            size_t wide = strlen(characters[c]);
            assert_int_equal((strlen(out) - lead) % wide, 0);
            assert_true(strlen(out) > SUMMARY_MESSAGE_SIZE - 1 - wide && strlen(out) < SUMMARY_MESSAGE_SIZE);
        }
    }
}

static void
a_speed_counts_only_where_it_is_credited(void **state)
{
    struct summary s;

    (void)state;
    assert_true(
        summary_read("{\"class\":\"ok\",\"passed_stage\":\"timing\",\"failed_at\":null,"
                     "\"components\":{\"timed\":1,\"speedup\":2.5,\"speedup_lo\":2,\"speedup_hi\":3},"
                     "\"timing\":{\"candidate_ms\":1,\"reference_ms\":2.5},\"env\":{\"gpu\":\"H200\"}}",
                     &s));
    assert_int_equal(s.class_, CLASS_OK);
    assert_string_equal(s.passed, "timing");
    assert_string_equal(s.failed_at, "");
    assert_string_equal(s.gpu, "H200");
    assert_string_equal(s.message, "");
    assert_float_equal(s.speedup, 2.5, 0);
    assert_float_equal(s.candidate_ms, 1, 0);

    assert_true(summary_read("{\"class\":\"ok\",\"components\":{\"timed\":0,\"speedup\":2.5}}", &s));
    assert_true(isnan(s.speedup));
    assert_true(summary_read("{\"class\":\"hack\",\"components\":{\"timed\":1,\"speedup\":99},"
                             "\"error\":{\"text\":\"input 3\\nwas changed\"},\"feedback\":null}",
                             &s));
    assert_true(isnan(s.speedup));
    assert_string_equal(s.message, "input # was changed");
    assert_true(
        summary_read("{\"class\":\"timeout\",\"error\":null,\"feedback\":{\"text\":\"over 10 s\"}}", &s));
    assert_string_equal(s.message, "over # s");
}

static void
the_same_cause_in_another_kernel_is_the_same_message(void **state)
{
    static const struct {
        const char *told, *message;
    } rows[] = {
        { "compile: line 14, kernel gelu_kernel: module 'triton.language' has no attribute 'tanhh'",
          "module 'triton.language' has no attribute 'tanhh'" },
        { "compile: kernel k: out of resource", "out of resource" },
        { "tiny: line 18: NameError: name 'z' is not defined\\nmore", "NameError: name 'z' is not defined" },
        { "full: 5 of 9 values differ in case", "# of # values differ in case" },
        { "tiny: kernel panic", "kernel panic" },
        { "tiny: line 18", "line #" },
        { "nothing: line 18: x", "nothing: line #: x" },
        { "no place", "no place" },
    };
    char verdict[512];
    struct summary s;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(verdict, sizeof(verdict),
                 "{\"class\":\"compile\",\"error\":{\"text\":\"def f():\"},\"feedback\":{\"text\":\"%s\"}}",
                 rows[i].told);
        assert_true(summary_read(verdict, &s));
        assert_string_equal(s.message, rows[i].message);
    }
}

static void
what_is_no_verdict_has_no_summary(void **state)
{
    static const char *const texts[] = { "", "{", "[]", "{}", "{\"class\":null}", "{\"class\":3}", "\"ok\"" };
    struct summary s;

    (void)state;
    assert_false(summary_read(NULL, &s));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        assert_false(summary_read(texts[i], &s));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_lose_their_figures_and_keep_their_names),
        cmocka_unit_test(a_long_message_is_cut_between_characters),
        cmocka_unit_test(a_speed_counts_only_where_it_is_credited),
        cmocka_unit_test(the_same_cause_in_another_kernel_is_the_same_message),
        cmocka_unit_test(what_is_no_verdict_has_no_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
