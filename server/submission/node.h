/*
 * node.h - this daemon as a node that shares a store: its lease, which it renews, and its claims of submissions that
 * wait in the store and that this daemon does not know. Loop thread only.
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
/* The waiting submissions of the store that this daemon may claim. */
struct store_wants node_wants(const struct funnel *f);
/* It only compiles, and enough compiled submissions wait for a device: it begins none until there are fewer. */
bool node_is_ahead(const struct node *n);
/* Under which this daemon claims. View. */
const struct store_lease *node_lease(const struct node *n);
/* How long it still lasts by this machine's clock, negative once it is lost; INFINITY: it needs no renewal. */
double node_lease_s(const struct node *n);

#endif
