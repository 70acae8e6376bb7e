/* private.h - what the store's own files share: its fields. */
#ifndef STORE_PRIVATE_H
#define STORE_PRIVATE_H

#include <sqlite3.h>

#include "server/store/store.h"

struct reader;
struct writer;
struct write_kit;

struct store {
    int lock_fd; /* held as long as the store is open */
    char *wal_path;
    sqlite3 *write_db; /* the writer's thread alone, once it runs */
    struct write_kit *kit;
    struct writer *writer;
    struct reader *reader;
    int64_t probed_ns; /* when room was last looked for */
    bool is_probing;
};

#endif
