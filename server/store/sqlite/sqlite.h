/* sqlite.h - what the files of this back end share: its connection that writes. */
#ifndef SQLITE_SQLITE_H
#define SQLITE_SQLITE_H

#include <sqlite3.h>

#include "server/store/backend.h"

struct write_kit;

struct sqlite {
    struct store_backend base;
    int lock_fd; /* held as long as the store is open */
    char *wal_path;
    sqlite3 *db; /* the writer's thread alone, once it runs; as kit */
    struct write_kit *kit;
    struct store_lease lease;
};

static inline struct sqlite *
sqlite_of(const struct store_backend *b)
{
    return (struct sqlite *)(uintptr_t)b;
}

#endif
