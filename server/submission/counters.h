/*
 * counters.h - what was counted since the daemon started: stages, verdicts, reused verdicts, reruns, seconds of devices.
 * The code that makes an event happen counts it, once; no decision depends on a count. Loop thread only.
 */
#ifndef SUBMISSION_COUNTERS_H
#define SUBMISSION_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/classes.h"
#include "server/submission/state.h"

struct counters;

struct counters *counters_new(void); /* given: free(); NULL: no memory */

/* Something has changed that funnel_figures() shows. The calls below do this themselves. */
void counters_touch(struct counters *c);
/* A number that grows with each change. */
uint64_t counters_generation(const struct counters *c);

/* --- stages --- */

void counters_enter_stage(struct counters *c, enum stage stage);
/* A submission waited so long for the stage. */
void counters_wait(struct counters *c, enum stage stage, double wait_ms);
/* The stage ended so after run_ms; has_device: it held a device for that time. */
void counters_end_stage(struct counters *c, enum stage stage, enum outcome outcome, double run_ms,
                        bool has_device);
/* The stage was skipped before it began. */
void counters_skip_stage(struct counters *c, enum stage stage);
/* A submission failed before this stage, so that the stage's work was saved. */
void counters_spare_stage(struct counters *c, enum stage stage);
/* A submission or a registration held a device for so long. */
void counters_hold_device(struct counters *c, double seconds);

/* --- ends --- */

enum count {
    COUNT_RETURNED, /* a submission was put back into the queue */
    COUNT_FENCED, /* the store refused a verdict made here: another node has the submission, or has ended it */
    COUNT_HANDED_ON, /* a submission was compiled here for a node with a device */
    COUNT_CARRIED,   /* a submission came compiled */
    REUSE_HIT,       /* a stored verdict answered */
    REUSE_JOINED,    /* one that was in flight did */
    REUSE_MISS,
    REUSE_RECHECKED,
    REUSE_DIFFERED,
    RERUN_REFUSED, /* a rerun had no time */
    RERUN_CONFIRMED,
    RERUN_CLEARED, /* it ended with another class */
    COUNT_N
};
void counters_count(struct counters *c, enum count what);
/* The reward of a verdict made here; speedup NAN: it was not timed. */
void counters_add_reward(struct counters *c, double reward, double speedup);
/*
 * A submission has its verdict, took_s after it was accepted. class_: CLASS_NONE where it was cancelled. is_shared: the
 * verdict is that of an identical submission.
 */
void counters_finish(struct counters *c, enum verdict_class class_, double took_s, bool is_shared);
/* A cheat was refused with this class, by a rule of ours ("": by none). */
void counters_reject(struct counters *c, enum verdict_class class_, const char *rule);
/* Smoothed seconds from one verdict to the next while there is work; 0: not known. */
double counters_service_s(const struct counters *c);

/* A verdict was reused that took this many seconds of a device when it was made. */
void counters_save_by_reuse(struct counters *c, double seconds);

/* --- showing --- */

/* Given: "counts" of /v1/status, but for what the store counts. rerun_held_s: what others waited for reruns. */
json_t *counters_json(const struct counters *c, double rerun_held_s);
/* Given: /v1/stats. */
json_t *counters_stats_json(const struct counters *c, int devices);

#endif
