/* state.h - the states of a submission and the moves between them: one table, drawn in docs/lifecycle.md. Pure. */
#ifndef SUBMISSION_STATE_H
#define SUBMISSION_STATE_H

#include <stdbool.h>

#include "common/stages.h"

enum state {
    STATE_QUEUED, /* durable, and waits for a CPU slot */
    STATE_AST,
    STATE_COMPILE,
    STATE_READY, /* waits for a device */
    STATE_TINY,
    STATE_FULL,
    STATE_TIMING,
    STATE_DONE,
    STATE_CANCELLED,
    STATE_NSTATES
};

enum event {
    EVENT_BEGIN,  /* a CPU slot was given */
    EVENT_NEXT,   /* the stage is decided, another follows */
    EVENT_DEVICE, /* a device was given */
    EVENT_PARK,   /* right in full, and its group has to choose whom to time */
    EVENT_FINISH, /* the verdict is clear */
    EVENT_RETURN, /* a worker was lost, or the daemon drains: begin again */
    EVENT_CANCEL, /* the client asked */
    EVENT_NEVENTS
};

/* How a stage ended. */
enum outcome { OUTCOME_NONE, OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_SKIP, OUTCOME_N };

#define STATE_ILLEGAL (-1)

/* The state that follows, or STATE_ILLEGAL. */
int state_after(enum state state, enum event event);
const char *state_name(enum state state);
const char *event_name(enum event event);
bool state_is_final(enum state state);

enum stage stage_of_state(enum state state); /* STAGE_NONE: in none */

#endif
