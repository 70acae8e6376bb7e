#include "server/harness/native/timer.h"

#include "server/harness/native/gpu.h"

int
harness_clock_finish(struct harness_clock *c, int64_t *ns)
{
    int code = harness_gather_run();

    c->ended_ns = harness_now_ns();
    *ns = c->ended_ns - c->started_ns;
    return code;
}

/* The canary that has the GPU while the child launches its work is over: the clock starts. */
static int
end_head(struct harness_clock *c)
{
    int code = gpu_canary_wait();
    int64_t now_ns = harness_now_ns();

    c->head_ns = now_ns - c->started_ns;
    c->started_ns = now_ns;
    return code;
}

int
harness_clock_call(struct harness_clock *c, int64_t *ns)
{
    int code = 0;

    c->head_ns = 0;
    c->started_ns = harness_now_ns();
    if (c->head_steps != 0 && (code = gpu_canary_start(c->head_steps)) != 0)
        return code;
    c->bell = harness_doorbell_ring(c->page, c->set, c->calls, c->sets);
    if (c->head_steps != 0 && (code = end_head(c)) != 0)
        return code;
    code = harness_doorbell_await(c->page, c->bell, c->pidfd, c->spin_ns, c->timeout_ns);
    c->answered_ns = harness_now_ns();
    if (code != 0)
        return code;
    harness_doorbell_claims(c->page, &c->status, &c->generation, &c->events_ns, &c->host_ns);
    if (c->status != DOORBELL_OK)
        return HARNESS_CLOCK_RAISED;
    if (c->generation != c->expected_generation)
        return HARNESS_CLOCK_MOVED;
    return harness_clock_finish(c, ns);
}
