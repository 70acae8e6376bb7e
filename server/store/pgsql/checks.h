/* checks.h - whether the database that was reached is usable: the checks before a daemon joins. Blocks. */
#ifndef PGSQL_CHECKS_H
#define PGSQL_CHECKS_H

#include "server/store/pgsql/link.h"

#define PG_OLDEST 130000

/*
 * ERR_STORE, in one line with what to do: too old, or it would lose what was acknowledged, unless that is_relaxed.
 * 0 or as pg_ask() else.
 */
int pg_check_server(struct pg_link *l, bool is_relaxed, struct error *err);
/* The same for the version alone, from PQserverVersion(). */
int pg_check_version(int version, struct error *err);

/* ERR_CONFLICT, with what to do. */
int pg_name_is_taken(const char *node, struct error *err);
#define PG_HELD_S 60
/*
 * Finds the session of this database with the longest open transaction, if that is for_s seconds old at least: its dead
 * rows stay, and claims become slow. out: "" if there is none, or this role may not see it (pg_monitor may).
 */
int pg_find_holder(struct pg_link *l, int64_t for_s, char *out, size_t size, struct error *err);

/* Whether the node of that name has a lease that lasts. */
int pg_is_alive(struct pg_link *l, const char *node, bool *out, struct error *err);
/*
 * Shorten every lease to a minute at most: after a failover to a server with a clock behind, a dead node's lease would
 * keep its claims and its name for that difference. A live node renews its lease meanwhile.
 */
int pg_cut_leases(struct pg_link *l, struct error *err);
/*
 * Wait until the lease of the node's life before has ended, lease_ms at most. ERR_CONFLICT: it is renewed, so that another
 * daemon lives under that name.
 */
int pg_wait_name(struct pg_link *l, const char *node, int64_t lease_ms, struct error *err);

#endif
