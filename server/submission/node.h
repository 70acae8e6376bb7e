/*
 * node.h - this daemon as one of those that share a store: its lease, which it renews, and what it takes of the work that
 * waits in the store and that nobody here knows. Loop thread only.
 */
#ifndef SUBMISSION_NODE_H
#define SUBMISSION_NODE_H

#include <stdbool.h>

#include "server/store/store.h"

struct funnel;
struct node;

/* It lives under the lease that the store was opened with. NULL: no memory. */
struct node *node_new(struct funnel *f);
/* The store has finished its writes. NULL is fine. */
void node_free(struct node *n);
/* Nothing more is taken; the lease is still renewed. */
void node_drain(struct node *n);
/* What this daemon takes of what waits in the store. */
struct store_wants node_wants(const struct funnel *f);
/* It only compiles, and enough waits for a device that was compiled: it begins nothing until that is less. */
bool node_is_ahead(const struct node *n);
/* Under which this daemon claims. View. */
const struct store_lease *node_lease(const struct node *n);
/* How long it still lasts by this machine's clock, negative once it is lost; INFINITY: it needs no renewal. */
double node_lease_s(const struct node *n);

#endif
