#include "server/http/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/auto.h"
#include "common/clock.h"

/*
 * Theory of operation. A POST that makes submissions may carry an
 * Idempotency-Key (draft-ietf-httpapi-idempotency-key-header). The key is
 * stored in the transaction that stores the submissions, so after a crash
 * either both are there or neither is. From the moment when the document is
 * read until the store has answered, the key is under way: it stands in a
 * table of the engine, and what comes with it meanwhile gets 409. It leaves
 * the table with the funnel's answer, also when the client has left by then.
 */

struct header_search {
    const char *value;
    unsigned n;
};

static enum MHD_Result
header_cb(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct header_search *s = cls;

    (void)kind;
    if (strcasecmp(name, "Idempotency-Key") == 0) {
        s->value = value ? value : "";
        s->n++;
    }
    return MHD_YES;
}

bool
idempotency_read(struct exchange *x)
{
    struct header_search found = { 0 };

    MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, header_cb, &found);
    if (found.n == 0)
        return true;
    if (found.n == 1 && idempotency_key(found.value, x->key, sizeof(x->key)))
        return true;
    exchange_problem_at(x, PROBLEM_HEADER, "header", "Idempotency-Key",
                        "is given once, has 1 to 255 visible characters, and may stand in double quotes");
    return false;
}

/* Whose key it is, and which. The two parts cannot run into each other: a client's name has no space in it. */
static void
scope_of(const struct exchange *x, const char *key, char out[RUNNING_KEY_SIZE])
{
    snprintf(out, RUNNING_KEY_SIZE, "%s %s", x->caller.client, key);
}

struct running_key *
idempotency_find(struct exchange *x, const char *key)
{
    char scope[RUNNING_KEY_SIZE];
    struct running_key *k;

    scope_of(x, key, scope);
    HASH_FIND_STR(x->http->running_keys, scope, k);
    return k;
}

struct running_key *
idempotency_add(struct exchange *x, const char *key, const char *request_hash)
{
    struct running_key *k = calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->http = x->http;
    scope_of(x, key, k->scope);
    snprintf(k->row.client, sizeof(k->row.client), "%s", x->caller.client);
    snprintf(k->row.key, sizeof(k->row.key), "%s", key);
    snprintf(k->row.request_hash, sizeof(k->row.request_hash), "%s", request_hash);
    HASH_ADD_STR(x->http->running_keys, scope, k);
    return k;
}

/* The same call with the same body. */
static void
request_hash(const struct exchange *x, char out[HASH_TEXT_SIZE])
{
    char text[HASH_TEXT_SIZE + 64];

    int size = snprintf(text, sizeof(text), "%s %s", x->route->path, x->body_hash);
    hash_text(text, (size_t)size, out);
}

static void
refuse(struct exchange *x, bool is_same)
{
    if (!is_same) {
        exchange_problem(x, PROBLEM_KEY_REUSED, "another request came with the key \"%.64s\" before", x->key);
        return;
    }
    exchange_problem_set(x, PROBLEM_KEY_RUNNING, "the first request with this key is not answered yet", NULL);
    exchange_header(x, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    exchange_send(x);
}

/* Whether what the key made is still there: it may have been removed before the key was. */
static bool
is_there(struct exchange *x, const struct key_row *row, struct error *err)
{
    struct submission_row submission = { 0 };
    struct group_row group = { 0 };

    int rc = store_get_submission(x->http->store, row->id, &submission, err);
    submission_row_release(&submission);
    if (rc == ERR_NOTFOUND) {
        rc = store_get_group(x->http->store, row->id, &group, err);
        group_row_release(&group);
    }
    return rc == 0;
}

bool
idempotency_begin(struct exchange *x, exchange_cb *replay, struct running_key **out)
{
    char hash[HASH_TEXT_SIZE];
    struct running_key *running;
    struct key_row row;
    struct error err = { 0 };

    *out = NULL;
    if (!*x->key)
        return true;
    request_hash(x, hash);
    running = idempotency_find(x, x->key);
    if (running) {
        refuse(x, strcmp(running->row.request_hash, hash) == 0);
        return false;
    }
    int rc = store_get_key(x->http->store, x->caller.client, x->key, clock_wall_ms(), &row, &err);
    if (rc == 0 && strcmp(row.request_hash, hash) != 0) {
        refuse(x, false);
        return false;
    }
    if (rc == 0 && is_there(x, &row, &err)) {
        x->is_replay = true;
        snprintf(x->id, sizeof(x->id), "%s", row.id);
        replay(x);
        return false;
    }
    if (err.code != ERR_NONE && err.code != ERR_NOTFOUND) {
        exchange_error(x, &err, "such key");
        return false;
    }
    *out = idempotency_add(x, x->key, hash);
    if (!*out)
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the request");
    return *out != NULL;
}

void
idempotency_end(struct running_key *k)
{
    if (!k)
        return;
    HASH_DEL(k->http->running_keys, k);
    free(k);
}
