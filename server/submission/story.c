#include "server/submission/story.h"

/* The stage is decided, and another follows. */
static enum story_step
after_stage(enum state state, const struct story_facts *facts)
{
    switch (state) {
    case STATE_AST:
        return STORY_NEXT;
    case STATE_COMPILE:
        return STORY_READY;
    case STATE_TINY:
        return facts->needs_fresh ? STORY_NEXT_FRESH : STORY_NEXT;
    case STATE_FULL:
        if (facts->needs_fresh)
            return STORY_NEXT_FRESH;
        return facts->will_park ? STORY_LEAVE : STORY_NEXT;
    case STATE_TIMING: /* nothing follows on the last one */
    case STATE_QUEUED:
    case STATE_READY:
    case STATE_DONE:
    case STATE_CANCELLED:
    case STATE_NSTATES:
        break;
    }
    return STORY_ILLEGAL;
}

static enum story_step
after_device(enum state state, const struct story_facts *facts)
{
    if (facts->is_finishing)
        return STORY_CONCLUDE;
    if (facts->is_stopped)
        return STORY_STOP;
    return facts->is_parking && state == STATE_FULL ? STORY_PARK : STORY_ILLEGAL;
}

enum story_step
story_next(enum state state, enum stage_event event, const struct story_facts *facts)
{
    bool has_device = state == STATE_TINY || state == STATE_FULL || state == STATE_TIMING;

    if (!has_device && state != STATE_AST && state != STATE_COMPILE)
        return STORY_ILLEGAL;
    switch (event) {
    case STAGE_OPENED:
        return has_device ? STORY_RUN : STORY_ILLEGAL;
    case STAGE_DECIDED:
        return facts->goes_on ? after_stage(state, facts) : STORY_FINISH;
    case STAGE_CLOSED:
        return has_device ? after_device(state, facts) : STORY_ILLEGAL;
    case STAGE_LOST:
        return facts->is_stopped ? STORY_STOP : STORY_LOSE;
    case STAGE_PENDING:
    case STAGE_NEVENTS:
        break;
    }
    return STORY_ILLEGAL;
}
