/*
 * check.h - what can be known before the daemon listens: the interpreter and
 * the harness are there, and the sandbox has the layers that are required.
 */
#ifndef WORKERS_CHECK_H
#define WORKERS_CHECK_H

#include <jansson.h>

#include "common/error.h"
#include "server/config.h"
#include "server/workers/cgroup.h"

/*
 * Runs PYTHON HARNESS/check.py and waits for its result, at most a minute: for
 * start-up, before the loop. 0, or ERR_INPUT (a setting names a missing file,
 * or needs a feature that the host lacks) or ERR_SYS.
 *   layers   given: the layers of the sandbox, for layers_check(); NULL unless it returns 0. May be NULL
 */
int workers_check(const struct config *config, json_t **layers, struct error *err);

/*
 * Whether the layers (an object: name to "on" or "absent: why") hold what require lists, names separated by commas.
 * "uid" is met by "user_namespace": either keeps children from the daemon's files. 0, or ERR_INPUT naming the layer.
 */
int layers_check(const char *require, json_t *layers, struct error *err);

/* The layer "cgroup", which the daemon makes itself, once it is known. 0, or ERR_INPUT where it is required and absent. */
int cgroups_check(const char *require, const struct cgroups *g, struct error *err);

#endif
