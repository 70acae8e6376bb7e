/* uids.h - user ids for children, never one for two that live. Loop thread only. */
#ifndef WORKERS_UIDS_H
#define WORKERS_UIDS_H

#include <stdint.h>

#include "common/error.h"

struct uids;

/* count ids from first on; when the daemon is not root there is nothing to give, and uids_take() gives -1. */
int uids_new(int64_t first, int64_t count, struct uids **out, struct error *err);
void uids_free(struct uids *u);
/* 0 with *uid (-1: run as the daemon's own user), or ERR_FULL. The one given back longest ago comes first. */
int uids_take(struct uids *u, int64_t *uid, struct error *err);
void uids_give_back(struct uids *u, int64_t uid); /* -1 is fine */

#endif
