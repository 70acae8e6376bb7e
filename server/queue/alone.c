#include "server/queue/alone.h"

#include <math.h>
#include <stddef.h>

/*
 * The share is a bucket that fills by a tenth of the time that passes, full at first, and no higher than half an hour
 * fills it. Whoever is promised a turn is charged with what turns usually take, which is put right at its end: without the first
 * many could be promised one before any has taken it. So the bucket is overdrawn by what the last turns took beyond the
 * usual, and no more; nobody is promised a turn until that is made up for.
 */

#define SMOOTHING 0.2

static double
seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

static void
fill(struct alone *a, int64_t now_ns)
{
    const double most_s = ALONE_SHARE * ALONE_WINDOW_S;
    double more_s = ALONE_SHARE * seconds(now_ns - a->counted_ns);

    a->left_s = a->counted_ns == 0 ? most_s : fmin(most_s, a->left_s + more_s);
    a->counted_ns = now_ns;
}

bool
alone_promise(struct alone *a, struct alone_turn *t, int64_t now_ns)
{
    fill(a, now_ns);
    if (a->left_s <= 0)
        return false;
    t->is_promised = true;
    t->charged_s = a->usual_s > 0 ? a->usual_s : ALONE_USUAL_S;
    a->left_s -= t->charged_s;
    return true;
}

void
alone_becomes_due(struct alone *a, const struct alone_turn *t, int64_t now_ns)
{
    if (a->due || a->holder)
        return;
    a->due = t;
    a->since_ns = now_ns;
}

bool
alone_may_begin(const struct alone *a, const struct alone_turn *t, int64_t running)
{
    if (a->holder)
        return false;
    return a->due ? a->due == t && running == 0 : t == NULL;
}

void
alone_begin(struct alone *a, const struct alone_turn *t)
{
    a->due = NULL;
    a->holder = t;
}

void
alone_end(struct alone *a, struct alone_turn *t, int64_t now_ns)
{
    double took_s = 0;

    if (!t->is_promised && a->due != t && a->holder != t)
        return;
    fill(a, now_ns);
    if (a->due == t || a->holder == t)
        took_s = seconds(now_ns - a->since_ns);
    if (a->holder == t)
        a->usual_s = a->usual_s > 0 ? (1 - SMOOTHING) * a->usual_s + SMOOTHING * took_s : took_s;
    if (a->due == t)
        a->due = NULL;
    if (a->holder == t)
        a->holder = NULL;
    a->left_s += t->charged_s - took_s;
    a->held_s += took_s;
    *t = (struct alone_turn){ .is_promised = false };
}
