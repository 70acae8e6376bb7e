/* canaries.h - how long the canaries of GPUs take, as the store has them. Loop thread only. */
#ifndef TASK_CANARIES_H
#define TASK_CANARIES_H

#include "common/error.h"

struct funnel;
struct norms;

int canaries_load(struct funnel *f, struct norms **out, struct error *err); /* given: norms_free() */

#endif
