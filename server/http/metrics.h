/* metrics.h - the daemon's figures in the text format that Prometheus reads. Pure. */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H

#include <jansson.h>

#include "common/buffer.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Append the figures of /v1/status (borrowed), one family for each; docs/metrics.md lists them. 0 or ERR_NOMEM. */
int metrics_write(json_t *status, struct buffer *out);

#endif
