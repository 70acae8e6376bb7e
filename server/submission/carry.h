/*
 * carry.h - a submission that a node without a device has compiled is handed on to one with a device, with the results.
 * Loop thread only.
 */
#ifndef SUBMISSION_CARRY_H
#define SUBMISSION_CARRY_H

#include "server/store/store.h"

struct submission;

/* It is ready for a device, and this node judges on none: it is left to others, as soon as the store has agreed. */
void carry_hand_on(struct submission *s);
/*
 * Puts the carried results into its attempt, whose request was read. Nothing changes where the stages would have other
 * results here: they are run again then.
 */
void carry_take(struct submission *s, const struct carried_row *row);

#endif
