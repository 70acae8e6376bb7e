/*
 * seccomp.h - the calls that a child may not make.
 *
 * A list of what is denied, not of what is allowed: the GPU driver's own set of calls changes with each release.
 */
#ifndef HARNESS_SECCOMP_H
#define HARNESS_SECCOMP_H

#include <stdbool.h>

#include "server/harness/native/harness.h"

struct seccomp_given {
    bool has_pid_namespace; /* pids name only the child's own processes */
    bool has_ipc_namespace; /* System V objects vanish with the child */
    bool has_siblings;      /* its process group is not its own alone */
    bool may_connect;       /* to sockets of this machine */
};

/* Filter the calling thread, which must have no_new_privs, and its descendants. Returns 0 or < 0. */
int seccomp_enter(const struct seccomp_given *given);

/* The same, so that the calling process can send signals to itself alone: for a fork that runs foreign code while other
   processes have the same user id. Returns 0 or < 0. */
HARNESS_API int harness_signal_nobody(void);

#endif
