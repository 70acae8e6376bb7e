#include "server/submission/state.h"

#include "common/auto.h"

/* 0 is a legal state, so the table holds state + 1, and an entry that is not filled in is illegal. */
#define TO(state) ((state) + 1)

/* From each state in which it is judged. */
#define ENDS \
    [EVENT_FINISH] = TO(STATE_DONE), [EVENT_RETURN] = TO(STATE_QUEUED), [EVENT_CANCEL] = TO(STATE_CANCELLED)

static const signed char moves[STATE_NSTATES][EVENT_NEVENTS] = {
    [STATE_QUEUED] = { [EVENT_BEGIN] = TO(STATE_AST),
                       [EVENT_FINISH] = TO(STATE_DONE),
                       [EVENT_CANCEL] = TO(STATE_CANCELLED) },
    [STATE_AST] = { [EVENT_NEXT] = TO(STATE_COMPILE), ENDS },
    [STATE_COMPILE] = { [EVENT_NEXT] = TO(STATE_READY), ENDS },
    [STATE_READY] = { [EVENT_DEVICE] = TO(STATE_TINY), ENDS },
    [STATE_TINY] = { [EVENT_NEXT] = TO(STATE_FULL), ENDS },
    [STATE_FULL] = { [EVENT_NEXT] = TO(STATE_TIMING), [EVENT_PARK] = TO(STATE_READY), ENDS },
    [STATE_TIMING] = { ENDS },
};

int
state_after(enum state state, enum event event)
{
    return moves[state][event] - 1;
}

const char *
state_name(enum state state)
{
    static const char *const names[] = { "queued", "ast",    "compile", "ready",    "tiny",
                                         "full",   "timing", "done",    "cancelled" };
    _Static_assert(ARRAY_LEN(names) == STATE_NSTATES, "name every state");
    return names[state];
}

const char *
event_name(enum event event)
{
    static const char *const names[] = { "begin", "next", "device", "park", "finish", "return", "cancel" };
    _Static_assert(ARRAY_LEN(names) == EVENT_NEVENTS, "name every event");
    return names[event];
}

bool
state_is_final(enum state state)
{
    return state == STATE_DONE || state == STATE_CANCELLED;
}

enum stage
stage_of_state(enum state state)
{
    static const enum stage stages[] = { STAGE_NONE, STAGE_AST,    STAGE_COMPILE, STAGE_NONE, STAGE_TINY,
                                         STAGE_FULL, STAGE_TIMING, STAGE_NONE,    STAGE_NONE };
    _Static_assert(ARRAY_LEN(stages) == STATE_NSTATES, "name the stage of every state");
    return stages[state];
}
