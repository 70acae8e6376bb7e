#include "server/store/sqlite/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/brief.h"
#include "server/store/sqlite/blob.h"
#include "server/store/sqlite/sqlite.h"
#include "server/store/sqlite/sums.h"

/* --- room --- */

enum { PROBE_BYTES = 256 * 1024 };

/* The file is gone again at once: what a disk or a quota has no room for fails here, and leaves nothing. */
static int
find_room(const char *beside, struct error *err)
{
    AUTO_FREE char *path = NULL;
    AUTO_FD int fd = -1;

    if (asprintf(&path, "%s-room.XXXXXX", beside) < 0) {
        path = NULL;
        return error_set(err, ERR_NOMEM, "no memory to look for room");
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_STORE, "make a file beside it: %s", strerror(errno));
    unlink(path);
    int rc = posix_fallocate(fd, 0, PROBE_BYTES);
    return rc == 0 ? 0 : error_set(err, ERR_STORE, "find room for %d bytes: %s", PROBE_BYTES, strerror(rc));
}

/* Its version is what it was; the page it stands on is written. */
static int
touch_database(sqlite3 *db, struct error *err)
{
    char sql[64];
    int64_t version = 0;
    int rc = db_integer(db, "PRAGMA user_version", &version, err);

    snprintf(sql, sizeof(sql), "PRAGMA user_version = %lld", (long long)version);
    return rc < 0 ? rc : db_exec(db, sql, err);
}

int
changes_probe(struct store_backend *b, bool touch, struct error *err)
{
    sqlite3 *db = sqlite_of(b)->db.handle;
    int rc = find_room(sqlite3_db_filename(db, "main"), err);
    return rc == 0 && touch ? touch_database(db, err) : rc;
}

/* --- moves of a submission. One that has ended stays as it is: only queued (0) and running (1) ones are changed --- */

/* Why an UPDATE met no row. */
static int
explain_miss(struct sqlite *s, const char *id, struct error *err)
{
    char state[16];
    int rc = db_ask(&s->db, "look for a submission", "SELECT state FROM submission WHERE id = $1",
                    SQL_VALUES(sql_text(id)), state, sizeof(state), err);

    if (rc == 1)
        return error_set(err, ERR_CONFLICT, "submission %s is %s", id,
                         submission_state_name((enum submission_state)atoi(state)));
    return rc < 0 ? rc : error_set(err, ERR_NOTFOUND, "no submission %s", id);
}

/* An UPDATE of one submission. */
static int
move(struct sqlite *s, const char *id, const char *sql, const struct sql_value *values, size_t n,
     struct error *err)
{
    int64_t changed = 0;
    int rc = db_change(&s->db, "change a submission", sql, values, n, &changed, err);

    if (rc < 0) {
        error_prefix(err, "submission %s", id);
        return rc;
    }
    return changed == 1 ? 0 : explain_miss(s, id, err);
}

static int64_t
lease_end(int64_t lease_ms)
{
    return lease_ms == STORE_LEASE_ENDLESS ? lease_ms : clock_wall_ms() + lease_ms;
}

static bool
take_epoch(void *arg, struct sql_row *row)
{
    *(int64_t *)arg = row_int(row, 0);
    return true;
}

int
changes_join(struct store_backend *b, const char *node, int64_t lease_ms, struct store_lease *out,
             struct error *err)
{
    struct db *db = &sqlite_of(b)->db;
    int rc =
        db_each(db, "take a lease",
                "INSERT INTO node (name, epoch, lease_until_ms) VALUES ($1, 1, $2)"
                " ON CONFLICT DO UPDATE SET epoch = epoch + 1, lease_until_ms = $2 RETURNING epoch",
                SQL_VALUES(sql_text(node), sql_int(lease_end(lease_ms))), take_epoch, &out->epoch, NULL, err);

    if (rc < 0)
        return rc;
    snprintf(out->node, sizeof(out->node), "%s", node);
    /* Whose node stays in the row of one that waits: it was lost there. */
    return db_change(db, "take back what a node had claimed",
                     "UPDATE submission SET state = 0, claim = claim + 1 WHERE state = 1 AND node = $1",
                     SQL_VALUES(sql_text(node)), NULL, err);
}

static int
lease_ended(const struct store_lease *l, struct error *err)
{
    return error_set(err, ERR_CONFLICT, "the lease of node %s has ended", l->node);
}

int
changes_renew(struct store_backend *b, const struct store_lease *l, int64_t lease_ms,
              const struct store_node_state *state, struct error *err)
{
    int64_t renewed = 0;

    (void)state; /* no other daemon looks */
    int rc = db_change(
        &sqlite_of(b)->db, "renew a lease",
        "UPDATE node SET lease_until_ms = $3 WHERE name = $1 AND epoch = $2 AND lease_until_ms > $4",
        SQL_VALUES(sql_text(l->node), sql_int(l->epoch), sql_int(lease_end(lease_ms)),
                   sql_int(clock_wall_ms())),
        &renewed, err);
    return rc == 0 && renewed == 0 ? lease_ended(l, err) : rc;
}

int
changes_reap(struct store_backend *b, char holder[STORE_HOLDER_SIZE], struct error *err)
{
    holder[0] = '\0';
    return db_change(&sqlite_of(b)->db, "take back what dead nodes had claimed",
                     "UPDATE submission SET state = 0, claim = claim + 1 WHERE state = 1"
                     " AND node NOT IN (SELECT name FROM node WHERE lease_until_ms > $1)",
                     SQL_VALUES(sql_int(clock_wall_ms())), NULL, err);
}

/* $1 to $3: the node, its epoch, now */
#define LEASE "SELECT 1 FROM node WHERE name = $1 AND epoch = $2 AND lease_until_ms > $3"
/* What is running is claimed again where its release failed: $6 is what that left of its attempts. */
#define CLAIM(which)                                                                                       \
    "UPDATE submission SET state = 1, node = $1, claim = claim + 1, attempts = 1 + CASE state WHEN 0 THEN" \
    " attempts ELSE $6 END WHERE " which " AND EXISTS (" LEASE ") RETURNING id, claim, attempts"

static bool
take_claim(void *arg, struct sql_row *row)
{
    struct store_claim *out = arg;

    row_name(row, 0, out->id, sizeof(out->id));
    out->number = row_int(row, 1);
    out->attempts = (int)row_int(row, 2);
    return true;
}

/* A CLAIM(); 1: it met no row. */
static int
claim(struct sqlite *s, const char *sql, const struct store_lease *l, const struct store_claim *held,
      struct store_claim *out, struct error *err)
{
    struct sql_value now = sql_int(clock_wall_ms());
    size_t n = 0;
    int rc = db_each(&s->db, "claim a submission", sql,
                     SQL_VALUES(sql_text(l->node), sql_int(l->epoch), now, sql_text(held->id),
                                sql_int(held->number), sql_int(held->attempts)),
                     take_claim, out, &n, err);

    if (rc < 0 || n > 0)
        return rc;
    rc = db_ask(&s->db, "look for a lease", LEASE, SQL_VALUES(sql_text(l->node), sql_int(l->epoch), now),
                NULL, 0, err);
    return rc == 0 ? lease_ended(l, err) : rc;
}

int
changes_claim(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
              const struct store_claim *held, struct store_claim *out, struct error *err)
{
    struct sqlite *s = sqlite_of(b);

    (void)wants; /* a file has one node, which takes all */
    int rc = claim(s, CLAIM("id = $4 AND (state = 0 OR (state = 1 AND node = $1 AND claim = $5))"), l, held,
                   out, err);
    return rc == 1 ? explain_miss(s, held->id, err) : rc;
}

int
changes_claim_next(struct store_backend *b, const struct store_lease *l, const struct store_wants *wants,
                   size_t most, struct store_claim *out, size_t *n, struct error *err)
{
    const struct store_claim none = { .id = "" };

    (void)wants, (void)most;
    int rc = claim(sqlite_of(b),
                   CLAIM("id = (SELECT id FROM submission INDEXED BY submission_state"
                         " WHERE state = 0 ORDER BY priority, id LIMIT 1)"),
                   l, &none, out, err);
    *n = rc == 0;
    return rc == 1 ? error_set(err, ERR_NOTFOUND, "nothing waits") : rc;
}

int
changes_release(struct store_backend *b, const struct store_claim *c, struct error *err)
{
    return move(sqlite_of(b), c->id,
                "UPDATE submission SET state = 0, node = NULL, attempts = $3"
                " WHERE id = $1 AND state = 1 AND claim = $2",
                SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts)), err);
}

int
changes_set_attempts(struct store_backend *b, const struct store_claim *c, struct error *err)
{
    return move(sqlite_of(b), c->id,
                "UPDATE submission SET attempts = $3 WHERE id = $1 AND state = 1 AND claim = $2",
                SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts)), err);
}

int
changes_finish(struct store_backend *b, const struct submission_row *row, const char *log, size_t log_size,
               struct error *err)
{
    struct sqlite *s = sqlite_of(b);
    AUTO_JSON json_t *verdict = verdict_read(row->verdict);
    AUTO_FREE char *brief = verdict ? brief_text(verdict) : NULL;
    char log_hash[HASH_TEXT_SIZE] = "";
    int rc = 0;

    if (log_size > 0) {
        hash_text(log, log_size, log_hash);
        rc = blob_put(s, log_hash, log, log_size, err);
    }
    if (rc < 0)
        return rc;
    rc = move(s, row->id,
              "UPDATE submission SET state = $2, stage = $3, class = $4, reward = $5, verdict = $6, "
              "finished_ms = $7,"
              " log_hash = $8, cache_key = $9, device_ms = $10, cached_from = $11, brief = $12"
              " WHERE id = $1 AND state IN (0, 1) AND claim = $13",
              SQL_VALUES(sql_text(row->id), sql_int(row->state), sql_text(row->stage), sql_text(row->class_),
                         sql_real(row->reward), sql_text(row->verdict), sql_int(row->finished_ms),
                         sql_name(log_hash), sql_name(row->cache_key), sql_int(row->device_ms),
                         sql_text(json_string_value(json_object_get(verdict, "cached_from"))),
                         sql_text(brief), sql_int(row->claim)),
              err);
    return rc == 0 && row->state == SUBMISSION_DONE ? sums_add(s, row, err) : rc;
}
