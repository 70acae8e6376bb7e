/*
 * timer.h - the referee's clock around one bell: from the ring to the end of its own gather.
 *
 * The gather's addresses are set beforehand, from the reply that the child gave last (gpu.h). When the new reply has
 * another generation the outputs may have moved: the call stops short of the gather, the caller reads the reply, sets
 * the addresses and finishes, the clock still running. The gather, and not the answer, is what ends the clock.
 */
#ifndef HARNESS_TIMER_H
#define HARNESS_TIMER_H

#include <stdint.h>

#include "server/harness/native/doorbell.h"

struct harness_clock {
    struct doorbell *page;
    int64_t spin_ns, timeout_ns; /* as for harness_doorbell_await() */
    int32_t pidfd;
    uint32_t set, calls, sets;
    uint32_t expected_generation; /* the generation of the reply that the addresses come from; 0: none yet */
    uint32_t head_steps;          /* of a canary before the ring, at whose end the clock starts; 0: none */
    /* results */
    uint32_t bell, status, generation;
    uint64_t events_ns, host_ns; /* the child's claims */
    int64_t head_ns;             /* from the canary's launch to its end */
    int64_t started_ns, answered_ns, ended_ns;
};

#define HARNESS_CLOCK_MOVED 1  /* the reply is another: set the addresses, then harness_clock_finish() */
#define HARNESS_CLOCK_RAISED 2 /* the child says that its call failed: the reply has the error */

/*
 * Ring, wait, gather, stop. With head_steps the child has so long to launch its work before the clock starts, and the
 * GPU, which contexts use in turn, is not free for it until then. Returns 0 (*ns is the time), HARNESS_CLOCK_MOVED,
 * HARNESS_CLOCK_RAISED, or < 0: the errors of harness_doorbell_await() and harness_gather_run(). Without a GPU, or with
 * no addresses set, the clock stops at the answer.
 */
HARNESS_API int harness_clock_call(struct harness_clock *c, int64_t *ns);
/* After HARNESS_CLOCK_MOVED: gather and stop. */
HARNESS_API int harness_clock_finish(struct harness_clock *c, int64_t *ns);

#endif
