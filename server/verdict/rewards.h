/* rewards.h - rewards from verdicts as they are stored. Pure. */
#ifndef VERDICT_REWARDS_H
#define VERDICT_REWARDS_H

#include <stdbool.h>

#include <jansson.h>

#include "common/reward.h"

/* The parts of a reward other than its scalar, or null; given. */
json_t *reward_parts_json(const struct reward_spec *spec, const struct reward_input *in);
/* Fill in what depends on a finished group: each item's rank, and the rewards that need it. */
void rescore_group(json_t *items);
/* The input of a reward from a stored verdict. False: it is not finished. */
bool verdict_input(json_t *verdict, struct reward_input *in);
/* The same of each of an array, with its rank among them. Given: free(); NULL: no memory. */
struct reward_input *verdict_inputs(json_t *verdicts);
/* NAN if it depends on the whole group. */
double verdict_reward(const struct reward_spec *spec, const struct reward_input *in);

#endif
