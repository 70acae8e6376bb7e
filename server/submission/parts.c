#include "server/submission/parts.h"

bool
zygotes_are_ready(const struct funnel *f)
{
    return zygote_is_ready(f->static_zygote) && zygote_is_ready(f->zygote);
}

struct zygote *
funnel_zygote_of(const struct funnel *f, enum child_role role)
{
    return role == CHILD_COMPILE || role == CHILD_BUILD ? f->zygote : f->static_zygote;
}

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
