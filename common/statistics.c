/*
 * A resample is kept as how often each pair was drawn, by rank: sorting once is
 * then enough for all of them, and both estimators are read off in one walk.
 * Random numbers are splitmix64 (Steele, Lea and Flood 2014), which is enough
 * for drawing indices and gives the same interval for the same samples and seed
 * on every machine.
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

double
stats_variation(const double *x, size_t n)
{
    double mean = stats_mean(x, n), squares = 0;
    if (n < 2)
        return NAN;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return sqrt(squares / (double)(n - 1)) / mean;
}

double
stats_slope(const double *x, const double *y, size_t n)
{
    size_t found = 0;
    if (n < 2 || n > 1000)
        return NAN;
    AUTO_FREE double *slopes = malloc(n * (n - 1) / 2 * sizeof(*slopes));
    for (size_t i = 0; slopes && i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            if (x[i] != x[j])
                slopes[found++] = (y[j] - y[i]) / (x[j] - x[i]);
    return slopes ? stats_median(slopes, found) : NAN;
}

uint64_t
stats_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

size_t
stats_draw(uint64_t *state, size_t n)
{
    return (size_t)(((stats_random(state) >> 32) * (uint64_t)n) >> 32);
}

/* One column of the pairs, sorted, and how often each of its values was drawn. */
struct column {
    double *sorted;
    size_t *rank; /* of pair i in sorted */
    uint32_t *drawn;
};

struct ranked {
    double value;
    size_t pair;
};

static int
compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? 1 : -1;
    return (x->pair > y->pair) - (x->pair < y->pair);
}

static void
column_release(struct column *c)
{
    free(c->sorted);
    free(c->rank);
    free(c->drawn);
}

static int
column_init(struct column *c, const double *x, size_t n)
{
    AUTO_FREE struct ranked *order = malloc(n * sizeof(*order));
    c->sorted = malloc(n * sizeof(*c->sorted));
    c->rank = malloc(n * sizeof(*c->rank));
    c->drawn = malloc(n * sizeof(*c->drawn));
    if (!order || !c->sorted || !c->rank || !c->drawn)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){ x[i], i };
    qsort(order, n, sizeof(*order), compare_ranked);
    for (size_t k = 0; k < n; k++) {
        c->sorted[k] = order[k].value;
        c->rank[order[k].pair] = k;
    }
    return 0;
}

/* Of n draws: the mean of those in places first .. last (from 0) when sorted. */
static double
drawn_mean(const struct column *c, size_t first, size_t last)
{
    double sum = 0;
    for (size_t k = 0, at = 0; at <= last; at += c->drawn[k++]) {
        size_t from = at > first ? at : first, to = at + c->drawn[k] - 1;
        if (c->drawn[k] == 0 || to < first)
            continue;
        sum += c->sorted[k] * (double)((to < last ? to : last) - from + 1);
    }
    return sum / (double)(last - first + 1);
}

enum { RATIO, REFERENCE, CANDIDATE, N_COLUMNS };

struct resampling {
    struct column columns[N_COLUMNS];
    double *medians, *trimmed; /* one for each resample */
};

static void
resampling_release(struct resampling *r)
{
    for (size_t c = 0; c < N_COLUMNS; c++)
        column_release(&r->columns[c]);
    free(r->medians);
    free(r->trimmed);
}

static void
resample(struct resampling *r, size_t n, size_t round, uint64_t *state)
{
    size_t off = (size_t)(STATS_TRIM * (double)n);

    for (size_t c = 0; c < N_COLUMNS; c++)
        memset(r->columns[c].drawn, 0, n * sizeof(*r->columns[c].drawn));
    for (size_t i = 0; i < n; i++) {
        size_t pair = stats_draw(state, n);
        for (size_t c = 0; c < N_COLUMNS; c++)
            r->columns[c].drawn[r->columns[c].rank[pair]]++;
    }
    r->medians[round] = drawn_mean(&r->columns[RATIO], (n - 1) / 2, n / 2);
    r->trimmed[round] = drawn_mean(&r->columns[REFERENCE], off, n - 1 - off) /
                        drawn_mean(&r->columns[CANDIDATE], off, n - 1 - off);
}

static bool
samples_are_times(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]) || x[i] <= 0)
            return false;
    return true;
}

static int
resampling_init(struct resampling *r, const double *reference, const double *candidate, size_t n)
{
    AUTO_FREE double *ratios = malloc(n * sizeof(*ratios));

    r->medians = malloc(STATS_RESAMPLES * sizeof(*r->medians));
    r->trimmed = malloc(STATS_RESAMPLES * sizeof(*r->trimmed));
    if (!ratios || !r->medians || !r->trimmed)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        ratios[i] = log(reference[i] / candidate[i]);
    if (column_init(&r->columns[RATIO], ratios, n) < 0 ||
        column_init(&r->columns[REFERENCE], reference, n) < 0 ||
        column_init(&r->columns[CANDIDATE], candidate, n) < 0)
        return ERR_NOMEM;
    return 0;
}

static void
read_interval(double *estimates, double *lo, double *hi)
{
    qsort(estimates, STATS_RESAMPLES, sizeof(*estimates), compare_doubles);
    *lo = quantile_of_sorted(estimates, STATS_RESAMPLES, 0.025);
    *hi = quantile_of_sorted(estimates, STATS_RESAMPLES, 0.975);
}

int
stats_paired_speedup(const double *reference, const double *candidate, size_t n, uint64_t seed,
                     struct stats_speedup *out)
{
    if (n == 0 || n > UINT32_MAX || !samples_are_times(reference, n) || !samples_are_times(candidate, n))
        return ERR_INPUT;
    __attribute__((cleanup(resampling_release))) struct resampling r = { 0 };
    if (resampling_init(&r, reference, candidate, n) < 0)
        return ERR_NOMEM;

    for (size_t round = 0; round < STATS_RESAMPLES; round++)
        resample(&r, n, round, &seed);
    read_interval(r.medians, &out->lo, &out->hi);
    out->speedup = exp(median_of_sorted(r.columns[RATIO].sorted, n));
    out->lo = exp(out->lo);
    out->hi = exp(out->hi);
    read_interval(r.trimmed, &out->trimmed_lo, &out->trimmed_hi);
    out->speedup_trimmed =
        stats_trimmed_mean(reference, n, STATS_TRIM) / stats_trimmed_mean(candidate, n, STATS_TRIM);
    return 0;
}

int
stats_told_speedup(const double *reference, const double *candidate, size_t n, struct stats_speedup *out)
{
    const double factor = exp(STATS_BETWEEN);
    int code = stats_paired_speedup(reference, candidate, n, STATS_SEED, out);

    if (code != 0)
        return code;
    out->lo /= factor;
    out->trimmed_lo /= factor;
    out->hi *= factor;
    out->trimmed_hi *= factor;
    return 0;
}

/* Half the width of the paired interval on the logarithmic scale: 0.01 is about 1 % on either side. */
static double
half_width_of(const struct stats_speedup *s)
{
    return log(s->hi / s->lo) / 2;
}

int
stats_stop(const struct stats_rule *rule, const double *reference, const double *candidate, size_t n,
           bool is_spent, uint64_t seed, enum stats_stop *out)
{
    struct stats_speedup s;

    *out = STATS_GO_ON;
    if (n < rule->least && n < rule->most)
        return 0;
    if (n >= rule->most) {
        *out = STATS_ALL;
        return 0;
    }
    if (!rule->is_fixed && n % rule->every == 0) {
        int code = stats_paired_speedup(reference, candidate, n, seed, &s);
        if (code != 0)
            return code;
        if (half_width_of(&s) < rule->narrow)
            *out = STATS_NARROW;
    }
    if (*out == STATS_GO_ON && is_spent)
        *out = STATS_SPENT;
    return 0;
}

int
stats_judge(const double *reference, const double *candidate, size_t n, double smallest, double wide,
            uint64_t seed, enum stats_outcome *out, double *half_width)
{
    struct stats_speedup s;

    *out = STATS_INCONCLUSIVE;
    *half_width = NAN;
    if (n < 2)
        return 0;
    int code = stats_paired_speedup(reference, candidate, n, seed, &s);
    if (code != 0)
        return code;
    *half_width = half_width_of(&s);
    if (stats_median(reference, n) < smallest)
        *out = STATS_TOO_SMALL;
    else if (*half_width <= wide)
        *out = STATS_MEASURED;
    return 0;
}
