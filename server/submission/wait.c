#include "server/submission/wait.h"

#include <stdlib.h>

#include <utlist.h>

#include "server/submission/elsewhere.h"
#include "server/submission/funnel.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
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
    struct submission *s = submission_by_id(f, id);
    struct group *g = s ? NULL : groups_find(f->groups, id);
    bool is_whole = g && group_is_whole(g);
    struct elsewhere_entry *e = s || is_whole ? NULL : elsewhere_ask(f->elsewhere, id);
    struct funnel_wait *w = s || is_whole || e ? calloc(1, sizeof(*w)) : NULL;

    if (!w)
        return NULL;
    w->head = s ? &s->waits : is_whole ? group_waits(g) : &e->waits;
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

void
waits_move(struct funnel_wait **from, struct funnel_wait **to)
{
    struct funnel_wait *w;

    DL_FOREACH(*from, w)
    w->head = to;
    DL_CONCAT(*to, *from);
    *from = NULL;
}

bool
funnel_is_here(const struct funnel *f, const char *id)
{
    const struct elsewhere_entry *e = elsewhere_find(f->elsewhere, id);

    return submission_by_id(f, id) || groups_find(f->groups, id) || (e && e->is_news);
}
