#include "server/queue/clients.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <uthash.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/store/store.h"

#define HOLD_NS (250 * INT64_C(1000000))
#define KEPT 16384 /* records, of clients that have nothing here */
#define DAY_MS (86400 * INT64_C(1000))

struct client {
    UT_hash_handle hh;
    struct clients *all;
    struct fair_share cpu, device;
    struct usage usage;
    int64_t submissions, registrations; /* that are not finished */
    int64_t coming;                     /* admitted, and not yet submissions */
    int64_t noted;                      /* that wait on all nodes; 0: not known */
    int64_t held_until_ns;              /* monotonic */
    char name[];                        /* "": the operator */
};

struct clients {
    struct client *by_name;
    unsigned sweep_at; /* at this number of records, look for some to remove */
    struct quotas quotas;
    char *limits;   /* of them; NULL: no limit */
    int64_t coming; /* of all */
};

struct clients *
clients_new(void)
{
    struct clients *cs = calloc(1, sizeof(*cs));

    if (cs)
        cs->sweep_at = KEPT;
    return cs;
}

void
clients_free(struct clients *cs)
{
    struct client *c, *next;

    if (!cs)
        return;
    HASH_ITER(hh, cs->by_name, c, next)
    {
        HASH_DEL(cs->by_name, c);
        free(c);
    }
    quotas_release(&cs->quotas);
    free(cs->limits);
    free(cs);
}

static void
sweep(struct clients *cs)
{
    struct client *c, *next;
    int64_t now_ms = clock_wall_ms();

    if (HASH_COUNT(cs->by_name) < cs->sweep_at)
        return;
    HASH_ITER(hh, cs->by_name, c, next)
    {
        if (c->submissions > 0 || c->registrations > 0 || c->coming > 0 ||
            usage_is_of_today(&c->usage, now_ms))
            continue;
        HASH_DEL(cs->by_name, c);
        free(c);
    }
    /* Not before there are twice as many again: so each new client pays for two looks at most. */
    cs->sweep_at = 2 * HASH_COUNT(cs->by_name) > KEPT ? 2 * HASH_COUNT(cs->by_name) : KEPT;
}

struct client *
clients_get(struct clients *cs, const char *name)
{
    struct client *c = NULL;

    name = name ? name : "";
    HASH_FIND_STR(cs->by_name, name, c);
    if (c)
        return c;
    sweep(cs);
    c = calloc(1, sizeof(*c) + strlen(name) + 1);
    if (!c)
        return NULL;
    c->all = cs;
    strcpy(c->name, name);
    HASH_ADD_KEYPTR(hh, cs->by_name, c->name, strlen(c->name), c);
    return c;
}

const char *
client_name(const struct client *c)
{
    return *c->name ? c->name : NULL;
}

const char *
clients_limits(const struct clients *cs)
{
    return cs->limits;
}

int64_t
clients_coming(const struct clients *cs)
{
    return cs->coming;
}

const struct quota *
clients_quota(const struct clients *cs, const char *name)
{
    return quotas_find(&cs->quotas, name);
}

void
clients_note(struct clients *cs, const char *name, const struct store_usage *on_all_nodes)
{
    struct client *c = clients_get(cs, name);
    int64_t now_ms = clock_wall_ms();

    if (!c)
        return;
    c->noted = on_all_nodes->queued;
    c->usage.recent = on_all_nodes->recent;
    double more_s =
        (double)on_all_nodes->device_ms / 1000 - (usage_is_of_today(&c->usage, now_ms) ? c->usage.gpu_s : 0);
    if (more_s > 0)
        usage_add_gpu(&c->usage, more_s, now_ms);
}

enum quota_limit
clients_admit(struct clients *cs, const char *name, size_t n, size_t registrations, int *retry_s)
{
    struct client *c = name && *name ? clients_get(cs, name) : NULL;

    *retry_s = 0;
    if (!c)
        return QUOTA_OK;
    /* A submission waits for the registration that it asked for, and counts with it. */
    int64_t asked = c->registrations > c->coming ? c->registrations : c->coming;
    int64_t here = c->submissions + asked - c->usage.running;
    int64_t all = c->noted + c->coming; /* the store has none of the latter yet */
    c->usage.waiting = here > all ? here : all;
    enum quota_limit limit = quota_admit(clients_quota(cs, name), &c->usage, n, registrations,
                                         clock_monotonic_ns(), clock_wall_ms(), retry_s);
    c->noted = c->usage.recent = 0;
    return limit;
}

/* --- one client --- */

void
client_add_submission(struct client *c)
{
    c->submissions++;
}

void
client_drop_submission(struct client *c)
{
    c->submissions--;
}

void
client_expect(struct client *c, int64_t n)
{
    c->coming += n;
    c->all->coming += n;
}

void
client_add_registration(struct client *c)
{
    c->registrations++;
}

void
client_drop_registration(struct client *c)
{
    c->registrations--;
}

int64_t
client_registrations(const struct client *c)
{
    return c->registrations;
}

void
client_begin_run(struct client *c)
{
    c->usage.running++;
}

void
client_end_run(struct client *c)
{
    c->usage.running--;
}

void
client_used_device(struct client *c, double seconds)
{
    usage_add_gpu(&c->usage, seconds, clock_wall_ms());
}

void
client_hold(struct client *c)
{
    c->held_until_ns = clock_monotonic_ns() + HOLD_NS;
}

bool
client_may_run(const struct client *c)
{
    const struct quota *q = clients_quota(c->all, c->name);
    return (q->running == 0 || c->usage.running < q->running) &&
           (c->held_until_ns == 0 || c->held_until_ns <= clock_monotonic_ns());
}

struct fair_share *
client_cpu(struct client *c)
{
    return &c->cpu;
}

struct fair_share *
client_device(struct client *c)
{
    return &c->device;
}

bool
client_may_have_slot(void *arg, const struct fair_share *cpu)
{
    (void)arg;
    return client_may_run((const struct client *)((const char *)cpu - offsetof(struct client, cpu)));
}

bool
client_may_have_device(void *arg, const struct fair_share *device)
{
    (void)arg;
    return client_may_run((const struct client *)((const char *)device - offsetof(struct client, device)));
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

/* One that is named and has no limit has a number that it never reaches, as all others may have one. */
static char *
limits_text(const struct quotas *q)
{
    AUTO_JSON json_t *all = json_object();
    bool has_limit = false;

    for (size_t i = 0; i < q->n; i++) {
        int64_t running = q->rows[i].quota.running;
        has_limit |= running > 0;
        json_object_set_new(all, q->rows[i].client, json_integer(running > 0 ? running : INT32_MAX));
    }
    return has_limit ? json_dumps(all, JSON_COMPACT) : NULL;
}

static void
usage_cb(void *arg, const char *name, int64_t device_ms)
{
    struct client *c = clients_get(arg, name);

    if (c)
        client_used_device(c, (double)device_ms / 1000);
}

int
clients_restore(struct clients *cs, struct store *store, struct error *err)
{
    int64_t now_ms = clock_wall_ms();

    if (!has_gpu_limit(&cs->quotas))
        return 0;
    return reader_each_usage(store_reader(store), now_ms - now_ms % DAY_MS, usage_cb, cs, err);
}

void
clients_configure(struct clients *cs, const char *text)
{
    struct quotas quotas;
    struct error err = { 0 };

    /* The configuration was read before it came here, so nothing but memory can be missing. */
    if (quotas_parse(text, &quotas, &err) != 0) {
        log_error(NULL, "%s: the quotas stay as they are", err.text);
        return;
    }
    quotas_release(&cs->quotas);
    cs->quotas = quotas;
    free(cs->limits);
    cs->limits = limits_text(&quotas);
}
