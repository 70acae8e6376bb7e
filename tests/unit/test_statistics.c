#include "common/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
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

static void
what_is_told_is_wider_by_what_differs_between_processes(void **state)
{
    double reference[51], candidate[51];
    struct stats_speedup plain, told;
    (void)state;
    noisy_samples(reference, candidate, 51);
    assert_int_equal(stats_paired_speedup(reference, candidate, 51, STATS_SEED, &plain), 0);
    assert_int_equal(stats_told_speedup(reference, candidate, 51, &told), 0);
    assert_true(told.speedup == plain.speedup && told.speedup_trimmed == plain.speedup_trimmed);
    assert_true(near(log(plain.lo / told.lo), 0.007) && near(log(told.hi / plain.hi), 0.007));
    assert_true(near(log(plain.trimmed_lo / told.trimmed_lo), 0.007) &&
                near(log(told.trimmed_hi / plain.trimmed_hi), 0.007));
    assert_int_equal(stats_told_speedup(reference, candidate, 0, &told), ERR_INPUT);
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

/* --- published values --- */

/* R's own example for mean(trim = 0.1); NIST StRD "NumAcc1"; the example of Sen (1968), whose slope is 4. */
static void
published_figures(void **state)
{
    const double trimmed[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 50 };
    const double num_acc_1[] = { 10000001, 10000003, 10000002 };
    const double x[] = { 1, 2, 3, 4, 10, 12, 18 }, y[] = { 9, 15, 19, 20, 45, 55, 78 };
    (void)state;
    assert_true(near(stats_mean(trimmed, 12), 8.75));
    assert_true(near(stats_trimmed_mean(trimmed, 12, 0.1), 5.5));
    assert_true(fabs(stats_variation(num_acc_1, 3) * 10000002 - 1) < 1e-12);
    assert_true(near(stats_slope(x, y, 7), 4));
    assert_true(isnan(stats_variation(x, 1)) && isnan(stats_slope(x, y, 1)));
    assert_true(isnan(stats_slope(num_acc_1, y, 0)));
    const double same[] = { 2, 2, 2 };
    assert_true(isnan(stats_slope(same, y, 3)));
}

/*
 * The seven mice of Efron and Tibshirani (1993, table 2.1). The exact bootstrap distribution of their median gives
 * the order statistics the weights .0102, .0981, .2386, .3062, .2386, .0981, .0102 (Efron 1982), so its 2.5 % quantile
 * is the second and its 97.5 % quantile the sixth.
 */
static void
the_median_of_seven_mice(void **state)
{
    const double mice[] = { 94, 197, 16, 38, 99, 141, 23 }, ones[] = { 1, 1, 1, 1, 1, 1, 1 };
    struct stats_speedup s;
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_int_equal(stats_paired_speedup(mice, ones, 7, seed, &s), 0);
        assert_true(fabs(s.speedup - 94) < 1e-9 && fabs(s.lo - 23) < 1e-9 && fabs(s.hi - 141) < 1e-9);
    }
}

/* --- brute force --- */

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double
share_below(const double *sorted, size_t n, double x)
{
    size_t below = 0;
    while (below < n && sorted[below] < x * (1 - 1e-12))
        below++;
    return (double)below / (double)n;
}

/* x is a 2.5 % (97.5 %) quantile of the exact distribution, up to what drawing 2,000 of them can be off by. */
static void
assert_quantile(const double *exact, size_t n, double x, double q)
{
    if (share_below(exact, n, x) > q + 0.012 || share_below(exact, n, x * (1 + 1e-9)) < q - 0.012)
        fail_msg("%g is no %g quantile: %g of the distribution is below it", x, q, share_below(exact, n, x));
}

#define FEW 5
#define ALL_RESAMPLES 3125 /* FEW to the power FEW */

/* All 5^5 resamples of five pairs, both estimators made the plain way. */
static void
every_resample_of_five_pairs(void **state)
{
    static double medians[ALL_RESAMPLES], trimmed[ALL_RESAMPLES];
    const double reference[FEW] = { 3.1, 2.9, 4.0, 3.3, 2.2 }, candidate[FEW] = { 1.0, 1.3, 1.1, 0.9, 1.7 };
    struct stats_speedup s;
    (void)state;
    for (size_t k = 0; k < ALL_RESAMPLES; k++) {
        double logs[FEW], r[FEW], c[FEW];
        for (size_t i = 0, digits = k; i < FEW; i++, digits /= FEW) {
            r[i] = reference[digits % FEW];
            c[i] = candidate[digits % FEW];
            logs[i] = log(r[i] / c[i]);
        }
        medians[k] = exp(stats_median(logs, FEW));
        trimmed[k] = stats_trimmed_mean(r, FEW, STATS_TRIM) / stats_trimmed_mean(c, FEW, STATS_TRIM);
    }
    qsort(medians, ALL_RESAMPLES, sizeof(*medians), compare);
    qsort(trimmed, ALL_RESAMPLES, sizeof(*trimmed), compare);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        assert_int_equal(stats_paired_speedup(reference, candidate, FEW, seed, &s), 0);
        assert_quantile(medians, ALL_RESAMPLES, s.lo, 0.025);
        assert_quantile(medians, ALL_RESAMPLES, s.hi, 0.975);
        assert_quantile(trimmed, ALL_RESAMPLES, s.trimmed_lo, 0.025);
        assert_quantile(trimmed, ALL_RESAMPLES, s.trimmed_hi, 0.975);
    }
}

/* The trimming inside the resamples: 20 pairs with one wild value at either end, which two off each end hide mostly. */
static void
trimming_holds_inside_the_resamples(void **state)
{
    double reference[20], candidate[20];
    struct stats_speedup s;
    (void)state;
    for (int i = 0; i < 20; i++) {
        reference[i] = 2 + 0.001 * i;
        candidate[i] = 1;
    }
    reference[7] = 1e6;
    reference[13] = 1e-6;
    assert_int_equal(stats_paired_speedup(reference, candidate, 20, 1, &s), 0);
    assert_true(s.speedup_trimmed > 2 && s.speedup_trimmed < 2.02);
    assert_true(s.trimmed_lo > 1.8 && s.trimmed_lo < s.speedup_trimmed);
    assert_true(s.trimmed_hi > s.speedup_trimmed); /* three draws of the wild one do get through: 8 % */
}

/* --- a clock that is simulated, whose truth is known --- */

struct clock_model {
    const char *name;
    double noise;                 /* of each call */
    double throttle_at, throttle; /* from this share of the trials on both are slower by this factor */
    double drift;                 /* both, for each trial */
    double outliers, outlier;     /* share of calls that take so many times as long */
    double turn;                  /* whoever begins is slower by this share */
    double tolerance;             /* of the estimate */
};

static double
uniform(uint64_t *state)
{
    *state ^= *state << 13; /* xorshift64: not what draws the resamples */
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static double
normal(uint64_t *state)
{
    return sqrt(-2 * log(uniform(state))) * cos(6.283185307179586 * uniform(state));
}

static double
call(const struct clock_model *m, double true_ns, size_t i, size_t n, bool is_first, uint64_t *state)
{
    double t = true_ns * exp(m->noise * normal(state)) * (1 + m->drift * (double)i);
    if (m->throttle > 0 && (double)i >= m->throttle_at * (double)n)
        t *= m->throttle;
    if (uniform(state) < m->outliers)
        t *= m->outlier;
    return is_first ? t * (1 + m->turn) : t;
}

static void
simulate(const struct clock_model *m, double truth, size_t n, uint64_t *state, double *reference,
         double *candidate)
{
    for (size_t i = 0; i < n; i++) {
        reference[i] = call(m, 1e6 * truth, i, n, i % 2 == 0, state);
        candidate[i] = call(m, 1e6, i, n, i % 2 == 1, state);
    }
}

static const struct clock_model quiet = { "quiet", 0.004, 0, 0, 0, 0, 0, 0, 0.005 };

static void
simulated_clocks_give_the_truth(void **state)
{
    static const struct clock_model models[] = {
        { "quiet", 0.004, 0, 0, 0, 0, 0, 0, 0.005 },
        { "throttled halfway", 0.004, 0.5, 1.4, 0, 0, 0, 0, 0.005 },
        { "drift of a fifth", 0.004, 0, 0, 0.004, 0, 0, 0, 0.005 },
        { "outliers", 0.004, 0, 0, 0, 0.1, 8, 0, 0.01 },
        { "who begins pays", 0.004, 0, 0, 0, 0, 0, 0.05, 0.02 },
        { "all at once", 0.004, 0.3, 1.2, 0.002, 0.05, 20, 0.01, 0.01 },
    };
    static const double truths[] = { 0.5, 1, 1.5, 4 };
    double reference[50], candidate[50];
    struct stats_speedup s;
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (size_t t = 0; t < ARRAY_LEN(truths); t++) {
            uint64_t seed = 88172645463325252u + m;
            simulate(&models[m], truths[t], 50, &seed, reference, candidate);
            assert_int_equal(stats_paired_speedup(reference, candidate, 50, STATS_SEED, &s), 0);
            if (fabs(s.speedup / truths[t] - 1) > models[m].tolerance)
                fail_msg("%s: %g for %g", models[m].name, s.speedup, truths[t]);
            if (s.lo > truths[t] * (1 + 1e-3) || s.hi < truths[t] * (1 - 1e-3))
                fail_msg("%s: %g is not in %g .. %g", models[m].name, truths[t], s.lo, s.hi);
        }
}

#define RUNS 400

/* Of intervals for the same truth, how many hold it: nominally 95 of 100, and stopping early may not spoil that. */
static void
the_interval_holds_the_truth_as_often_as_it_says(void **state)
{
    static const struct stats_rule tens = { 10, 50, 5, 0.005, false }, fixed = { 10, 50, 5, 0.005, true },
                                   sixes = { 6, 50, 6, 0.005, false },
                                   short_sixes = { 6, 50, 6, 0.02, false };
    static const struct {
        const char *name;
        const struct stats_rule *rule;
        double noise;
        double least, most; /* of the share, RUNS runs having a standard error of about 1.1 % */
    } rows[] = {
        { "fixed", &fixed, 0.02, 0.92, 0.99 },      { "from 10 on", &tens, 0.02, 0.91, 0.99 },
        { "from 10 on", &tens, 0.005, 0.90, 0.99 }, { "from 6 on", &sixes, 0.005, 0.90, 0.99 },
        { "from 6 on", &sixes, 0.003, 0.90, 0.99 }, { "from 6 on, 2 %", &short_sixes, 0.014, 0.88, 0.99 },
    };
    double reference[50], candidate[50];
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        const struct stats_rule rule = *rows[r].rule;
        struct clock_model m = quiet;
        uint64_t seed = 1234567891011u + r;
        size_t held = 0, used = 0;
        m.noise = rows[r].noise;
        for (size_t run = 0; run < RUNS; run++) {
            enum stats_stop stop = STATS_GO_ON;
            struct stats_speedup s;
            size_t n = 1;
            simulate(&m, 1.5, 50, &seed, reference, candidate);
            for (; stop == STATS_GO_ON; n++)
                assert_int_equal(stats_stop(&rule, reference, candidate, n, false, STATS_SEED, &stop), 0);
            used += --n;
            assert_int_equal(stats_paired_speedup(reference, candidate, n, STATS_SEED, &s), 0);
            held += s.lo <= 1.5 && s.hi >= 1.5;
        }
        double share = (double)held / RUNS;
        print_message("%s, noise %g: %.1f %% hold the truth, %.1f pairs each\n", rows[r].name, m.noise,
                      100 * share, (double)used / RUNS);
        if (share < rows[r].least || share > rows[r].most)
            fail_msg("%s, noise %g: %g of the intervals hold the truth", rows[r].name, m.noise, share);
        assert_true(rule.is_fixed ? used == 50 * RUNS : used <= 50 * RUNS && used >= rule.least * RUNS);
    }
}

/* --- when to stop --- */

static enum stats_stop
stop_of(const struct stats_rule *rule, double spread, size_t n, bool is_spent)
{
    double reference[60], candidate[60];
    enum stats_stop stop;
    for (size_t i = 0; i < 60; i++) {
        candidate[i] = 1;
        reference[i] = 2 * (1 + spread * (double)((i * 37) % 60) / 60);
    }
    assert_int_equal(stats_stop(rule, reference, candidate, n, is_spent, STATS_SEED, &stop), 0);
    return stop;
}

static void
every_branch_of_the_stop_rule(void **state)
{
    static const struct stats_rule usual = { 10, 50, 5, 0.005, false }, fixed = { 10, 50, 5, 0.005, true },
                                   short_one = { 10, 4, 5, 0.005, false };
    static const struct {
        const char *what;
        const struct stats_rule *rule;
        double spread;
        size_t n;
        bool is_spent;
        enum stats_stop stop;
    } rows[] = {
        { "too few, however narrow", &usual, 0, 9, false, STATS_GO_ON },
        { "too few, though the budget is spent", &usual, 0, 9, true, STATS_GO_ON },
        { "narrow", &usual, 0, 10, false, STATS_NARROW },
        { "narrow between two looks", &usual, 0, 11, false, STATS_GO_ON },
        { "narrow at the next look", &usual, 0, 15, false, STATS_NARROW },
        { "narrow, and the budget spent", &usual, 0, 10, true, STATS_NARROW },
        { "wide", &usual, 1, 10, false, STATS_GO_ON },
        { "wide, and the budget spent", &usual, 1, 10, true, STATS_SPENT },
        { "the budget spent between two looks", &usual, 0, 11, true, STATS_SPENT },
        { "all of them", &usual, 1, 50, false, STATS_ALL },
        { "all of them, narrow too", &usual, 0, 50, true, STATS_ALL },
        { "more than all", &usual, 1, 51, false, STATS_ALL },
        { "fixed is not stopped by a narrow interval", &fixed, 0, 10, false, STATS_GO_ON },
        { "fixed, all of them", &fixed, 0, 50, false, STATS_ALL },
        { "fixed is stopped by its budget", &fixed, 0, 30, true, STATS_SPENT },
        { "fewer wanted than the least", &short_one, 0, 4, false, STATS_ALL },
        { "fewer wanted than the least, not there yet", &short_one, 0, 3, true, STATS_GO_ON },
    };
    const double bad[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, -1 };
    enum stats_stop stop;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (stop_of(rows[i].rule, rows[i].spread, rows[i].n, rows[i].is_spent) != rows[i].stop)
            fail_msg("%s: not %d", rows[i].what, (int)rows[i].stop);
    assert_int_equal(stats_stop(&usual, bad, bad, 10, false, STATS_SEED, &stop), ERR_INPUT);
}

static void
every_outcome(void **state)
{
    static const struct {
        double reference, spread;
        size_t n;
        enum stats_outcome outcome;
    } rows[] = {
        { 20e3, 0.001, 50, STATS_MEASURED },    { 20e3, 3, 50, STATS_INCONCLUSIVE },
        { 20e3, 0.001, 1, STATS_INCONCLUSIVE }, { 20e3, 0.001, 0, STATS_INCONCLUSIVE },
        { 9e3, 0.001, 50, STATS_TOO_SMALL },    { 2e3, 3, 50, STATS_TOO_SMALL },
        { 10.001e3, 0.001, 2, STATS_MEASURED },
    };
    double half_width;
    enum stats_outcome outcome;
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        double reference[50], candidate[50];
        for (size_t i = 0; i < 50; i++) {
            reference[i] = rows[r].reference * (1 + rows[r].spread * (double)((i * 37) % 50) / 50);
            candidate[i] = 30e3;
        }
        assert_int_equal(
            stats_judge(reference, candidate, rows[r].n, 10e3, 0.1, STATS_SEED, &outcome, &half_width), 0);
        if (outcome != rows[r].outcome)
            fail_msg("row %zu: outcome %d", r, (int)outcome);
        assert_int_equal(isnan(half_width), rows[r].n < 2);
    }
    const double bad[] = { 1, NAN };
    assert_int_equal(stats_judge(bad, bad, 2, 0, 0.1, STATS_SEED, &outcome, &half_width), ERR_INPUT);
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
        cmocka_unit_test(what_is_told_is_wider_by_what_differs_between_processes),
        cmocka_unit_test(every_pair_can_be_drawn),
        cmocka_unit_test(times_that_are_none_are_refused),
        cmocka_unit_test(published_figures),
        cmocka_unit_test(the_median_of_seven_mice),
        cmocka_unit_test(every_resample_of_five_pairs),
        cmocka_unit_test(trimming_holds_inside_the_resamples),
        cmocka_unit_test(simulated_clocks_give_the_truth),
        cmocka_unit_test(the_interval_holds_the_truth_as_often_as_it_says),
        cmocka_unit_test(every_branch_of_the_stop_rule),
        cmocka_unit_test(every_outcome),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
