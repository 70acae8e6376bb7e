/* canaries.h - how long the canaries of GPUs take, as the store has them. Loop thread only. */
#ifndef TASK_CANARIES_H
#define TASK_CANARIES_H

#include "common/error.h"

struct funnel;

int canaries_load(struct funnel *f, struct error *err); /* f->norms, as the store has them */

#endif
