#include "server/submission/state.h"

#include "common/auto.h"

/* 0 is a legal state, so the table holds state + 1, and an entry that is not filled in is illegal. */
#define TO(state) ((state) + 1)

static const signed char moves[STATE_NSTATES][EVENT_NEVENTS] = {
    [STATE_QUEUED] = { [EVENT_BEGIN] = TO(STATE_AST),
                       [EVENT_FINISH] = TO(STATE_DONE),
                       [EVENT_CANCEL] = TO(STATE_CANCELLED) },
    [STATE_AST] = { [EVENT_NEXT] = TO(STATE_COMPILE),
                    [EVENT_FINISH] = TO(STATE_DONE),
                    [EVENT_RETURN] = TO(STATE_QUEUED),
                    [EVENT_CANCEL] = TO(STATE_CANCELLED) },
    [STATE_COMPILE] = { [EVENT_NEXT] = TO(STATE_READY),
                        [EVENT_FINISH] = TO(STATE_DONE),
                        [EVENT_RETURN] = TO(STATE_QUEUED),
                        [EVENT_CANCEL] = TO(STATE_CANCELLED) },
    [STATE_READY] = { [EVENT_DEVICE] = TO(STATE_TINY),
                      [EVENT_FINISH] = TO(STATE_DONE),
                      [EVENT_RETURN] = TO(STATE_QUEUED),
                      [EVENT_CANCEL] = TO(STATE_CANCELLED) },
    [STATE_TINY] = { [EVENT_NEXT] = TO(STATE_FULL),
                     [EVENT_FINISH] = TO(STATE_DONE),
                     [EVENT_RETURN] = TO(STATE_QUEUED),
                     [EVENT_CANCEL] = TO(STATE_CANCELLED) },
    [STATE_FULL] = { [EVENT_NEXT] = TO(STATE_TIMING),
                     [EVENT_PARK] = TO(STATE_READY),
                     [EVENT_FINISH] = TO(STATE_DONE),
                     [EVENT_RETURN] = TO(STATE_QUEUED),
                     [EVENT_CANCEL] = TO(STATE_CANCELLED) },
    [STATE_TIMING] = { [EVENT_FINISH] = TO(STATE_DONE),
                       [EVENT_RETURN] = TO(STATE_QUEUED),
                       [EVENT_CANCEL] = TO(STATE_CANCELLED) },
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
    switch (state) {
    case STATE_AST:
        return STAGE_AST;
    case STATE_COMPILE:
        return STAGE_COMPILE;
    case STATE_TINY:
        return STAGE_TINY;
    case STATE_FULL:
        return STAGE_FULL;
    case STATE_TIMING:
        return STAGE_TIMING;
    case STATE_QUEUED:
    case STATE_READY:
    case STATE_DONE:
    case STATE_CANCELLED:
    case STATE_NSTATES:
        break;
    }
    return STAGE_NONE;
}
