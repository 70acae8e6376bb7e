/*
 * checkpoint.h - a model of one's own as an endpoint: a directory with an adapter (its base is loaded, too) or a whole model
 * is served by `python -m finetune serve` on a port of its own, until it is closed or the trainer ends.
 */
#ifndef TRAINER_CHECKPOINT_H
#define TRAINER_CHECKPOINT_H

#include "client/trainer/trainer.h"

struct checkpoint;

/*
 * Check the directory, then load it and wait until it answers. t->model names the base if it is not the one in the
 * adapter's configuration. On success t's endpoint and model are the checkpoint's, t->endpoint_name names the weights,
 * and *out is given. ERR_INPUT: it is missing, empty, not a checkpoint, or does not load; the text names directories
 * that do hold one (next to it, in it, and below workdir/checkpoints). ERR_SYS: the interpreter cannot be started.
 */
int checkpoint_serve(struct trainer *t, const char *python, const char *directory, struct checkpoint **out,
                     struct error *err);
/* NULL is fine. */
void checkpoint_close(struct checkpoint *c);

#endif
