#include "common/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    AUTO_FREE char *own = realpath("/proc/self/exe", NULL);
    char *slash = own ? strrchr(own, '/') : NULL;

    for (; slash && strncmp(relative, "../", 3) == 0; relative += 3) {
        *slash = '\0';
        slash = strrchr(own, '/');
    }
    if (!slash || snprintf(path, PATH_MAX, "%.*s/%s", (int)(slash - own), own, relative) >= PATH_MAX)
        return false;
    return access(path, F_OK) == 0; /* not resolved: what lies there may be links */
}
