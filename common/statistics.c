/*
 * The interval is the bootstrap's percentile interval (Efron 1979): resample
 * the pairs with replacement, take the median of the log-ratios each time, and
 * read off the 2.5 % and 97.5 % quantiles. Random numbers are splitmix64
 * (Steele, Lea and Flood 2014), which is enough for drawing indices and gives
 * the same interval for the same samples and seed on every machine.
 */
#include "common/statistics.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/error.h"

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *
sorted_copy(const double *x, size_t n)
{
    double *copy = n <= SIZE_MAX / sizeof(*copy) ? malloc(n * sizeof(*copy)) : NULL;
    if (copy) {
        memcpy(copy, x, n * sizeof(*copy));
        qsort(copy, n, sizeof(*copy), compare_doubles);
    }
    return copy;
}

static double
quantile_of_sorted(const double *sorted, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t below = (size_t)at;
    if (below + 1 >= n)
        return sorted[n - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

static double
median_of_sorted(const double *sorted, size_t n)
{
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double
stats_mean(const double *x, size_t n)
{
    double sum = 0;
    if (n == 0)
        return NAN;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

double
stats_median(const double *x, size_t n)
{
    if (n == 0)
        return NAN;
    AUTO_FREE double *sorted = sorted_copy(x, n);
    return sorted ? median_of_sorted(sorted, n) : NAN;
}

double
stats_trimmed_mean(const double *x, size_t n, double fraction)
{
    if (n == 0 || !(fraction >= 0 && fraction < 0.5))
        return NAN;
    AUTO_FREE double *sorted = sorted_copy(x, n);
    size_t off = (size_t)(fraction * (double)n);
    return sorted ? stats_mean(sorted + off, n - 2 * off) : NAN;
}

double
stats_quantile(const double *x, size_t n, double q)
{
    if (n == 0 || !(q >= 0 && q <= 1))
        return NAN;
    AUTO_FREE double *sorted = sorted_copy(x, n);
    return sorted ? quantile_of_sorted(sorted, n, q) : NAN;
}

static uint64_t
splitmix64(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* An index below n. The bias of scaling 32 bits is below n / 2^32: nothing, for samples counted in tens. */
static size_t
draw_index(uint64_t *state, size_t n)
{
    return (size_t)(((splitmix64(state) >> 32) * (uint64_t)n) >> 32);
}

static double
resampled_median(const double *x, size_t n, double *scratch, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        scratch[i] = x[draw_index(state, n)];
    qsort(scratch, n, sizeof(*scratch), compare_doubles);
    return median_of_sorted(scratch, n);
}

static bool
samples_are_times(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]) || x[i] <= 0)
            return false;
    return true;
}

int
stats_paired_speedup(const double *reference, const double *candidate, size_t n, uint64_t seed,
                     struct stats_speedup *out)
{
    if (n == 0 || n > UINT32_MAX || !samples_are_times(reference, n) || !samples_are_times(candidate, n))
        return ERR_INPUT;
    AUTO_FREE double *ratios = malloc(n * sizeof(*ratios));
    AUTO_FREE double *scratch = malloc(n * sizeof(*scratch));
    AUTO_FREE double *medians = malloc(STATS_RESAMPLES * sizeof(*medians));
    if (!ratios || !scratch || !medians)
        return ERR_NOMEM;

    for (size_t i = 0; i < n; i++)
        ratios[i] = log(reference[i] / candidate[i]);
    for (size_t i = 0; i < STATS_RESAMPLES; i++)
        medians[i] = resampled_median(ratios, n, scratch, &seed);
    qsort(medians, STATS_RESAMPLES, sizeof(*medians), compare_doubles);

    out->speedup = exp(stats_median(ratios, n));
    out->lo = exp(quantile_of_sorted(medians, STATS_RESAMPLES, 0.025));
    out->hi = exp(quantile_of_sorted(medians, STATS_RESAMPLES, 0.975));
    out->speedup_trimmed = stats_trimmed_mean(reference, n, 0.1) / stats_trimmed_mean(candidate, n, 0.1);
    return 0;
}
