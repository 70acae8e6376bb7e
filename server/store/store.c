#include "server/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "server/store/db.h"
#include "server/store/private.h"
#include "server/store/reader.h"
#include "server/store/schema.h"
#include "server/store/writer.h"
#include "server/store/writes.h"

#define BUSY_MS 5000 /* how long the writer waits for a person's sqlite3 shell */

static char *
path_with(const char *path, const char *suffix)
{
    size_t size = strlen(path) + strlen(suffix) + 1;
    char *out = malloc(size);

    if (out)
        snprintf(out, size, "%s%s", path, suffix);
    return out;
}

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
 * One daemon for each store. The lock is on a file beside it: closing any
 * descriptor of the database itself would drop SQLite's own locks.
 */
static int
take_lock(struct store *s, const char *path, struct error *err)
{
    AUTO_FREE char *lock_path = path_with(path, ".lock");
    AUTO_FD int fd = -1;

    if (!lock_path)
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

/* path as it was given, for errors; what SQLite makes of it (links followed) is what is locked and read. */
static int
open_files(struct store *s, const char *path, struct error *err)
{
    const struct schema_step *steps;
    const char *file;
    size_t n;
    int rc = create_file(path, err);

    if (rc < 0)
        return rc;
    if (sqlite3_open_v2(path, &s->write_db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return db_fail(s->write_db, err, path);
    sqlite3_extended_result_codes(s->write_db, 1);
    sqlite3_busy_timeout(s->write_db, BUSY_MS);
    file = sqlite3_db_filename(s->write_db, "main");
    rc = take_lock(s, file, err);
    if (rc < 0)
        return rc;
    s->wal_path = path_with(file, "-wal");
    if (!s->wal_path)
        return error_set(err, ERR_NOMEM, "no memory to open %s", path);
    /* Before the first table: so that a sweep can give room back while the daemon runs. A file that has tables stays as it is. */
    rc = db_exec(s->write_db, "PRAGMA auto_vacuum = INCREMENTAL", err);
    steps = schema_steps(&n);
    if (rc == 0)
        rc = schema_migrate(s->write_db, steps, n, err);
    if (rc == 0)
        rc = set_up_writing(s->write_db, err);
    if (rc == 0)
        rc = write_kit_new(s->write_db, &s->kit, err);
    if (rc == 0)
        rc = reader_new(file, &s->reader, err);
    if (rc < 0)
        error_prefix(err, "%s", path);
    return rc;
}

int
store_open(uv_loop_t *loop, const char *path, size_t writer_limit, struct store **out, struct error *err)
{
    struct store *s;
    int rc;

    *out = NULL;
    if (path[0] == '\0' || strcmp(path, ":memory:") == 0)
        return error_set(err, ERR_INPUT, "the store must be a file, not \"%s\"", path);
    s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, ERR_NOMEM, "no memory to open %s", path);
    s->lock_fd = -1;
    rc = open_files(s, path, err);
    if (rc == 0)
        rc = writer_new(loop, s->write_db, s->kit, writer_limit, &s->writer, err);
    if (rc < 0) {
        store_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void
store_finish_writes(struct store *s)
{
    writer_finish(s->writer);
}

void
store_close(struct store *s)
{
    if (!s)
        return;
    writer_free(s->writer); /* its callbacks may still read */
    reader_free(s->reader);
    write_kit_free(s->kit);
    sqlite3_close(s->write_db); /* after the reader: the last one to close checkpoints */
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    free(s->wal_path);
    free(s);
}

int64_t
store_commits(const struct store *s)
{
    return writer_commits(s->writer);
}

void
store_figures(struct store *s, struct store_figures *out)
{
    struct stat status;

    memset(out, 0, sizeof(*out));
    writer_figures(s->writer, out);
    if (stat(s->wal_path, &status) == 0)
        out->wal_bytes = status.st_size;
}
