/*
 * stage_end.h - what a stage reports to the driver. A stage that is begun returns one; while it is STAGE_PENDING, the
 * stage reports another one later through its callback, as the last thing that it does with the submission.
 */
#ifndef SUBMISSION_STAGE_END_H
#define SUBMISSION_STAGE_END_H

#include <stdbool.h>

#include "common/classes.h"
#include "server/submission/state.h"

struct submission;

enum stage_event {
    STAGE_PENDING, /* nothing yet */
    STAGE_OPENED,  /* the candidate is loaded on its device, and the stage can run */
    STAGE_DECIDED, /* the stage ended with an outcome */
    STAGE_CLOSED,  /* the device has released it, as requested, so that it can finish or wait for its group */
    STAGE_LOST,    /* a worker of ours failed it; its processes are gone */
    STAGE_NEVENTS
};

struct stage_end {
    enum stage_event event;
    /* STAGE_DECIDED */
    enum outcome outcome;
    enum verdict_class class_; /* of OUTCOME_FAIL */
    int done, of;
    bool is_last;     /* no later stage could do anything with it */
    bool needs_fresh; /* its process is gone, and the next stage needs another */
    /* STAGE_LOST */
    bool is_sole;  /* no other submission was on that worker */
    char why[512]; /* in plain English */
};

/* The usual ones. why: copied. */
struct stage_end stage_pending(void);
struct stage_end stage_decided(enum outcome outcome, enum verdict_class class_, int done, int of);
struct stage_end stage_lost(bool is_sole, const char *why);

typedef void stage_ended_cb(struct submission *s, const struct stage_end *end);

#endif
