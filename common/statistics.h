/*
 * statistics.h - what is said of timing samples. Pure. Formulas and sources: docs/timing.md.
 * Samples are times in any one unit, all > 0; functions return NAN for n == 0.
 */
#ifndef COMMON_STATISTICS_H
#define COMMON_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

double stats_mean(const double *x, size_t n);
double stats_median(const double *x, size_t n);                        /* x is not changed */
double stats_trimmed_mean(const double *x, size_t n, double fraction); /* off each end: 0 .. < 0.5 */
double stats_quantile(const double *x, size_t n, double q);            /* linear interpolation (type 7) */

struct stats_speedup {
    double speedup;         /* exp(median(ln(reference_i / candidate_i))) */
    double lo, hi;          /* bootstrap percentile interval, 95 % */
    double speedup_trimmed; /* trimmed mean of reference over trimmed mean of candidate, 10 % */
};

#define STATS_RESAMPLES 2000

/* Pairs (reference[i], candidate[i]); fixed seed, so the same samples give the same interval. 0 or ERR_INPUT. */
int stats_paired_speedup(const double *reference, const double *candidate, size_t n, uint64_t seed,
                         struct stats_speedup *out);

#endif
