/*
 * job.h - what a device does for others, one at a time: a submission in its GPU stages, or the registration of a task.
 * A device has one struct job, which is used again and again. Loop thread only.
 */
#ifndef WORKERS_JOB_H
#define WORKERS_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/error.h"
#include "server/config.h"
#include "server/workers/gpu_child.h"
#include "server/workers/referee.h"
#include "server/workers/report.h"
#include "server/workers/zygote.h"

/* How it was with the candidate's process in the end; a view. */
struct job_closing {
    bool is_lost;                /* the device's workers went down with the job in their hands */
    bool is_others;              /* then: for a process of an earlier job, or killed, and not by us */
    const char *why;             /* then: how */
    const struct child_end *end; /* NULL: there never was one, or it was not waited for */
    const struct buffer *output; /* the output of all its processes */
    int64_t output_lost;         /* bytes beyond the limit */
};

struct job_ops {
    void (*report)(void *arg, const struct stage_report *r);
    void (*closed)(void *arg, const struct job_closing *c); /* once, last */
};

/* spec (JSON text, borrowed) when it was registered; else error {"type","text","line"} when it was refused; else lost. */
typedef void job_registered_cb(void *arg, const struct buffer *spec, json_t *error);

/* --- of the device's job --- */

struct job;

/* It has ended, and its owner knows; needs_canary: the device may have been harmed. */
typedef void job_ended_cb(void *arg, bool needs_canary);

/* config, referee and children are views that outlive it. out: given, job_free(). 0 or ERR_NOMEM. */
int job_new(uv_loop_t *loop, const struct config *config, struct referee *referee,
            struct gpu_children *children, job_ended_cb *ended, void *arg, struct job **out,
            struct error *err);
void job_free(struct job *j); /* there is none; NULL is fine */

bool job_is_none(const struct job *j);
/* As the device_worker_… functions of the same names. There must be no job. */
void job_open(struct job *j, const struct job_submission *s, const struct job_ops *ops, void *arg);
void job_register(struct job *j, const struct job_registration *r, job_registered_cb *cb, void *arg);
void job_stage(struct job *j, const char *stage, int64_t limit_ms);
void job_sanitize(struct job *j, int64_t limit_ms);
void job_reopen(struct job *j);
void job_reopen_compiled(struct job *j, json_t *policy);
void job_close(struct job *j);
/* The device's workers are gone: why and is_others as in struct job_closing. Nothing happens where there is none. */
void job_lose(struct job *j, const char *why, bool is_others);

/* Something has changed: what can be done now is done. */
void job_pump(struct job *j);
/* A child has ended, and is freed afterwards. True: it was the job's own. */
bool job_child_ended(struct job *j, const struct gpu_child *c);
/* A report of the referee. One that is not the job's is ignored. */
void job_reported(struct job *j, const char *id, struct stage_report *report);
/* spec NULL: it was refused, for error (both borrowed). */
void job_registered(struct job *j, const char *id, const struct buffer *spec, json_t *error);

/* Children may be made meanwhile: nothing is timed, and no submission is to be judged alone. */
bool job_allows_making(const struct job *j);
int64_t job_wants_children(const struct job *j); /* how many more than the pool has */
double job_waited_s(const struct job *j);        /* for children, since the start */
int64_t job_reference_hits(const struct job *j); /* references found loaded, since the start */
int64_t job_drifts(const struct job *j); /* timings that found the device off its norm, since the start */

#endif
