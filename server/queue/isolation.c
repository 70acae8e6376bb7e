#include "server/queue/isolation.h"

#include <math.h>
#include <stddef.h>

/*
 * The share is a bucket that is filled at a tenth of the elapsed time; it is full at first and holds half an hour's
 * filling. A promised rerun is charged with the usual time of reruns, which is corrected at its end: else many could be
 * promised before any has run. The bucket is overdrawn at most by what the last reruns took beyond the usual, and no
 * rerun is promised until that is made up for.
 */

#define SMOOTHING 0.2

static double
seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

static void
fill(struct isolation *a, int64_t now_ns)
{
    const double most_s = ISOLATION_SHARE * ISOLATION_WINDOW_S;
    double more_s = ISOLATION_SHARE * seconds(now_ns - a->counted_ns);

    a->left_s = a->counted_ns == 0 ? most_s : fmin(most_s, a->left_s + more_s);
    a->counted_ns = now_ns;
}

bool
isolation_promise(struct isolation *a, struct isolated_rerun *r, int64_t now_ns)
{
    fill(a, now_ns);
    if (a->left_s <= 0)
        return false;
    r->is_promised = true;
    r->charged_s = a->usual_s > 0 ? a->usual_s : ISOLATION_USUAL_S;
    a->left_s -= r->charged_s;
    return true;
}

void
isolation_becomes_due(struct isolation *a, const struct isolated_rerun *r, int64_t now_ns)
{
    if (a->due || a->begun)
        return;
    a->due = r;
    a->since_ns = now_ns;
}

bool
isolation_may_begin(const struct isolation *a, const struct isolated_rerun *r, int64_t running)
{
    if (a->begun)
        return false;
    return a->due ? a->due == r && running == 0 : r == NULL;
}

void
isolation_begin(struct isolation *a, const struct isolated_rerun *r)
{
    a->due = NULL;
    a->begun = r;
}

void
isolation_end(struct isolation *a, struct isolated_rerun *r, int64_t now_ns)
{
    double took_s = 0;

    if (!r->is_promised && a->due != r && a->begun != r)
        return;
    fill(a, now_ns);
    if (a->due == r || a->begun == r)
        took_s = seconds(now_ns - a->since_ns);
    if (a->begun == r)
        a->usual_s = a->usual_s > 0 ? (1 - SMOOTHING) * a->usual_s + SMOOTHING * took_s : took_s;
    if (a->due == r)
        a->due = NULL;
    if (a->begun == r)
        a->begun = NULL;
    a->left_s += r->charged_s - took_s;
    a->held_s += took_s;
    *r = (struct isolated_rerun){ .is_promised = false };
}
