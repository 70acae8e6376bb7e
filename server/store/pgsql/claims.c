#include "server/store/pgsql/claims.h"

#include <stdio.h>

#include "common/log.h"
#include "server/store/pgsql/checks.h"
#include "server/store/pgsql/reading.h"
#include "server/store/reading.h"

/*
 * Theory of operation. The database's clock decides about leases: now_ms() is the time at which a row is looked at, not
 * that at which the transaction began. A claim passes over a row that another node is changing (SKIP LOCKED), so that
 * nodes never wait for each other, nor in a ring; what is locked is chosen once (MATERIALIZED), since a plan may ask a
 * subquery again and would lock, and claim, more than one row. What is running is claimed again by its node where its
 * release failed: it has the attempts that the release said.
 *
 * What waits may be thousands that ask for a GPU which the node does not have, or are one client's. So the flows (GPU that
 * is asked for, '': none; priority; client) are found one after the other in an index that begins with them (job_flow).
 * Next is the flow of whose client the least runs on all nodes, with what this claim makes run. Order and bounds are such
 * that no other index serves, and no row is locked that is not chosen. A node that only compiles finds what was not handed
 * on by another, the oldest first (job_new).
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
 * Such a group is at home with whoever claims of it first (a trigger notes the life, schema.c). Of two at once the second
 * claims nothing; a claim of its own that was not committed yet it sees.
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
#define LOCKED " FOR UPDATE SKIP LOCKED"
#define MOST " LIMIT $3" LOCKED
#define ONE " LIMIT 1"
/* Flows, and their first rows; gpu: a parameter, the name of all GPUs of the node. */
#define GPU "coalesce(gpu, '')"
#define BY_FLOW " ORDER BY " GPU ", priority, client, id"
#define HEAD "SELECT " GPU " AS gpu, priority, client, id FROM job WHERE state = 0"
#define FLOWS(gpu)                                                                                     \
    "flow AS ((" HEAD BY_FLOW ONE ") UNION ALL SELECT next.* FROM flow CROSS JOIN LATERAL (" HEAD      \
    " AND (" GPU ", priority, client) > (flow.gpu, flow.priority, flow.client)" BY_FLOW ONE ") next)," \
    " share AS MATERIALIZED (SELECT flow.*, (SELECT count(*) FROM job WHERE state = 1 AND client = "   \
    "flow.client"                                                                                      \
    ") AS runs FROM flow WHERE position(gpu IN " gpu ") > 0)"
/* n of a flow is its part of the most, where it has as many: what is left then is for the next look. */
#define FIRST(most, lock)                                                                                    \
    "SELECT first.* FROM (SELECT gpu, priority, client, greatest(1, count(*) FILTER (WHERE place <= " most   \
    ")) AS n FROM (SELECT share.*, row_number() OVER (ORDER BY priority, runs + i, id) AS place FROM share," \
    " generate_series(0, " most " - 1) i) p GROUP BY gpu, priority, client, runs, id"                        \
    " ORDER BY priority, runs, id) s CROSS JOIN LATERAL (SELECT id, together FROM job WHERE state = 0"       \
    " AND (" GPU ", priority, client) >= (s.gpu, s.priority, s.client)"                                      \
    " AND (" GPU ", priority, client) <= (s.gpu, s.priority, s.client) AND NOT (" AWAY ")" BY_FLOW           \
    " LIMIT s.n" lock ") first"
/* The same for a node that only compiles; and of what is to be cancelled: whoever takes that does so, at home or not. */
#define FIRST_NEW(limit)                                                                                \
    "SELECT new.* FROM (SELECT id, together FROM job WHERE state = 0 AND NOT handed_on AND gpu IS NULL" \
    " AND together IS NULL ORDER BY priority, id" limit ") new"
#define FIRST_CANCELLED(limit)                                                                           \
    "SELECT ended.* FROM (SELECT id, NULL AS together FROM job WHERE state = 0 AND cancel > 0 ORDER BY " \
    "id" limit ") ended"
/* which: rows of job that are locked. */
#define CLAIM(which, attempts)                                                                        \
    "lease AS MATERIALIZED (" LEASE "), chosen AS MATERIALIZED (" which "), " HOME                    \
    " UPDATE job SET state = 1, node = $1, claim = claim + 1, attempts = 1 + " attempts               \
    " WHERE id = ANY (ARRAY(SELECT id FROM chosen WHERE " AT_HOME ")) AND EXISTS (SELECT FROM lease)" \
    " RETURNING id, claim, attempts, handed_on, cancel"
#define NEXT(first) "SELECT * FROM (" FIRST_CANCELLED(MOST) " UNION ALL " first ") waits LIMIT $3"

#define NODE_KEPT_MS "86400000" /* after its lease has ended */

/* ?: an end that is never passed, or one from now on. */
#define LEASE_END(ms) "CASE WHEN " ms " = 9223372036854775807 THEN " ms " ELSE now_ms() + " ms " END"
_Static_assert(STORE_LEASE_ENDLESS == 9223372036854775807, "the number in LEASE_END");

int
pg_join(struct store_backend *b, const char *node, int64_t lease_ms, struct store_lease *out,
        struct error *err)
{
    struct pg_link *l = &pgsql_of(b)->link;
    AUTO_RESULT PGresult *row = NULL;
    /*
     * Not while another daemon lives under the name; an endless lease is waited for by nobody. A row that was forgotten
     * begins beyond the epochs that it had: by the clock.
     */
    int rc =
        pg_ask(l, "take a lease",
               "INSERT INTO node (name, epoch, lease_until_ms) VALUES ($1, now_ms(), " LEASE_END(
                   "$2::bigint") ") ON CONFLICT (name) DO UPDATE SET epoch = node.epoch + 1,"
                                 " lease_until_ms = excluded.lease_until_ms WHERE $2 = 9223372036854775807"
                                 " OR node.lease_until_ms <= now_ms() OR node.epoch = $3 RETURNING epoch",
               SQL_VALUES(sql_text(node), sql_int(lease_ms), sql_int(pgsql_of(b)->epoch)), &row, err);
    if (rc < 0)
        return rc;
    if (PQntuples(row) == 0)
        return pg_name_is_taken(node, err);
    out->epoch = pgsql_of(b)->epoch = pg_column_int(row, 0, 0);
    snprintf(out->node, sizeof(out->node), "%s", node);
    /* Whose node stays in the row of one that waits: it was lost there. */
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
               SQL_VALUES(sql_text(p->lease.node), sql_int(p->epoch)), NULL, &unused);
}

static bool
give_node(void *arg, struct sql_row *row)
{
    const struct call *call = arg;
    const struct node_row view = { .name = row_word(row, 0),
                                   .epoch = row_int(row, 1),
                                   .lease_left_ms = row_int(row, 2),
                                   .is_draining = row_bool(row, 3),
                                   .about = row_text(row, 4),
                                   .claimed = row_int(row, 5) };

    ((store_node_cb *)call->cb)(call->arg, &view);
    return true;
}

int
pg_each_node(struct store_reader *r, store_node_cb *row_cb, void *arg, struct error *err)
{
    return pg_read_each(r, "read the nodes",
                        "SELECT name, epoch, lease_until_ms - now_ms(), draining, about,"
                        " (SELECT count(*) FROM job WHERE job.node = node.name AND job.state = 1)"
                        " FROM node WHERE lease_until_ms > now_ms() - " NODE_KEPT_MS " ORDER BY name",
                        SQL_NO_VALUES, give_node, CALL(row_cb, arg), NULL, err);
}

/* Told when it begins and when it is over. */
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

int
pg_reap(struct store_backend *b, char holder[STORE_HOLDER_SIZE], struct error *err)
{
    struct pg_link *l = &pgsql_of(b)->link;
    int rc =
        pg_run(l, "take back what dead nodes had claimed",
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
    return rc == 0 ? watch_holders(pgsql_of(b), holder, err) : rc;
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

int
pg_explain_miss(struct pgsql *p, const char *id, struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(&p->link, "look for a submission",
                    "SELECT coalesce(job.state, submission.state) FROM submission LEFT JOIN job USING (id)"
                    " WHERE id = $1",
                    SQL_VALUES(sql_text(id)), &row, err);
    if (rc < 0)
        return rc;
    if (PQntuples(row) == 0)
        return error_set(err, ERR_NOTFOUND, "no submission %s", id);
    return error_set(err, ERR_CONFLICT, "submission %s is %s", id,
                     submission_state_name((enum submission_state)pg_column_int(row, 0, 0)));
}

int
pg_claim(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
         const struct store_claim *held, struct store_claim *out, struct error *err)
{
    struct pgsql *p = pgsql_of(b);
    AUTO_RESULT PGresult *row = NULL;
    int rc = pg_ask(
        &p->link, "claim a submission",
        "WITH " CLAIM("SELECT id, together FROM job WHERE NOT (" AWAY ") AND id = $3"
                      " AND (state = 0 OR (state = 1 AND node = $1 AND claim = $4))"
                      " AND (cancel > 0 OR position(" GPU " IN $6) > 0)"
                      " AND ($7::int = 0 OR NOT (handed_on OR gpu IS NOT NULL OR together IS NOT NULL))"
                      " AND EXISTS (SELECT FROM lease)" LOCKED,
                      "CASE state WHEN 0 THEN attempts ELSE $5 END"),
        SQL_VALUES(sql_text(l->node), sql_int(l->epoch), sql_text(held->id), sql_int(held->number),
                   sql_int(held->attempts), sql_text(wants->gpu), sql_int(wants->is_compiler)),
        &row, err);
    if (rc == 0 && PQntuples(row) == 1)
        read_claim(row, 0, out);
    if (rc < 0 || PQntuples(row) == 1)
        return rc;
    rc = check_lease(p, l, err);
    return rc < 0 ? rc : pg_explain_miss(p, held->id, err);
}

int
pg_claim_next(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
              size_t most, struct store_claim *out, size_t *n, struct error *err)
{
    static const char any[] = "WITH RECURSIVE " FLOWS("$4") ", " CLAIM(NEXT(FIRST("$3", LOCKED)), "attempts");
    static const char new[] = "WITH " CLAIM(NEXT(FIRST_NEW(MOST)), "attempts");
    struct pgsql *p = pgsql_of(b);
    AUTO_RESULT PGresult *rows = NULL;
    const struct sql_value values[] = { sql_text(l->node), sql_int(l->epoch), sql_int((int64_t)most),
                                        sql_text(wants->gpu) };
    pg_defer(&p->link,
             "SET LOCAL plan_cache_mode = force_generic_plan"); /* a plan takes longer than a claim */
    int rc = pg_ask(&p->link, "claim what waits", wants->is_compiler ? new : any, values,
                    wants->is_compiler ? 3 : 4, &rows, err);
    *n = rc == 0 ? (size_t)PQntuples(rows) : 0;
    for (size_t i = 0; i < *n; i++)
        read_claim(rows, (int)i, &out[i]);
    if (rc < 0 || *n > 0)
        return rc;
    rc = check_lease(p, l, err);
    return rc < 0 ? rc : error_set(err, ERR_NOTFOUND, "nothing waits");
}

int
pg_waits(struct store_reader *r, const struct store_lease *l, const struct store_wants *wants, bool *out,
         struct error *err)
{
    AUTO_RESULT PGresult *row = NULL;
    const struct sql_value values[] = { sql_text(l->node), sql_int(l->epoch), sql_text(wants->gpu) };
    int rc = pg_read(r, "look for what waits",
                     wants->is_compiler
                         ? "SELECT FROM (" FIRST_NEW(ONE) " UNION ALL " FIRST_CANCELLED(ONE) ") waits LIMIT 1"
                         : "WITH RECURSIVE " FLOWS("$3") " SELECT FROM (" FIRST_CANCELLED(
                               ONE) " UNION ALL " FIRST("1", "") ") waits LIMIT 1",
                     values, wants->is_compiler ? 0 : 3, &row, err);

    *out = rc == 0 && PQntuples(row) == 1;
    return rc;
}

static int
note_attempts(struct pgsql *p, const char *sql, const struct store_claim *c, struct error *err)
{
    int64_t changed = 0;
    int rc = pg_run(&p->link, "change a submission", sql,
                    SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts)), &changed, err);
    if (rc < 0)
        error_prefix(err, "submission %s", c->id);
    return rc < 0 || changed == 1 ? rc : pg_explain_miss(p, c->id, err);
}

int
pg_cancel(struct store_backend *b, const char *id, int why, struct error *err)
{
    int64_t changed = 0;
    int rc = pg_run(&pgsql_of(b)->link, "cancel a submission",
                    "UPDATE job SET cancel = CASE cancel WHEN 0 THEN $2 ELSE cancel END WHERE id = $1",
                    SQL_VALUES(sql_text(id), sql_int(why)), &changed, err);
    return rc == 0 && changed == 0 ? error_set(err, ERR_NOTFOUND, "%s is finished", id) : rc;
}

static bool
give_cancel(void *arg, struct sql_row *row)
{
    const struct call *call = arg;

    ((store_cancel_cb *)call->cb)(call->arg, row_word(row, 0), (int)row_int(row, 1));
    return true;
}

int
pg_each_cancel(struct store_reader *r, const char *node, int limit, store_cancel_cb *row_cb, void *arg,
               struct error *err)
{
    return pg_read_each(r, "look for what is to be cancelled",
                        "SELECT id, cancel FROM job WHERE cancel > 0 AND (state = 0 OR node = $1)"
                        " ORDER BY state DESC, id"
                        " LIMIT $2",
                        SQL_VALUES(sql_text(node), sql_int(limit)), give_cancel, CALL(row_cb, arg), NULL,
                        err);
}

int
pg_release(struct store_backend *b, const struct store_claim *c, struct error *err)
{
    return note_attempts(pgsql_of(b),
                         "UPDATE job SET state = 0, node = NULL, attempts = $3"
                         " WHERE id = $1 AND state = 1 AND claim = $2",
                         c, err);
}

int
pg_set_attempts(struct store_backend *b, const struct store_claim *c, struct error *err)
{
    return note_attempts(pgsql_of(b),
                         "UPDATE job SET attempts = $3 WHERE id = $1 AND state = 1 AND claim = $2", c, err);
}
