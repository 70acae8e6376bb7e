#include "common/histogram.h"

#include <math.h>

const struct histogram_bounds histogram_seconds = {
    12, { 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300 }
};

void
histogram_add(struct histogram *h, const struct histogram_bounds *bounds, double value)
{
    size_t i = 0;

    if (!isfinite(value))
        return;
    while (i < bounds->n && value > bounds->at[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

json_t *
histogram_json(const struct histogram *h, const struct histogram_bounds *bounds)
{
    json_t *at = json_array(), *counts = json_array();

    for (size_t i = 0; i < bounds->n; i++)
        json_array_append_new(at, json_real(bounds->at[i]));
    for (size_t i = 0; i <= bounds->n; i++)
        json_array_append_new(counts, json_integer((json_int_t)h->counts[i]));
    return json_pack("{s:o, s:o, s:f}", "bounds", at, "counts", counts, "sum", h->sum);
}
