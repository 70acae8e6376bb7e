/*
 * metrics.h - the metrics of judged answers. Pure. Rates are in percent, over all tasks unless a comment says
 * otherwise.
 */
#ifndef TRAINER_METRICS_H
#define TRAINER_METRICS_H

#include <stddef.h>

#include <jansson.h>

#include "client/trainer/round.h"

/*
 * Of results[0..n), those of one level (0: all): {"num_tasks", "num_samples", "extracted_rate", "valid_rate", "compiled_rate",
 * "correct_rate", "hack_rate", "infra", "fast_p": {"0": …, "0.5": …, "0.8", "1", "1.5", "2"}, "pass_at": {"1": …, "5": …, …},
 * "speedup_geomean", "speedup_median" and their "_lo", "_hi"}. Given.
 *
 * A task counts by its first sample (KernelBench's way) for the rates and fast_p; fast_p = share of tasks whose sample is correct
 * and faster than p times the reference, null for p > 0 where some are correct and none was timed;
 * pass@k by the unbiased estimator 1 - C(n-c, k)/C(n, k) (Chen et al. 2021) over all samples;
 * speed-ups over correct and measured first samples, with a 95 % bootstrap interval over tasks. `infra` samples are left out.
 */
json_t *metrics_json(const struct round_result *results, size_t n, int level);

#endif
