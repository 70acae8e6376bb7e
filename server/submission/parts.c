#include "server/submission/parts.h"

#include <stdlib.h>

struct follower {
    funnel_event_cb *cb;
    void *arg;
};

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

struct follower *
follower_new(void)
{
    return calloc(1, sizeof(struct follower));
}

void
funnel_follow(struct funnel *f, funnel_event_cb *cb, void *arg)
{
    *f->follower = (struct follower){ cb, arg };
}

void
funnel_tell(struct funnel *f, const struct funnel_event *event)
{
    if (f->follower->cb)
        f->follower->cb(f->follower->arg, event);
}
