/*
 * contention.h - whether others kept some processes from the CPU or from memory: the kernel's word, read from outside,
 * so that nothing which runs in those processes can say it. Reads /proc; never waits. Any thread.
 */
#ifndef WORKERS_CONTENTION_H
#define WORKERS_CONTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The use by some processes and their descendants up to a moment. To be subtracted. */
struct contention_mark {
    bool is_known;          /* false: this kernel has no figures, or all of the processes are gone */
    int64_t ran_ns;         /* of CPU time, threads and children that have ended included */
    int64_t waited_ns;      /* sum of the times that their living threads were ready to run and did not */
    int64_t busy_ns;        /* that the machine's CPUs were busy, for any process */
    int64_t resident_bytes; /* that they hold now; what they share counts once for each */
    int64_t oom_kills; /* of the kernel's OOM killer, on the whole machine; 0 if the kernel has no figure */
};

/*
 * Of these processes and the caller's own, without its descendants. pids: in this process's namespace; 0 and ended ones
 * are left out. Empty: for processes that are still to be made. At most 256 threads are read.
 */
void contention_read(const int *pids, size_t n, struct contention_mark *out);

/*
 * Between two readings of the same processes: the time for which they were ready to run while others had a CPU instead.
 * Their own threads' waiting for each other is not in it. -1: not known. Pure.
 */
int64_t contention_stolen_ns(const struct contention_mark *before, const struct contention_mark *after);

/* Whether others took so much of a limit that it may have passed for that reason. Pure; stolen_ns < 0: false. */
bool contention_is_starved(int64_t stolen_ns, int64_t limit_ms);

/*
 * The machine has not as much memory as a process was promised that may have limit_bytes and holds own_bytes: others
 * have the rest.
 */
bool contention_is_short(int64_t limit_bytes, int64_t own_bytes);

/* The pid of a pidfd as this process' /proc shows it; 0: it is dead, or not shown. */
int contention_pid(int pidfd);

#endif
