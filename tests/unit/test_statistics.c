#include "common/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/error.h"

static bool
near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

static void
plain_figures_by_hand(void **state)
{
    const double odd[] = { 5, 1, 3 }, even[] = { 4, 1, 3, 2 };
    const double ten[] = { 100, 2, 3, 4, 5, 6, 7, 8, 9, -50 };
    (void)state;
    assert_true(near(stats_mean(even, 4), 2.5));
    assert_true(near(stats_median(odd, 3), 3));
    assert_true(near(stats_median(even, 4), 2.5));
    assert_true(near(stats_trimmed_mean(ten, 10, 0.1), 44.0 / 8));
    assert_true(near(stats_trimmed_mean(ten, 10, 0.0), 9.4));
    assert_true(near(stats_trimmed_mean(odd, 3, 0.49), 3));
    assert_true(near(stats_quantile(even, 4, 0.25), 1.75));
    assert_true(near(stats_quantile(even, 4, 0), 1));
    assert_true(near(stats_quantile(even, 4, 1), 4));
    assert_true(near(stats_quantile(odd, 1, 0.3), 5));
    assert_true(odd[0] == 5 && odd[1] == 1 && odd[2] == 3);
}

static void
nothing_gives_nan(void **state)
{
    const double one = 1;
    (void)state;
    assert_true(isnan(stats_mean(NULL, 0)));
    assert_true(isnan(stats_median(NULL, 0)));
    assert_true(isnan(stats_trimmed_mean(NULL, 0, 0.1)));
    assert_true(isnan(stats_quantile(NULL, 0, 0.5)));
    assert_true(isnan(stats_trimmed_mean(&one, 1, 0.5)));
    assert_true(isnan(stats_quantile(&one, 1, 1.5)));
}

static void
a_constant_ratio_has_no_spread(void **state)
{
    double reference[20], candidate[20];
    struct stats_speedup s;
    (void)state;
    for (int i = 0; i < 20; i++) {
        candidate[i] = 100 + i;
        reference[i] = 2 * candidate[i];
    }
    assert_int_equal(stats_paired_speedup(reference, candidate, 20, 1, &s), 0);
    assert_true(near(s.speedup, 2) && near(s.lo, 2) && near(s.hi, 2) && near(s.speedup_trimmed, 2));
}

/* Noise from a fixed sequence: ratios spread over 0.9 .. 1.1 around 1.5. */
static void
noisy_samples(double *reference, double *candidate, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        candidate[i] = 10 + (double)(i % 7);
        reference[i] = candidate[i] * 1.5 * (0.9 + 0.2 * (double)((i * 37) % n) / (double)(n - 1));
    }
}

static void
noise_gives_an_interval_that_repeats(void **state)
{
    double reference[51], candidate[51];
    struct stats_speedup a, b, other;
    (void)state;
    noisy_samples(reference, candidate, 51);
    assert_int_equal(stats_paired_speedup(reference, candidate, 51, 7, &a), 0);
    assert_int_equal(stats_paired_speedup(reference, candidate, 51, 7, &b), 0);
    assert_int_equal(stats_paired_speedup(reference, candidate, 51, 8, &other), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_true(near(a.speedup, 1.5)); /* 0.9 + 0.2/2 is the middle ratio */
    assert_true(a.lo < 1.5 && a.hi > 1.5 && a.lo > 1.5 * 0.9 && a.hi < 1.5 * 1.1);
    assert_true(near(other.speedup, 1.5));
}

/*
 * The median of 51 uniform ratios has a standard error of about half-width / sqrt(n + 2), and the interval
 * should be about four of those wide: 4 * 0.1 * 1.5 / sqrt(53) = 0.082.
 */
static void
the_interval_has_the_width_theory_gives(void **state)
{
    double reference[51], candidate[51];
    struct stats_speedup s;
    (void)state;
    noisy_samples(reference, candidate, 51);
    assert_int_equal(stats_paired_speedup(reference, candidate, 51, 7, &s), 0);
    assert_true(s.hi - s.lo > 0.065 && s.hi - s.lo < 0.1);
}

/* Of two pairs the resamples are (1, 1), (1, 3), (3, 1), (3, 3): a quarter of them at either end. */
static void
every_pair_can_be_drawn(void **state)
{
    const double reference[] = { 1, 3 }, candidate[] = { 1, 1 };
    struct stats_speedup s;
    (void)state;
    assert_int_equal(stats_paired_speedup(reference, candidate, 2, 1, &s), 0);
    assert_true(near(s.lo, 1) && near(s.hi, 3) && near(s.speedup, sqrt(3)));
}

static void
times_that_are_none_are_refused(void **state)
{
    static const double bad[] = { 0, -1, NAN, INFINITY };
    const double good[] = { 1, 2 };
    struct stats_speedup s;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const double samples[] = { 1, bad[i] };
        assert_int_equal(stats_paired_speedup(samples, good, 2, 1, &s), ERR_INPUT);
        assert_int_equal(stats_paired_speedup(good, samples, 2, 1, &s), ERR_INPUT);
    }
    assert_int_equal(stats_paired_speedup(good, good, 0, 1, &s), ERR_INPUT);
    assert_int_equal(stats_paired_speedup(good, good, 1, 1, &s), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_figures_by_hand),
        cmocka_unit_test(nothing_gives_nan),
        cmocka_unit_test(a_constant_ratio_has_no_spread),
        cmocka_unit_test(noise_gives_an_interval_that_repeats),
        cmocka_unit_test(the_interval_has_the_width_theory_gives),
        cmocka_unit_test(every_pair_can_be_drawn),
        cmocka_unit_test(times_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
