#include "server/submission/wait.h"

#include <stdlib.h>

#include <utlist.h>

#include "common/log.h"
#include "server/store/store.h"
#include "server/submission/funnel.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/registry.h"
#include "server/submission/submission.h"

struct funnel_wait {
    struct funnel_wait *prev, *next;
    struct funnel_wait **head;
    funnel_wait_cb *cb;
    void *arg;
};

struct funnel_wait *
funnel_wait(struct funnel *f, const char *id, funnel_wait_cb *cb, void *arg)
{
    struct submission *s = NULL;
    struct group *g = NULL;

    s = submission_by_id(f, id);
    if (!s)
        g = groups_find(f->groups, id);
    struct funnel_wait *w = s || g ? calloc(1, sizeof(*w)) : NULL;
    if (!w)
        return NULL;
    w->head = s ? &s->waits : group_waits(g);
    w->cb = cb;
    w->arg = arg;
    DL_APPEND(*w->head, w);
    return w;
}

void
funnel_wait_end(struct funnel_wait *w)
{
    if (!w)
        return;
    DL_DELETE(*w->head, w);
    free(w);
}

/* A callback may end other waits of the same list, so the head is looked up each time. */
void
waits_notify(struct funnel_wait **head)
{
    while (*head) {
        struct funnel_wait *w = *head;
        funnel_wait_cb *cb = w->cb;
        void *arg = w->arg;
        DL_DELETE(*head, w);
        free(w);
        cb(arg);
    }
}

/* What is not here may be another's, or may wait for want of memory: its row says. */
bool
funnel_is_finished(struct funnel *f, const char *id)
{
    struct submission *s = NULL;
    struct group *g = NULL;
    bool is_unfinished = false;
    struct error err = { 0 };

    s = submission_by_id(f, id);
    if (!s)
        g = groups_find(f->groups, id);
    if (s || g)
        return false;
    if (store_is_unfinished(f->store, id, &is_unfinished, &err) != 0)
        log_error(id, "%s", err.text);
    return !is_unfinished;
}
