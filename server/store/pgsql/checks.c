#include "server/store/pgsql/checks.h"

#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/store/store.h"

#define LOOK_MS 200
#define LEASE_MOST_MS 60000

int
pg_check_version(int version, struct error *err)
{
    if (version >= PG_OLDEST)
        return 0;
    return error_set(err, ERR_STORE, "its PostgreSQL has version %d, and %d is the oldest that will do",
                     version / 10000, PG_OLDEST / 10000);
}

/*
 * The standbys that could take over. A receiver of the log for a backup replays nothing, and a subscription has a
 * logical slot. A role without pg_monitor reads NULL for the state, and counts all.
 */
#define STANDBYS                                                                                           \
    " (SELECT count(*) FROM pg_stat_replication r WHERE (state IS NULL OR replay_lsn IS NOT NULL) AND NOT" \
    " EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND slot_type = 'logical'))"

/* Checks what would be lost in a crash or a failover of the database. */
static int
check_durability(struct pg_link *l, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(l, "ask how durable a commit is",
                    "SELECT current_setting('synchronous_commit'),"
                    " current_setting('synchronous_standby_names') <> ''," STANDBYS,
                    SQL_NO_VALUES, &row, err);
    if (rc < 0)
        return rc;
    const char *commit = pg_column_text(row, 0, 0);
    bool has_names = pg_column_bool(row, 0, 1);
    int64_t standbys = pg_column_int(row, 0, 2);
    if (strcmp(commit, "off") == 0)
        return error_set(
            err, ERR_STORE,
            "its synchronous_commit is off: when it crashes, what was acknowledged is lost; turn it on, "
            "or set durability = relaxed");
    if (standbys > 0 && (!has_names || strcmp(commit, "local") == 0))
        return error_set(
            err, ERR_STORE,
            "its standby is asynchronous: when that takes over, what was acknowledged is lost; set %s, or "
            "set durability = relaxed",
            has_names ? "synchronous_commit = on" : "synchronous_standby_names");
    return 0;
}

/* If there is no store yet, one is made. */
static int
check_rights(struct pg_link *l, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(l, "ask what its role may",
                    "SELECT current_user, CASE WHEN to_regclass('verifierd.writer') IS NULL"
                    " THEN has_database_privilege(current_database(), 'CREATE')"
                    " ELSE has_table_privilege('verifierd.writer', 'INSERT') END",
                    SQL_NO_VALUES, &row, err);
    if (rc < 0 || pg_column_bool(row, 0, 1))
        return rc;
    return error_set(err, ERR_STORE,
                     "the role %s may not write there: let it own the database, and the schema verifierd",
                     pg_column_text(row, 0, 0));
}

int
pg_check_server(struct pg_link *l, bool is_relaxed, struct error *err)
{
    int rc = pg_check_version(PQserverVersion(l->conn), err);

    if (rc == 0)
        rc = check_rights(l, err);
    return rc == 0 && !is_relaxed ? check_durability(l, err) : rc;
}

int
pg_find_holder(struct pg_link *l, int64_t for_s, char *out, size_t size, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc =
        pg_ask(l, "look for open transactions",
               "SELECT format('%s of %s (session %s) has a transaction open for %s s', coalesce(nullif("
               "application_name, ''), 'a program'), usename, pid, extract(epoch FROM clock_timestamp() -"
               " xact_start)::bigint) FROM pg_stat_activity WHERE datname = current_database() AND pid <>"
               " pg_backend_pid() AND backend_type = 'client backend' AND (backend_xmin IS NOT NULL OR"
               " backend_xid IS NOT NULL) AND xact_start <= clock_timestamp() - $1::int * interval '1 s'"
               " ORDER BY xact_start LIMIT 1",
               SQL_VALUES(sql_int(for_s)), &row, err);

    *out = '\0';
    if (rc == 0 && PQntuples(row) == 1)
        pg_column_name(row, 0, 0, out, size);
    return rc;
}

int
pg_name_is_taken(const char *node, struct error *err)
{
    return error_set(err, ERR_CONFLICT,
                     "another daemon is its node %s, and works: give one of them another name (setting node)",
                     node);
}

int
pg_cut_leases(struct pg_link *l, struct error *err)
{
    return pg_run(l, "cut leases",
                  "UPDATE node SET lease_until_ms = now_ms() + $1::bigint"
                  " WHERE lease_until_ms > now_ms() + $1::bigint AND lease_until_ms <> $2",
                  SQL_VALUES(sql_int(LEASE_MOST_MS), sql_int(STORE_LEASE_ENDLESS)), NULL, err);
}

/* until_ms: when the lease ends, by the database's clock; 0: there is none, or it has ended. */
static int
read_lease(struct pg_link *l, const char *node, int64_t *until_ms, int64_t *left_ms, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(l, "look for a node of that name",
                    "SELECT lease_until_ms, lease_until_ms - now_ms() FROM node"
                    " WHERE name = $1 AND lease_until_ms > now_ms()",
                    SQL_VALUES(sql_text(node)), &row, err);
    bool is_found = rc == 0 && PQntuples(row) == 1;

    *until_ms = is_found ? pg_column_int(row, 0, 0) : 0;
    *left_ms = is_found ? pg_column_int(row, 0, 1) : 0;
    return rc;
}

int
pg_is_alive(struct pg_link *l, const char *node, bool *out, struct error *err)
{
    int64_t until_ms, left_ms;
    int rc = read_lease(l, node, &until_ms, &left_ms, err);

    *out = until_ms != 0;
    return rc;
}

int
pg_wait_name(struct pg_link *l, const char *node, int64_t lease_ms, struct error *err)
{
    int64_t first_ms = 0, until_ms, left_ms, give_up_ns = clock_monotonic_ns() + (lease_ms + 1000) * 1000000;
    int rc = pg_cut_leases(l, err);

    if (rc == 0)
        rc = read_lease(l, node, &first_ms, &left_ms, err);
    until_ms = first_ms;
    if (rc == 0 && until_ms != 0)
        log_info("store", "node %s has a lease from before: it is waited for, %lld ms at most", node,
                 (long long)left_ms);
    while (rc == 0 && until_ms != 0) {
        if (until_ms != first_ms || clock_monotonic_ns() > give_up_ns)
            return pg_name_is_taken(node, err);
        usleep(LOOK_MS * 1000);
        rc = read_lease(l, node, &until_ms, &left_ms, err);
    }
    return rc;
}
