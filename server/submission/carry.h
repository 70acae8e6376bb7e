/*
 * carry.h - a submission that a node without a device has compiled goes to one that has: what is known of it goes along.
 * Loop thread only.
 */
#ifndef SUBMISSION_CARRY_H
#define SUBMISSION_CARRY_H

#include "server/store/store.h"

struct submission;

/* It is ready for a device, and this node judges on none: it is left to others, as soon as the store has agreed. */
void carry_hand_on(struct submission *s);
/*
 * Puts what came with it into its attempt, whose request was read. Nothing changes where the stages would go another way
 * here: they are made again then.
 */
void carry_take(struct submission *s, const struct carried_row *row);

#endif
