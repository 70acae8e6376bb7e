#include "server/store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/store/backend.h"
#include "server/store/private.h"
#include "server/store/pgsql/open.h"
#include "server/store/readers.h"
#include "server/store/sqlite/open.h"
#include "server/store/writer.h"

bool
store_is_file(const char *where)
{
    return !pgsql_is_url(where);
}

int
store_check(const char *where, const struct store_options *options, struct store_found *out,
            struct error *err)
{
    struct store_schema schema;

    *out = (struct store_found){ .is_alive = false };
    snprintf(out->shown, sizeof(out->shown), "%s", where);
    /* Another user's, as where an operator asks and the daemon is root's: what is in it is not known here. */
    if (store_is_file(where) && access(where, R_OK | W_OK) != 0 && errno == EACCES)
        return 0;
    return store_is_file(where) ? sqlite_migrate(where, true, &schema, err)
                                : pgsql_check(where, options, out, err);
}

int
store_migrate(const char *where, const struct store_options *options, bool only_look,
              struct store_schema *out, struct error *err)
{
    return store_is_file(where) ? sqlite_migrate(where, only_look, out, err)
                                : pgsql_migrate(where, options, only_look, out, err);
}

int
store_open(uv_loop_t *loop, const char *where, const struct store_options *options, size_t writer_limit,
           struct store **out, struct error *err)
{
    struct store *s = calloc(1, sizeof(*s));

    *out = NULL;
    if (!s)
        return error_set(err, ERR_NOMEM, "no memory to open %s", where);
    s->lease_ms = store_is_file(where) ? STORE_LEASE_ENDLESS : options->lease_ms;
    int rc = pgsql_is_url(where) ? pgsql_open(where, options, &s->backend, err)
                                 : sqlite_open(where, &s->backend, err);
    if (rc == 0)
        rc = s->backend->ops->reader_new(s->backend, &s->loop_reader, err);
    if (rc == 0)
        rc = readers_new(loop, s->backend, READERS_THREADS, &s->readers, err);
    if (rc == 0 && !store_is_file(where))
        rc = readers_new(loop, s->backend, 1, &s->keeper, err);
    if (rc == 0)
        rc = writer_new(loop, s->backend, writer_limit, &s->writer, err);
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
    readers_finish(s->readers); /* first: what they say may still be written */
    if (s->keeper)
        readers_finish(s->keeper);
    writer_finish(s->writer);
}

void
store_close(struct store *s)
{
    if (!s)
        return;
    readers_free(s->readers);
    readers_free(s->keeper);
    writer_free(s->writer);
    if (s->loop_reader)
        s->loop_reader->ops->free(s->loop_reader);
    if (s->backend)
        s->backend->ops->close(s->backend);
    free(s);
}

struct store_reader *
store_reader(struct store *s)
{
    return s->loop_reader;
}

int
store_read(struct store *s, store_read_cb *read_cb, store_read_done_cb *done_cb, void *arg, struct error *err)
{
    return readers_put(s->readers, read_cb, done_cb, arg, err);
}

const struct store_lease *
store_lease(const struct store *s)
{
    return &s->backend->lease;
}

int64_t
store_lease_ms(const struct store *s)
{
    return s->lease_ms;
}

int64_t
store_commits(const struct store *s)
{
    return writer_commits(s->writer);
}

const char *
store_shown(const struct store *s)
{
    return s->backend->name;
}

const char *
store_trouble(const struct store *s)
{
    return writer_trouble(s->writer);
}

const char *
store_holder(const struct store *s)
{
    return s->holder;
}

int64_t
store_writing_ms(struct store *s)
{
    return writer_writing_ms(s->writer);
}

void
store_figures(struct store *s, struct store_figures *out)
{
    memset(out, 0, sizeof(*out));
    writer_figures(s->writer, out);
    if (s->backend->ops->log_bytes)
        out->wal_bytes = s->backend->ops->log_bytes(s->backend);
}
