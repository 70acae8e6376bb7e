/*
 * referee.h - the referee of one device: a process that holds inputs and right answers, and compares and times what
 * children do. The messages are in proto/worker.md. Loop thread only.
 */
#ifndef WORKERS_REFEREE_H
#define WORKERS_REFEREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/error.h"
#include "server/config.h"
#include "server/workers/devices.h"
#include "server/workers/process.h"
#include "server/workers/report.h"

struct referee;

/* All arguments are borrowed. What concerns a job or a child that is forgotten here comes, too. */
struct referee_ops {
    void (*ready)(void *arg);
    void (*down)(void *arg, const char *why);
    void (*child_ready)(void *arg, const char *child);
    void (*child_gone)(void *arg, const char *child);
    void (*report)(void *arg, const char *job, struct stage_report *report);
    /* spec NULL: it was refused, for error. */
    void (*registered)(void *arg, const char *job, const struct buffer *spec, json_t *error);
    void (*canary)(void *arg, const json_t *body);
};

/* device is copied; config and ops are views that outlive it. Not started yet. out: given, referee_free(). */
int referee_new(uv_loop_t *loop, const struct config *config, const struct device *device,
                const struct referee_ops *ops, void *arg, struct referee **out, struct error *err);
void referee_free(struct referee *r);                     /* once its process has stopped; NULL is fine */
struct process *referee_process(const struct referee *r); /* view */
void referee_kill(struct referee *r, const char *why);

/* --- requests; one that is sent while it is not ready is dropped --- */

/* Of jobs (job.h). Their texts are the owner's, and stay until the job has ended. */
struct job_registration {
    const char *task_id, *entry; /* entry NULL: to be found */
    const char *source;
    size_t source_size;
    bool dynamic_shapes;
    json_t *cases; /* NULL: none declared */
};

struct job_submission {
    const char *task_id; /* those with the same one share a reference */
    const char *entry, *task_entry;
    const char *source, *spec, *reference;
    size_t source_size, spec_size, reference_size;
    json_t *policy; /* borrowed; a job keeps a reference */
    uint64_t seed;
    bool is_grouped;   /* others have this seed: its expected outputs are kept for them */
    const char *cache; /* NULL: none */
    int images_fd;     /* its plan with the images of its kernels; -1: it is judged live */
    /* Idle references and children that are not needed yet are ended first, and none is made. */
    bool is_isolated;
    bool is_compiled; /* the candidate is the reference itself, for torch to compile */
};

/* False: there is no memory for the message, and the referee is killed for that. */
bool referee_register(struct referee *r, const char *job, const char *child,
                      const struct job_registration *what);
bool referee_open(struct referee *r, const char *job, const char *reference, const char *candidate,
                  const struct job_submission *what);
/* tool: the child in which compute-sanitizer runs, for "sanitize"; NULL: none. */
void referee_stage(struct referee *r, const char *job, const char *stage, const char *tool);
/* is_kept: its candidate's process, which ran a plan, is to be made fit for another one; child_gone() where it is not. */
void referee_close(struct referee *r, const char *job, bool is_kept);
void referee_canary(struct referee *r);
void referee_child(struct referee *r, const char *child, int channel, int pidfd); /* both are taken */
void referee_drop(struct referee *r, const char *child);

/* --- looking --- */

json_t *referee_gpu(const struct referee *r);  /* view; NULL: none, or not known yet */
json_t *referee_seen(const struct referee *r); /* view: clocks and the like after the newest timing; NULL */
int64_t referee_recalled(const struct referee *r); /* right answers that were given again, since the start */

#endif
