/*
 * chart.h - a timing drawn in characters: samples, distribution, interval, GPU state. Pure: text is appended to a
 * buffer, no line is wider than CHART_WIDTH columns but for texts that the daemon sent.
 */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stddef.h>

#include <jansson.h>

#include "common/buffer.h"

#define CHART_WIDTH 80

/* n values as a row of blocks between lo and hi, in at most `columns` columns (the median of those that share one). */
void chart_spark(struct buffer *out, const double *x, size_t n, double lo, double hi, size_t columns);
/* An interval with its estimate on an axis that has 1 on it, and a line below with the ends of the axis. */
void chart_interval(struct buffer *out, double estimate, double lo, double hi, size_t columns);
/* How often values fall into each of `bins` parts of their range, a line for each. */
void chart_histogram(struct buffer *out, const double *x, size_t n, size_t bins, size_t columns);

/* The document of GET /v1/submissions/{id}/timing; borrowed. */
void chart_timing(struct buffer *out, json_t *document);

#endif
