#include "server/workers/norms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/log.h"

#define TEXT_SIZE 96

/* One for each GPU and driver seen: few. */
struct entry {
    struct entry *prev, *next;
    char gpu[TEXT_SIZE], driver[TEXT_SIZE], kind[TEXT_SIZE];
    struct norm norm;
};

struct norms {
    struct entry *entries;
    norms_cb *keep;
    void *arg;
};

int
norms_new(norms_cb *keep, void *arg, struct norms **out, struct error *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return error_set(err, ERR_NOMEM, "no memory for the canaries");
    (*out)->keep = keep;
    (*out)->arg = arg;
    return 0;
}

void
norms_free(struct norms *all)
{
    struct entry *e, *next;

    if (!all)
        return;
    DL_FOREACH_SAFE(all->entries, e, next)
    {
        free(e);
    }
    free(all);
}

static bool
is_same(const char *kept, const char *text)
{
    return strncmp(kept, text, TEXT_SIZE - 1) == 0;
}

static struct entry *
find(const struct norms *all, const struct norm_key *key)
{
    struct entry *e;

    DL_FOREACH(all->entries, e)
    {
        if (is_same(e->gpu, key->gpu) && is_same(e->driver, key->driver) && is_same(e->kind, key->kind))
            return e;
    }
    return NULL;
}

static struct entry *
find_or_make(struct norms *all, const struct norm_key *key)
{
    struct entry *e = find(all, key);

    if (e || !(e = calloc(1, sizeof(*e))))
        return e;
    snprintf(e->gpu, sizeof(e->gpu), "%s", key->gpu);
    snprintf(e->driver, sizeof(e->driver), "%s", key->driver);
    snprintf(e->kind, sizeof(e->kind), "%s", key->kind);
    DL_APPEND(all->entries, e);
    return e;
}

int
norms_add(struct norms *all, const struct norm_key *key, const struct norm *n, struct error *err)
{
    struct entry *e = find_or_make(all, key);

    if (!e)
        return error_set(err, ERR_NOMEM, "no memory for a canary");
    e->norm = *n;
    return 0;
}

const struct norm *
norms_find(const struct norms *all, const struct norm_key *key)
{
    const struct entry *e = find(all, key);
    return e ? &e->norm : NULL;
}

static void
tell(const struct entry *e, norms_cb *cb, void *arg)
{
    const struct norm_key key = { e->gpu, e->driver, e->kind };

    if (cb)
        cb(arg, &key, &e->norm);
}

enum norm_finding
norms_note(struct norms *all, const struct norm_key *key, int64_t now_ms, int64_t ns, bool is_well)
{
    struct entry *e = find_or_make(all, key);

    if (!e) {
        log_warn(NULL, "no memory for the canary of %s", key->gpu);
        return NORM_STEADY;
    }
    int samples = e->norm.n_samples;
    enum norm_finding finding = norm_note(&e->norm, now_ms, ns, is_well);
    if (finding == NORM_FASTER || e->norm.n_samples != samples)
        tell(e, all->keep, all->arg);
    return finding;
}

void
norms_each(const struct norms *all, norms_cb *cb, void *arg)
{
    struct entry *e;

    DL_FOREACH(all->entries, e)
    {
        tell(e, cb, arg);
    }
}

void
norms_forget(struct norms *all, const char *gpu, norms_cb *cb, void *arg)
{
    struct entry *e, *next;

    DL_FOREACH_SAFE(all->entries, e, next)
    {
        if (!is_same(e->gpu, gpu))
            continue;
        tell(e, cb, arg);
        DL_DELETE(all->entries, e);
        free(e);
    }
}
