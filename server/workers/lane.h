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

#include "common/buffer.h"
#include "common/classes.h"
#include "common/error.h"
#include "common/hash.h"
#include "server/config.h"
#include "server/workers/devices.h"
#include "server/workers/uids.h"
#include "server/workers/zygote.h"

/* Reasons that slow down a GPU that has work: NVML's bits for hardware and thermal slowdown and for the power brake. */
#define LANE_THROTTLES (0x8 | 0x20 | 0x40 | 0x80)

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

/* --- judging a submission --- */

/* What the referee said of one stage; views, valid during the callback. */
struct lane_report {
    const char *stage; /* "open", "tiny", "full", "timing" */
    enum lane_outcome { LANE_PASS, LANE_FAIL, LANE_SKIP } outcome;
    enum verdict_class class_; /* of the verdict; CLASS_NONE unless it failed */
    const char *rule;          /* the rule that found a hack; NULL: none, or not failed */
    double run_ms;
    int done, of;
    json_t *error; /* {"type","text","line"} or NULL */
    const char *generality;
    bool is_reopen;    /* the process is lost, and the verdict is not: lane_reopen() */
    bool is_reference; /* it was the reference that failed */
    json_t *detail;    /* an object, or NULL */
    /* What of a failure may be a neighbour's doing; of others 0 or -1. */
    int64_t limit_ms;   /* of class timeout, and of a reference: the limit that passed, or that of a call */
    int64_t stolen_ms;  /* of it, or of the stage, that others had the CPU; -1: not known */
    int64_t free_bytes; /* of the device's memory, as the referee found it then; -1: not told */
    int64_t held_bytes; /* of the machine's, by the processes of the job */
    int neighbours;     /* other children of the device that ended by themselves meanwhile */
};

/* How it was with the candidate's process in the end; a view. */
struct lane_closing {
    bool is_lost;                /* the lane's workers went down with the job in their hands */
    bool is_others;              /* then: for a process of an earlier job, or killed, and not by us */
    const char *why;             /* then: how */
    const struct child_end *end; /* NULL: there never was one, or it was not waited for */
    const struct buffer *output; /* what it printed, all its processes together */
    int64_t output_lost;         /* bytes beyond the limit */
};

struct lane_job_ops {
    void (*report)(void *arg, const struct lane_report *r);
    void (*closed)(void *arg, const struct lane_closing *c); /* once, last */
};

/* Bytes of a task's id, with what tells one of its references from another. */
#define LANE_TASK_SIZE (HASH_TEXT_SIZE + 8)

/* Strings are copied. task_id: submissions with the same one share a reference. */
struct lane_submission {
    const char *task_id;
    const char *entry, *task_entry;
    const char *source, *spec, *reference;
    size_t source_size, spec_size, reference_size;
    json_t *policy; /* borrowed; kept by reference */
    json_t
        *kernels; /* {"names": […], "hashes": […]}: what trusted children found of them; borrowed, copied */
    uint64_t seed;
    bool is_grouped;   /* others have this seed: what is right is kept for them */
    const char *cache; /* NULL: none */
    int images_fd;     /* borrowed: its plan with the images of its kernels; -1: it is judged live */
    /* Idle references and children that are not needed yet are ended first, and none is made. */
    bool is_alone;
};

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

struct lane_registration {
    const char *task_id, *entry; /* entry NULL: to be found */
    const char *source;
    size_t source_size;
    bool dynamic_shapes;
    json_t *cases; /* NULL: none declared */
};
/* spec (JSON text, borrowed) when it was registered; else error {"type","text","line"} when it was refused; else lost. */
typedef void lane_registered_cb(void *arg, const struct buffer *spec, json_t *error);
int lane_register(struct lane *l, const struct lane_registration *r, lane_registered_cb *cb, void *arg,
                  struct error *err);

#endif
