#include "common/stages.h"

#include <stddef.h>
#include <string.h>

#include "common/auto.h"

static const char *const names[] = { "ast", "compile", "tiny", "full", "timing", "extract" };

_Static_assert(ARRAY_LEN(names) == STAGE_NSTAGES + 1, "name every stage");

const char *
stage_name(enum stage stage)
{
    return stage == STAGE_NONE ? NULL : names[stage];
}

enum stage
stage_find(const char *name)
{
    for (int i = 0; name && i < STAGE_NSTAGES; i++)
        if (strcmp(names[i], name) == 0)
            return (enum stage)i;
    return STAGE_NONE;
}
