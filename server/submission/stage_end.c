#include "server/submission/stage_end.h"

#include <stdio.h>

struct stage_end
stage_pending(void)
{
    return (struct stage_end){ .event = STAGE_PENDING };
}

struct stage_end
stage_decided(enum outcome outcome, enum verdict_class class_, int done, int of)
{
    return (struct stage_end){
        .event = STAGE_DECIDED, .outcome = outcome, .class_ = class_, .done = done, .of = of
    };
}

struct stage_end
stage_lost(bool is_sole, const char *why)
{
    struct stage_end end = { .event = STAGE_LOST, .is_sole = is_sole };

    snprintf(end.why, sizeof(end.why), "%s", why);
    return end;
}
