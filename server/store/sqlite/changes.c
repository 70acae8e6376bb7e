#include "server/store/sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "server/store/changes.h"

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
changes_probe(struct store_backend *b, void *what, struct error *err)
{
    const bool touch = *(const bool *)what;
    sqlite3 *db = sqlite_of(b)->db.handle;
    int rc = find_room(sqlite3_db_filename(db, "main"), err);
    return rc == 0 && touch ? touch_database(db, err) : rc;
}

/* --- claims --- */

/* $1: the node. A running submission is claimed again if its release failed: $4 is the attempts of that release. */
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

/* A CLAIM(). A file has one node, with an endless lease, which claims everything. */
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
    return rc == 0 && o->n == 0 ? change_explain_miss(b, o->claim.id, err) : rc;
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

const struct ownership_ops sqlite_ownership = { .claim = claim, .claim_next = claim_next };
