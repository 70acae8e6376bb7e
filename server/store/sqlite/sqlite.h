/* sqlite.h - what the files of this back end share: its connection that writes. */
#ifndef SQLITE_SQLITE_H
#define SQLITE_SQLITE_H

#include "server/store/backend.h"
#include "server/store/sqlite/db.h"

struct sqlite {
    struct store_backend base;
    int lock_fd; /* held as long as the store is open */
    char *wal_path;
    struct store_lease lease;
    /* The writer's thread alone, once it runs: */
    struct db db;
};

static inline struct sqlite *
sqlite_of(const struct store_backend *b)
{
    return (struct sqlite *)(uintptr_t)b;
}

#endif
