/* private.h - what the files of a lane share: its fields, its children and its job. Nobody else includes it. */
#ifndef WORKERS_PRIVATE_H
#define WORKERS_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <utlist.h>
#include <uv.h>

#include "common/buffer.h"
#include "common/error.h"
#include "common/hash.h"
#include "server/config.h"
#include "server/workers/channel.h"
#include "server/workers/contention.h"
#include "server/workers/devices.h"
#include "server/workers/lane.h"
#include "server/workers/norms.h"
#include "server/workers/process.h"
#include "server/workers/zygote.h"

/* One child of the run zygote. */
enum runner_state { RUNNER_FORKING, RUNNER_WARMING, RUNNER_READY, RUNNER_ENDED };
enum runner_use { USE_POOL, USE_REFERENCE, USE_CANDIDATE, USE_NONE }; /* USE_NONE: it is being ended */

struct runner {
    struct runner *prev, *next;
    struct lane *lane;
    struct child *child;
    enum runner_state state;
    enum runner_use use;
    bool is_told; /* the referee knows it */
    bool is_loaded;
    char task_id[LANE_TASK_SIZE];
    int64_t used; /* lane->clock when it was last */
};

/* A submission in its GPU stages, or the registration of a task. */
enum phase { PHASE_ACQUIRE, PHASE_ASKED, PHASE_ANSWERED, PHASE_QUIET, PHASE_REOPEN, PHASE_CLOSE };

struct job {
    char id[24];
    bool is_registration;
    enum phase phase;
    bool is_asked;      /* the referee owes a report */
    bool is_opened;     /* it knows the job */
    bool is_limited;    /* its deadline has passed, and the child was killed for it */
    bool is_violent;    /* the canary has to sing before anybody else is served */
    int strikes;        /* how often a deadline passed */
    int64_t wanting_ns; /* monotonic: since when it waits for children */
    struct runner *candidate, *reference;
    char task_id[LANE_TASK_SIZE];
    char *entry, *task_entry, *cache;
    int images_fd; /* -1: none */
    char *source, *spec, *reference_source, *kernels;
    size_t source_size, spec_size, reference_size;
    json_t *policy, *cases;
    bool dynamic_shapes;
    uint64_t seed;
    bool is_grouped;
    char stage[16];
    bool wants_evidence;
    bool is_alone; /* nobody but its own children on the device */
    /* When the referee was asked last: of the candidate, the reference and the referee. */
    struct contention_mark begun;
    int64_t stolen_ms;   /* up to when a deadline passed; -1: none did, or not known */
    int64_t asked_ms;    /* the limit of that */
    int64_t lost_before; /* lane->lost then */
    bool is_compiled;    /* the candidate is the reference itself, for torch to compile */
    int64_t limit_ms;
    struct child_end end;
    bool has_end;
    struct buffer output;
    int64_t output_lost;
    const struct lane_job_ops *ops;
    lane_registered_cb *registered;
    void *arg;
};

/* The children that are ready before they are asked for, since the start. */
struct supply {
    int64_t made, lost;
    double waited_s; /* that jobs waited for children */
};

/* Of the device: what its last one said, and when one passed. */
struct canary {
    bool is_waiting;          /* to be sent once no child is being made or ended */
    bool is_slow_only;        /* the last one failed, and by its time alone */
    int64_t passed_ns;        /* monotonic; 0: none passed yet */
    int64_t passed_ms;        /* wall clock */
    int64_t passes, failures; /* since the start */
    int64_t ns;               /* how long the last one took; 0: it does not tell */
    char kind[32];            /* of that one; "": it has no time */
    char why[192];            /* the last one failed; "": it passed */
};

struct lane {
    uv_loop_t *loop;
    const struct config *config;
    struct device device;
    lane_idle_cb *idle;
    void *arg;
    struct zygote *zygote;
    struct process *referee;
    enum lane_state state;
    bool is_stopping;
    void (*stopped_cb)(void *arg);
    int stopped;
    struct runner *runners;
    struct job *job;
    struct supply supply;
    struct {
        int64_t hits, loads,
            evicted;      /* since the start: references found loaded; begun; ended to make room */
        int64_t recalled; /* right answers that were given again */
    } references;
    struct norms *norms; /* a view; NULL: no canary's time is compared with anything */
    struct canary canary;
    uv_timer_t job_timer, retry_timer, canary_timer, look_timer;
    int handles;
    int64_t clock, jobs_made;
    int failures, canary_failures;
    bool is_stuck; /* a process of an earlier job does not end: the workers go down for that */
    int64_t lost;  /* children that ended though nobody had ended them, candidates apart; since the start */
    int64_t drifts;
    bool is_suspect; /* the workers were started afresh because of the canary */
    json_t *seen;    /* of the GPU, when something was last timed on it; NULL: nothing was */
};

/* What a child that waits holds of a GPU: its context. */
#define GPU_CHILD_BYTES (715LL * 1000 * 1000)

/* lane.c */
void lane_pump(struct lane *l);         /* something has changed: does what can be done now */
void lane_become_idle(struct lane *l);  /* tells the owner, who may give it a job */
void lane_became_ready(struct lane *l); /* one of the two workers has */
/* Either worker is gone, and with it what the other knew; why: how, for the owner of the job that is lost. */
void lane_went_down(struct lane *l, const char *why);

/* runner.c: the lane's children */
void
runners_fill_pool(struct lane *l); /* children are made and ended beside tiny and full, never beside timing */
json_t *runners_pool_json(const struct lane *l);    /* given */
void runners_evict(struct lane *l);                 /* the references used longest ago make room */
void runners_make_room(struct lane *l);             /* none but the job's own are left */
bool runners_are_quiet(const struct lane *l);       /* none is being made, or being ended */
bool runners_can_stand_still(const struct lane *l); /* none is being ended, all are known */
void runners_limit_warming(struct lane *l); /* after job->is_asked or the set of children has changed */
void runners_abandon(struct lane *l);       /* all of them; the referee is not told */
int runners_count(const struct lane *l, enum runner_use use, bool is_ready_only);
struct runner *runner_find(struct lane *l, const char *name);
struct runner *runner_find_reference(const struct lane *l, const char *task_id); /* loaded; NULL: none */
struct runner *runner_find_ready(struct lane *l);                                /* NULL: none */
void runner_became_ready(struct lane *l, struct runner *r);                      /* as the referee says */
void runner_take_as(struct lane *l, struct runner *r, enum runner_use use);
/* A candidate whose job is over ends on its own; the referee lets go of it now. */
void runner_let_go(struct runner *r);
void runner_discard(struct runner *r); /* whatever it was for; a job must not point to it any more */

/* job.c: what the lane's job waits for, and what becomes of it */
void job_pump(struct lane *l); /* l->job may be gone afterwards */
/* Keep what the candidate's process leaves behind: its output so far and, if it has ended, how. */
void job_inherit(struct job *j, const struct child *c);
/*
 * The referee's report, without its detail. False: the owner does not want it any more, and job_report() is not to
 * be called.
 */
bool job_answered(struct lane *l, struct lane_report *report);
void job_report(struct lane *l, struct lane_report *report);
/* spec NULL: it was refused, for error (both borrowed). The job is gone afterwards. */
void job_registered(struct lane *l, const struct buffer *spec, json_t *error);
/* Tells the owner, who may not give the lane another job from there, and frees j. why: lost so, perhaps for another job's
   process; NULL: closed. */
void job_tell_closed(struct job *j, const char *why, bool is_others);

/* referee.c: what is said to the referee, and heard from it */
int referee_new(struct lane *l, struct error *err); /* l->referee, not started yet */
/* body and the descriptors are taken. */
void referee_tell(struct lane *l, json_t *body, const struct channel_fd *fds, size_t n);
/* Ask about l->job. False: there is no memory for it, and the referee is killed for that. */
bool referee_ask_register(struct lane *l);
bool referee_ask_open(struct lane *l);
void referee_ask_stage(struct lane *l);
void referee_drop(struct lane *l, const struct runner *r);

/* canary.c */
void canary_send(struct lane *l);         /* the lane is checking from here on; there is no job */
void canary_pump(struct lane *l);         /* something has changed: one that waits may go */
bool canary_is_due(const struct lane *l); /* the last that passed is too old for another job */
void canary_schedule(struct lane *l);     /* the lane has become idle, or the settings have changed */
void canary_look_again(struct lane *l);   /* at one that is in quarantine for being slow alone */
void canary_abandon(struct lane *l);      /* the workers are gone */
void canary_answered(struct lane *l, const json_t *body);
json_t *canary_json(const struct lane *l); /* given */

#endif
