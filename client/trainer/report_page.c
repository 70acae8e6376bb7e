#include "client/trainer/report.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"

static void
escaped(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        const char *as = *text == '<'   ? "&lt;"
                         : *text == '>' ? "&gt;"
                         : *text == '&' ? "&amp;"
                         : *text == '"' ? "&quot;"
                                        : NULL;
        if (as)
            buffer_add(out, as);
        else
            buffer_append(out, text, 1);
    }
}

/* A curve of y over the points' order, with its ends and extremes in words. */
static void
curve(struct buffer *out, json_t *points, const char *key)
{
    double low = INFINITY, high = -INFINITY, first = NAN, last = NAN;
    size_t i, n = json_array_size(points), seen = 0;
    json_t *one;

    json_array_foreach(points, i, one)
    {
        json_t *value = json_object_get(one, key);
        if (!json_is_number(value))
            continue;
        last = json_number_value(value);
        first = seen++ ? first : last;
        low = fmin(low, last);
        high = fmax(high, last);
    }
    if (!seen)
        return;
    buffer_printf(out,
                  "<p>%s: first %.4g, last %.4g, least %.4g, most %.4g (%zu steps)</p><svg viewBox=\"0 0 600 "
                  "120\"><polyline points=\"",
                  key, first, last, low, high, seen);
    json_array_foreach(points, i, one)
    {
        json_t *value = json_object_get(one, key);
        double span = high > low ? (json_number_value(value) - low) / (high - low) : 0.5;
        if (json_is_number(value))
            buffer_printf(out, "%.1f,%.1f ", n > 1 ? 600.0 * (double)i / (double)(n - 1) : 300.0,
                          115 - 110 * span);
    }
    buffer_add(out, "\"/></svg>");
}

static void
cell(struct buffer *out, const char *tag, json_t *value)
{
    buffer_printf(out, "<%s>", tag);
    if (json_is_string(value))
        escaped(out, json_string_value(value));
    else if (json_is_number(value))
        buffer_printf(out, "%.4g", json_number_value(value));
    else
        buffer_add(out, "-");
    buffer_printf(out, "</%s>", tag);
}

/* A table of objects by name, with the columns that are given. */
static void
table(struct buffer *out, const char *title, json_t *rows, const char *const *columns, size_t n)
{
    const char *name;
    json_t *row;
    if (json_object_size(rows) == 0)
        return;
    buffer_printf(out, "<h2>%s</h2><table><tr><th></th>", title);
    for (size_t i = 0; i < n; i++) {
        buffer_add(out, "<th>");
        escaped(out, columns[i]);
        buffer_add(out, "</th>");
    }
    buffer_add(out, "</tr>");
    json_object_foreach(rows, name, row)
    {
        buffer_add(out, "<tr><th>");
        escaped(out, name);
        buffer_add(out, "</th>");
        for (size_t i = 0; i < n; i++)
            cell(out, "td", json_object_get(row, columns[i]));
        buffer_add(out, "</tr>");
    }
    buffer_add(out, "</table>");
}

static void
histograms(struct buffer *out, json_t *rounds)
{
    const char *name;
    json_t *round, *bin;
    size_t i;
    json_object_foreach(rounds, name, round)
    {
        double most = 1;
        json_t *bins = json_object_get(round, "bins");
        json_array_foreach(bins, i, bin) most = fmax(most, json_number_value(bin));
        buffer_add(out, "<p>");
        escaped(out, name);
        buffer_printf(out, ": %g to %g</p><svg viewBox=\"0 0 600 60\">",
                      json_number_value(json_object_get(round, "least")),
                      json_number_value(json_object_get(round, "most")));
        json_array_foreach(bins, i, bin)
            buffer_printf(out, "<rect x=\"%zu\" y=\"%.1f\" width=\"55\" height=\"%.1f\"/>", i * 60,
                          60 - 58 * json_number_value(bin) / most, 58 * json_number_value(bin) / most);
        buffer_add(out, "</svg>");
    }
}

static void
evaluations(struct buffer *out, json_t *found)
{
    static const char *const columns[] = { "num_tasks",       "extracted_rate", "valid_rate", "compiled_rate",
                                           "correct_rate",    "fast_p 1",       "fast_p 1.5", "fast_p 2",
                                           "speedup_geomean", "prompt" };
    AUTO_JSON json_t *rows = json_object();
    const char *name;
    json_t *one;
    json_object_foreach(found, name, one)
    {
        json_t *metrics = json_object_get(one, "metrics"), *row = json_copy(metrics),
               *fast = json_object_get(metrics, "fast_p");
        json_object_set(row, "fast_p 1", json_object_get(fast, "1"));
        json_object_set(row, "fast_p 1.5", json_object_get(fast, "1.5"));
        json_object_set(row, "fast_p 2", json_object_get(fast, "2"));
        json_object_set(row, "prompt", json_object_get(one, "prompt"));
        json_object_set_new(rows, name, row);
    }
    table(out, "Evaluations (percent of tasks)", rows, columns, ARRAY_LEN(columns));
}

/* What each evaluation is beyond others, in points; published figures have a column each. */
static void
comparison(struct buffer *out, json_t *found)
{
    enum { MOST = 16 };
    const char *columns[MOST] = { "correct", "beyond the first", "beyond the one before" }, *name, *key;
    size_t n = 3;
    json_t *row, *value;
    json_object_foreach(found, name, row)
    {
        json_object_foreach(row, key, value)
        {
            bool is_there = false;
            for (size_t i = 0; i < n; i++)
                is_there = is_there || strcmp(columns[i], key) == 0;
            if (!is_there && n < MOST)
                columns[n++] = key;
        }
    }
    table(out, "Comparison (correct answers in percent, differences in points)", found, columns, n);
}

void
report_page(struct buffer *out, json_t *d)
{
    static const char *const rewards[] = { "n", "mean", "least", "most" };
    static const char *const funnel[] = { "answers", "extracted", "valid", "compiled", "correct", "timed" };
    const char *cheats[CLASS_N];
    static const char *const costs[] = { "seconds", "gpu_seconds", "state" };
    static const char *const phases[] = { "wall_s", "gpu_s", "idle_gpu_s" };
    const char *name;
    json_t *points, *kernel, *cost = json_object_get(d, "costs");
    size_t i, n_cheats = 0;

    for (int k = 0; k < CLASS_N; k++)
        if (class_info((enum verdict_class)k)->is_cheat)
            cheats[n_cheats++] = class_name((enum verdict_class)k);
    buffer_add(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Training report</title><style>"
        "body{font:15px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid "
        "#ccc}"
        "svg{width:100%;max-width:600px;background:#f6f6f6}polyline{fill:none;stroke:#06c;stroke-width:2}"
        "rect{fill:#06c}pre{background:#f6f6f6;padding:1em;overflow:auto}</style><h1>Training report</h1>");
    evaluations(out, json_object_get(d, "evaluations"));
    comparison(out, json_object_get(d, "comparison"));
    buffer_add(out, "<h2>Training</h2>");
    json_object_foreach(json_object_get(d, "losses"), name, points)
    {
        buffer_add(out, "<h3>");
        escaped(out, name);
        buffer_add(out, "</h3>");
        curve(out, points, "loss");
        curve(out, points, "reward_mean");
    }
    table(out, "Rewards by round", json_object_get(d, "rewards"), rewards, ARRAY_LEN(rewards));
    histograms(out, json_object_get(d, "rewards"));
    table(out, "Funnel by round (distinct answers)", json_object_get(d, "funnel"), funnel, ARRAY_LEN(funnel));
    table(out, "Cheats found", json_object_get(d, "cheats"), cheats, n_cheats);
    if (json_object_get(d, "curriculum")) {
        AUTO_FREE char *text = json_dumps(json_object_get(d, "curriculum"), JSON_INDENT(1));
        buffer_add(out, "<h2>Curriculum</h2><pre>");
        escaped(out, text ? text : "");
        buffer_add(out, "</pre>");
    }
    if (json_array_size(json_object_get(d, "best")))
        buffer_add(out, "<h2>Best kernels</h2>");
    json_array_foreach(json_object_get(d, "best"), i, kernel)
    {
        const char *code = json_string_value(json_object_get(kernel, "code"));
        buffer_add(out, "<h3>");
        cell(out, "span", json_object_get(kernel, "task"));
        buffer_add(out, ", reward ");
        cell(out, "span", json_object_get(kernel, "reward"));
        buffer_add(out, "</h3><pre>");
        escaped(out, code ? code : "");
        buffer_add(out, "</pre>");
    }
    table(out, "Time by phase", json_object_get(cost, "phases"), phases, ARRAY_LEN(phases));
    table(out, "Costs", json_object_get(cost, "steps"), costs, ARRAY_LEN(costs));
    buffer_printf(out, "<p>%.0f GPU seconds, price %.2f</p>",
                  json_number_value(json_object_get(cost, "gpu_seconds")),
                  json_number_value(json_object_get(cost, "price")));
    AUTO_FREE char *conf = json_dumps(json_object_get(d, "configuration"), JSON_INDENT(1));
    buffer_add(out, "<h2>Configuration</h2><pre>");
    escaped(out, conf ? conf : "");
    buffer_add(out, "</pre></html>\n");
}
