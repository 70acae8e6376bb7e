#include "server/workers/pool.h"

#include <math.h>

/*
 * Theory of operation. While one child is made, rate x make_s others are taken
 * (Little's law); arrivals come in bunches, so that twice the root of that is
 * added, which a Poisson stream exceeds once in forty times. The rate is the
 * greater of what is taken now and of what is seen to come: the stages before
 * are the warning, as compiling takes about as long as making a child does. But
 * no more comes to a device than it can serve.
 */

void
pool_rate_note(struct pool_rate *r, int64_t now_ns, double n)
{
    r->per_s = pool_rate_read(r, now_ns) + n / POOL_RATE_S;
    r->at_ns = now_ns;
}

double
pool_rate_read(const struct pool_rate *r, int64_t now_ns)
{
    return r->per_s * exp(-(double)(now_ns - r->at_ns) / (POOL_RATE_S * 1e9));
}

double
pool_mean(double mean, double figure)
{
    return mean > 0 ? mean + 0.2 * (figure - mean) : figure;
}

int64_t
pool_wanted(const struct pool_need *n)
{
    double coming = fmax(n->arriving, n->entering * n->passing);
    if (n->job_s > 0)
        coming = fmin(coming, 1 / n->job_s);
    double meanwhile = fmax(n->taking, coming) * n->make_s;
    double wanted = ceil(meanwhile + 2 * sqrt(meanwhile));
    int64_t room = n->budget_bytes / n->child_bytes;

    if (n->idle_s >= n->limit_s)
        return n->least;
    return (int64_t)fmax((double)n->least, fmin(fmin(wanted, (double)room), (double)n->most));
}
