/*
 * curriculum.h - the choice of the next tasks. Pure: the state is a JSON document that belongs to a checkpoint, so that
 * a resumed run continues with it.
 *
 *   fixed     a share of level 2 that does not change
 *   stepped   that share from 0.1 to 0.5: 0.05 more after a round when the mean correctness at level 1 of the last five
 *             measurements on held-out tasks is strictly above 0.4. It never falls
 *   seed      the same share, 0.05 more at once after each round whose correctness at level 1 is strictly above 0.4: on held-out
 *             tasks where they are evaluated, otherwise of the round's own answers
 *   adarft    a target difficulty on 0 .. 100, T <- clip(T + 50 tanh(2 (R - 0.5)), 0, 100) with R the round's mean reward; the tasks
 *             nearest to it (Shi et al. 2025, arXiv 2504.05520). A task of level L has difficulty 100 (L - 1) / 3
 *   frontier  tasks drawn with weight p (1 - p), p = (passes + 1) / (tries + 2): prefers tasks solved sometimes
 */
#ifndef TRAINER_CURRICULUM_H
#define TRAINER_CURRICULUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "client/trainer/tasks.h"
#include "common/error.h"

enum curriculum_kind {
    CURRICULUM_FIXED,
    CURRICULUM_STEPPED,
    CURRICULUM_SEED,
    CURRICULUM_ADARFT,
    CURRICULUM_FRONTIER,
    CURRICULUM_NKINDS
};
enum { CURRICULUM_WINDOW = 5 };

struct curriculum {
    enum curriculum_kind kind;
    int percent;                      /* fixed, stepped, seed: of level 2 */
    double window[CURRICULUM_WINDOW]; /* stepped: the last measurements, oldest first */
    size_t n_window;
    double target;   /* adarft */
    json_t *counted; /* frontier: {task: [tries, passes]}; owned */
};

/* 0, or ERR_INPUT: the names that there are. */
int curriculum_kind_of(const char *name, enum curriculum_kind *out, struct error *err);
const char *curriculum_name(enum curriculum_kind kind);

/* As it begins; percent is of CURRICULUM_FIXED. */
void curriculum_init(struct curriculum *c, enum curriculum_kind kind, int percent);
void curriculum_release(struct curriculum *c);
/* Restores the state of curriculum_json(); c is initialised. ERR_INPUT: it is of another kind, or malformed. */
int curriculum_read(struct curriculum *c, json_t *state, struct error *err);
json_t *curriculum_json(const struct curriculum *c); /* given */

/* The results of a round. Each kind uses those that concern it. */
void curriculum_held_out(struct curriculum *c, double correct);     /* share correct at level 1, 0 .. 1 */
void curriculum_trained(struct curriculum *c, double correct);      /* the same, of a round's own answers */
void curriculum_rewarded(struct curriculum *c, double mean_reward); /* of a round */
void curriculum_tried(struct curriculum *c, const char *task, int tries, int passes);

/*
 * Draw n tasks: is_drawn[0 .. set->n) is set. Returns how many: fewer than n if a level has no more, which the caller
 * reports. The same state, set and seed draw the same.
 */
size_t curriculum_draw(const struct curriculum *c, const struct task_set *set, size_t n, uint64_t seed,
                       bool *is_drawn);

#endif
