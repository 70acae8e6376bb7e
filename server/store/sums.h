/*
 * sums.h - sums over verdicts (schema/), kept apart from the verdicts so that questions about many submissions read few
 * rows.
 */
#ifndef STORE_SUMS_H
#define STORE_SUMS_H

#include "server/store/backend.h"
#include "server/store/labels.h"

/*
 * Count a submission of the task, client (or NULL) and labels that ended, in the transaction that writes it. Of row: id,
 * reward, verdict, finished_ms, device_ms. A verdict without a class is counted nowhere. 0, or as a write.
 */
int sums_add(struct store_backend *b, const struct submission_row *row, const char *task_id,
             const char *client, const struct labels *labels, struct error *err);

#endif
