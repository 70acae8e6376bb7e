#include "server/workers/norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * The norm does not follow the times: a GPU that becomes one hundredth slower each day is to be detected. Nor is it the
 * minimum, which one wrong reading would spoil for good. It is the median of the first few, and a time far below it
 * shows that these were measured on a slow GPU.
 */

static int
compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t
norm_ns(const struct norm *n)
{
    int64_t sorted[NORM_SAMPLES];

    if (n->n_samples == 0)
        return 0;
    memcpy(sorted, n->samples, sizeof(sorted));
    qsort(sorted, (size_t)n->n_samples, sizeof(sorted[0]), compare);
    return sorted[n->n_samples / 2];
}

double
norm_drift(const struct norm *n, int64_t ns)
{
    int64_t known = norm_ns(n);
    return known > 0 ? (double)ns / (double)known - 1 : NAN;
}

static void
learn(struct norm *n, int64_t now_ms, int64_t ns)
{
    if (n->n_samples == 0)
        n->since_ms = now_ms;
    if (n->n_samples < NORM_SAMPLES)
        n->samples[n->n_samples++] = ns;
}

enum norm_finding
norm_note(struct norm *n, int64_t now_ms, int64_t ns, bool is_well)
{
    double drift = norm_drift(n, ns);
    bool is_slower = drift > NORM_DRIFT, is_faster = drift < -NORM_DRIFT; /* neither where it is NAN */

    if (is_slower)
        return NORM_SLOWER;
    if (!is_well)
        return NORM_STEADY;
    if (is_faster)
        n->n_samples = 0;
    learn(n, now_ms, ns);
    return is_faster ? NORM_FASTER : NORM_STEADY;
}

/* --- as JSON --- */

json_t *
norm_json(const struct norm *n)
{
    json_t *samples = json_array();

    for (int i = 0; i < n->n_samples; i++)
        json_array_append_new(samples, json_integer(n->samples[i]));
    return json_pack("{s:I, s:o, s:I}", "norm_ns", (json_int_t)norm_ns(n), "samples", samples, "since_ms",
                     (json_int_t)n->since_ms);
}

static bool
read_figure(const json_t *object, const char *key, int64_t *out)
{
    json_t *figure = json_object_get(object, key);

    *out = json_integer_value(figure);
    return json_is_integer(figure) && *out >= 0;
}

static bool
read_all(const json_t *document, struct norm *out)
{
    const json_t *samples = json_object_get(document, "samples");

    if (!read_figure(document, "since_ms", &out->since_ms) || !json_is_array(samples) ||
        json_array_size(samples) > NORM_SAMPLES)
        return false;
    for (size_t i = 0; i < json_array_size(samples); i++) {
        int64_t ns = json_integer_value(json_array_get(samples, i));
        if (ns < 1 || ns > NORM_NS_MAX)
            return false;
        out->samples[out->n_samples++] = ns;
    }
    return true;
}

bool
norm_read(const json_t *document, struct norm *out)
{
    *out = (struct norm){ 0 };
    if (read_all(document, out))
        return true;
    *out = (struct norm){ 0 };
    return false;
}

/* --- when --- */

int64_t
norm_due_ms(int64_t passed_ns, int64_t interval_s, int64_t now_ns)
{
    int64_t left_ns = passed_ns + interval_s * 1000000000 - now_ns;

    return passed_ns == 0 || left_ns <= 0 ? 0 : (left_ns + 999999) / 1000000;
}
