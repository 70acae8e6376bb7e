/* enlarge.h - shapes large enough for a reference to be timed: 50 us to 20 ms on the daemon's GPU. */
#ifndef TRAINER_ENLARGE_H
#define TRAINER_ENLARGE_H

#include <jansson.h>

#include "client/trainer/entry.h"
#include "common/http_client.h"

/* How long a reference may run that is learnt from by rewards: shorter is launch overhead, longer is the others' time. */
#define ENLARGE_MIN_MS 0.05
#define ENLARGE_MAX_MS 20.0

/*
 * Time a registered reference as its own candidate, and, where it is too short, with larger sizes. record (borrowed) gets "ms" and,
 * where other shapes were needed, "enlarged": {"how", "factor", "source", "ms"}; or nothing, where no size that was tried is in the
 * window. run is part of the groups' idempotency keys. Errors are those of daemon.h.
 */
int enlarge(struct http_client *daemon, struct helper *helper, const char *run, const struct entry *e,
            const char *task_id, json_t *record, struct error *err);

#endif
