/* private.h - what the store's own files share: its fields. */
#ifndef STORE_PRIVATE_H
#define STORE_PRIVATE_H

#include "server/store/store.h"

struct readers;
struct store_backend;
struct writer;

struct store {
    struct store_backend *backend;
    struct store_reader *loop_reader;
    struct readers *readers;
    struct readers *keeper; /* of the lease; NULL: the writer renews it */
    struct writer *writer;
    int64_t lease_ms;
    int64_t probed_ns; /* when room was last looked for */
    bool is_probing;
    char holder[STORE_HOLDER_SIZE]; /* as the last reaping found */
};

#endif
