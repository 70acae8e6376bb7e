#include "server/store/sqlite/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "server/store/sqlite/schema.h"
#include "server/store/sqlite/sqlite.h"

#define NODE "this"  /* a file has one node at a time: it needs no name */
#define BUSY_MS 5000 /* how long the writer waits for a person's sqlite3 shell */

/* SQLite would make it readable by all; it holds secret seeds and people's code. */
static int
create_file(const char *path, struct error *err)
{
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        return errno == EEXIST ? 0 : error_set(err, ERR_SYS, "create %s", path);
    close(fd);
    return 0;
}

static int
refuse_second(int fd, const char *lock_path, const char *path, struct error *err)
{
    char holder[32] = "";
    ssize_t n = pread(fd, holder, sizeof(holder) - 1, 0);

    holder[n > 0 ? strcspn(holder, "\n") : 0] = '\0';
    return error_set(err, ERR_STORE, "%s is in use by another verifierd%s%s (it holds %s)", path,
                     holder[0] != '\0' ? ", process " : "", holder, lock_path);
}

/*
 * One daemon for each store. The lock is on another file: closing any
 * descriptor of the database itself would release SQLite's own locks.
 */
static int
take_lock(struct sqlite *s, const char *path, struct error *err)
{
    AUTO_FREE char *lock_path = NULL;
    AUTO_FD int fd = -1;

    if (asprintf(&lock_path, "%s.lock", path) < 0)
        return error_set(err, ERR_NOMEM, "no memory to lock %s", path);
    fd = open(lock_path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, ERR_SYS, "open %s", lock_path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return refuse_second(fd, lock_path, path, err);
        return error_set(err, ERR_SYS, "lock %s", lock_path);
    }
    if (ftruncate(fd, 0) < 0 || dprintf(fd, "%ld\n", (long)getpid()) < 0)
        return error_set(err, ERR_SYS, "write %s", lock_path);
    s->lock_fd = fd_take(&fd);
    return 0;
}

static int
use_wal(sqlite3 *db, struct error *err)
{
    sqlite3_stmt *stmt;
    int rc = db_prepare(db, "PRAGMA journal_mode = WAL", &stmt, err);

    if (rc < 0)
        return rc;
    if (sqlite3_step(stmt) != SQLITE_ROW)
        rc = db_fail(db, err, "set the journal mode");
    else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") != 0)
        rc = error_set(err, ERR_STORE, "the file system does not support a write-ahead log");
    sqlite3_finalize(stmt);
    return rc;
}

static int
set_up_writing(sqlite3 *db, struct error *err)
{
    int rc;

    rc = use_wal(db, err);
    if (rc < 0)
        return rc;
    return db_exec(db,
                   "PRAGMA synchronous = FULL;"
                   "PRAGMA secure_delete = FAST;"
                   "PRAGMA journal_size_limit = 67108864;"
                   "PRAGMA wal_autocheckpoint = 1000;"
                   "PRAGMA temp_store = MEMORY;",
                   err);
}

/*
 * path: as given, for errors; the file that is locked and read is the one that SQLite resolves it to (links followed).
 */
static int
open_files(struct sqlite *s, const char *path, struct error *err)
{
    const struct schema_step *steps;
    const char *file;
    size_t n;
    int rc = create_file(path, err);

    if (rc < 0)
        return rc;
    if (sqlite3_open_v2(path, &s->db.handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return db_fail(s->db.handle, err, path);
    sqlite3_extended_result_codes(s->db.handle, 1);
    sqlite3_busy_timeout(s->db.handle, BUSY_MS);
    file = s->base.name = sqlite3_db_filename(s->db.handle, "main");
    rc = take_lock(s, file, err);
    if (rc < 0)
        return rc;
    if (asprintf(&s->wal_path, "%s-wal", file) < 0)
        return error_set(err, ERR_NOMEM, "no memory to open %s", path);
    /* Before the first table: so that a sweep can give room back while the daemon runs. A file that has tables stays as it is. */
    rc = db_exec(s->db.handle, "PRAGMA auto_vacuum = INCREMENTAL", err);
    steps = schema_steps(&n);
    if (rc == 0)
        rc = schema_migrate(s->db.handle, steps, n, err);
    if (rc == 0)
        rc = set_up_writing(s->db.handle, err);
    if (rc == 0)
        rc = packer_init(&s->base.packer, err);
    if (rc < 0)
        error_prefix(err, "%s", path);
    return rc;
}

static bool
is_open(const struct store_backend *base)
{
    return !sqlite3_get_autocommit(sqlite_of(base)->db.handle);
}

static bool
take_epoch(void *arg, struct sql_row *row)
{
    ((struct sqlite *)arg)->base.lease.epoch = row_int(row, 0);
    return true;
}

/*
 * The lock is held, so no other daemon runs, and no claim has an owner any more. (The node stays in the row of a
 * waiting submission: it shows where it was lost.)
 */
static int
take_over(struct sqlite *s, struct error *err)
{
    strcpy(s->base.lease.node, NODE);
    int rc = db_exec(s->db.handle,
                     "BEGIN IMMEDIATE; DELETE FROM node WHERE name <> '" NODE "';"
                     "UPDATE submission SET state = 0, claim = claim + 1 WHERE state = 1",
                     err);
    if (rc == 0)
        rc = db_each(&s->db, "take a lease",
                     "INSERT INTO node (name, epoch, lease_until_ms) VALUES ('" NODE "', 1, $1)"
                     " ON CONFLICT DO UPDATE SET epoch = epoch + 1, lease_until_ms = $1 RETURNING epoch",
                     SQL_VALUES(sql_int(STORE_LEASE_ENDLESS)), take_epoch, s, NULL, err);
    if (rc == 0)
        rc = db_exec(s->db.handle, "COMMIT", err);
    if (rc < 0 && is_open(&s->base))
        db_exec(s->db.handle, "ROLLBACK", NULL);
    return rc;
}

static void
close_all(struct store_backend *base)
{
    struct sqlite *s = sqlite_of(base);

    packer_release(&s->base.packer);
    db_close(&s->db); /* after the readers: the last one to close checkpoints */
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    free(s->wal_path);
    free(s);
}

static int
new_reader(struct store_backend *base, struct store_reader **out, struct error *err)
{
    return sqlite_reader_new(base->name, out, err);
}

static int64_t
log_bytes(const struct store_backend *base)
{
    struct stat status;
    return stat(sqlite_of(base)->wal_path, &status) == 0 ? status.st_size : 0;
}

/* --- transactions --- */

/* Where the file has another name or none, what is written would be gone with the next start. */
static int
begin(struct store_backend *base, struct error *err)
{
    sqlite3 *db = sqlite_of(base)->db.handle;
    int has_moved = 0;

    sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
    if (has_moved)
        return error_set(err, ERR_STORE,
                         "the file was moved, removed or replaced: put it back, or stop the daemon");
    return db_exec(db, "BEGIN IMMEDIATE", err);
}

static int
commit(struct store_backend *base, struct error *err)
{
    return db_exec(sqlite_of(base)->db.handle, "COMMIT", err);
}

static void
rollback(struct store_backend *base)
{
    db_exec(sqlite_of(base)->db.handle, "ROLLBACK", NULL);
}

static int
save(struct store_backend *base, struct error *err)
{
    return db_exec(sqlite_of(base)->db.handle, "SAVEPOINT one", err);
}

static int
keep(struct store_backend *base, struct error *err)
{
    return db_exec(sqlite_of(base)->db.handle, "RELEASE one", err);
}

static void
undo(struct store_backend *base)
{
    db_exec(sqlite_of(base)->db.handle, "ROLLBACK TO one; RELEASE one", NULL);
}

/* --- parts of writes --- */

static int
each(struct store_backend *base, const char *what, const char *sql, const struct sql_value *values,
     size_t nvalues, sql_row_cb *row_cb, void *arg, int64_t *changed, struct error *err)
{
    struct db *db = &sqlite_of(base)->db;
    return row_cb ? db_each(db, what, sql, values, nvalues, row_cb, arg, NULL, err)
                  : db_change(db, what, sql, values, nvalues, changed, err);
}

/* A trigger removes the task's counts. */
static int
drop_task(struct store_backend *base, const char *id, struct error *err)
{
    return db_change(&sqlite_of(base)->db, "remove a task", "DELETE FROM task WHERE id = $1",
                     SQL_VALUES(sql_text(id)), NULL, err);
}

/* Gives room back to the file system. It is over when there is none, or when the file is of the kind that keeps it. */
static int
vacuum(struct store_backend *base, struct store_sweep *step, struct error *err)
{
    sqlite3 *db = sqlite_of(base)->db.handle;
    int64_t before = 0, after = 0;
    int rc = db_integer(db, "PRAGMA freelist_count", &before, err);

    if (rc == 0)
        rc = db_exec(db, "PRAGMA incremental_vacuum(256)", err);
    if (rc == 0)
        rc = db_integer(db, "PRAGMA freelist_count", &after, err);
    step->pages += before - after;
    step->is_over = after == 0 || after == before;
    return rc;
}

static const struct sql_changes dialect = {
    .lock_task = "SELECT 1 FROM task WHERE id = $1",
    .task_in_use = "SELECT 1 FROM submission INDEXED BY submission_state"
                   " WHERE state IN (0, 1) AND task_id = $1 LIMIT 1",
    .forget_keys = "DELETE FROM idempotency WHERE created_ms <= $1",
    .find_blob = "SELECT 1 FROM blob WHERE hash = $1",
    .jobs = "submission",
    .state_of = "SELECT state FROM submission WHERE id = $1",
    .finish =
        "UPDATE submission SET state = $3, stage = $4, class = $5, reward = $6, verdict = $7,"
        " finished_ms = $8, log_hash = $9, cache_key = $10, device_ms = $11, cached_from = $12, brief = $13"
        " WHERE id = $1 AND state IN (0, 1) AND claim = $2"
        " RETURNING task_id, client, run, coalesce(step, -1)",
    .failures = "failure",
    .node_column = "",
    .node_value = "",
    .of_node = "",
    .in_set = "IN (SELECT value FROM json_each($1))",
    .sweep_batch = 32, /* one writer: a larger batch would delay other writes noticeably */
    .names_indices = true,
};

static const struct backend_ops sqlite_ops = {
    .reader_new = new_reader,
    .close = close_all,
    .log_bytes = log_bytes,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .save = save,
    .keep = keep,
    .undo = undo,
    .is_open = is_open,
    .probe = changes_probe,
    .each = each,
    .dialect = &dialect,
    .drop_task = drop_task,
    .vacuum = vacuum,
    .owns = &sqlite_ownership,
};

static int
check_name(const char *path, struct error *err)
{
    if (*path && strcmp(path, ":memory:") != 0)
        return 0;
    return error_set(err, ERR_INPUT, "the store must be a file, not \"%s\"", path);
}

int
sqlite_open(const char *path, struct store_backend **out, struct error *err)
{
    int rc = check_name(path, err);

    *out = NULL;
    if (rc < 0)
        return rc;
    struct sqlite *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, ERR_NOMEM, "no memory to open %s", path);
    s->base.ops = &sqlite_ops;
    s->lock_fd = -1;
    rc = open_files(s, path, err);
    if (rc == 0) {
        rc = take_over(s, err);
        if (rc < 0)
            error_prefix(err, "%s", path);
    }
    if (rc < 0) {
        close_all(&s->base);
        return rc;
    }
    *out = &s->base;
    return 0;
}

/* Opened to write, so that SQLite's two other files go again with the last that has it open. */
static int
look(const char *path, struct store_schema *out, struct error *err)
{
    sqlite3 *db = NULL;
    size_t n;
    int rc = 0;

    schema_steps(&n);
    *out = (struct store_schema){ .known = (int64_t)n };
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return 0;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        rc = db_fail(db, err, "open it");
    else
        sqlite3_busy_timeout(db, BUSY_MS);
    if (rc == 0)
        rc = schema_look(db, n, &out->version, err);
    if (rc < 0)
        error_prefix(err, "%s", path);
    sqlite3_close(db);
    return rc;
}

int
sqlite_migrate(const char *path, bool only_look, struct store_schema *out, struct error *err)
{
    struct store_backend *opened = NULL;
    int rc = check_name(path, err);

    if (rc == 0)
        rc = look(path, out, err);
    if (rc == 0 && !only_look)
        rc = sqlite_open(path, &opened, err);
    if (opened)
        close_all(opened);
    return rc;
}
