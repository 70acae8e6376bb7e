#include "server/submission/retry.h"

#include <stdlib.h>

#include <utlist.h>

#include "server/workers/handle.h"
#include "server/queue/scheduler.h"
#include "server/submission/parts.h"
#include "server/submission/submission.h"

#define RETRY_MS 1000

struct retries {
    struct submission *waiting;
    uv_timer_t timer;
    struct funnel *funnel;
};

static void
timer_cb(uv_timer_t *timer)
{
    struct retries *r = timer->data;
    struct submission *s, *next, *list = r->waiting;

    r->waiting = NULL;
    DL_FOREACH_SAFE(list, s, next)
    {
        DL_DELETE(list, s);
        s->again(s);
    }
    scheduler_kick(r->funnel->scheduler);
}

struct retries *
retries_new(uv_loop_t *loop, struct funnel *f)
{
    struct retries *r = calloc(1, sizeof(*r));

    if (r) {
        uv_timer_init(loop, &r->timer);
        r->timer.data = r;
        r->funnel = f;
    }
    return r;
}

void
retries_free(struct retries *r)
{
    if (r)
        uv_close((uv_handle_t *)&r->timer, handle_free_cb);
}

void
retry_kick(struct funnel *f)
{
    uv_timer_t *timer = &f->retries->timer;

    if (!uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, timer_cb, RETRY_MS, 0);
}

void
retry_later(struct submission *s, void (*again)(struct submission *s))
{
    s->again = again;
    DL_APPEND(s->funnel->retries->waiting, s);
    retry_kick(s->funnel);
}
