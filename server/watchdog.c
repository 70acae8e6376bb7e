#include "server/watchdog.h"

#include <string.h>

void
watchdog_init(struct watchdog *w, uv_loop_t *loop)
{
    memset(w, 0, sizeof(*w));
    w->loop = loop;
    uv_loop_configure(loop, UV_METRICS_IDLE_TIME); /* fails only where libuv is too old to know it */
}

void
watchdog_count(struct watchdog *w, uint64_t now_ns, uint64_t idle_ns)
{
    uint64_t passed_ns = now_ns - w->turned_ns, slept_ns = idle_ns - w->idle_ns;
    uint64_t busy_ns = passed_ns > slept_ns ? passed_ns - slept_ns : 0;

    /* Before the first there is no turn to measure. */
    if (w->turned_ns != 0 && busy_ns > w->longest_ns)
        w->longest_ns = busy_ns;
    if (w->turned_ns != 0 && busy_ns > WATCHDOG_LONG_NS)
        w->n_long++;
    w->turned_ns = now_ns;
    w->idle_ns = idle_ns;
}

void
watchdog_turn(struct watchdog *w)
{
    watchdog_count(w, uv_hrtime(), uv_metrics_idle_time(w->loop));
}
