/*
 * prefork_pool.h - children of one role that were forked and confined before they are needed, so that no request waits
 * for either. Each serves one owner, as any child. Loop thread only.
 */
#ifndef WORKERS_PREFORK_POOL_H
#define WORKERS_PREFORK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "common/error.h"
#include "server/workers/zygote.h"

#define PREFORK_RETRY_MS 1000 /* after one that could not be made, or was lost; doubled each time, up to: */
#define PREFORK_RETRY_MAX_MS 60000

struct prefork_pool;

/* Of a pool whose children become ready only after they were forked. */
struct prefork_ops {
    bool (*spawned)(void *arg, struct child *c); /* it makes itself ready; false: it cannot, and is killed */
    void (*forget)(void *arg, const struct child *c); /* after spawned(): it is gone */
    void (*lost)(void *arg, const struct child *c);   /* it ended before it was taken */
    void (*changed)(void *arg);                       /* call prefork_pool_fill() when it suits */
};

struct prefork_rules {
    int64_t most;    /* as many are kept; 0: none */
    int making_max;  /* how many at a time; 0: any number */
    int64_t warm_ms; /* from forking to ready */
    const struct prefork_ops
        *ops; /* a view; NULL: a child is ready once it was requested, and the pool fills itself */
    void *arg;
};

struct prefork_counts {
    int64_t most, kept, ready, making; /* now; kept: ready or in the making */
    int64_t made, taken, missed, lost; /* since the start; made: that became ready; missed: none was ready */
};

/* Of z, a view that outlives it; name is for the log, copied. ERR_NOMEM. Given: prefork_pool_free(). */
int prefork_pool_new(uv_loop_t *loop, const char *name, struct zygote *z, enum child_role role,
                     const struct prefork_rules *rules, struct prefork_pool **out, struct error *err);
void prefork_pool_free(struct prefork_pool *p);    /* there is none left; NULL is fine */
void prefork_pool_abandon(struct prefork_pool *p); /* all of them are killed, and forgotten at once */

/* Makes the missing children, and `more`, if the zygote is ready and no retry is pending. */
void prefork_pool_fill(struct prefork_pool *p, int64_t more);
/* The oldest that is ready, with ops and arg as child_new() takes them. NULL: none is ready. */
struct child *prefork_pool_take(struct prefork_pool *p, const struct child_ops *ops, void *arg);

/* Of pools with ops: by a child's name. False: the pool has no such child. */
bool prefork_pool_became_ready(struct prefork_pool *p, const char *name);
bool prefork_pool_end(struct prefork_pool *p, const char *name); /* forgotten already: kill it */
/* While on, children do not report that they are ready, and have no limit for it. */
void prefork_pool_hold(struct prefork_pool *p, bool on);
bool prefork_pool_is_forking(const struct prefork_pool *p); /* one is requested, or ends */

void prefork_pool_count(const struct prefork_pool *p, struct prefork_counts *out);

#endif
