#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "server/submission/private.h"

/*
 * What each client has and has used: its accounts with the CPU slots and with the devices, and what counts against its
 * quota. Those who name no client share one record, the operator's, which no quota bounds.
 */

#define KEPT 16384 /* records, of clients that have nothing here */
#define DAY_MS (86400 * INT64_C(1000))

static void
sweep(struct funnel *f)
{
    struct client *c, *next;
    int64_t now_ms = clock_wall_ms();

    if (HASH_COUNT(f->clients) < (f->clients_sweep > 0 ? f->clients_sweep : KEPT))
        return;
    HASH_ITER(hh, f->clients, c, next)
    {
        if (c->submissions > 0 || c->registrations > 0 || usage_is_of_today(&c->usage, now_ms))
            continue;
        HASH_DEL(f->clients, c);
        free(c);
    }
    /* Not before there are twice as many again: so each new client pays for two looks at most. */
    f->clients_sweep = 2 * HASH_COUNT(f->clients) > KEPT ? 2 * HASH_COUNT(f->clients) : KEPT;
}

struct client *
client_get(struct funnel *f, const char *name)
{
    struct client *c = NULL;

    name = name ? name : "";
    HASH_FIND_STR(f->clients, name, c);
    if (c)
        return c;
    sweep(f);
    c = calloc(1, sizeof(*c) + strlen(name) + 1);
    if (!c)
        return NULL;
    strcpy(c->name, name);
    HASH_ADD_KEYPTR(hh, f->clients, c->name, strlen(c->name), c);
    return c;
}

bool
client_may_run(const struct funnel *f, const struct client *c)
{
    const struct quota *q = quotas_find(&f->quotas, c->name);
    return q->running == 0 || c->usage.running < q->running;
}

enum quota_limit
client_admit(struct funnel *f, const char *name, size_t n, int *retry_s)
{
    const struct quota *q = quotas_find(&f->quotas, name);
    struct client *c = name && *name ? client_get(f, name) : NULL;

    *retry_s = 0;
    if (!c)
        return QUOTA_OK;
    c->usage.waiting = c->submissions + c->registrations - c->usage.running;
    return quota_admit(q, &c->usage, n, clock_monotonic_ns(), clock_wall_ms(), retry_s);
}

/* --- settings, and what the store remembers --- */

static bool
has_gpu_limit(const struct quotas *q)
{
    for (size_t i = 0; i < q->n; i++)
        if (q->rows[i].quota.gpu_s > 0)
            return true;
    return false;
}

static void
usage_cb(void *arg, const char *name, int64_t device_ms)
{
    struct client *c = client_get(arg, name);

    if (c)
        usage_add_gpu(&c->usage, (double)device_ms / 1000, clock_wall_ms());
}

int
clients_restore(struct funnel *f, struct error *err)
{
    int64_t now_ms = clock_wall_ms();

    if (!has_gpu_limit(&f->quotas))
        return 0;
    return store_each_usage(f->store, now_ms - now_ms % DAY_MS, usage_cb, f, err);
}

void
clients_configure(struct funnel *f)
{
    struct quotas quotas;
    struct error err = { 0 };

    /* The configuration was read before it came here, so nothing but memory can be missing. */
    if (quotas_parse(f->config->quotas, &quotas, &err) != 0) {
        log_error(NULL, "%s: the quotas stay as they are", err.text);
        return;
    }
    quotas_release(&f->quotas);
    f->quotas = quotas;
}

void
clients_free(struct funnel *f)
{
    struct client *c, *next;

    HASH_ITER(hh, f->clients, c, next)
    {
        HASH_DEL(f->clients, c);
        free(c);
    }
    quotas_release(&f->quotas);
}
