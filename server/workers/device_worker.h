/*
 * device_worker.h - one device: its run zygote, its referee, children kept ready, and references kept loaded. One job at
 * a time: a submission in its GPU stages, or the registration of a task. Loop thread only.
 */
#ifndef WORKERS_DEVICE_WORKER_H
#define WORKERS_DEVICE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "server/config.h"
#include "server/workers/devices.h"
#include "server/workers/job.h"
#include "server/workers/zygote.h"

struct device_worker;
struct norms;

enum device_state {
    DEVICE_STARTING, /* a worker is not there yet, or is being started again */
    DEVICE_CHECKING, /* the canary */
    DEVICE_IDLE,     /* may be given a job */
    DEVICE_BUSY,
    /* The canary fails even with fresh workers: no work until the daemon restarts, or, where it is slow and nothing
     * else, until it is not. */
    DEVICE_QUARANTINED,
    DEVICE_STOPPED,
    DEVICE_NSTATES
};
const char *device_state_name(enum device_state state);

/* Runs whenever the device worker has become idle; may give it a job. */
typedef void device_worker_idle_cb(void *arg, struct device_worker *w);

/* device is copied. config, uids, cgroups and norms are views that outlive it. Starts its workers. */
int device_worker_new(uv_loop_t *loop, const struct config *config, struct uids *uids,
                      struct cgroups *cgroups, struct norms *norms, const struct device *device,
                      device_worker_idle_cb *idle, void *arg, struct device_worker **out, struct error *err);
/* A job is lost; stopped_cb once the workers are gone. */
void device_worker_stop(struct device_worker *w, void (*stopped_cb)(void *arg));
void device_worker_free(struct device_worker *w); /* after it has stopped; NULL is fine */

enum device_state device_worker_state(const struct device_worker *w);
const char *device_worker_device(const struct device_worker *w);
bool device_worker_is_gpu(const struct device_worker *w);
bool device_worker_has_reference(const struct device_worker *w, const char *task_id); /* loaded and idle */
/* Views: the referee's "gpu" (NULL: none, or not known yet); the run zygote's versions and its sandbox's layers, both
 * NULL before it was ready. */
json_t *device_worker_gpu(const struct device_worker *w);
json_t *device_worker_versions(const struct device_worker *w);
json_t *device_worker_sandbox(const struct device_worker *w);
/* View: the zygote whose children run candidates. */
const struct zygote *device_worker_zygote(const struct device_worker *w);
/* The norm of its canary has changed: end a quarantine that had no other reason. */
void device_worker_look_again(struct device_worker *w);
void device_worker_reconfigured(struct device_worker *w); /* the settings have changed */
/* Its workers were started afresh for its canary, which has yet to pass. */
bool device_worker_is_suspect(const struct device_worker *w);
/* How often its canary failed, or a timing found it off: what was timed before is not what would be timed now. */
int64_t device_worker_drifts(const struct device_worker *w);
/* Appends to workers (zygote, referee) and gpus, both borrowed arrays. */
void device_worker_status(const struct device_worker *w, json_t *workers, json_t *gpus);

/* --- judging a submission: types in job.h --- */

/* The device worker must be idle. The answer is a report of stage "open", or the closing. */
int device_worker_open(struct device_worker *w, const struct job_submission *s, const struct job_ops *ops,
                       void *arg, struct error *err);
/* After a report: one more stage, at most limit_ms of it. */
void device_worker_stage(struct device_worker *w, const char *stage, int64_t limit_ms);
/* After the last report of a plan on a GPU: compute-sanitizer looks at it, and a report of stage "sanitize" says what it saw. */
void device_worker_sanitize(struct device_worker *w, int64_t limit_ms);
/* After a report with is_reopen: a fresh process, loaded; answers with a report of stage "open". */
void device_worker_reopen(struct device_worker *w);
/*
 * After the last report of a job: a fresh process that holds the task's own reference, under torch.compile, in the
 * candidate's place. policy is kept by reference. Reports as of a candidate, from "open" on.
 */
void device_worker_reopen_compiled(struct device_worker *w, json_t *policy);
/* At any time: end the candidate's process, then `closed`. */
void device_worker_close(struct device_worker *w);

/* --- registering a task --- */

int device_worker_register(struct device_worker *w, const struct job_registration *r, job_registered_cb *cb,
                           void *arg, struct error *err);

#endif
