/*
 * spare.h - children of one stage that were forked and confined before anybody needs them, so that neither is waited
 * for. Each serves one request, as any child. Loop thread only.
 */
#ifndef WORKERS_SPARE_H
#define WORKERS_SPARE_H

#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "server/workers/zygote.h"

struct spares;

/* Of z (a view that outlives it), as many as `most`, 0: none. ERR_NOMEM. Given: spares_free(). */
int spares_new(uv_loop_t *loop, struct zygote *z, enum child_role role, int64_t most, struct spares **out,
               struct error *err);
/* Once z has stopped, and none is left. NULL is fine. */
void spares_free(struct spares *s);
/* Make what is missing, where z is ready: when it has become so, and when a child that was taken has ended. */
void spares_fill(struct spares *s);
/* A child as child_new() gives it: one that waits, or else a new one. */
int spares_take(struct spares *s, const struct child_ops *ops, void *arg, struct child **out,
                struct error *err);
/* {"most","kept","taken","missed","lost"}: now, and since the start; given. */
json_t *spares_json(const struct spares *s);

#endif
