#include "server/http/running_keys.h"

#include <stdio.h>
#include <stdlib.h>

/* The client and the key, joined by a space. The parts are unambiguous: a client's name has no space in it. */
static void
scope_of(const char *client, const char *key, char out[RUNNING_KEY_SIZE])
{
    snprintf(out, RUNNING_KEY_SIZE, "%s %s", client, key);
}

struct running_key *
running_key_find(struct http *h, const char *client, const char *key)
{
    char scope[RUNNING_KEY_SIZE];
    struct running_key *k;

    scope_of(client, key, scope);
    HASH_FIND_STR(h->running_keys, scope, k);
    return k;
}

struct running_key *
running_key_add(struct http *h, const char *client, const char *key, const char *request_hash)
{
    struct running_key *k = calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->http = h;
    scope_of(client, key, k->scope);
    snprintf(k->row.client, sizeof(k->row.client), "%s", client);
    snprintf(k->row.key, sizeof(k->row.key), "%s", key);
    snprintf(k->row.request_hash, sizeof(k->row.request_hash), "%s", request_hash);
    HASH_ADD_STR(h->running_keys, scope, k);
    return k;
}

void
running_key_end(struct running_key *k)
{
    if (!k)
        return;
    HASH_DEL(k->http->running_keys, k);
    free(k);
}
