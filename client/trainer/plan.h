/*
 * plan.h - the tasks of a round by a curriculum, and its state between rounds: checkpoints/curriculum.json in the
 * working directory. A round that is run again (its name is the state's) gets the tasks that it had.
 */
#ifndef TRAINER_PLAN_H
#define TRAINER_PLAN_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/trainer/round.h"
#include "client/trainer/tasks.h"

/* --curriculum, --mix, --held-out. */
struct plan_options {
    const char *kind; /* NULL: no curriculum */
    int percent;      /* of level 2, for "fixed" */
    bool has_mix;     /* it was given */
    const char *held_out;
};
extern const struct argp plan_options_argp; /* its input: a struct plan_options */

/*
 * Leave the n tasks of the round `name` in set, and write down which. With held_out (a report of `trainer evaluate`)
 * its correctness at level 1 is counted first, once. ERR_INPUT: the state is of another curriculum or malformed; the
 * held-out report was counted before, has no level 1, or shares a task with set; a task of a round that was begun is
 * not in set.
 */
int plan_draw(const struct plan_options *o, const char *workdir, const char *name, size_t n, uint64_t seed,
              struct task_set *set, struct error *err);
/* Apply the results of the round; once, also if it is called again. */
int plan_learn(const struct plan_options *o, const char *workdir, const struct round_result *results,
               size_t n, struct error *err);

#endif
