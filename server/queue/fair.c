#include "server/queue/fair.h"

#include <stddef.h>

#include <utlist.h>

/*
 * Start-time fair queueing: each account counts the time that it was served, and the one that stands lowest is next. The
 * account of a client that comes (again) begins at the present virtual time, so that neither a pause nor a late
 * arrival is worth anything. What a turn takes is known at its end only, so it is charged with the usual time first, and
 * that is put right later: without the first, a client could have many turns at once before the first is charged.
 */

#define SMOOTHING 0.1

void
fair_add(struct fair *f, struct fair_share *share, struct fair_turn *t, int urgency, bool at_head)
{
    if (share->waiting == 0) {
        DL_APPEND(f->waiting, share);
        if (share->served < f->now)
            share->served = f->now;
    }
    t->share = share;
    t->urgency = urgency;
    struct fair_turn **flow = &share->flows[urgency], *last = NULL;
    for (struct fair_turn *at = *flow; at_head && at && at->is_registration; at = at->next)
        last = at;
    if (last)
        DL_APPEND_ELEM(*flow, last, t);
    else if (at_head)
        DL_PREPEND(*flow, t);
    else
        DL_APPEND(*flow, t);
    share->waiting++;
    f->n[urgency]++;
}

void
fair_remove(struct fair *f, struct fair_turn *t)
{
    struct fair_share *share = t->share;

    DL_DELETE(share->flows[t->urgency], t);
    t->share = NULL;
    f->n[t->urgency]--;
    if (--share->waiting == 0)
        DL_DELETE(f->waiting, share);
}

int64_t
fair_waiting(const struct fair *f)
{
    return f->n[FAIR_INTERACTIVE] + f->n[FAIR_BATCH];
}

struct fair_turn *
fair_next(const struct fair *f, unsigned allowed, fair_may *may, void *arg)
{
    const struct fair_share *best[FAIR_URGENCIES] = { NULL, NULL };
    struct fair_share *share;

    DL_FOREACH(f->waiting, share)
    {
        if (may && !may(arg, share))
            continue;
        for (int i = 0; i < FAIR_URGENCIES; i++)
            if (share->flows[i] && (allowed & 1u << i) && (!best[i] || share->served < best[i]->served))
                best[i] = share;
    }
    bool is_batch = best[FAIR_BATCH] && (!best[FAIR_INTERACTIVE] || f->since_batch >= FAIR_BATCH_EVERY);
    int urgency = is_batch ? FAIR_BATCH : FAIR_INTERACTIVE;
    return best[urgency] ? best[urgency]->flows[urgency] : NULL;
}

void
fair_take(struct fair *f, struct fair_turn *t)
{
    struct fair_share *share = t->share;

    if (t->urgency == FAIR_BATCH || f->n[FAIR_BATCH] == 0)
        f->since_batch = 0;
    else
        f->since_batch++;
    if (f->now < share->served)
        f->now = share->served;
    t->charged = f->expected;
    share->served += t->charged;
    fair_remove(f, t);
}

void
fair_done(struct fair *f, struct fair_share *share, const struct fair_turn *t, double seconds)
{
    share->served += seconds - t->charged;
    f->expected = f->expected > 0 ? (1 - SMOOTHING) * f->expected + SMOOTHING * seconds : seconds;
}
