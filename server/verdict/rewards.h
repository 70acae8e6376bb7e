/* rewards.h - rewards from verdicts as they are stored. Pure. */
#ifndef VERDICT_REWARDS_H
#define VERDICT_REWARDS_H

#include <stdbool.h>

#include <jansson.h>

#include "common/reward.h"

/* What a reward tells beside its scalar, or null; given. */
json_t *reward_parts_json(const struct reward_spec *spec, const struct reward_input *in);
/* Fill in what only a finished group knows: each item's rank, and the rewards that need it. */
void rescore_group(json_t *items);
/* What a stored verdict tells a reward. False: it is not finished. */
bool verdict_input(json_t *verdict, struct reward_input *in);
/* The same of each of an array, with its rank among them. Given: free(); NULL: no memory. */
struct reward_input *verdict_inputs(json_t *verdicts);
/* NAN where only the whole group can tell. */
double verdict_reward(const struct reward_spec *spec, const struct reward_input *in);

#endif
