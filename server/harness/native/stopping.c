#include "server/harness/native/stopping.h"

#include <errno.h>

#include "common/error.h"
#include "common/statistics.h"

static int
refuse(int code)
{
    if (code == ERR_NOMEM)
        return harness_fail(ENOMEM, "no memory for the interval");
    return harness_fail(EINVAL, "the samples are not all times above zero");
}

int
harness_stats_stop(const struct harness_stop_rule *rule, const double *reference, const double *candidate,
                   size_t n, int is_spent)
{
    const struct stats_rule r = { .least = (size_t)rule->least,
                                  .most = (size_t)rule->most,
                                  .every = (size_t)rule->every,
                                  .narrow = rule->narrow,
                                  .is_fixed = rule->is_fixed != 0 };
    enum stats_stop stop;

    if (r.every == 0)
        return harness_fail(EINVAL, "the rule looks every 0 pairs");
    int code = stats_stop(&r, reference, candidate, n, is_spent != 0, STATS_SEED, &stop);
    return code == 0 ? (int)stop : refuse(code);
}

int
harness_stats_judge(const double *reference, const double *candidate, size_t n, double smallest, double wide,
                    double *half_width)
{
    enum stats_outcome outcome;
    int code = stats_judge(reference, candidate, n, smallest, wide, STATS_SEED, &outcome, half_width);

    return code == 0 ? (int)outcome : refuse(code);
}
