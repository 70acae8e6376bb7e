/*
 * claims.h - leases and ownership (store.h, "ownership"): operations of backend.h. The writer's thread, or the
 * reader's.
 */
#ifndef PGSQL_CLAIMS_H
#define PGSQL_CLAIMS_H

#include "server/store/pgsql/pgsql.h"

extern const struct ownership_ops pg_ownership;
int pg_renew(struct store_reader *r, const struct store_lease *l, int64_t lease_ms,
             const struct store_node_state *state, struct error *err);
/* At the close of the store: the lease ends, so that no other node waits for it. */
void pg_leave(struct pgsql *p);
int pg_each_node(struct store_reader *r, store_node_cb *row_cb, void *arg, struct error *err);
/* Whether anything waits that this lease might claim: reads only. */
int pg_waits(struct store_reader *r, const struct store_lease *l, const struct store_wants *wants, bool *out,
             struct error *err);
int pg_each_cancel(struct store_reader *r, const char *node, int limit, store_cancel_cb *row_cb, void *arg,
                   struct error *err);

int pg_hand_on(struct store_backend *b, const struct store_claim *c, const struct store_carried *carried,
               struct error *err);
int pg_is_ahead(struct store_reader *r, bool *out, struct error *err);

#endif
