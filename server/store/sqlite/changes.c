#include "server/store/sqlite/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
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

/* $1: the node. What is running is claimed again where its release failed: $4 is what that left of its attempts. */
#define CLAIM(which)                                                                                       \
    "UPDATE submission SET state = 1, node = $1, claim = claim + 1, attempts = 1 + CASE state WHEN 0 THEN" \
    " attempts ELSE $4 END WHERE " which " RETURNING id, claim, attempts"

static bool
take_claim(void *arg, struct sql_row *row)
{
    struct store_claim *out = arg;

    row_name(row, 0, out->id, sizeof(out->id));
    out->number = row_int(row, 1);
    out->attempts = (int)row_int(row, 2);
    return true;
}

/* A CLAIM(). A file has one node, whose lease is endless, and which takes all. */
static int
run_claim(struct store_backend *b, const char *sql, struct store_order *o, struct error *err)
{
    return db_each(&sqlite_of(b)->db, "claim a submission", sql,
                   SQL_VALUES(sql_text(o->lease.node), sql_text(o->claim.id), sql_int(o->claim.number),
                              sql_int(o->claim.attempts)),
                   take_claim, o->got, &o->n, err);
}

static int
claim(struct store_backend *b, struct store_order *o, struct error *err)
{
    int rc =
        run_claim(b, CLAIM("id = $2 AND (state = 0 OR (state = 1 AND node = $1 AND claim = $3))"), o, err);
    return rc == 0 && o->n == 0 ? explain_miss(sqlite_of(b), o->claim.id, err) : rc;
}

static int
claim_next(struct store_backend *b, struct store_order *o, struct error *err)
{
    int rc = run_claim(b,
                       CLAIM("id = (SELECT id FROM submission INDEXED BY submission_state"
                             " WHERE state = 0 ORDER BY priority, id LIMIT 1)"),
                       o, err);
    return rc == 0 && o->n == 0 ? error_set(err, ERR_NOTFOUND, "nothing waits") : rc;
}

/* To what the claim says of its attempts. */
static int
note_attempts(struct store_backend *b, const char *sql, const struct store_claim *c, struct error *err)
{
    return move(sqlite_of(b), c->id, sql,
                SQL_VALUES(sql_text(c->id), sql_int(c->number), sql_int(c->attempts)), err);
}

static int
release(struct store_backend *b, struct store_order *o, struct error *err)
{
    return note_attempts(b,
                         "UPDATE submission SET state = 0, node = NULL, attempts = $3"
                         " WHERE id = $1 AND state = 1 AND claim = $2",
                         &o->claim, err);
}

static int
set_attempts(struct store_backend *b, struct store_order *o, struct error *err)
{
    return note_attempts(b, "UPDATE submission SET attempts = $3 WHERE id = $1 AND state = 1 AND claim = $2",
                         &o->claim, err);
}

const struct ownership_ops sqlite_ownership = {
    .claim = claim, .claim_next = claim_next, .release = release, .set_attempts = set_attempts
};

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
