/*
 * retry.h - submissions that lacked memory or the store: each goes on in a second. Loop thread only.
 */
#ifndef SUBMISSION_RETRY_H
#define SUBMISSION_RETRY_H

#include <uv.h>

struct funnel;
struct retries;
struct submission;

struct retries *retries_new(uv_loop_t *loop, struct funnel *f); /* NULL: no memory */
void retries_free(struct retries *r);                           /* NULL is fine */
/* again: what is called then. s waits for nothing else, and is not freed before. */
void retry_later(struct submission *s, void (*again)(struct submission *s));
void retry_kick(struct funnel *f); /* at least the scheduler is called then */

#endif
