/*
 * canaries.c - how long the canaries of GPUs take, kept in the store: a daemon
 * that starts on a GPU which has become slow knows what it was.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/funnel/private.h"
#include "server/workers/norms.h"

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
    if (code != 0)
        log_warn(NULL, "a canary's time is not stored: %s", err->text);
    funnel_written(arg);
}

static void
keep_cb(void *arg, const struct norm_key *key, const struct norm *n)
{
    struct funnel *f = arg;
    AUTO_JSON json_t *document = n ? norm_json(n) : NULL;
    AUTO_FREE char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    const struct canary_row row = { key->gpu, key->driver, key->kind, clock_wall_ms(), text };
    struct error err = { 0 };

    if (f->is_draining)
        return; /* the store may be gone before it is written */
    if (n && !text)
        error_set(&err, ERR_NOMEM, "no memory");
    else if (store_put_canary(f->store, &row, kept_cb, f, &err) == 0)
        f->writes++;
    if (err.code != 0)
        log_warn(NULL, "the canary's time of %s is not stored: %s", key->gpu, err.text);
}

int
canaries_load(struct funnel *f, struct error *err)
{
    struct loading l = { .err = err };

    int rc = norms_new(keep_cb, f, &f->norms, err);
    l.norms = f->norms;
    if (rc == 0)
        rc = store_each_canary(f->store, loaded_cb, &l, err);
    return rc == 0 ? l.rc : rc;
}
