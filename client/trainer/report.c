/*
 * trainer report: one page and one document of a run, from what its steps left: losses, rewards, funnel, cheats, curriculum,
 * evaluations, kernels, costs. Reads files only, and can be made again at any time.
 */
#include "client/trainer/report.h"

#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/classes.h"
#include "common/buffer.h"
#include "common/clock.h"

enum { BINS = 10, BEST = 3 };

struct report {
    const char *workdir;
    json_t *document;
};

/* Call take for each object of a file of JSON Lines; one that is not there has none. */
static void
each_line(const char *path, void (*take)(json_t *row, json_t *into), json_t *into)
{
    AUTO_FREE char *line = NULL;
    size_t capacity = 0;
    FILE *file = fopen(path, "r");
    while (file && getline(&line, &capacity, file) > 0) {
        AUTO_JSON json_t *row = json_loads(line, 0, NULL);
        if (json_is_object(row))
            take(row, into);
    }
    if (file)
        fclose(file);
}

/* The files of outputs/ by a pattern, each by the part of its name that the pattern leaves open. */
static void
each_file(struct report *r, const char *pattern, void (*take)(struct report *r, const char *path))
{
    char full[PATH_MAX];
    glob_t found;
    snprintf(full, sizeof(full), "%s/outputs/%s", r->workdir, pattern);
    if (glob(full, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            take(r, found.gl_pathv[i]);
    globfree(&found);
}

/* The directory's name after the first "_": the round's or the run's. */
static const char *
name_of(const char *path, char out[NAME_MAX + 1])
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", path);
    const char *directory = basename(dirname(copy)), *after = strchr(directory, '_');
    snprintf(out, NAME_MAX + 1, "%s", after ? after + 1 : directory);
    return out;
}

static json_t *
part(struct report *r, const char *name)
{
    json_t *found = json_object_get(r->document, name);
    if (!found) {
        found = json_object();
        json_object_set_new(r->document, name, found);
    }
    return found;
}

static void
count(json_t *into, const char *name, double n)
{
    json_object_set_new(into, name, json_real(n + json_number_value(json_object_get(into, name))));
}

static void
take_metrics(json_t *row, json_t *into)
{
    static const char *const kept[] = { "step",   "epoch",   "loss",   "learning_rate", "gradient_norm",
                                        "tokens", "seconds", "wait_s", "reward_mean",   "gpu_peak_gib" };
    json_t *point = json_object();
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (json_object_get(row, kept[i]))
            json_object_set(point, kept[i], json_object_get(row, kept[i]));
    json_array_append_new(into, point);
}

static void
read_training(struct report *r, const char *path)
{
    char name[NAME_MAX + 1];
    json_t *points = json_array();
    each_line(path, take_metrics, points);
    json_object_set_new(part(r, "losses"), name_of(path, name), points);
}

static double
component(json_t *verdict, const char *name)
{
    return json_number_value(json_object_get(json_object_get(verdict, "components"), name));
}

/* One answer of a round: its reward, how far it came, and whether it cheated. */
static void
take_candidate(json_t *row, json_t *into)
{
    static const char *const funnel[] = { "extracted", "valid", "compiled", "correct", "timed" };
    json_t *verdict = json_object_get(row, "verdict"), *reward = json_object_get(verdict, "reward");
    const char *kind = json_string_value(json_object_get(verdict, "class"));

    if (!kind || json_object_get(verdict, "duplicate_of"))
        return;
    count(json_object_get(into, "funnel"), "answers", 1);
    for (size_t i = 0; i < ARRAY_LEN(funnel); i++)
        count(json_object_get(into, "funnel"), funnel[i], component(verdict, funnel[i]) > 0);
    count(json_object_get(into, "classes"), kind, 1);
    if (json_is_number(reward))
        json_array_append(json_object_get(into, "rewards"), reward);
}

/* n, mean, least, most, and how many in each of BINS between them. */
static json_t *
distribution(json_t *rewards)
{
    size_t n = json_array_size(rewards), i;
    double low = INFINITY, high = -INFINITY, sum = 0;
    json_t *one, *bins = json_array();
    int counts[BINS] = { 0 };

    json_array_foreach(rewards, i, one)
    {
        double x = json_number_value(one);
        sum += x;
        low = fmin(low, x);
        high = fmax(high, x);
    }
    json_array_foreach(rewards, i, one)
    {
        double span = high > low ? (json_number_value(one) - low) / (high - low) : 0;
        counts[span >= 1 ? BINS - 1 : (int)(span * BINS)]++;
    }
    for (i = 0; i < BINS; i++)
        json_array_append_new(bins, json_integer(counts[i]));
    return n ? json_pack("{s:I, s:f, s:f, s:f, s:o}", "n", (json_int_t)n, "mean", sum / (double)n, "least",
                         low, "most", high, "bins", bins)
             : (json_decref(bins), json_pack("{s:i}", "n", 0));
}

static void
read_round(struct report *r, const char *path)
{
    char name[NAME_MAX + 1];
    AUTO_JSON json_t *found = json_pack("{s:{}, s:{}, s:[]}", "funnel", "classes", "rewards");
    json_t *caught = json_object();

    each_line(path, take_candidate, found);
    name_of(path, name);
    json_object_set_new(part(r, "rewards"), name, distribution(json_object_get(found, "rewards")));
    json_object_set(part(r, "funnel"), name, json_object_get(found, "funnel"));
    json_object_set(part(r, "classes"), name, json_object_get(found, "classes"));
    for (int i = 0; i < CLASS_N; i++) {
        const char *class_ = class_name((enum verdict_class)i);
        if (class_info((enum verdict_class)i)->is_cheat)
            count(caught, class_,
                  json_number_value(json_object_get(json_object_get(found, "classes"), class_)));
    }
    json_object_set_new(part(r, "cheats"), name, caught);
}

/* Keep a row among the BEST, by reward. */
static void
take_kept(json_t *row, json_t *into)
{
    double reward = json_number_value(json_object_get(row, "reward"));
    size_t at = 0;
    while (at < json_array_size(into) &&
           json_number_value(json_object_get(json_array_get(into, at), "reward")) >= reward)
        at++;
    if (at >= BEST)
        return;
    json_array_insert_new(into, at,
                          json_pack("{s:O*, s:O*, s:O*, s:O*}", "task", json_object_get(row, "task"),
                                    "reward", json_object_get(row, "reward"), "submission",
                                    json_object_get(row, "submission"), "code",
                                    json_object_get(row, "code")));
    if (json_array_size(into) > BEST)
        json_array_remove(into, BEST);
}

static void
read_kept(struct report *r, const char *path)
{
    each_line(path, take_kept, json_object_get(r->document, "best"));
}

static void
read_evaluation(struct report *r, const char *path)
{
    AUTO_JSON json_t *found = json_load_file(path, 0, NULL);
    const char *name = json_string_value(json_object_get(found, "name"));
    if (!name)
        return;
    json_object_set_new(
        part(r, "evaluations"), name,
        json_pack("{s:O*, s:O?, s:O*, s:O*, s:O*}", "model", json_object_get(found, "model_path"), "prompt",
                  json_object_get(found, "prompt"), "metrics", json_object_get(found, "metrics"), "levels",
                  json_object_get(found, "levels"), "seconds", json_object_get(found, "seconds")));
}

/* What `trainer compare --save` left, by evaluation and level, without the figures that stand in the evaluations. */
static void
read_comparison(struct report *r)
{
    char path[PATH_MAX];
    json_t *column, *figures;
    const char *level;
    size_t i;

    snprintf(path, sizeof(path), "%s/outputs/comparison.json", r->workdir);
    AUTO_JSON json_t *found = json_load_file(path, 0, NULL);
    json_array_foreach(found, i, column)
    {
        json_object_foreach(json_object_get(column, "levels"), level, figures)
        {
            char name[NAME_MAX + 1];
            const char *by = json_string_value(json_object_get(column, "name")), *published;
            json_t *first = json_object_get(figures, "correct_difference"), *less;
            json_t *previous = json_object_get(figures, "previous_difference");
            json_t *row = json_pack("{s:O?, s:O?, s:O?}", "correct", json_object_get(figures, "correct"),
                                    "beyond the first", json_object_get(first, "mean"),
                                    "beyond the one before", json_object_get(previous, "mean"));
            json_object_foreach(json_object_get(figures, "less_published"), published, less)
            {
                char title[128];
                snprintf(title, sizeof(title), "less %.100s", published);
                json_object_set(row, title, less);
            }
            snprintf(name, sizeof(name), strcmp(level, "all") == 0 ? "%.200s, %s" : "%.200s, level %s",
                     by ? by : "", level);
            json_object_set_new(part(r, "comparison"), name, row);
        }
    }
}

/* Does this step have the GPUs, to train on or to answer with? The others leave them idle. */
static bool
is_busy(json_t *step)
{
    static const char *const sampling[] = { "bestofn", "evaluate" };
    const char *command = json_string_value(json_array_get(json_object_get(step, "argv"), 0));
    for (size_t i = 0; command && i < ARRAY_LEN(sampling); i++)
        if (strcmp(command, sampling[i]) == 0)
            return true;
    return json_is_true(json_object_get(step, "trains"));
}

/* Of a phase: seconds on the clock, of the GPUs that were paid for, and of those the idle ones. */
static void
add_phase(json_t *phases, json_t *step, double gpus)
{
    const char *stage = json_string_value(json_object_get(step, "stage"));
    double seconds = json_number_value(json_object_get(step, "seconds"));
    if (!stage)
        return;
    if (!json_object_get(phases, stage))
        json_object_set_new(phases, stage, json_object());
    json_t *phase = json_object_get(phases, stage);
    count(phase, "wall_s", seconds);
    count(phase, "gpu_s", seconds * gpus);
    count(phase, "idle_gpu_s", is_busy(step) ? 0 : seconds * gpus);
}

/* What a step took, times the GPUs that it had. */
static void
read_costs(struct report *r)
{
    char path[PATH_MAX + 16];
    const char *name;
    json_t *step, *costs = json_object(), *phases = json_object();
    double all = 0;

    snprintf(path, sizeof(path), "%s/run.json", r->workdir);
    AUTO_JSON json_t *state = json_load_file(path, 0, NULL);
    json_t *conf = json_object_get(state, "configuration"), *gpus = json_object_get(conf, "gpus");
    double number = json_is_integer(gpus) ? (double)json_integer_value(gpus) : 1;
    json_object_foreach(json_object_get(state, "steps"), name, step)
    {
        double seconds = json_number_value(json_object_get(step, "seconds"));
        all += seconds * number;
        add_phase(phases, step, number);
        json_object_set_new(costs, name,
                            json_pack("{s:f, s:f, s:O*}", "seconds", seconds, "gpu_seconds", seconds * number,
                                      "state", json_object_get(step, "state")));
    }
    json_object_set_new(r->document, "costs",
                        json_pack("{s:o, s:o, s:f, s:f}", "steps", costs, "phases", phases, "gpu_seconds",
                                  all, "price",
                                  all / 3600 * json_number_value(json_object_get(conf, "gpu_price"))));
    if (conf)
        json_object_set(r->document, "configuration", conf);
}

json_t *
report_read(const char *workdir)
{
    char at[CLOCK_TEXT_SIZE], path[PATH_MAX];
    clock_text(clock_wall_ms(), at);
    struct report r = { workdir, json_pack("{s:s, s:[], s:{}, s:{}, s:{}, s:{}, s:{}}", "made", at, "best",
                                           "losses", "rewards", "funnel", "cheats", "evaluations") };
    each_file(&r, "train_*/metrics.jsonl", read_training);
    each_file(&r, "bestofn_*/candidates.jsonl", read_round);
    each_file(&r, "bestofn_*/kept.jsonl", read_kept);
    each_file(&r, "eval_*.json", read_evaluation);
    read_comparison(&r);
    read_costs(&r);
    snprintf(path, sizeof(path), "%s/checkpoints/curriculum.json", workdir);
    json_t *state = json_load_file(path, 0, NULL);
    if (state)
        json_object_set_new(r.document, "curriculum", state);
    return r.document;
}

/* --- the command --- */

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct trainer **t = state->input;
    (void)arg;
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = *t;
    return key == ARGP_KEY_INIT || key == ARGP_KEY_ARG
               ? 0
               : ARGP_ERR_UNKNOWN; /* FILE: `trainer run` names its own */
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = {
    NULL, parse, "[FILE]", "Make outputs/report.html and outputs/report.json of a run.", children, NULL, NULL
};

/* Nothing that a step leaves was found: it is the wrong directory. */
static bool
is_empty(const json_t *document)
{
    static const char *const parts[] = { "losses", "funnel", "evaluations", "curriculum" };

    if (json_object_size(json_object_get(json_object_get(document, "costs"), "steps")) > 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (json_object_size(json_object_get(document, parts[i])) > 0)
            return false;
    return true;
}

int
report_command(struct trainer *t, int argc, char **argv)
{
    char path[OUTPUT_PATH_MAX];
    struct error err = { 0 };
    struct output html;
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    argp_parse(&argp, argc, argv, 0, NULL, &t);
    AUTO_JSON json_t *document = report_read(t->workdir);
    if (is_empty(document))
        return trainer_complain(TRAINER_CONFIG, "%s has no run, no round and no evaluation to report on",
                                t->workdir);
    int rc = output_path(t->workdir, "outputs", "report.json", path, &err);
    rc = rc == 0 ? output_document(path, document, &err) : rc;
    report_page(&text, document);
    rc = rc == 0 ? output_path(t->workdir, "outputs", "report.html", path, &err) : rc;
    rc = rc == 0 ? output_begin(&html, path, &err) : rc;
    if (rc == 0) {
        html.is_bad = fwrite(text.data, 1, text.size, html.file) != text.size;
        rc = output_end(&html, &err);
    }
    if (rc == 0)
        puts(path);
    return rc == 0 ? TRAINER_OK : trainer_failed(&err);
}
