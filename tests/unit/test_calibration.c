/* test_calibration.c - what a calibration runs and what is said of its results. */
#include "client/cli/calibration.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"

#define N 13 /* seven programs, and those against themselves twice more */

/* What a machine that times perfectly answers. */
static void
perfect(struct calibration_run runs[N])
{
    static const double ms[] = { 0.05, 0.35, 2.8 };
    size_t n = 0;

    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < calibration_programs_count; i++) {
            const struct calibration_program *p = &calibration_programs[i];
            if (round > 0 && p->kind != CALIBRATION_SELF)
                continue;
            struct calibration_run *r = &runs[n++];
            *r = (struct calibration_run){ .program = p, .speedup = 1, .lo = 0.99, .hi = 1.01 };
            r->reference_ms = p->kind == CALIBRATION_NOTHING ? 0.001 : ms[i % 3];
            if (p->kind == CALIBRATION_TWICE)
                r->speedup = 0.5;
            snprintf(r->outcome, sizeof(r->outcome), "%s",
                     p->kind == CALIBRATION_NOTHING ? "too_small" : "measured");
        }
    assert_int_equal(n, N);
}

static void
a_perfect_machine_has_no_bias(void **state)
{
    struct calibration_run runs[N];
    struct calibration_summary s;
    (void)state;
    perfect(runs);
    calibration_summarize(runs, N, &s);
    assert_string_equal(s.wrong, "");
    assert_int_equal(s.measured, 9);
    assert_true(fabs(s.bias) < 1e-12 && fabs(s.spread) < 1e-12);
}

/* exp(mean ln) - 1 and s / mean of nine speed-ups, by hand. */
static void
bias_and_spread_are_what_they_are_called(void **state)
{
    struct calibration_run runs[N];
    struct calibration_summary s;
    (void)state;
    perfect(runs);
    runs[0].speedup = 1.02;
    runs[1].speedup = 0.98;
    calibration_summarize(runs, N, &s);
    assert_true(fabs(s.bias - (pow(1.02 * 0.98, 1.0 / 9) - 1)) < 1e-12);
    assert_true(fabs(s.spread - 0.01) < 1e-12); /* sqrt(2 * 0.02^2 / 8) / 1 */
    assert_string_equal(s.wrong, "");
}

static void
what_is_off_is_named(void **state)
{
    static const struct {
        size_t run;
        const char *outcome;
        double speedup;
        const char *complaint; /* NULL: none */
    } rows[] = {
        { 5, "measured", 0.53, "product_4096 made twice took 1.887 times as long" },
        { 5, "measured", 0.505, NULL },
        { 3, "measured", 0.6, NULL }, /* short: bound by its launch */
        { 3, "inconclusive", NAN, "product_1024 (twice) was inconclusive" },
        { 0, "infra", NAN, "product_1024 (aa) was infra" },
        { 6, "measured", 1, "a call that does nothing was measured" },
        { 2, "measured", 1.2, "the bias is 2.05 %" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct calibration_run runs[N];
        struct calibration_summary s;
        perfect(runs);
        runs[rows[i].run].speedup = rows[i].speedup;
        snprintf(runs[rows[i].run].outcome, sizeof(runs[0].outcome), "%s", rows[i].outcome);
        calibration_summarize(runs, N, &s);
        if (rows[i].complaint ? !strstr(s.wrong, rows[i].complaint) : *s.wrong)
            fail_msg("row %zu: \"%s\"", i, s.wrong);
    }
}

static void
one_run_is_no_calibration(void **state)
{
    struct calibration_run runs[N];
    struct calibration_summary s;
    (void)state;
    perfect(runs);
    for (size_t i = 1; i < N; i++)
        snprintf(runs[i].outcome, sizeof(runs[i].outcome), "a long word that is no outcome");
    calibration_summarize(runs, N, &s);
    assert_true(isnan(s.bias) && isnan(s.spread) && s.measured == 1);
    assert_true(strlen(s.wrong) > 0 && strlen(s.wrong) < sizeof(s.wrong));
    calibration_summarize(runs, 0, &s);
    assert_non_null(strstr(s.wrong, "0 runs"));
}

static void
a_verdict_becomes_a_run(void **state)
{
    AUTO_JSON json_t *good = json_loads("{\"id\":\"x\",\"class\":\"ok\",\"timing\":{\"outcome\":\"measured\","
                                        "\"speedup\":0.5,\"speedup_lo\":0.4,"
                                        "\"speedup_hi\":0.6,\"reference_ms\":3}}",
                                        0, NULL);
    AUTO_JSON json_t *bad =
        json_loads("{\"class\":\"infra\",\"timing\":{\"outcome\":\"measured\"}}", 0, NULL);
    struct calibration_run runs[2];
    struct calibration_summary s = { .bias = 0.01, .spread = 0.02 };
    (void)state;
    calibration_read(&calibration_programs[5], good, &runs[0]);
    calibration_read(&calibration_programs[0], bad, &runs[1]);
    assert_string_equal(runs[0].outcome, "measured");
    assert_true(runs[0].speedup == 0.5 && runs[0].hi == 0.6 && runs[0].reference_ms == 3);
    assert_true(isnan(runs[0].candidate_ms));
    assert_string_equal(runs[1].outcome, "infra");
    AUTO_JSON json_t *body = calibration_json("H200", runs, 2, &s);
    AUTO_JSON json_t *wanted = json_loads(
        "{\"gpu\":\"H200\",\"bias\":0.01,\"spread\":0.02,\"runs\":[{\"name\":\"product_4096\",\"kind\":"
        "\"twice\","
        "\"outcome\":\"measured\",\"submission\":\"x\",\"expected\":0.5,\"speedup\":0.5,\"speedup_lo\":0.4,"
        "\"speedup_hi\":0.6,\"reference_ms\":3.0},{\"name\":\"product_1024\",\"kind\":\"aa\",\"outcome\":"
        "\"infra\","
        "\"expected\":1.0}]}",
        0, NULL);
    assert_non_null(wanted);
    assert_true(json_equal(body, wanted));
}

static void
no_two_candidates_have_the_same_bytes(void **state)
{
    AUTO_BUFFER struct buffer a = BUFFER_INIT, b = BUFFER_INIT, reference = BUFFER_INIT;
    (void)state;
    calibration_candidate(&calibration_programs[3], "1", &a);
    calibration_candidate(&calibration_programs[3], "2", &b);
    calibration_reference(&calibration_programs[3], &reference);
    assert_string_not_equal(a.data, b.data);
    assert_non_null(strstr(a.data, "class ModelNew"));
    assert_non_null(strstr(a.data, "        torch.mm(x, x)\n        return torch.mm(x, x)\n"));
    assert_non_null(strstr(reference.data, "class Model(nn.Module)"));
    assert_non_null(strstr(reference.data, "torch.rand(1024, 1024)"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_perfect_machine_has_no_bias),
        cmocka_unit_test(bias_and_spread_are_what_they_are_called),
        cmocka_unit_test(what_is_off_is_named),
        cmocka_unit_test(one_run_is_no_calibration),
        cmocka_unit_test(a_verdict_becomes_a_run),
        cmocka_unit_test(no_two_candidates_have_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
