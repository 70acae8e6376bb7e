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
/* Statements of sql_dialect. */
extern const char pg_nodes[], pg_waits[], pg_waits_new[];
change_fn pg_hand_on;

#endif
