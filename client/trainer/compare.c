/* trainer compare: evaluations side by side, by level, with paired differences from the first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/metrics.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "common/auto.h"
#include "common/buffer.h"

enum { COLUMNS_MAX = 16, OPT_PUBLISHED = 512, OPT_HTML, OPT_SAVE, OPT_OTHER_PROMPTS };

/* One evaluation, or figures that somebody published. */
struct column {
    const char *name; /* borrowed from argv or report */
    char path[OUTPUT_PATH_MAX];
    json_t *report;      /* NULL: published */
    json_t *correct;     /* {task: 0 or 1}, of the first sample that was judged */
    json_t *level_of;    /* {task: level} */
    double published[5]; /* correct, in percent, by level; NAN: not told */
};

struct compare {
    struct trainer *trainer;
    struct column columns[COLUMNS_MAX];
    size_t n;
    const char *html, *save;
    bool is_json, takes_other_prompts;
    struct buffer note; /* what of the prompts is said in the output; empty: they are one */
};

static const struct argp_option options[] = {
    { "published", OPT_PUBLISHED, "NAME=L1[,L2...]", 0,
      "A column of published rates of correct answers by level, in percent: \"TritonRL=63,7\"", 0 },
    { "html", OPT_HTML, "FILE", 0, "Write the table and a plot as a page", 0 },
    { "json", 'j', NULL, 0, "Print JSON", 0 },
    { "save", OPT_SAVE, "FILE", 0, "Write what --json prints to a file, too", 0 },
    { "other-prompts", OPT_OTHER_PROMPTS, NULL, 0,
      "Compare evaluations that were made with different prompts, and say so in the output", 0 },
    { 0 },
};

static void
add_published(struct compare *c, const char *text, struct argp_state *state)
{
    const char *equals = strrchr(text, '=');
    int level = 0;

    if (c->n == COLUMNS_MAX) {
        argp_error(state, "at most %d columns", COLUMNS_MAX);
        return;
    }
    if (!equals || equals == text) {
        argp_error(state, "--published takes NAME=L1[,L2...], not \"%s\"", text);
        return;
    }
    struct column *column = &c->columns[c->n];
    *column = (struct column){ .published = { NAN, NAN, NAN, NAN, NAN } };
    column->name = strndup(text, (size_t)(equals - text)); /* lives as long as the program */
    for (const char *at = equals; *at && level < 4; at += 1 + strcspn(at + 1, ",")) {
        char number[32];
        snprintf(number, sizeof(number), "%.*s", (int)strcspn(at + 1, ","), at + 1);
        column->published[++level] = option_number(state, "--published", number, 0, 100);
    }
    c->n++;
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct compare *c = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = c->trainer;
        return 0;
    case OPT_PUBLISHED:
        add_published(c, arg, state);
        return 0;
    case OPT_HTML:
        c->html = arg;
        return 0;
    case OPT_SAVE:
        c->save = arg;
        return 0;
    case 'j':
        c->is_json = true;
        return 0;
    case OPT_OTHER_PROMPTS:
        c->takes_other_prompts = true;
        return 0;
    case ARGP_KEY_ARG:
        if (c->n == COLUMNS_MAX)
            argp_error(state, "at most %d columns", COLUMNS_MAX);
        c->columns[c->n++] = (struct column){ .name = arg, .report = json_null() };
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = {
    options,
    parse,
    "EVALUATION...",
    "Evaluations side by side, by level, with what each differs from the first. An EVALUATION is a file that "
    "`trainer evaluate` wrote, or its NAME (outputs/eval_NAME.json in the working directory).",
    children,
    NULL,
    NULL
};

/* --- reading --- */

/* {task: its last turn}, where feedback was answered. */
static json_t *
last_turns(json_t *details)
{
    json_t *out = json_object(), *row;
    size_t i;
    json_array_foreach(details, i, row)
    {
        const char *task = json_string_value(json_object_get(row, "id"));
        json_int_t turn = json_integer_value(json_object_get(row, "turn"));
        if (task && turn >= json_integer_value(json_object_get(out, task)))
            json_object_set_new(out, task, json_integer(turn));
    }
    return out;
}

/* Which tasks were answered correctly by their first judged sample, in its last turn. */
static void
index_tasks(struct column *column)
{
    json_t *row;
    size_t i;
    AUTO_JSON json_t *turns = last_turns(json_object_get(column->report, "detailed_results"));
    column->correct = json_object();
    column->level_of = json_object();
    json_array_foreach(json_object_get(column->report, "detailed_results"), i, row)
    {
        const char *task = json_string_value(json_object_get(row, "id"));
        const char *class_ = json_string_value(json_object_get(row, "class"));
        json_t *correct = json_object_get(json_object_get(row, "components"), "correct");
        if (!task || !class_ || strcmp(class_, "infra") == 0 || json_object_get(column->correct, task) ||
            json_integer_value(json_object_get(row, "turn")) !=
                json_integer_value(json_object_get(turns, task)))
            continue;
        json_object_set_new(column->correct, task, json_real(json_number_value(correct) == 1));
        json_object_set(column->level_of, task, json_object_get(row, "level"));
    }
}

static int
read_column(const struct compare *c, struct column *column, struct error *err)
{
    json_error_t why;
    const char *name = column->name;
    char *path = column->path;

    snprintf(path, sizeof(column->path), "%s", name);
    if (access(path, F_OK) != 0 && !strchr(name, '/'))
        snprintf(path, sizeof(column->path), "%s/outputs/eval_%s.json", c->trainer->workdir, name);
    if (access(path, R_OK) != 0)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    column->report = json_load_file(path, 0, &why);
    if (!column->report)
        return error_set(err, ERR_INPUT, "%s, line %d: %s", path, why.line, why.text);
    if (!json_is_object(json_object_get(column->report, "metrics")) ||
        !json_is_array(json_object_get(column->report, "detailed_results")))
        return error_set(err, ERR_INPUT,
                         "%s is not what `trainer evaluate` writes: no \"metrics\" and \"detailed_results\"",
                         path);
    json_t *known = json_object_get(column->report, "name");
    column->name = json_is_string(known) ? json_string_value(known) : name;
    index_tasks(column);
    return 0;
}

static const char *
prompt_of(const struct column *column)
{
    return json_string_value(json_object_get(column->report, "prompt"));
}

/*
 * Answers to another prompt say nothing of the model: false, and note says which. An evaluation that names no prompt is
 * of answers that others sampled (`evaluate --runs`): no mismatch, and said.
 */
static bool
prompts_agree(const struct compare *c, struct buffer *note)
{
    const struct column *first = NULL;
    bool do_agree = true;
    for (size_t i = 0; i < c->n; i++) {
        const struct column *column = &c->columns[i];
        const char *prompt = prompt_of(column);
        if (!column->report)
            continue;
        if (!prompt) {
            buffer_printf(note, "no prompt is known of the answers in %s\n", column->path);
            continue;
        }
        first = first ? first : column;
        if (strcmp(prompt_of(first), prompt) == 0)
            continue;
        do_agree = false;
        buffer_printf(note, "the prompts differ: %s in %s, %s in %s\n", prompt_of(first), first->path, prompt,
                      column->path);
    }
    return do_agree;
}

/* Another policy is another yardstick. */
static void
tell_policies(const struct compare *c)
{
    const struct column *first = NULL;
    for (size_t i = 0; i < c->n; i++) {
        const struct column *column = &c->columns[i];
        if (!column->report)
            continue;
        json_t *a = first ? json_object_get(first->report, "policy") : NULL;
        json_t *b = json_object_get(column->report, "policy");
        if (first && !json_equal(a ? a : json_null(), b ? b : json_null()))
            fprintf(stderr, "trainer: %s and %s differ in their policy\n", first->name, column->name);
        first = first ? first : column;
    }
}

/* --- figures --- */

static double
figure(const struct column *column, int level, const char *policy, const char *name, const char *below)
{
    char text[12];
    snprintf(text, sizeof(text), "%d", level);
    if (!column->report)
        return !policy && strcmp(name, "correct_rate") == 0 ? column->published[level] : NAN;
    json_t *judged =
        policy ? json_object_get(json_object_get(column->report, "columns"), policy) : column->report;
    json_t *metrics =
        level ? json_object_get(json_object_get(judged, "levels"), text) : json_object_get(judged, "metrics");
    json_t *value = json_object_get(metrics, name);
    value = below ? json_object_get(value, below) : value;
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Correct answers of b beyond a's, in points, over the tasks that both were judged on; *n: how many. */
static struct metrics_difference
difference(const struct column *a, const struct column *b, int level, size_t *n)
{
    struct metrics_difference out = { NAN, NAN, NAN };
    size_t most = json_object_size(a->correct);
    AUTO_FREE double *x = calloc(most + 1, sizeof(*x)), *y = calloc(most + 1, sizeof(*y));
    const char *task;
    json_t *value;

    *n = 0;
    json_object_foreach(a->correct, task, value)
    {
        json_t *other = json_object_get(b->correct, task);
        bool is_of = level == 0 || json_integer_value(json_object_get(a->level_of, task)) == level;
        if (!other || !is_of || !x || !y)
            continue;
        x[*n] = 100 * json_number_value(value);
        y[(*n)++] = 100 * json_number_value(other);
    }
    if (x && y)
        metrics_paired(x, y, *n, &out);
    return out;
}

static const struct {
    const char *label, *name, *below, *unit, *policy; /* policy: of what `evaluate --columns` judged again */
} rows[] = {
    { "extracted", "extracted_rate", NULL, "%", NULL },
    { "valid", "valid_rate", NULL, "%", NULL },
    { "compiled", "compiled_rate", NULL, "%", NULL },
    { "correct", "correct_rate", NULL, "%", NULL },
    { "fast_0", "fast_p", "0", "%", NULL },
    { "fast_0.5", "fast_p", "0.5", "%", NULL },
    { "fast_0.8", "fast_p", "0.8", "%", NULL },
    { "fast_1", "fast_p", "1", "%", NULL },
    { "fast_1.5", "fast_p", "1.5", "%", NULL },
    { "fast_2", "fast_p", "2", "%", NULL },
    { "pass@1", "pass_at", "1", "%", NULL },
    { "pass@10", "pass_at", "10", "%", NULL },
    { "speed-up", "speedup_geomean", NULL, "", NULL },
    { "median", "speedup_median", NULL, "", NULL },
    { "strict", "correct_rate", NULL, "%", "strict" },
    { "hybrid", "correct_rate", NULL, "%", "hybrid" },
    { "kernelbench", "correct_rate", NULL, "%", "kernelbench" },
};

static bool
has_row(const struct compare *c, int level, size_t row)
{
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(figure(&c->columns[i], level, rows[row].policy, rows[row].name, rows[row].below)))
            return true;
    return false;
}

static bool
has_level(const struct compare *c, int level)
{
    for (size_t row = 0; row < ARRAY_LEN(rows); row++)
        if (has_row(c, level, row))
            return true;
    return false;
}

static void
cell(const struct compare *c, int level, size_t row, size_t column, char out[24])
{
    double x = figure(&c->columns[column], level, rows[row].policy, rows[row].name, rows[row].below);
    snprintf(out, 24, "%s", "-");
    if (isfinite(x))
        snprintf(out, 24, rows[row].unit[0] ? "%.1f%s" : "%.2f%s", x, rows[row].unit);
}

/* Of a column, what it is compared with: the first, or the one before it. Measured ones stand before published ones. */
enum beyond { BEYOND_FIRST, BEYOND_PREVIOUS };

/* *n 0: there is nothing to compare. */
static struct metrics_difference
beyond(const struct compare *c, int level, enum beyond what, size_t column, size_t *n)
{
    const size_t from = what == BEYOND_FIRST ? 0 : column - 1;
    const struct metrics_difference none = { NAN, NAN, NAN };
    *n = 0;
    if (column == 0 || !c->columns[from].report || !c->columns[column].report)
        return none;
    return difference(&c->columns[from], &c->columns[column], level, n);
}

/* "+12.5 (2.5 to 22.5; 40 tasks)" */
static void
difference_cell(const struct compare *c, int level, enum beyond what, size_t column, char out[64])
{
    size_t n;
    struct metrics_difference d = beyond(c, level, what, column, &n);
    snprintf(out, 64, "%s", column == 0 ? "" : "-");
    if (n > 0)
        snprintf(out, 64, "%+.1f (%+.1f to %+.1f; n=%zu)", d.mean, d.lo, d.hi, n);
}

/* More than "beyond the first" says only from the third on. */
static bool
has_previous(const struct compare *c)
{
    return c->n > 2 && c->columns[2].report;
}

/* A measured rate of correct answers less a published one, in points; NAN: one of them is not there. */
static double
less_published(const struct compare *c, int level, size_t published, size_t column)
{
    if (!c->columns[column].report)
        return NAN;
    return figure(&c->columns[column], level, NULL, "correct_rate", NULL) -
           c->columns[published].published[level];
}

static bool
has_published(const struct compare *c, int level, size_t column)
{
    return !c->columns[column].report && isfinite(c->columns[column].published[level]);
}

static void
level_name(int level, char out[16])
{
    snprintf(out, 16, level ? "level %d" : "all", level);
}

/* --- a table --- */

/* "- TritonRL": what each is beyond a published figure. */
static void
print_less_published(const struct compare *c, int level, int width)
{
    for (size_t p = 0; p < c->n; p++) {
        if (!has_published(c, level, p))
            continue;
        printf("- %-9.9s", c->columns[p].name);
        for (size_t k = 0; k < c->n; k++) {
            char text[32] = "";
            double d = less_published(c, level, p, k);
            if (isfinite(d))
                snprintf(text, sizeof(text), "%+.1f", d);
            printf("  %-*s", width, text);
        }
        putchar('\n');
    }
}

static void
print_table(const struct compare *c)
{
    enum { WIDTH = 34 };
    char text[64], title[16];

    if (c->note.size > 0)
        printf("%s\n", c->note.data);
    for (int i = 0, level; i < 5; i++) {
        level = (i + 1) % 5; /* all comes last */
        if (!has_level(c, level))
            continue;
        level_name(level, title);
        printf("%-11s", title);
        for (size_t k = 0; k < c->n; k++)
            printf("  %-*.*s", WIDTH, WIDTH, c->columns[k].name);
        putchar('\n');
        for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
            if (!has_row(c, level, row))
                continue;
            printf("%-11s", rows[row].label);
            for (size_t k = 0; k < c->n; k++) {
                cell(c, level, row, k, text);
                printf("  %-*s", WIDTH, text);
            }
            putchar('\n');
        }
        for (int what = BEYOND_FIRST; what <= (has_previous(c) ? BEYOND_PREVIOUS : BEYOND_FIRST); what++) {
            printf("%-11s", what == BEYOND_FIRST ? "correct +-" : "+- previous");
            for (size_t k = 0; k < c->n; k++) {
                difference_cell(c, level, what, k, text);
                printf("  %-*s", WIDTH, c->columns[k].report ? text : "published");
            }
            putchar('\n');
        }
        print_less_published(c, level, WIDTH);
        putchar('\n');
    }
}

/* --- a page --- */

static void
escape(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        const char *as = *text == '<' ? "&lt;" : *text == '&' ? "&amp;" : *text == '"' ? "&quot;" : NULL;
        if (as)
            buffer_add(out, as);
        else
            buffer_append(out, text, 1);
    }
}

static bool
has_rate(const struct compare *c, int level)
{
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(figure(&c->columns[i], level, NULL, "correct_rate", NULL)))
            return true;
    return false;
}

/* Correct answers by level: one bar for each column. */
static void
add_plot(const struct compare *c, struct buffer *out)
{
    static const char *const colours[] = { "#4269d0", "#efb118", "#ff725c", "#6cc5b0",
                                           "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5" };
    int x = 40;
    buffer_printf(out,
                  "<svg role=\"img\" width=\"%zu\" height=\"240\" font-size=\"12\">"
                  "<title>Correct answers by level, in percent</title>\n",
                  80 + 5 * (c->n * 26 + 30));
    for (int y = 0; y <= 100; y += 25)
        buffer_printf(out,
                      "<text x=\"2\" y=\"%d\">%d</text><line x1=\"30\" x2=\"100%%\" y1=\"%d\" y2=\"%d\" "
                      "stroke=\"#ddd\"/>\n",
                      214 - 2 * y, y, 210 - 2 * y, 210 - 2 * y);
    for (int i = 0, level; i < 5; i++) {
        char title[16];
        level = (i + 1) % 5;
        if (!has_rate(c, level))
            continue;
        level_name(level, title);
        buffer_printf(out, "<text x=\"%d\" y=\"230\">%s</text>\n", x, title);
        for (size_t k = 0; k < c->n; k++, x += 26) {
            double rate = figure(&c->columns[k], level, NULL, "correct_rate", NULL);
            if (!isfinite(rate))
                continue;
            buffer_printf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"22\" height=\"%.1f\" fill=\"%s\"%s><title>",
                          x, 210 - 2 * rate, 2 * rate, colours[k % ARRAY_LEN(colours)],
                          c->columns[k].report ? "" : " fill-opacity=\"0.4\"");
            escape(out, c->columns[k].name);
            buffer_printf(out, ": %.1f%%</title></rect>\n", rate);
        }
        x += 30;
    }
    buffer_add(out, "</svg>\n<p>");
    for (size_t k = 0; k < c->n; k++) {
        buffer_printf(out, "<span style=\"color:%s\">&#9632;</span> ", colours[k % ARRAY_LEN(colours)]);
        escape(out, c->columns[k].name);
        buffer_add(out, c->columns[k].report ? " " : " (published) ");
    }
    buffer_add(out, "</p>\n");
}

static void
add_less_published(const struct compare *c, int level, struct buffer *out)
{
    for (size_t p = 0; p < c->n; p++) {
        if (!has_published(c, level, p))
            continue;
        buffer_add(out, "</tr>\n<tr><td>correct, less ");
        escape(out, c->columns[p].name);
        buffer_add(out, " (published), in points</td>");
        for (size_t k = 0; k < c->n; k++) {
            double d = less_published(c, level, p, k);
            if (isfinite(d))
                buffer_printf(out, "<td>%+.1f</td>", d);
            else
                buffer_add(out, "<td></td>");
        }
    }
}

static void
add_level(const struct compare *c, int level, struct buffer *out)
{
    char text[64], title[16];
    level_name(level, title);
    buffer_printf(out, "<table><tr><th>%s</th>", title);
    for (size_t k = 0; k < c->n; k++) {
        buffer_add(out, "<th>");
        escape(out, c->columns[k].name);
        buffer_add(out, c->columns[k].report ? "</th>" : " (published)</th>");
    }
    for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
        if (!has_row(c, level, row))
            continue;
        buffer_printf(out, "</tr>\n<tr><td>%s</td>", rows[row].label);
        for (size_t k = 0; k < c->n; k++) {
            cell(c, level, row, k, text);
            buffer_printf(out, "<td>%s</td>", text);
        }
    }
    for (int what = BEYOND_FIRST; what <= (has_previous(c) ? BEYOND_PREVIOUS : BEYOND_FIRST); what++) {
        buffer_printf(out, "</tr>\n<tr><td>correct, beyond %s, in points</td>",
                      what == BEYOND_FIRST ? "the first" : "the one before");
        for (size_t k = 0; k < c->n; k++) {
            difference_cell(c, level, what, k, text);
            buffer_printf(out, "<td>%s</td>", text);
        }
    }
    add_less_published(c, level, out);
    buffer_add(out, "</tr></table>\n");
}

static int
write_page(const struct compare *c, struct error *err)
{
    AUTO_BUFFER struct buffer page = BUFFER_INIT;
    struct output o;

    buffer_add(&page,
               "<!doctype html>\n<meta charset=\"utf-8\"><title>Evaluations</title>\n"
               "<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
               "td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:left}</style>\n"
               "<h1>Evaluations</h1>\n");
    if (c->note.size > 0) {
        buffer_add(&page, "<p><strong>");
        escape(&page, c->note.data);
        buffer_add(&page, "</strong></p>\n");
    }
    add_plot(c, &page);
    for (int level = 1; level <= 5; level++)
        if (has_level(c, level % 5))
            add_level(c, level % 5, &page);
    buffer_add(&page,
               "<p>Rates in percent of all tasks. Differences are over the tasks that both were judged on, "
               "with a 95 % "
               "bootstrap interval over tasks. What is marked as published was not measured here.</p>\n");
    int rc = output_begin(&o, c->html, err);
    if (rc != 0)
        return rc;
    o.is_bad = fwrite(page.data, 1, page.size, o.file) != page.size;
    return output_end(&o, err);
}

/* --- for programs --- */

static json_t *
number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *
difference_json(const struct compare *c, int level, enum beyond what, size_t column)
{
    size_t n;
    struct metrics_difference d = beyond(c, level, what, column, &n);
    return n ? json_pack("{s:f, s:f, s:f, s:i}", "mean", d.mean, "lo", d.lo, "hi", d.hi, "tasks", (int)n)
             : json_null();
}

/* {"TritonRL": -48.0}: by published column. */
static json_t *
less_published_json(const struct compare *c, int level, size_t column)
{
    json_t *out = json_object();
    for (size_t p = 0; p < c->n; p++)
        if (has_published(c, level, p) && isfinite(less_published(c, level, p, column)))
            json_object_set_new(out, c->columns[p].name, json_real(less_published(c, level, p, column)));
    return out;
}

static json_t *
comparison_json(const struct compare *c)
{
    json_t *out = json_array();
    for (size_t k = 0; k < c->n; k++) {
        const struct column *column = &c->columns[k];
        json_t *levels = json_object();
        for (int level = 0; level < 5; level++) {
            char title[16];
            if (!has_level(c, level))
                continue;
            json_t *figures = json_object();
            for (size_t row = 0; row < ARRAY_LEN(rows); row++)
                json_object_set_new(
                    figures, rows[row].label,
                    number(figure(column, level, rows[row].policy, rows[row].name, rows[row].below)));
            json_object_set_new(figures, "correct_difference", difference_json(c, level, BEYOND_FIRST, k));
            json_object_set_new(figures, "previous_difference",
                                difference_json(c, level, BEYOND_PREVIOUS, k));
            json_object_set_new(figures, "less_published", less_published_json(c, level, k));
            snprintf(title, sizeof(title), level ? "%d" : "all", level);
            json_object_set_new(levels, title, figures);
        }
        json_array_append_new(out, json_pack("{s:s, s:b, s:s?, s:o}", "name", column->name, "published",
                                             column->report == NULL, "prompt", prompt_of(column), "levels",
                                             levels));
    }
    return out;
}

/* What was measured first, in the order given: argp reads options before arguments. */
static void
put_published_last(struct compare *c)
{
    struct column sorted[COLUMNS_MAX];
    size_t n = 0;
    for (int is_published = 0; is_published < 2; is_published++)
        for (size_t i = 0; i < c->n; i++)
            if ((c->columns[i].report == NULL) == (is_published == 1))
                sorted[n++] = c->columns[i];
    memcpy(c->columns, sorted, n * sizeof(*sorted));
}

int
compare_command(struct trainer *t, int argc, char **argv)
{
    struct compare c = { .trainer = t, .note = BUFFER_INIT };
    struct error err = { 0 };
    int rc = 0, status = TRAINER_OK;

    argp_parse(&argp, argc, argv, 0, NULL, &c);
    put_published_last(&c);
    for (size_t i = 0; i < c.n; i++)
        if (rc == 0 && c.columns[i].report)
            rc = read_column(&c, &c.columns[i], &err);
    if (c.n == 0)
        return trainer_complain(TRAINER_USAGE, "which evaluations? Files, or names");
    if (rc == 0 && !prompts_agree(&c, &c.note) && !c.takes_other_prompts) {
        status = trainer_complain(TRAINER_CONFIG, "%s--other-prompts compares them all the same",
                                  c.note.data ? c.note.data : "");
    } else if (rc == 0) {
        tell_policies(&c);
        AUTO_JSON json_t *document = comparison_json(&c);
        if (c.is_json) {
            json_dumpf(document, stdout, JSON_INDENT(2));
            putchar('\n');
        } else {
            print_table(&c);
        }
        rc = c.html ? write_page(&c, &err) : 0;
        rc = rc == 0 && c.save ? output_document(c.save, document, &err) : rc;
    }
    buffer_release(&c.note);
    for (size_t i = 0; i < c.n; i++) {
        json_decref(c.columns[i].report);
        json_decref(c.columns[i].correct);
        json_decref(c.columns[i].level_of);
    }
    return rc == 0 ? status : trainer_failed(&err);
}
