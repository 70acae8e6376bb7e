/*
 * canaries.c - how long the canaries of GPUs take, kept in the store: a daemon
 * that starts on a GPU which has become slow knows what it was.
 */
#include "server/task/canaries.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "server/store/store.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/workers/device_worker.h"
#include "server/workers/norms.h"

enum { GPU_MAX = 79 }; /* of a UUID: what an answer has room for */

struct loading {
    struct norms *norms;
    int rc;
    struct error *err;
};

static void
loaded_cb(void *arg, const struct canary_row *row)
{
    struct loading *l = arg;
    AUTO_JSON json_t *document = json_loads(row->document, 0, NULL);
    const struct norm_key key = { row->gpu, row->driver, row->kind };
    struct norm norm;

    if (!norm_read(document, &norm))
        log_warn(NULL, "what the store has of the canary of %s cannot be read", row->gpu);
    else if (l->rc == 0)
        l->rc = norms_add(l->norms, &key, &norm, l->err);
}

static void
kept_cb(void *arg, int code, const struct error *err)
{
    struct funnel *f = arg;

    if (code != 0)
        log_warn(NULL, "a canary's time is not stored: %s", err->text);
    pending_end_write(f->pending);
}

/* n NULL: it is forgotten. */
static int
put(struct funnel *f, const struct norm_key *key, const struct norm *n, store_done_cb *cb, void *arg,
    struct error *err)
{
    AUTO_JSON json_t *document = n ? norm_json(n) : NULL;
    AUTO_FREE char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    const struct canary_row row = { key->gpu, key->driver, key->kind, clock_wall_ms(), text };

    if (n && !text)
        return error_set(err, ERR_NOMEM, "no memory for a canary");
    int rc = store_put_canary(f->store, &row, cb, arg, err);
    if (rc == 0)
        pending_begin_write(f->pending);
    return rc;
}

static void
keep_cb(void *arg, const struct norm_key *key, const struct norm *n)
{
    struct funnel *f = arg;
    struct error err = { 0 };

    if (pending_is_draining(f->pending))
        return; /* the store may be gone before it is written */
    if (put(f, key, n, kept_cb, f, &err) != 0)
        log_warn(NULL, "the canary's time of %s is not stored: %s", key->gpu, err.text);
}

int
canaries_load(struct funnel *f, struct norms **out, struct error *err)
{
    int rc = norms_new(keep_cb, f, out, err);
    struct loading l = { .norms = *out, .err = err };

    if (rc == 0)
        rc = reader_each_canary(store_reader(f->store), loaded_cb, &l, err);
    return rc == 0 ? l.rc : rc;
}

/* --- looking --- */

static void
show_cb(void *arg, const struct norm_key *key, const struct norm *n)
{
    json_array_append_new(arg, json_pack("{s:s, s:s, s:s, s:o, s:i, s:o}", "gpu", key->gpu, "driver",
                                         key->driver, "kind", key->kind, "norm_ns",
                                         n->n_samples > 0 ? json_integer(norm_ns(n)) : json_null(),
                                         "norm_samples", n->n_samples, "norm_since",
                                         n->n_samples > 0 ? time_json(n->since_ms) : json_null()));
}

json_t *
funnel_canaries(struct funnel *f)
{
    json_t *items = json_array();

    norms_each(f->norms, show_cb, items);
    return json_pack("{s:o}", "items", items);
}

/* --- forgetting --- */

struct forgetting {
    struct funnel *f;
    funnel_answer_cb *cb;
    void *arg;
    struct funnel_answer answer;
    int left; /* writes that have not ended, and the function that counts them */
};

/* Removed from memory already: if the store fails to remove it, it comes back with the next start. */
static void
forgotten(struct forgetting *g)
{
    if (--g->left > 0)
        return;
    for (int i = 0; i < g->f->n_device_workers; i++)
        device_worker_look_again(g->f->device_workers[i]);
    g->cb(g->arg, &g->answer);
    free(g);
}

static void
refuse(struct forgetting *g, const char *why)
{
    g->answer.refusal = FUNNEL_UNAVAILABLE;
    g->answer.retry_after_s = 1;
    json_refuse(&g->answer.fault, "", "%s", why);
}

static void
dropped_cb(void *arg, int code, const struct error *err)
{
    struct forgetting *g = arg;
    struct funnel *f = g->f;

    if (code != 0)
        refuse(g, err->text);
    forgotten(g);
    pending_end_write(f->pending);
}

static void
drop_cb(void *arg, const struct norm_key *key, const struct norm *n)
{
    struct forgetting *g = arg;
    struct error err = { 0 };

    (void)n;
    if (put(g->f, key, NULL, dropped_cb, g, &err) == 0)
        g->left++;
    else
        refuse(g, err.text);
}

void
funnel_forget_canary(struct funnel *f, json_t *body, funnel_answer_cb *cb, void *arg)
{
    struct funnel_answer refused = { .refusal = FUNNEL_BAD };
    const char *gpu = NULL;
    const struct json_field fields[] = { { "forget", JSON_WANT_STRING, &gpu, true, 1, GPU_MAX } };

    if (json_read(body, "", fields, ARRAY_LEN(fields), &refused.fault) != 0) {
        cb(arg, &refused);
        return;
    }
    struct forgetting *g = pending_is_draining(f->pending) ? NULL : calloc(1, sizeof(*g));
    if (!g) {
        refused = (struct funnel_answer){ .refusal = FUNNEL_UNAVAILABLE, .retry_after_s = 1 };
        json_refuse(&refused.fault, "", "%s",
                    pending_is_draining(f->pending) ? "the daemon is draining" : "no memory");
        cb(arg, &refused);
        return;
    }
    *g = (struct forgetting){ .f = f, .cb = cb, .arg = arg, .left = 1 };
    snprintf(g->answer.id, sizeof(g->answer.id), "%s", gpu);
    norms_forget(f->norms, gpu, drop_cb, g);
    forgotten(g);
}
