#include "client/cli/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/statistics.h"

#define LABEL 12
#define BINS 8

static const char *const levels[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };

static void
add_times(struct buffer *out, const char *text, size_t n)
{
    while (n-- > 0)
        buffer_add(out, text);
}

static double
least(const double *x, size_t n)
{
    return stats_quantile(x, n, 0);
}

static double
greatest(const double *x, size_t n)
{
    return stats_quantile(x, n, 1);
}

void
chart_spark(struct buffer *out, const double *x, size_t n, double lo, double hi, size_t columns)
{
    size_t used = n < columns ? n : columns;

    for (size_t c = 0; c < used; c++) {
        size_t from = c * n / used, to = (c + 1) * n / used;
        double share = hi > lo ? (stats_median(x + from, to - from) - lo) / (hi - lo) : 0.5;
        int most = (int)ARRAY_LEN(levels) - 1, level = (int)(share * (most + 1));
        level = level < 0 ? 0 : level > most ? most : level;
        buffer_add(out, levels[level]);
    }
}

/* The column of a value on an axis from lo to hi. */
static size_t
column_of(double x, double lo, double hi, size_t columns)
{
    double share = hi > lo ? (x - lo) / (hi - lo) : 0.5;
    double at = round(share * (double)(columns - 1));
    return at <= 0 ? 0 : at >= (double)(columns - 1) ? columns - 1 : (size_t)at;
}

void
chart_interval(struct buffer *out, double estimate, double lo, double hi, size_t columns)
{
    double from = fmin(1, lo), to = fmax(1, hi), room = (to - from) * 0.05;
    if (room <= 0)
        room = 0.01;
    from -= room;
    to += room;
    size_t one = column_of(1, from, to, columns), first = column_of(lo, from, to, columns),
           last = column_of(hi, from, to, columns), point = column_of(estimate, from, to, columns);

    for (size_t c = 0; c < columns; c++)
        buffer_add(out, c == point              ? "●"
                        : c == first            ? "├"
                        : c == last             ? "┤"
                        : c > first && c < last ? "─"
                        : c == one              ? "│"
                                                : " ");
    buffer_printf(out, "\n%*s%-*.4g%*.4g\n", LABEL, "", (int)(columns / 2), from,
                  (int)(columns - columns / 2), to);
}

void
chart_histogram(struct buffer *out, const double *x, size_t n, size_t bins, size_t columns)
{
    double lo = least(x, n), hi = greatest(x, n);
    AUTO_FREE size_t *counts = calloc(bins, sizeof(*counts));
    size_t most = 0;

    if (!counts || n == 0)
        return;
    if (!(hi > lo))
        bins = 1;
    for (size_t i = 0; i < n; i++) {
        size_t bin = hi > lo ? (size_t)((x[i] - lo) / (hi - lo) * (double)bins) : 0;
        counts[bin < bins ? bin : bins - 1]++;
    }
    for (size_t b = 0; b < bins; b++)
        most = counts[b] > most ? counts[b] : most;
    for (size_t b = 0; b < bins; b++) {
        size_t parts = counts[b] * columns * 8 / most;
        buffer_printf(out, "%*.4f ", LABEL - 1, lo + (hi - lo) * (double)b / (double)bins);
        add_times(out, "█", parts / 8);
        buffer_add(out, eighths[parts % 8]);
        buffer_printf(out, "%s%zu\n", counts[b] ? " " : "", counts[b]);
    }
}

/* --- the parts of a timing --- */

struct samples {
    size_t n;
    double *reference, *candidate, *ratio; /* milliseconds; reference / candidate */
};

static void
samples_release(struct samples *s)
{
    free(s->reference);
    free(s->candidate);
    free(s->ratio);
}

/* None if they are not pairs of times. */
static void
samples_read(struct samples *s, json_t *timing)
{
    json_t *reference = json_object_get(timing, "reference_ns"),
           *candidate = json_object_get(timing, "candidate_ns");
    size_t n = json_array_size(reference);

    if (n == 0 || n != json_array_size(candidate))
        return;
    s->reference = calloc(n, sizeof(double));
    s->candidate = calloc(n, sizeof(double));
    s->ratio = calloc(n, sizeof(double));
    for (size_t i = 0; s->reference && s->candidate && s->ratio && i < n; i++) {
        s->reference[i] = json_number_value(json_array_get(reference, i)) / 1e6;
        s->candidate[i] = json_number_value(json_array_get(candidate, i)) / 1e6;
        if (!(s->reference[i] > 0) || !(s->candidate[i] > 0))
            return;
        s->ratio[i] = s->reference[i] / s->candidate[i];
    }
    if (s->reference && s->candidate && s->ratio)
        s->n = n;
}

static void
add_cell(struct buffer *out, double x, double scale, int decimals)
{
    if (isfinite(x))
        buffer_printf(out, "%11.*f", decimals, x * scale);
    else
        buffer_printf(out, "%11s", "-");
}

static void
add_table(struct buffer *out, json_t *timing)
{
    static const struct {
        const char *title, *keys[2]; /* of the reference, of the candidate */
        double scale;
        int decimals;
    } columns[] = {
        { "median ms", { "reference_ms", "candidate_ms" }, 1, 4 },
        { "trimmed ms", { "reference_trimmed_ms", "candidate_trimmed_ms" }, 1, 4 },
        { "spread %", { "reference_cv", "candidate_cv" }, 100, 2 },
        { "slope ms", { "reference_slope_ms", "candidate_slope_ms" }, 1, 4 },
        { "events ms", { "events_reference_ms", "events_candidate_ms" }, 1, 4 },
        { "host ms", { "host_reference_ms", "host_candidate_ms" }, 1, 4 },
    };
    static const char *const sides[] = { "reference", "candidate" };

    buffer_printf(out, "\n%-*s", LABEL, "");
    for (size_t c = 0; c < ARRAY_LEN(columns); c++)
        buffer_printf(out, "%11s", columns[c].title);
    for (size_t side = 0; side < 2; side++) {
        buffer_printf(out, "\n%-*s", LABEL, sides[side]);
        for (size_t c = 0; c < ARRAY_LEN(columns); c++)
            add_cell(out, number_or_nan(timing, columns[c].keys[side]), columns[c].scale,
                     columns[c].decimals);
    }
    buffer_printf(out, "\n%-*s", LABEL, "empty");
    add_cell(out, number_or_nan(timing, "empty_ms"), 1, 4);
    buffer_add(out, "  (subtracted)\n");
}

static void
add_speedup(struct buffer *out, json_t *timing, const char *name, const char *key)
{
    char lo[40], hi[40];

    snprintf(lo, sizeof(lo), "%s_lo", key);
    snprintf(hi, sizeof(hi), "%s_hi", key);
    if (!isfinite(number_or_nan(timing, key)))
        return;
    buffer_printf(out, "%-*s%.4f  (95%% interval %.4f to %.4f)%s\n", LABEL, name, number_or_nan(timing, key),
                  number_or_nan(timing, lo), number_or_nan(timing, hi),
                  text_is(timing, "estimator", name) ? "  <- rewarded" : "");
}

static void
add_interval(struct buffer *out, json_t *timing)
{
    double estimate = number_or_nan(timing, "speedup"), lo = number_or_nan(timing, "speedup_lo"),
           hi = number_or_nan(timing, "speedup_hi");

    buffer_add(out, "\nspeed-up, reference over candidate (│ marks 1.00)\n");
    add_speedup(out, timing, "paired", "speedup");
    add_speedup(out, timing, "trimmed", "speedup_trimmed");
    if (!isfinite(estimate) || !isfinite(lo) || !isfinite(hi))
        return;
    buffer_printf(out, "%*s", LABEL, "");
    chart_interval(out, estimate, lo, hi, CHART_WIDTH - LABEL);
}

static void
add_samples(struct buffer *out, const struct samples *s)
{
    const struct {
        const char *name;
        const double *x;
    } rows[] = { { "reference", s->reference }, { "candidate", s->candidate }, { "ratio", s->ratio } };

    buffer_printf(out, "\n%zu pairs in the order they were made (each row from its least to its greatest)\n",
                  s->n);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double lo = least(rows[i].x, s->n), hi = greatest(rows[i].x, s->n);
        buffer_printf(out, "%-*s", LABEL, rows[i].name);
        chart_spark(out, rows[i].x, s->n, lo, hi, 48);
        buffer_printf(out, " %.4f to %.4f\n", lo, hi);
    }
    buffer_add(out, "\nhow the ratios are distributed\n");
    chart_histogram(out, s->ratio, s->n, BINS, CHART_WIDTH - LABEL - 6);
}

static void
add_range(struct buffer *out, json_t *gpu, const char *key, const char *what, const char *unit)
{
    json_t *range = json_object_get(gpu, key);
    double lo = json_number_value(json_array_get(range, 0)), hi = json_number_value(json_array_get(range, 1));

    if (json_array_size(range) != 2)
        return;
    buffer_printf(out, "%-*s%.0f", LABEL, what, lo);
    if (hi > lo)
        buffer_printf(out, " to %.0f", hi);
    buffer_printf(out, " %s\n", unit);
}

static void
add_gpu(struct buffer *out, json_t *timing)
{
    json_t *gpu = json_object_get(timing, "gpu"), *block;
    size_t i;

    if (!json_is_object(gpu))
        return;
    buffer_add(out, "\nthe GPU meanwhile\n");
    add_range(out, gpu, "sm_mhz", "SM clock", "MHz");
    add_range(out, gpu, "mem_mhz", "memory", "MHz");
    add_range(out, gpu, "temp_c", "temperature", "degrees Celsius");
    add_range(out, gpu, "power_w", "power", "W");
    buffer_printf(out, "%-*s%s\n", LABEL, "throttled", number_or_nan(gpu, "throttled") > 0 ? "YES" : "no");
    buffer_printf(out, "%-*s%.0f, of them %.0f measured again, %.0f void by work while no call was due\n",
                  LABEL, "blocks", fmax(0, number_or_nan(gpu, "blocks")), fmax(0, number_or_nan(gpu, "void")),
                  fmax(0, number_or_nan(gpu, "background")));
    json_array_foreach(json_object_get(json_object_get(timing, "clocks"), "blocks"), i, block)
    {
        const char *why = text_member(block, "void");
        if (why)
            buffer_printf(out, "  block %zu is void: %s\n", i, why);
    }
}

static void
add_head(struct buffer *out, json_t *document, json_t *timing)
{
    const char *why = text_member(timing, "why"), *stopped = text_member(timing, "stopped");

    buffer_printf(out, "%-*s%s\n", LABEL, "submission", text_or(document, "id", "-"));
    buffer_printf(out, "%-*s%s\n", LABEL, "task", text_or(document, "task_name", "-"));
    buffer_printf(out, "%-*s%s", LABEL, "timing", text_or(timing, "outcome", "not yet"));
    if (why)
        buffer_printf(out, ": %s", why);
    if (json_is_number(json_object_get(timing, "calls")))
        buffer_printf(out, ", %.0f calls for each bell", number_or_nan(timing, "calls"));
    if (json_is_boolean(json_object_get(timing, "cold")))
        buffer_printf(out, ", L2 %s", json_is_true(json_object_get(timing, "cold")) ? "cold" : "warm");
    if (stopped)
        buffer_printf(out, "\n%*sended early: %s", LABEL, "", stopped);
    if (text_member(timing, "one_call"))
        buffer_printf(out, "\n%*sone call for each bell: %s", LABEL, "", text_member(timing, "one_call"));
    if (text_member(timing, "not_captured"))
        buffer_printf(out, "\n%*sno CUDA graph: %s", LABEL, "", text_member(timing, "not_captured"));
    buffer_add(out, "\n");
}

void
chart_timing(struct buffer *out, json_t *document)
{
    json_t *timing = json_object_get(document, "timing");
    __attribute__((cleanup(samples_release))) struct samples s = { 0 };

    add_head(out, document, timing);
    samples_read(&s, timing);
    if (s.n > 0) {
        add_interval(out, timing);
        add_table(out, timing);
        add_samples(out, &s);
    }
    add_gpu(out, timing);
}
