/*
 * statistics.h - statistics of timing samples. Pure. Samples are times in any one unit, all > 0; functions that
 * return a double return NAN for n == 0. docs/timing.md argues the choices.
 *
 * With x sorted, x_(1) <= ... <= x_(n):
 *   mean            sum(x) / n
 *   median          x_((n+1)/2), or the mean of the two in the middle
 *   trimmed mean    the mean without the g = floor(fraction * n) least and the g greatest (Tukey 1962)
 *   quantile        linear interpolation at 1 + (n-1) q (type 7 of Hyndman and Fan 1996)
 *   variation       s / mean, s with n - 1 in the denominator (the coefficient of variation)
 *   slope           the median of (y_j - y_i) / (x_j - x_i) over all pairs with x_i < x_j (Theil 1950, Sen 1968)
 *   speedup         exp(median of ln(reference_i / candidate_i)): the pairs were measured in the same conditions
 *   interval        percentile bootstrap (Efron 1979): pairs are drawn with replacement, STATS_RESAMPLES times; the
 *                   2.5 % and 97.5 % quantiles of the estimates. Both estimators are of the same resamples.
 *   between         the reported interval is wider, by STATS_BETWEEN to either side: pairs of one timing do not show
 *                   differences between processes (where memory lies, what a cache holds)
 */
#ifndef COMMON_STATISTICS_H
#define COMMON_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

double stats_mean(const double *x, size_t n);
double stats_median(const double *x, size_t n);                        /* x is not changed */
double stats_trimmed_mean(const double *x, size_t n, double fraction); /* off each end: 0 .. < 0.5 */
double stats_quantile(const double *x, size_t n, double q);            /* 0 .. 1 */
double stats_variation(const double *x, size_t n);                     /* NAN for n < 2 */
double stats_slope(const double *x, const double *y, size_t n); /* NAN where no two x differ; n <= 1000 */

/* splitmix64 (Steele, Lea, Flood 2014): the same draws on every machine. The state is the seed at first. */
uint64_t stats_random(uint64_t *state);
/* An index below n. The bias of scaling 32 bits is below n / 2^32: negligible here. */
size_t stats_draw(uint64_t *state, size_t n);

#define STATS_TRIM 0.1
#define STATS_RESAMPLES 2000
#define STATS_SEED 1        /* for every interval that is reported or acted on */
#define STATS_BETWEEN 0.007 /* logarithmic; measured: docs/timing.md */

struct stats_speedup {
    double speedup, lo, hi; /* paired; its 95 % interval */
    double speedup_trimmed, trimmed_lo,
        trimmed_hi; /* ratio of means trimmed by STATS_TRIM; its 95 % interval */
};

/* Pairs (reference[i], candidate[i]); the same samples and seed give the same interval. 0, ERR_INPUT or ERR_NOMEM. */
int stats_paired_speedup(const double *reference, const double *candidate, size_t n, uint64_t seed,
                         struct stats_speedup *out);
/* The same as it is reported: seed STATS_SEED, and both intervals wider by STATS_BETWEEN. */
int stats_told_speedup(const double *reference, const double *candidate, size_t n, struct stats_speedup *out);

/* --- when to stop, and what to call it --- */

struct stats_rule {
    size_t least;  /* pairs below which it never stops on its own */
    size_t most;   /* pairs at which it stops in any case */
    size_t every;  /* looks at the interval when n is a multiple of this; > 0 */
    double narrow; /* a half width below which more samples are not worth their time */
    bool is_fixed; /* exactly `most`, but for the budget */
};

enum stats_stop { STATS_GO_ON, STATS_NARROW, STATS_ALL, STATS_SPENT };

/*
 * After the n-th pair. In this order: n < least goes on; n >= most is STATS_ALL; a narrow interval, unless fixed, is
 * STATS_NARROW; a budget that is spent is STATS_SPENT. It looks at the width alone, never at the value. 0 with *out, or
 * as stats_paired_speedup().
 */
int stats_stop(const struct stats_rule *rule, const double *reference, const double *candidate, size_t n,
               bool is_spent, uint64_t seed, enum stats_stop *out);

enum stats_outcome { STATS_MEASURED, STATS_INCONCLUSIVE, STATS_TOO_SMALL };

/*
 * median(reference) < smallest is STATS_TOO_SMALL; a half width above wide, or fewer than two pairs, is
 * STATS_INCONCLUSIVE. smallest is in the samples' unit. *half_width is NAN where there is none. 0 or as above.
 */
int stats_judge(const double *reference, const double *candidate, size_t n, double smallest, double wide,
                uint64_t seed, enum stats_outcome *out, double *half_width);

#endif
