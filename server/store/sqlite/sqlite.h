/* sqlite.h - what the files of this back end share: its connection that writes. */
#ifndef SQLITE_SQLITE_H
#define SQLITE_SQLITE_H

#include "server/store/backend.h"
#include "server/store/sqlite/db.h"

struct sqlite {
    struct store_backend base;
    int lock_fd; /* held as long as the store is open */
    char *wal_path;
    /* The writer's thread alone, once it runs: */
    struct db db;
};

static inline struct sqlite *
sqlite_of(const struct store_backend *b)
{
    return (struct sqlite *)(uintptr_t)b;
}

/* Operations of backend.h. The writer's thread alone. */
extern const struct ownership_ops sqlite_ownership;
change_fn changes_probe;

/*
 * A read-only connection: its statements are prepared once and reset at once, so that no snapshot is held and the log
 * can be reset. One thread at a time. The file must have its schema. 0, ERR_STORE or ERR_NOMEM. Given: its own free().
 */
int sqlite_reader_new(const char *path, struct store_reader **out, struct error *err);

#endif
