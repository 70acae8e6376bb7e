/*
 * sandbox.h - what a child gives up before it touches foreign code, as one list of steps (docs/sandbox.md).
 *
 * A zygote probes once which layers its host has (harness_sandbox_probe); each child then applies every one of those,
 * and one that cannot be applied ends the child: it must exit, since half a sandbox is none. Both run the same steps.
 */
#ifndef HARNESS_SANDBOX_H
#define HARNESS_SANDBOX_H

#include <stddef.h>
#include <stdint.h>

#include "server/harness/native/harness.h"

#define HARNESS_SANDBOX_REPORT_MAX 8192

/* Everything is borrowed for the call. Lists end with NULL; a NULL list is an empty one. */
struct harness_sandbox {
    const char *scratch;   /* the child's own directory, absolute; exists; becomes its cwd */
    int64_t uid;           /* own uid and gid, > 0, when started as root; -1: keep */
    uint64_t memory_bytes; /* RLIMIT_DATA; 0: no limit */
    uint64_t file_bytes;   /* RLIMIT_FSIZE; 0: no limit */
    uint64_t files;        /* RLIMIT_NOFILE; 0: no limit of ours */
    uint64_t processes;    /* RLIMIT_NPROC, threads included, per uid; 0: no limit of ours */
    uint64_t layers;       /* optional steps to take, as the probe found them */
    uint64_t zygote;       /* the result of harness_zygote_unshare() */
    uint64_t has_gpus;     /* 1: /dev/nvidia* may be used; 0: they are covered, where mounts can be made */
    uint64_t may_connect;  /* 1: to sockets, for a child that runs trusted programs alone */
    const int *keep;       /* descriptors to keep in addition to 0, 1, 2 */
    uint64_t n_keep;
    const char *const *hidden; /* directories shown empty, where mounts can be made, but for scratch */
    const char *const *shown;  /* and for these directories below them, at their own places */
};

/*
 * Enter it. The process is single-threaded, and the init of a PID namespace where the layers say so.
 * report (of cap bytes, HARNESS_SANDBOX_REPORT_MAX is enough) becomes a JSON object: layer -> "on" | "absent: why".
 * Returns 0, or < 0: harness_error() begins with the step's name, and the process must exit.
 */
HARNESS_API int harness_sandbox_enter(const struct harness_sandbox *s, char *report, size_t cap);

/*
 * Find out what the host has: the same steps in a short-lived fork, single-threaded, before the first child. s as for
 * a child (layers is ignored). *layers: for the children. report: as above.
 * Returns 0, or < 0 when a step failed that no child can do without.
 */
HARNESS_API int harness_sandbox_probe(const struct harness_sandbox *s, uint64_t *layers, char *report,
                                      size_t cap);

/* The bit of an optional layer in `layers`; 0: there is none of that name. For tests, which take layers away. */
HARNESS_API uint64_t harness_sandbox_layer(const char *name);

/* True when the probe's layers ask for the child to be the init of a PID namespace (process.h). */
HARNESS_API int harness_sandbox_wants_pid_namespace(uint64_t layers);

#endif
