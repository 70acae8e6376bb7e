/* stopping.h - common/statistics as the harness calls it: one interval for the stop and for the report. */
#ifndef STOPPING_H
#define STOPPING_H

#include <stddef.h>
#include <stdint.h>

#include "server/harness/native/harness.h"

struct harness_stop_rule {
    uint64_t least, most, every; /* pairs; every > 0 */
    double narrow;               /* half width on the logarithmic scale */
    int32_t is_fixed;
};

/* After the n-th pair: an enum stats_stop (0: go on), or -EINVAL (samples that are not times), -ENOMEM. */
HARNESS_API int harness_stats_stop(const struct harness_stop_rule *rule, const double *reference,
                                   const double *candidate, size_t n, int is_spent);

/* An enum stats_outcome, or as above; *half_width is NAN where there are fewer than two pairs. */
HARNESS_API int harness_stats_judge(const double *reference, const double *candidate, size_t n,
                                    double smallest, double wide, double *half_width);

#endif
