#include "common/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

const char *
program_environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && value[0] ? value : otherwise;
}

bool
program_beside(const char *relative, char path[PATH_MAX])
{
    AUTO_FREE char *own = realpath("/proc/self/exe", NULL), *joined = NULL;
    char *slash = own ? strrchr(own, '/') : NULL;

    if (!slash || asprintf(&joined, "%.*s/%s", (int)(slash - own), own, relative) < 0)
        return false;
    return realpath(joined, path) != NULL;
}
