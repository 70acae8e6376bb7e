/*
 * gpu_child.h - the children of one device's run zygote. Each is forked and makes its context before it is needed; then
 * it serves as a task's reference, repeatedly, or as one submission's candidate, once; if that was a plan on a GPU, as
 * the executor of more of them. Loop thread only.
 */
#ifndef WORKERS_GPU_CHILD_H
#define WORKERS_GPU_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "common/hash.h"
#include "server/config.h"
#include "server/workers/referee.h"
#include "server/workers/zygote.h"

/* Bytes of a task's id, with a suffix that distinguishes its references. */
#define REFERENCE_ID_SIZE (HASH_TEXT_SIZE + 8)

struct gpu_child;
struct gpu_children;

enum gpu_child_use {
    GPU_CHILD_REFERENCE,
    GPU_CHILD_CANDIDATE,
    GPU_CHILD_RENEWING, /* it has run a plan, of which the referee lets nothing stay */
    GPU_CHILD_EXECUTOR, /* it waits for the next plan */
    GPU_CHILD_TOOL,     /* it has compute-sanitizer look at a plan, once */
    GPU_CHILD_ENDING
};

struct gpu_children_ops {
    /* c, which was taken, has ended, and is freed afterwards. True: it was the job's own. */
    bool (*ended)(void *arg, const struct gpu_child *c);
    void (*changed)(void *arg); /* one has come, has become ready or is gone */
};

/* config, zygote, referee and ops are views that outlive it. out: given, gpu_children_free(). 0 or ERR_NOMEM. */
int gpu_children_new(uv_loop_t *loop, const struct config *config, const char *device, struct zygote *zygote,
                     struct referee *referee, const struct gpu_children_ops *ops, void *arg,
                     struct gpu_children **out, struct error *err);
void gpu_children_free(struct gpu_children *all); /* there is none left; NULL is fine */
/* The workers are gone: all of them are killed, and forgotten at once. */
void gpu_children_abandon(struct gpu_children *all);

/* Make the children that the pool lacks, and `more`. */
void gpu_children_fill(struct gpu_children *all, int64_t more);
/* Whether the referee is busy, and does not report children that become ready. */
void gpu_children_note_busy(struct gpu_children *all, bool is_busy);
void
gpu_children_evict(struct gpu_children *all); /* end the least recently used of more than references_kept */
/* None is left but these two (NULL: none). */
void gpu_children_make_room(struct gpu_children *all, const struct gpu_child *a, const struct gpu_child *b);
bool gpu_children_are_quiet(const struct gpu_children *all); /* none is being made or ended */
bool
gpu_children_can_stand_still(const struct gpu_children *all); /* none is being ended, the referee knows all */
/* On the referee's report. */
void gpu_children_became_ready(struct gpu_children *all, const char *name);
void gpu_children_went(struct gpu_children *all, const char *name);

/* --- one of them --- */

/* A loaded reference of the task; NULL: none. */
struct gpu_child *gpu_children_reference(const struct gpu_children *all, const char *task_id);
/* One that is ready, for that use from now on; task_id: of a reference, copied. NULL: none is ready. */
struct gpu_child *gpu_children_take(struct gpu_children *all, enum gpu_child_use use, const char *task_id);
/* An executor, as a candidate from now on; NULL: none waits. */
struct gpu_child *gpu_children_take_executor(struct gpu_children *all);
/* One is begun, and is used once it is known to the referee. NULL: it cannot be. */
struct gpu_child *gpu_children_take_tool(struct gpu_children *all);
bool gpu_child_is_known(const struct gpu_child *c);
bool gpu_children_are_renewing(const struct gpu_children *all); /* one will wait soon, or be gone */
/* A candidate that ran a plan is renewed; no pointer to it may be kept. False: it has run enough, or is gone. */
bool gpu_child_keep(struct gpu_child *c);
void gpu_child_note_loaded(struct gpu_child *c, const char *task_id); /* copied */
bool gpu_child_is_loaded(const struct gpu_child *c);
void gpu_child_note_used(struct gpu_child *c); /* now */
/* View. Its owner is this module. */
struct child *gpu_child_process(const struct gpu_child *c);
/* A candidate that was killed ends on its own; the referee releases it now. No pointer to it may be kept. */
void gpu_child_let_go(struct gpu_child *c);
void gpu_child_discard(struct gpu_child *c); /* kill and forget; no pointer to it may be kept */

/* --- looking --- */

/* Sets "children", "pool" and "references" of a status. waited_s: of job_waited_s(). */
void gpu_children_show(const struct gpu_children *all, double waited_s, json_t *status);
/* Children that ended without being ended by us, except those of jobs, since the start. */
int64_t gpu_children_lost(const struct gpu_children *all);
/* A released child did not end, for which its zygote was killed. The call resets this. */
bool gpu_children_take_stuck(struct gpu_children *all);

#endif
