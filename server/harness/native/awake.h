/*
 * awake.h - keep cores from going to sleep while something short is timed on them.
 *
 * A core without work halts, and on a virtual machine its host takes it away: to wake it costs 50 to 100 us and a different time
 * each time. A thread of the idle policy that spins there keeps it, and gives way at once to whoever has work.
 */
#ifndef HARNESS_AWAKE_H
#define HARNESS_AWAKE_H

#include <stdint.h>

#include "server/harness/native/harness.h"

#define HARNESS_AWAKE_MAX 8

/*
 * Start one such thread on each of these cores (numbers as for sched_setaffinity()), 1 to HARNESS_AWAKE_MAX of them. When it
 * returns they spin. 0, -EBUSY while others do, -EINVAL, or a negative errno with none left behind: a core that this process
 * may not use, no threads.
 */
HARNESS_API int harness_awake_begin(const int32_t *cores, uint32_t n);
/* End them and wait for that; nothing where there are none. */
HARNESS_API void harness_awake_end(void);

#endif
