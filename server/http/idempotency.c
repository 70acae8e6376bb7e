#include "server/http/idempotency.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"

/*
 * Theory of operation. A POST that makes submissions may carry an
 * Idempotency-Key (draft-ietf-httpapi-idempotency-key-header). The key is
 * stored in the transaction that stores the submissions, so after a crash
 * either both are there or neither is. The store is asked for the key first.
 * If it has none, the key is in progress until the submissions are stored: it
 * is among the running keys (running_keys.h), and another request with the same key
 * gets 409 meanwhile. The row is removed when the funnel answers, also when
 * the client has left by then. For two concurrent requests, here or at two
 * daemons, the store takes the key once: the second is refused
 * (FUNNEL_KEY_TAKEN), asks again, and finds what the first has made.
 */

bool
idempotency_read(struct exchange *x)
{
    const struct header_found found = exchange_find_header(x, "Idempotency-Key");

    if (found.n == 0)
        return true;
    if (found.n == 1 && idempotency_key(found.value ? found.value : "", x->key, sizeof(x->key)))
        return true;
    exchange_problem_at(x, PROBLEM_HEADER, "header", "Idempotency-Key",
                        "is given once, has 1 to 255 visible characters, and may stand in double quotes");
    return false;
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

struct key_look {
    struct exchange_read call;
    char key[STORE_KEY_SIZE], hash[HASH_TEXT_SIZE];
    struct key_row row;
    bool is_known; /* and what it made is there: it may have been removed before the key was */
    exchange_cb *replay;
    idempotency_cb *go;
};

static int
read_key(struct exchange_read *call, struct store_reader *r, struct error *err)
{
    struct key_look *l = (struct key_look *)call;
    struct submission_row submission = { 0 };
    struct group_row group = { 0 };

    int rc = reader_get_key(r, call->client, l->key, clock_wall_ms(), &l->row, err);
    if (rc == 0) {
        rc = reader_get_submission(r, l->row.id, &submission, err);
        submission_row_release(&submission);
        if (rc == ERR_NOTFOUND)
            rc = reader_get_group(r, l->row.id, &group, err);
        group_row_release(&group);
    }
    l->is_known = rc == 0;
    return rc == ERR_NOTFOUND ? 0 : rc;
}

static void
key_found(struct exchange *x, struct exchange_read *call)
{
    struct key_look *l = (struct key_look *)call;
    struct running_key *k = running_key_find(x->http, x->caller.client, x->key);

    /* Checked first, since the store may have the key before the funnel has reported the submissions. */
    if (k) {
        refuse(x, strcmp(k->row.request_hash, l->hash) == 0);
    } else if (l->is_known && strcmp(l->row.request_hash, l->hash) != 0) {
        refuse(x, false);
    } else if (l->is_known) {
        x->is_replay = true;
        snprintf(x->id, sizeof(x->id), "%s", l->row.id);
        l->replay(x);
    } else if ((k = running_key_add(x->http, x->caller.client, x->key, l->hash)) != NULL) {
        l->go(x, k);
    } else {
        exchange_problem(x, PROBLEM_INTERNAL, "no memory for the request");
    }
}

void
idempotency_begin(struct exchange *x, exchange_cb *replay, idempotency_cb *go)
{
    static const struct exchange_read call = { .read = read_key, .answer = key_found, .what = "such key" };

    if (!*x->key) {
        go(x, NULL);
        return;
    }
    struct key_look *l = exchange_read_new(x, &call, sizeof(*l));
    if (!l)
        return;
    snprintf(l->key, sizeof(l->key), "%s", x->key);
    request_hash(x, l->hash);
    l->replay = replay;
    l->go = go;
    exchange_read(x, &l->call);
}
