/*
 * lane.h - one device: its run zygote, its referee, children kept ready, and
 * references kept loaded. One job at a time: a submission in its GPU stages,
 * or the registration of a task. Loop thread only.
 */
#ifndef WORKERS_LANE_H
#define WORKERS_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "server/config.h"
#include "server/workers/devices.h"
#include "server/workers/job.h"
#include "server/workers/uids.h"
#include "server/workers/zygote.h"

struct lane;
struct norms;

enum lane_state {
    LANE_STARTING, /* a worker is not there yet, or is being started again */
    LANE_CHECKING, /* the canary */
    LANE_IDLE,     /* may be given a job */
    LANE_BUSY,
    LANE_QUARANTINED, /* the canary fails even with fresh workers: no work until the daemon restarts, or, where it is
                         slow and nothing else, until it is not */
    LANE_STOPPED,
    LANE_NSTATES
};
const char *lane_state_name(enum lane_state state);

/* Runs whenever the lane has become idle; may give it a job. */
typedef void lane_idle_cb(void *arg, struct lane *l);

/* device is copied. config, uids and cgroups are views that outlive it. Starts its workers. */
int lane_new(uv_loop_t *loop, const struct config *config, struct uids *uids, struct cgroups *cgroups,
             const struct device *device, lane_idle_cb *idle, void *arg, struct lane **out,
             struct error *err);
void lane_stop(struct lane *l,
               void (*stopped_cb)(void *arg)); /* a job is lost; stopped_cb once workers are gone */
void lane_free(struct lane *l);                /* after it has stopped; NULL is fine */

enum lane_state lane_state(const struct lane *l);
const char *lane_device(const struct lane *l);
bool lane_is_gpu(const struct lane *l);
bool lane_has_reference(const struct lane *l, const char *task_id); /* loaded and idle */
json_t *lane_gpu(const struct lane *l);      /* view: the referee's "gpu"; NULL: none, or not known yet */
json_t *lane_versions(const struct lane *l); /* view: of the run zygote; NULL before it was ready */
const struct zygote *lane_zygote(const struct lane *l); /* view: whose children run candidates */
json_t *lane_sandbox(const struct lane *l);             /* view: its layers; NULL before it was ready */
/* Before its first canary; a view that outlives it. */
void lane_use_norms(struct lane *l, struct norms *norms);
void lane_look_again(
    struct lane *l); /* what its canary is compared with has changed: out of quarantine, where that was all */
void lane_reconfigured(struct lane *l); /* the settings have changed */
bool lane_is_doubted(
    const struct lane *l); /* its workers were started afresh for its canary, which has yet to pass */
/* How often its canary failed, or a timing found it off: what was timed before is not what would be timed now. */
int64_t lane_drifts(const struct lane *l);
/* Appends to workers (zygote, referee) and gpus, both borrowed arrays. */
void lane_status(const struct lane *l, json_t *workers, json_t *gpus);

/* --- judging a submission: types in job.h --- */

/* The lane must be idle. The answer is a report of stage "open", or the closing. */
int lane_open(struct lane *l, const struct lane_submission *s, const struct lane_job_ops *ops, void *arg,
              struct error *err);
/* After a report: one more stage, at most limit_ms of it. wants_evidence: it is the last one (docs/trust.md). */
void lane_stage(struct lane *l, const char *stage, bool wants_evidence, int64_t limit_ms);
/* After a report with is_reopen: a fresh process, loaded; answers with a report of stage "open". */
void lane_reopen(struct lane *l);
/*
 * After the last report of a job: a fresh process that holds the task's own reference, under torch.compile, in the
 * candidate's place. policy is kept by reference. Reports as of a candidate, from "open" on.
 */
void lane_reopen_compiled(struct lane *l, json_t *policy);
/* At any time: end the candidate's process, then `closed`. */
void lane_close(struct lane *l);

/* --- registering a task --- */

int lane_register(struct lane *l, const struct lane_registration *r, lane_registered_cb *cb, void *arg,
                  struct error *err);

#endif
