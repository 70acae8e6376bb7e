/* histogram.h - how values are spread, in fixed ranges, as Prometheus counts them. Pure. */
#ifndef COMMON_HISTOGRAM_H
#define COMMON_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define HISTOGRAM_MAX 16 /* bounds */

/* Zeroed is empty. */
struct histogram {
    uint64_t counts[HISTOGRAM_MAX + 1]; /* of each range alone; the last is beyond all bounds */
    double sum;
};

/* Ranges: upper bounds in rising order, each inclusive. */
struct histogram_bounds {
    size_t n;
    double at[HISTOGRAM_MAX];
};
extern const struct histogram_bounds histogram_seconds; /* 5 ms to 5 minutes */

/* A value that is not finite is left out. */
void histogram_add(struct histogram *h, const struct histogram_bounds *bounds, double value);
/* {"bounds":[…],"counts":[… of each range],"sum"}; given; NULL: no memory. */
json_t *histogram_json(const struct histogram *h, const struct histogram_bounds *bounds);

#endif
