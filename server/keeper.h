/*
 * keeper.h - removes what is no longer to be kept, now and then and when it is
 * asked to, while the daemon runs. Loop thread only.
 */
#ifndef SERVER_KEEPER_H
#define SERVER_KEEPER_H

#include <stdbool.h>

#include <jansson.h>
#include <uv.h>

#include "common/error.h"
#include "server/config.h"
#include "server/store/store.h"

struct keeper;

/* config and store are borrowed for its life. The first sweep comes one interval after the start. 0 or ERR_NOMEM. */
int keeper_new(uv_loop_t *loop, const struct config *config, struct store *store, struct keeper **out,
               struct error *err);
/* No more sweeps; what is under way ends with its present batch. Before the store is closed, and before keeper_free(). */
void keeper_stop(struct keeper *k);
/* After the loop has run its close callbacks and the store is closed. NULL is fine. */
void keeper_free(struct keeper *k);
void keeper_reload(struct keeper *k);

/* Sweep by the settings; with vacuum, give all free room back afterwards. False: one is under way already. */
bool keeper_run(struct keeper *k, bool vacuum);
/*
 * {"days","rows","log_days","interval_s","running","last"}; last is null or {"started","finished","error",
 * "submissions","groups","logs","blobs","freed_bytes"}. Given.
 */
json_t *keeper_json(const struct keeper *k);

#endif
