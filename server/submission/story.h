/*
 * story.h - the decision after a stage's report: the course of one submission as a table, without its effects. The
 * driver carries it out. Pure.
 */
#ifndef SUBMISSION_STORY_H
#define SUBMISSION_STORY_H

#include <stdbool.h>

#include "server/submission/stage_end.h"
#include "server/submission/state.h"

enum story_step {
    STORY_ILLEGAL,    /* only our own bug reports this in that state */
    STORY_RUN,        /* run the stage that it is in */
    STORY_NEXT,       /* go to the next stage, and run it */
    STORY_NEXT_FRESH, /* go to the next stage, whose process has to be loaded first */
    STORY_READY,      /* wait for a device */
    STORY_LEAVE,      /* have the device release it, since it waits for its group then */
    STORY_PARK,       /* wait for its group to choose which to time */
    STORY_FINISH,     /* nothing follows: compare, have the device release it, or conclude */
    STORY_CONCLUDE,   /* its processes are gone, and its verdict is clear */
    STORY_STOP,       /* it was cancelled, or the daemon drains: end it, or put it back */
    STORY_LOSE,       /* do the attempt again, or give up */
    STORY_NSTEPS
};

/* Further facts of the submission that the decision depends on. */
struct story_facts {
    bool goes_on;      /* the policy lets the next stage follow */
    bool will_park;    /* its group times the fastest alone, and has not chosen yet */
    bool needs_fresh;  /* stage_end.needs_fresh */
    bool is_stopped;   /* it was cancelled, or is to go back into the queue */
    bool is_finishing; /* the device was asked to release it, and its verdict is clear */
    bool is_parking;   /* the same, and it waits for its group */
};

enum story_step story_next(enum state state, enum stage_event event, const struct story_facts *facts);

#endif
