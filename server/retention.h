/*
 * retention.h - the retention job: removes what the settings no longer keep, at intervals and when it is asked to, while
 * the daemon runs. Loop thread only.
 */
#ifndef SERVER_RETENTION_H
#define SERVER_RETENTION_H

#include <stdbool.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "server/config.h"
#include "server/store/store.h"

struct retention;

/* config and store are borrowed for its life. The first sweep comes one interval after the start. 0 or ERR_NOMEM. */
int retention_new(uv_loop_t *loop, const struct config *config, struct store *store, struct retention **out,
                  struct error *err);
/*
 * No more sweeps; one in progress ends with its present batch. Before the store is closed, and before retention_free().
 */
void retention_stop(struct retention *r);
/* After the loop has run its close callbacks and the store is closed. NULL is fine. */
void retention_free(struct retention *r);
void retention_reload(struct retention *r);

/* Sweep by the settings; with vacuum, give all free room back afterwards. False: one is under way already. */
bool retention_sweep(struct retention *r, bool vacuum);
/*
 * {"days","rows","log_days","interval_s","running","last"}; last is null or {"started","finished","error",
 * "submissions","groups","logs","blobs","freed_bytes"}. Given.
 */
json_t *retention_json(const struct retention *r);

#endif
