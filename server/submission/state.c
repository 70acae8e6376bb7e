#include "server/submission/state.h"

#include <stddef.h>
#include <string.h>

#include "common/auto.h"
#include "server/submission/funnel.h"

/* 0 is a legal state, so the table holds state + 1 and what nobody filled in is illegal. */
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
    [STATE_READY] = { [EVENT_LANE] = TO(STATE_TINY),
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
    static const char *const names[] = { "begin", "next", "lane", "park", "finish", "return", "cancel" };
    _Static_assert(ARRAY_LEN(names) == EVENT_NEVENTS, "name every event");
    return names[event];
}

bool
state_is_final(enum state state)
{
    return state == STATE_DONE || state == STATE_CANCELLED;
}

const char *
stage_name(enum stage stage)
{
    static const char *const names[] = { "ast", "compile", "tiny", "full", "timing" };
    _Static_assert(ARRAY_LEN(names) == STAGE_NSTAGES, "name every stage");
    return names[stage];
}

int
stage_find(const char *name)
{
    for (int i = 0; i < STAGE_NSTAGES; i++)
        if (strcmp(stage_name((enum stage)i), name) == 0)
            return i;
    return -1;
}

int
stage_of_state(enum state state)
{
    return state_is_final(state) || state == STATE_QUEUED || state == STATE_READY
               ? -1
               : stage_find(state_name(state));
}

bool
funnel_class_is_known(const char *name)
{
    static const char *const classes[] = {
        "ok",   "extract", "syntax", "policy", "import",    "compile",  "launch",           "timeout",
        "oom",  "crash",   "shape",  "dtype",  "nonfinite", "mismatch", "nondeterministic", "mutated_input",
        "hack", "infra",
    };

    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (strcmp(classes[i], name) == 0)
            return true;
    return false;
}
