#include "server/submission/follow.h"

#include "server/submission/parts.h"

void
funnel_follow(struct funnel *f, funnel_event_cb *cb, void *arg)
{
    f->event_cb = cb;
    f->event_arg = arg;
}

void
funnel_tell(struct funnel *f, const struct funnel_event *event)
{
    if (f->event_cb)
        f->event_cb(f->event_arg, event);
}
