/*
 * timing.h - the results of the referee's samples of one submission, and the timing in its verdict. Pure.
 */
#ifndef VERDICT_TIMING_H
#define VERDICT_TIMING_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/statistics.h"
#include "server/submission/attempt.h"

struct timing {
    bool is_measured;
    size_t n;
    double *reference, *candidate; /* milliseconds */
    struct stats_speedup speedup;
    double credited, credited_lo, credited_hi; /* of these, by the policy's estimator */
};

/* `timing` may take so long under this policy: more for many trials. */
int64_t timing_limit_ms(const struct policy *p, int64_t stage_limit_ms);

/* By j->timing; n is 0 where its samples make no sense. out: release it. */
void timing_read(const struct attempt *j, struct timing *out);
void timing_release(struct timing *t);
/* Given: "timing" of the verdict. t: of the same attempt. */
json_t *timing_json(const struct attempt *j, const struct timing *t);
/* The compiled reference's time over the candidate's, whose speed-up is given; NAN where one is not known. */
double timing_baseline_speedup(const struct attempt *j, double speedup);
/* The reason why there is no speed-up; view. */
const char *timing_why_none(const struct attempt *j);

/* n nanoseconds of an array as milliseconds. Given: free(). NULL where one is not above 0, there are none, or no memory. */
double *timing_samples_ms(json_t *array, size_t n);

#endif
