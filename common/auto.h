/* auto.h - locals that clean up after themselves, and how to hand them on. */
#ifndef COMMON_AUTO_H
#define COMMON_AUTO_H

#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

static inline void
auto_free(void *p)
{
    free(*(void **)p);
}

static inline void
auto_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void
auto_json(json_t **j)
{
    json_decref(*j);
}

#define AUTO_FREE __attribute__((cleanup(auto_free)))
#define AUTO_FD __attribute__((cleanup(auto_close)))
#define AUTO_JSON __attribute__((cleanup(auto_json)))

/* Move a descriptor or pointer out of an AUTO_ local. */
static inline int
fd_take(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#define ptr_take(p)                     \
    ({                                  \
        __typeof__(*(p)) taken_ = *(p); \
        *(p) = NULL;                    \
        taken_;                         \
    })

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
