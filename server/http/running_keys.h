/* running_keys.h - Idempotency-Keys of requests in progress. Private to http/. Loop thread. */
#ifndef HTTP_RUNNING_KEYS_H
#define HTTP_RUNNING_KEYS_H

#include <uthash.h>

#include "server/http/engine.h"

#define RUNNING_KEY_SIZE (TOKEN_NAME_SIZE + STORE_KEY_SIZE)

/* The key of a request in progress. */
struct running_key {
    UT_hash_handle hh;
    struct http *http;
    char scope[RUNNING_KEY_SIZE];
    struct key_row row;         /* for the funnel */
    struct compat_item *askers; /* compat.c: those that its answer is for */
};

/* A key of the client's that is under way; NULL: it is not. */
struct running_key *running_key_find(struct http *h, const char *client, const char *key);
/* From here until running_key_end() this key is under way. NULL: no memory. */
struct running_key *running_key_add(struct http *h, const char *client, const char *key,
                                    const char *request_hash);
void running_key_end(struct running_key *k); /* NULL is fine */

#endif
