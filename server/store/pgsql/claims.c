#include "server/store/pgsql/claims.h"

#include "common/log.h"
#include "server/store/changes.h"
#include "server/store/pgsql/checks.h"
#include "server/store/pgsql/reading.h"

/*
 * Theory of operation. The database's clock decides about leases: now_ms() is the time at which a row is read, not that
 * at which the transaction began. A claim skips a row that another node is changing (SKIP LOCKED), so that nodes never
 * wait for each other, nor in a cycle; the locked rows are chosen once (MATERIALIZED), since a plan may evaluate a
 * subquery again and would lock, and claim, more than one row. A running submission is claimed again by its node if its
 * release failed: it has the attempts of that release.
 *
 * Thousands of waiting submissions may ask for a GPU that the node does not have, or belong to one client. So the kinds
 * (the GPU asked for, '': none; priority) are found one after the other in an index that begins with them (job_flow),
 * and the clients of each. The next client is the one with the fewest running on all nodes, those of this claim
 * included. As thousands of clients may wait, a claim reads CLIENTS_MOST of each kind, and the node's next claim reads
 * the following ones. The bounds are equal columns, as an index scan does not end where a row comparison has passed its
 * bound; and bitmap scans are off (link.c), which would read all rows after a bound. Only chosen rows are locked. A
 * node that only compiles finds what another node has not handed on, the oldest first (job_new).
 *
 * Two rules depend on concurrent claims: the limit for one client, and that identical submissions run on one node.
 * Their functions (schema/) take a lock that is held until the transaction ends, or refuse if another transaction holds
 * it, and read after that: the snapshot of a statement is older than a lock that it takes.
 */

#define LEASE "SELECT 1 FROM node WHERE name = $1 AND epoch = $2 AND lease_until_ms > now_ms()"

/* h is the home of g: the life that made it so has the lease yet, and goes on. */
#define IS_HOME                                                                          \
    "h.name = g.home AND h.epoch = g.home_epoch AND h.lease_until_ms > now_ms() AND NOT" \
    " h.draining"
#define IS_OWN "(g.home, g.home_epoch) = ($1, $2)"
/* The row is of a group that another node judges alone, or another life of this one. (For an EXISTS all groups may be read.) */
#define AWAY                                                                                \
    "together IS NOT NULL AND (SELECT true FROM submission_group g JOIN node h ON " IS_HOME \
    " WHERE g.id = together AND NOT " IS_OWN ") IS TRUE"
/*
 * The first node that claims of such a group becomes its home (a trigger records the life, schema/). Of two concurrent
 * claims the second claims nothing; a node sees its own uncommitted claim.
 */
#define HOME                                                                                                 \
    "free AS MATERIALIZED (SELECT id FROM submission_group g WHERE id = ANY (ARRAY(SELECT together FROM"     \
    " chosen)) AND " IS_OWN " IS NOT TRUE AND NOT EXISTS (SELECT FROM node h WHERE " IS_HOME                 \
    ") FOR UPDATE OF g SKIP LOCKED),"                                                                        \
    " home AS (UPDATE submission_group SET home = $1 WHERE id = ANY (ARRAY(SELECT id FROM free)) RETURNING " \
    "id)"
#define AT_HOME                                                                                           \
    "(chosen.together IS NULL OR chosen.together IN (TABLE home) OR (SELECT true FROM submission_group g" \
    " WHERE g.id = chosen.together AND " IS_OWN ") IS TRUE)"
#define MINE AT_HOME " AND (content IS NULL OR verifierd.is_sole(content, $1))"
#define LOCKED " FOR UPDATE SKIP LOCKED"
#define MOST " LIMIT $3" LOCKED
#define ONE " LIMIT 1"
/* An identical submission runs on another node. */
#define TWIN "(SELECT true FROM job t WHERE t.content = job.content AND t.state = 1 AND t.node <> $1 LIMIT 1)"
#define CONTENT "CASE cancel WHEN 0 THEN content END AS content"
#define FREE "(NOT (" AWAY ") AND " TWIN " IS NULL)"
/*
 * How many more of a client may run, NULL: any number; of: the table with the client; limits: a parameter, as in
 * store_wants. Of a group that one node judges alone some are claimed and wait for the rest, which must not wait for
 * them: they are not counted here, and the node limits them as a daemon by itself does.
 */
#define ROOM(of, limits)                                                                             \
    "CASE WHEN client <> '' AND " limits "::jsonb ?| ARRAY[client, '*'] THEN verifierd.room(client," \
    " (coalesce(" limits "::jsonb -> client, " limits "::jsonb -> '*'))::bigint + (SELECT count(*)"  \
    " FROM job p WHERE p.client = " of ".client AND p.state = 1 AND p.together IS NOT NULL)) END"
#define GPU "coalesce(gpu, '')"
#define BY_FLOW " ORDER BY " GPU ", priority, client, id"
#define OF_KIND GPU " = kind.gpu AND priority = kind.priority"
#define KIND "SELECT " GPU " AS gpu, priority FROM job WHERE state = 0"
#define BEHIND " AND (" GPU ", priority) > (kind.gpu, kind.priority)"
#define KINDS                     \
    "kind AS ((" KIND BY_FLOW ONE \
    ") UNION ALL SELECT next.* FROM kind CROSS JOIN LATERAL (" KIND BEHIND BY_FLOW ONE ") next)"
/* Clients of a kind, and the first row of each: behind the one at which the last claim of this node ended, and up to it. */
#define CLIENTS_MOST "64"
#define CLIENT "SELECT client, id FROM job WHERE state = 0 AND " OF_KIND
#define WALK(from, to)                                                                            \
    "(WITH RECURSIVE walk AS ((" CLIENT from to BY_FLOW ONE ") UNION ALL SELECT next.* FROM walk" \
    " CROSS JOIN LATERAL (" CLIENT " AND client > walk.client" to BY_FLOW ONE                     \
    ") next) SELECT * FROM walk LIMIT " CLIENTS_MOST ")"
#define WALK_ON WALK(" AND client > $6", "")
#define WALK_FROM_THE_FIRST WALK("", " AND client <= $6")
#define ROOM_OF_EACH ROOM("flow", "$5")
#define SHARES                                                                                             \
    KINDS ", flow AS MATERIALIZED (SELECT kind.*, near.*, row_number() OVER (PARTITION BY gpu,"            \
          " priority ORDER BY client <= $6, client) AS nth FROM kind CROSS JOIN LATERAL (" WALK_ON         \
          " UNION ALL " WALK_FROM_THE_FIRST " LIMIT " CLIENTS_MOST ") near WHERE position(kind.gpu IN $4)" \
          " > 0), share AS MATERIALIZED (SELECT flow.*, (SELECT count(*) FROM job WHERE state = 1 AND"     \
          " client = flow.client) AS runs, " ROOM_OF_EACH " AS room FROM flow)"
/* n is the flow's part of the limit, if it has as many rows: the rest is for the next query. */
#define PARTS                                                                                             \
    "SELECT *, greatest(1, count(*) FILTER (WHERE place <= $3) OVER (PARTITION BY gpu, priority, client)" \
    ") AS n FROM (SELECT *, row_number() OVER (ORDER BY priority, runs + i, id) AS place FROM (SELECT *," \
    " row_number() OVER (PARTITION BY client ORDER BY priority, i, id) AS nth_of FROM (SELECT *,"         \
    " row_number() OVER (ORDER BY priority, runs, id) AS rank FROM share WHERE room IS NULL OR room > 0)" \
    " r, generate_series(1, CASE WHEN rank <= $3 THEN $3 ELSE 1 END) i) q WHERE room IS NULL OR nth_of"   \
    " <= room) p"
#define OF_SHARE GPU " = s.gpu AND priority = s.priority AND client = s.client"
#define FIRST                                                                                           \
    "SELECT first.* FROM (SELECT * FROM (" PARTS ") a WHERE i = 1 ORDER BY priority, runs, id) s CROSS" \
    " JOIN LATERAL (SELECT id, together, content FROM job WHERE state = 0 AND " OF_SHARE                \
    " AND " FREE BY_FLOW " LIMIT s.n" LOCKED ") first"
/*
 * The same for a node that only compiles; and for cancelled submissions: the node that claims one ends it, at home or
 * not.
 */
#define FIRST_NEW(limit)                                                                                    \
    "SELECT new.* FROM (SELECT id, together, content FROM job WHERE state = 0 AND NOT handed_on AND gpu IS" \
    " NULL AND together IS NULL AND " TWIN " IS NULL ORDER BY priority, id" limit ") new"
#define FIRST_CANCELLED(limit)                                                                           \
    "SELECT ended.* FROM (SELECT id, NULL AS together, NULL::bigint AS content FROM job WHERE state = 0" \
    " AND cancel > 0 ORDER BY id" limit ") ended"
/* which: rows of job that are locked. */
#define CLAIM(which, attempts)                                                                       \
    "lease AS MATERIALIZED (" LEASE "), chosen AS MATERIALIZED (" which "), " HOME                   \
    ", claimed AS (UPDATE job SET state = 1, node = $1, claim = claim + 1, attempts = 1 + " attempts \
    " WHERE id = ANY (ARRAY(SELECT id FROM chosen WHERE " MINE ")) AND EXISTS (SELECT FROM lease)"   \
    " RETURNING id, claim, attempts, handed_on, cancel) SELECT *, NULL::text FROM claimed"
#define NEXT(first) "SELECT * FROM (" FIRST_CANCELLED(MOST) " UNION ALL " first ") waits LIMIT $3"

#define NODE_KEPT_MS "86400000" /* after its lease has ended */

/* ?: an end that is never passed, or one from now on. */
#define LEASE_END(ms) "CASE WHEN " ms " = 9223372036854775807 THEN " ms " ELSE now_ms() + " ms " END"
_Static_assert(STORE_LEASE_ENDLESS == 9223372036854775807, "the number in LEASE_END");

static int
join(struct store_backend *b, struct store_order *o, struct error *err)
{
    struct pg_link *l = &pgsql_of(b)->link;
    const char *node = o->lease.node;
    AUTO_RESULT PGresult *row = NULL;
    /*
     * Refused while another daemon has a lease under the name; an endless lease is never waited for. The epoch of a new
     * row is the clock, which is beyond the epochs of an earlier row that was removed.
     */
    int rc =
        pg_ask(l, "take a lease",
               "INSERT INTO node (name, epoch, lease_until_ms) VALUES ($1, now_ms(), " LEASE_END(
                   "$2::bigint") ") ON CONFLICT (name) DO UPDATE SET epoch = node.epoch + 1,"
                                 " lease_until_ms = excluded.lease_until_ms WHERE $2 = 9223372036854775807"
                                 " OR node.lease_until_ms <= now_ms() OR node.epoch = $3 RETURNING epoch",
               SQL_VALUES(sql_text(node), sql_int(o->lease_ms), sql_int(pgsql_of(b)->epoch)), &row, err);
    if (rc < 0)
        return rc;
    if (PQntuples(row) == 0)
        return pg_name_is_taken(node, err);
    o->got_lease = o->lease;
    o->got_lease.epoch = pgsql_of(b)->epoch = pg_column_int(row, 0, 0);
    /* The node stays in the row of a waiting submission: it shows where it was lost. */
    return pg_run(l, "take back what a node had claimed",
                  "UPDATE job SET state = 0, claim = claim + 1 WHERE state = 1 AND node = $1",
                  SQL_VALUES(sql_text(node)), NULL, err);
}

static int
lease_ended(const struct store_lease *l, struct error *err)
{
    return error_set(err, ERR_CONFLICT, "the lease of node %s has ended", l->node);
}

int
pg_renew(struct store_reader *base, const struct store_lease *l, int64_t lease_ms,
         const struct store_node_state *state, struct error *err)
{
    int64_t renewed = 0;
    int rc = pg_change(base, "renew a lease",
                       "UPDATE node SET lease_until_ms = " LEASE_END(
                           "$3::bigint") ", draining = $4::int <> 0, about = coalesce($5, about)"
                                         " WHERE name = $1 AND epoch = $2 AND lease_until_ms > now_ms()",
                       SQL_VALUES(sql_text(l->node), sql_int(l->epoch), sql_int(lease_ms),
                                  sql_int(state->is_draining), sql_text(state->about)),
                       &renewed, err);
    return rc == 0 && renewed == 0 ? lease_ended(l, err) : rc;
}

void
pg_leave(struct pgsql *p)
{
    struct error unused;

    if (p->link.conn && !p->link.is_lost && p->epoch > 0)
        pg_run(&p->link, "end a lease",
               "UPDATE node SET lease_until_ms = now_ms()"
               " WHERE name = $1 AND epoch = $2 AND lease_until_ms > now_ms()",
               SQL_VALUES(sql_text(p->base.lease.node), sql_int(p->epoch)), NULL, &unused);
}

const char pg_nodes[] = "SELECT name, epoch, lease_until_ms - now_ms(), draining, about,"
                        " (SELECT count(*) FROM job WHERE job.node = node.name AND job.state = 1)"
                        " FROM node WHERE lease_until_ms > now_ms() - " NODE_KEPT_MS " ORDER BY name";

/* Logs when such a transaction is first seen and when it is over. */
static int
watch_holders(struct pgsql *p, char holder[STORE_HOLDER_SIZE], struct error *err)
{
    int rc = pg_find_holder(&p->link, PG_HELD_S, holder, STORE_HOLDER_SIZE, err);

    if (rc < 0)
        return rc;
    if (*holder && !p->is_held)
        log_warn("store", "%s: claims become slow until it ends", holder);
    else if (!*holder && p->is_held)
        log_info("store", "no transaction is open for long any more");
    p->is_held = *holder;
    return 0;
}

static int
reap(struct store_backend *b, struct store_order *o, struct error *err)
{
    struct pg_link *l = &pgsql_of(b)->link;
    int rc = pg_cut_leases(l, err);

    if (rc == 0)
        rc = pg_run(
            l, "take back what dead nodes had claimed",
            "UPDATE job SET state = 0, claim = claim + 1 WHERE id = ANY (ARRAY("
            "SELECT held.id FROM node CROSS JOIN LATERAL (SELECT id FROM job WHERE state = 1"
            " AND job.node = node.name FOR UPDATE SKIP LOCKED) held WHERE lease_until_ms <= now_ms()))",
            SQL_NO_VALUES, NULL, err);
    if (rc == 0)
        rc = pg_run(l, "forget nodes that are gone",
                    "DELETE FROM node WHERE name IN (SELECT name FROM node WHERE lease_until_ms <= now_ms()"
                    " - " NODE_KEPT_MS " AND NOT EXISTS (SELECT FROM job WHERE job.node = node.name"
                    " AND job.state = 1) FOR UPDATE SKIP LOCKED)",
                    SQL_NO_VALUES, NULL, err);
    return rc == 0 ? watch_holders(pgsql_of(b), o->holder, err) : rc;
}

static void
read_claim(const PGresult *rows, int at, struct store_claim *out)
{
    pg_column_name(rows, at, 0, out->id, sizeof(out->id));
    out->number = pg_column_int(rows, at, 1);
    out->attempts = (int)pg_column_int(rows, at, 2);
    out->is_handed_on = pg_column_bool(rows, at, 3);
    out->cancel = (int)pg_column_int(rows, at, 4);
}

/* Whether it is the lease for which nothing could be claimed: ERR_CONFLICT then. */
static int
check_lease(struct pgsql *p, const struct store_lease *l, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&p->link, "look for a lease", LEASE, SQL_VALUES(sql_text(l->node), sql_int(l->epoch)),
                    &row, err);
    return rc == 0 && PQntuples(row) == 0 ? lease_ended(l, err) : rc;
}

/* Whether it is what runs of its client for which it could not be claimed: ERR_FULL then. */
static int
check_room(struct pgsql *p, const char *id, const char *limits, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&p->link, "look for a submission",
                    "SELECT client FROM job WHERE id = $1 AND state = 0 AND together IS NULL"
                    " AND " ROOM("job", "$2") " <= 0",
                    SQL_VALUES(sql_text(id), sql_text(limits)), &row, err);
    return rc == 0 && PQntuples(row) == 1
               ? error_set(err, ERR_FULL, "of the client %s as many run as may", pg_column_text(row, 0, 0))
               : rc;
}

static int
claim(struct store_backend *b, struct store_order *o, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    const struct store_lease *l = &o->lease;
    const struct store_wants *wants = &o->wants;
    const struct store_claim *held = &o->claim;
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(
        &p->link, "claim a submission",
        "WITH " CLAIM("SELECT id, together, " CONTENT " FROM job WHERE NOT (" AWAY ") AND id = $3"
                      " AND (state = 0 OR (state = 1 AND node = $1 AND claim = $4))"
                      " AND (cancel > 0 OR position(" GPU " IN $6) > 0)"
                      " AND ($7::int = 0 OR NOT (handed_on OR gpu IS NOT NULL OR together IS NOT NULL))"
                      " AND (cancel > 0 OR state = 1 OR together IS NOT NULL"
                      " OR coalesce(" ROOM("job", "$8") ", 1) > 0) AND EXISTS (SELECT FROM lease)" LOCKED,
                      "CASE state WHEN 0 THEN attempts ELSE $5 END"),
        SQL_VALUES(sql_text(l->node), sql_int(l->epoch), sql_text(held->id), sql_int(held->number),
                   sql_int(held->attempts), sql_text(wants->gpu), sql_int(wants->is_compiler),
                   sql_text(wants->limits)),
        &row, err);
    o->n = rc == 0 ? (size_t)PQntuples(row) : 0;
    if (o->n == 1)
        read_claim(row, 0, o->got);
    if (rc < 0 || o->n == 1)
        return rc;
    rc = check_lease(p, l, err);
    if (rc == 0 && wants->limits)
        rc = check_room(p, held->id, wants->limits, err);
    return rc < 0 ? rc : change_explain_miss(b, held->id, err);
}

static int
claim_next(struct store_backend *b, struct store_order *o, struct error *err)
{
    static const char any[] = "WITH RECURSIVE " SHARES ", " CLAIM(
        NEXT(FIRST),
        "attempts") " UNION ALL (SELECT NULL, 0, 0, false, 0, client FROM flow WHERE nth = " CLIENTS_MOST
                    " ORDER BY client <= $6, client LIMIT 1)";
    static const char new[] = "WITH " CLAIM(NEXT(FIRST_NEW(MOST)), "attempts");
    struct pgsql *p = pgsql_of(b);
    const struct store_lease *l = &o->lease;
    const struct store_wants *wants = &o->wants;
    AUTO_RESULT PGresult *rows = NULL;
    const struct sql_value values[] = { sql_text(l->node),         sql_int(l->epoch),
                                        sql_int((int64_t)o->most), sql_text(wants->gpu),
                                        sql_text(wants->limits),   sql_text(p->after) };
    pg_defer(&p->link,
             "SET LOCAL plan_cache_mode = force_generic_plan"); /* a plan takes longer than a claim */
    int rc = pg_ask(&p->link, "claim what waits", wants->is_compiler ? new : any, values,
                    wants->is_compiler ? 3 : 6, &rows, err);
    o->n = 0;
    for (int i = 0; rc == 0 && i < PQntuples(rows); i++) {
        if (pg_column_text(rows, i, 0))
            read_claim(rows, i, &o->got[o->n++]);
        else
            pg_column_name(rows, i, 5, p->after, sizeof(p->after));
    }
    if (rc < 0 || o->n > 0)
        return rc;
    rc = check_lease(p, l, err);
    return rc < 0 ? rc : error_set(err, ERR_NOTFOUND, "nothing waits");
}

const char pg_waits_new[] = "SELECT FROM (" FIRST_NEW(ONE) " UNION ALL " FIRST_CANCELLED(ONE) ") w LIMIT 1";
const char pg_waits[] = "WITH RECURSIVE " KINDS " SELECT FROM (" FIRST_CANCELLED(
    ONE) " UNION ALL SELECT f.* FROM kind CROSS"
         " JOIN LATERAL (SELECT id, together, content FROM job WHERE state = 0 AND " OF_KIND
         " AND " FREE BY_FLOW ONE ") f WHERE position(kind.gpu IN $3) > 0) w LIMIT 1";

static int
cancel(struct store_backend *b, struct store_order *o, struct error *err)
{
    const char *id = o->claim.id;
    int64_t changed = 0;
    int rc = pg_run(&pgsql_of(b)->link, "cancel a submission",
                    "UPDATE job SET cancel = CASE cancel WHEN 0 THEN $2 ELSE cancel END WHERE id = $1",
                    SQL_VALUES(sql_text(id), sql_int(o->why)), &changed, err);
    return rc == 0 && changed == 0 ? error_set(err, ERR_NOTFOUND, "%s is finished", id) : rc;
}

/* --- what a node that only compiles hands on --- */

/*
 * The table only saves work, so it is not logged: it is empty after a crash and on a standby that took over. A row is
 * removed with the job's row (a foreign key), also when a daemon of an earlier version removes that.
 */
#define HAND_ON                                                                                          \
    "UPDATE job SET state = 0, node = NULL, attempts = $3, handed_on = true WHERE id = $1 AND state = 1" \
    " AND claim = $2"

int
pg_hand_on(struct store_backend *b, void *what, struct error *err)
{
    const struct store_handing_on *h = what;
    const struct store_claim *c = &h->claim;
    const struct store_carried *carried = &h->carried;
    struct pgsql *p = pgsql_of(b);
    const char *packed = NULL;
    size_t packed_size = 0;
    int64_t changed = 0;
    int rc = 0;

    if (carried->about)
        rc = packer_pack(&b->packer, carried->bytes, carried->size, &packed, &packed_size, err);
    if (rc == 0 && !carried->about)
        rc = pg_run(&p->link, "hand a submission on", HAND_ON,
                    SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts)), &changed, err);
    else if (rc == 0)
        rc = pg_run(&p->link, "hand a submission on",
                    "WITH handed AS (" HAND_ON " RETURNING id)"
                    " INSERT INTO carried (id, about, size, data) SELECT id, $4, $5, $6 FROM handed"
                    " ON CONFLICT (id) DO UPDATE SET about = excluded.about, size = excluded.size,"
                    " data = excluded.data",
                    SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts),
                               sql_text(carried->about), sql_int((int64_t)carried->size),
                               sql_bytes(packed, packed_size)),
                    &changed, err);
    packer_trim(&b->packer);
    if (rc < 0)
        error_prefix(err, "submission %s", c->id);
    return rc < 0 || changed == 1 ? rc : change_explain_miss(b, c->id, err);
}

const struct ownership_ops pg_ownership = {
    .claim = claim, .claim_next = claim_next, .join = join, .reap = reap, .cancel = cancel
};
