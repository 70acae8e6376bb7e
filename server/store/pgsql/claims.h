/* claims.h - leases, and who has what (store.h, "ownership"): operations of backend.h. The writer's thread, or the reader's. */
#ifndef PGSQL_CLAIMS_H
#define PGSQL_CLAIMS_H

#include "server/store/pgsql/pgsql.h"

extern const struct ownership_ops pg_ownership;
int pg_renew(struct store_reader *r, const struct store_lease *l, int64_t lease_ms,
             const struct store_node_state *state, struct error *err);
/* The store is closed: the lease of the last life ends, so that nobody waits for it. */
void pg_leave(struct pgsql *p);
int pg_each_node(struct store_reader *r, store_node_cb *row_cb, void *arg, struct error *err);
/* Whether there is what this lease might claim: a look is no write. */
int pg_waits(struct store_reader *r, const struct store_lease *l, const struct store_wants *wants, bool *out,
             struct error *err);
int pg_each_cancel(struct store_reader *r, const char *node, int limit, store_cancel_cb *row_cb, void *arg,
                   struct error *err);

int pg_hand_on(struct store_backend *b, const struct store_claim *c, const struct store_carried *carried,
               struct error *err);
int pg_is_ahead(struct store_reader *r, bool *out, struct error *err);

#endif
