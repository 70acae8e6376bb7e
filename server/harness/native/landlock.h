/*
 * landlock.h - file, TCP and scope rules for the calling thread and its descendants.
 *
 * The constants are our own: the headers of the machines that build this know less than the kernels that run it.
 */
#ifndef HARNESS_LANDLOCK_H
#define HARNESS_LANDLOCK_H

#include "server/harness/native/harness.h"

struct landlock_paths {
    const char *writable;            /* everything but device nodes below this directory, which must exist */
    int without_tcp, without_scopes; /* leave these out though the kernel has them */
    int has_gpus;                    /* /dev/nvidia* may be used */
};

/* The kernel's ABI, or a negative errno (-ENOSYS: none, -EOPNOTSUPP: switched off at boot). */
int landlock_abi(void);

/*
 * Restrict the calling thread, which must have no_new_privs. All may be read and executed. In addition to the given
 * path /proc is writable (the driver writes its threads' names there), and so are /dev/null and the like; TCP is
 * blocked from ABI 4, abstract sockets and signals beyond the domain from ABI 6. *has_scopes: whether the latter are.
 * Returns 0 or < 0.
 */
int landlock_enter(const struct landlock_paths *paths, int abi, int *has_scopes);

#endif
