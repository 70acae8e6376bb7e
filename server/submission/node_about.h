/* node_about.h - a node's description of itself for the others. Loop thread only. */
#ifndef SUBMISSION_NODE_ABOUT_H
#define SUBMISSION_NODE_ABOUT_H

#include <stdbool.h>

#include <jansson.h>

struct funnel;

/* {"version","gpus":[…],"running","waiting","slots"}; given. */
json_t *node_about(const struct funnel *f);
/* Whether all GPUs of a node with that description have one name, with that in it. */
bool node_about_has_gpu(const char *about, const char *name);

#endif
