/*
 * process.h - the processes around a child: PID namespaces for it, freezing it, waiting for it.
 *
 * A zygote is the init of a PID namespace of its own, each child the init of one nested in it, so that one SIGKILL ends
 * a child and all that it ever started, and a killed zygote takes its children along. unshare(CLONE_NEWPID) moves only
 * the caller's future children, hence the pairs below around a fork(); the fork itself is Python's (os.fork), since its
 * handlers must run.
 */
#ifndef HARNESS_PROCESS_H
#define HARNESS_PROCESS_H

#include <stdint.h>

#include "server/harness/native/harness.h"

/*
 * For a zygote, once, at its start, single-threaded: arrange that its next fork() is the init of a new PID namespace;
 * where this takes a user namespace (no CAP_SYS_ADMIN), enter one first, with the caller's ids mapped to themselves.
 * Returns 1: done as root, 2: done in a new user namespace, 0: the host allows neither (harness_error() says why).
 * After 1 or 2: fork(); the child goes on as the zygote, the parent calls harness_zygote_guard().
 */
HARNESS_API int harness_zygote_unshare(void);

/*
 * The zygote's parent after the fork: closes every descriptor, waits for the zygote and ends as it did (128 + signal
 * when it was killed). It exists because the starter knows only its pid; when it is killed the zygote is too.
 */
HARNESS_API void harness_zygote_guard(int pid) __attribute__((noreturn));

/* Die with the parent (SIGKILL). Cleared by a change of ids, so it comes after that. 0 or < 0. */
HARNESS_API int harness_die_with_parent(void);

/*
 * For a process of ours that shares a uid and a namespace with foreign code, such as the init above it: its memory and
 * descriptors can no longer be reached through /proc. 0 or < 0.
 */
HARNESS_API int harness_close_to_others(void);

/* Before a fork: the next child begins a new PID namespace. Returns a descriptor for _end(), or < 0. */
HARNESS_API int harness_pid_namespace_begin(void);
/* After it, in the parent, whether fork() failed or not: later children are siblings again. Takes the descriptor. */
HARNESS_API int harness_pid_namespace_end(int fd);

/*
 * Freeze the process of a pidfd and all its descendants, and wait (at most 1 s) until every thread of them has stopped.
 * As the child is the init of its PID namespace, all processes that it started are below it in the process tree.
 * Returns the number of processes stopped, -ESRCH (it is dead), or -ETIMEDOUT.
 */
HARNESS_API int harness_stop(int pidfd);
/* Let them run again: the process of the pidfd last. The number, or -ESRCH. */
HARNESS_API int harness_cont(int pidfd);
/*
 * Let all threads of a stopped process and of all below it run on these cores only; what they start later inherits it.
 * Returns the number of threads, or -ESRCH, -EINVAL, -EPERM (it is another user's).
 */
HARNESS_API int harness_pin(int pidfd, const int32_t *cores, uint32_t n);

/* The cores on which the process may run now, at most n of them: how many were written, or -ESRCH. */
HARNESS_API int harness_cores_of(int pidfd, int32_t *cores, uint32_t n);

/* Number of threads of the calling process, or < 0. */
int harness_count_threads(void);

/* The pid of a pidfd as our /proc shows it; 0: dead, or outside what it shows. */
int harness_pid_of(int pidfd);

#define HARNESS_TREE_MAX 512 /* processes of one child; more than its limit allows */

struct harness_tree {
    int pids[HARNESS_TREE_MAX];
    int n;
};

/* The process and all below it in the process tree, top first. */
void harness_read_tree(int pid, struct harness_tree *out);

#endif
