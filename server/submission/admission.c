#include "server/submission/admission.h"

#include <math.h>

#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/submission/counters.h"
#include "server/submission/elsewhere.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/reuse.h"
#include "server/submission/single_flight.h"

#define RETRY_AFTER_MAX_S 60

int64_t
admission_waiting(const struct funnel *f)
{
    return reuse_asking(f->reuse, FAIR_INTERACTIVE) + reuse_asking(f->reuse, FAIR_BATCH) +
           flight_following(f->flight) + scheduler_waiting(f->scheduler) + elsewhere_owned(f->elsewhere) +
           clients_coming(f->clients);
}

int
admission_retry_after(const struct funnel *f)
{
    /* Until a twentieth of the queue has gone, going by how verdicts came of late. */
    double s = counters_service_s(f->counters) * ((double)admission_waiting(f) / 20 + 1);
    return s < 1 ? 1 : s > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : (int)ceil(s);
}

enum funnel_refusal
admission_check_quota(struct funnel *f, const char *client, size_t n, size_t registrations,
                      struct funnel_answer *a)
{
    static const enum funnel_refusal refusals[] = { [QUOTA_OK] = FUNNEL_OK,
                                                    [QUOTA_RATE] = FUNNEL_QUOTA_RATE,
                                                    [QUOTA_QUEUED] = FUNNEL_QUOTA_QUEUED,
                                                    [QUOTA_GPU] = FUNNEL_QUOTA_GPU };
    const struct quota *q = clients_quota(f->clients, client);

    enum quota_limit limit = clients_admit(f->clients, client, n, registrations, &a->retry_after_s);
    if (limit == QUOTA_RATE)
        json_refuse(&a->fault, "", "the client %.64s may submit %lld a minute", client, (long long)q->rate);
    else if (limit == QUOTA_QUEUED && n > (size_t)q->queued) { /* waiting would not help */
        json_refuse(&a->fault, "",
                    "it has %zu submissions, and of the client %.64s %lld may wait: send fewer at once", n,
                    client, (long long)q->queued);
        return FUNNEL_BAD;
    } else if (limit == QUOTA_QUEUED)
        json_refuse(&a->fault, "", "of the client %.64s %lld may wait", client, (long long)q->queued);
    else if (limit == QUOTA_GPU)
        json_refuse(&a->fault, "", "the client %.64s has used its %lld s of devices for today", client,
                    (long long)q->gpu_s);
    return refusals[limit];
}
