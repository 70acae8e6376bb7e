/* admission.h - how full the queue is, and whether a client may bring more. Loop thread only. */
#ifndef SUBMISSION_ADMISSION_H
#define SUBMISSION_ADMISSION_H

#include <stddef.h>
#include <stdint.h>

#include "server/submission/funnel.h"

/*
 * Submissions that wait for a slot, for a device, or for the verdict of an identical one; and what was accepted here, left
 * to other nodes, and has not ended.
 */
int64_t admission_waiting(const struct funnel *f);
/* Seconds after which one that was refused may try again. */
int admission_retry_after(const struct funnel *f);
/* FUNNEL_OK, or the refusal of n more of the client's by its quota, with the reason in a. */
enum funnel_refusal admission_check_quota(struct funnel *f, const char *client, size_t n,
                                          size_t registrations, struct funnel_answer *a);

#endif
