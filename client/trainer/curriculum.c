#include "client/trainer/curriculum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/statistics.h"

enum { PERCENT_FIRST = 10, PERCENT_LAST = 50, PERCENT_STEP = 5 };

static const char *const names[] = {
    [CURRICULUM_FIXED] = "fixed",   [CURRICULUM_STEPPED] = "stepped",   [CURRICULUM_SEED] = "seed",
    [CURRICULUM_ADARFT] = "adarft", [CURRICULUM_FRONTIER] = "frontier",
};
_Static_assert(ARRAY_LEN(names) == CURRICULUM_NKINDS, "name every kind");

int
curriculum_kind_of(const char *name, enum curriculum_kind *out, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *out = (enum curriculum_kind)i;
        return 0;
    }
    return error_set(err, ERR_INPUT, "\"%.60s\" is not one of fixed, stepped, seed, adarft, frontier", name);
}

const char *
curriculum_name(enum curriculum_kind kind)
{
    return names[kind];
}

void
curriculum_init(struct curriculum *c, enum curriculum_kind kind, int percent)
{
    *c = (struct curriculum){ .kind = kind, .percent = kind == CURRICULUM_FIXED ? percent : PERCENT_FIRST };
    c->counted = json_object();
}

void
curriculum_release(struct curriculum *c)
{
    json_decref(c->counted);
    c->counted = NULL;
}

static bool
has_share(enum curriculum_kind kind)
{
    return kind == CURRICULUM_FIXED || kind == CURRICULUM_STEPPED || kind == CURRICULUM_SEED;
}

/* --- the state --- */

json_t *
curriculum_json(const struct curriculum *c)
{
    json_t *out = json_pack("{s:s, s:i}", "kind", names[c->kind], "version", 1);
    json_t *window = json_array();
    for (size_t i = 0; i < c->n_window; i++)
        json_array_append_new(window, json_real(c->window[i]));
    if (has_share(c->kind))
        json_object_set_new(out, "level_2_percent", json_integer(c->percent));
    if (c->kind == CURRICULUM_STEPPED)
        json_object_set(out, "level_1_correct", window);
    if (c->kind == CURRICULUM_ADARFT)
        json_object_set_new(out, "target", json_real(c->target));
    if (c->kind == CURRICULUM_FRONTIER)
        json_object_set_new(out, "tried", json_deep_copy(c->counted));
    json_decref(window);
    return out;
}

static int
read_window(struct curriculum *c, json_t *window)
{
    size_t n = json_array_size(window);
    if (!json_is_array(window) || n > CURRICULUM_WINDOW)
        return ERR_INPUT;
    for (size_t i = 0; i < n; i++) {
        double x = json_number_value(json_array_get(window, i));
        if (!json_is_number(json_array_get(window, i)) || !(x >= 0 && x <= 1))
            return ERR_INPUT;
        c->window[i] = x;
    }
    c->n_window = n;
    return 0;
}

static int
read_counted(struct curriculum *c, json_t *counted)
{
    const char *task;
    json_t *value;
    if (!json_is_object(counted))
        return ERR_INPUT;
    json_object_foreach(counted, task, value)
    {
        json_int_t tries, passes;
        if (json_unpack(value, "[I, I]", &tries, &passes) != 0 || passes < 0 || passes > tries)
            return ERR_INPUT;
    }
    json_decref(c->counted);
    c->counted = json_deep_copy(counted);
    return 0;
}

int
curriculum_read(struct curriculum *c, json_t *state, struct error *err)
{
    const char *kind = json_string_value(json_object_get(state, "kind"));
    json_t *percent = json_object_get(state, "level_2_percent"), *target = json_object_get(state, "target");
    bool is_bad = json_integer_value(json_object_get(state, "version")) != 1;

    if (!kind || strcmp(kind, names[c->kind]) != 0)
        return error_set(err, ERR_INPUT, "the state is of the curriculum \"%.40s\", not \"%s\"",
                         kind ? kind : "", names[c->kind]);
    switch (c->kind) {
    case CURRICULUM_FIXED: /* the present settings count */
        break;
    case CURRICULUM_STEPPED:
    case CURRICULUM_SEED:
        c->percent = (int)json_integer_value(percent);
        is_bad =
            is_bad || c->percent < PERCENT_FIRST || c->percent > PERCENT_LAST ||
            (c->kind == CURRICULUM_STEPPED && read_window(c, json_object_get(state, "level_1_correct")) != 0);
        break;
    case CURRICULUM_ADARFT:
        c->target = json_number_value(target);
        is_bad = is_bad || !json_is_number(target) || !(c->target >= 0 && c->target <= 100);
        break;
    default:
        is_bad = is_bad || read_counted(c, json_object_get(state, "tried")) != 0;
    }
    return is_bad ? error_set(err, ERR_INPUT, "this is no state of the curriculum \"%s\"", kind) : 0;
}

/* --- what was learned --- */

void
curriculum_held_out(struct curriculum *c, double correct)
{
    double sum = 0;

    curriculum_trained(c, correct); /* to "seed" both are one */
    if (c->kind != CURRICULUM_STEPPED)
        return;
    if (c->n_window == CURRICULUM_WINDOW)
        memmove(c->window, c->window + 1, --c->n_window * sizeof(*c->window));
    c->window[c->n_window++] = correct;
    for (size_t i = 0; i < c->n_window; i++)
        sum += c->window[i];
    /* Strictly above, and a mean of exactly 0.4 is not, however its five parts are rounded. */
    if (c->n_window == CURRICULUM_WINDOW && sum / CURRICULUM_WINDOW > 0.4 + 1e-9 && c->percent < PERCENT_LAST)
        c->percent += PERCENT_STEP;
}

void
curriculum_trained(struct curriculum *c, double correct)
{
    if (c->kind == CURRICULUM_SEED && correct > 0.4 + 1e-9 && c->percent < PERCENT_LAST)
        c->percent += PERCENT_STEP;
}

void
curriculum_rewarded(struct curriculum *c, double mean_reward)
{
    if (c->kind == CURRICULUM_ADARFT && isfinite(mean_reward))
        c->target = fmin(100, fmax(0, c->target + 50 * tanh(2 * (mean_reward - 0.5))));
}

void
curriculum_tried(struct curriculum *c, const char *task, int tries, int passes)
{
    json_int_t tries_before = 0, passes_before = 0;
    if (c->kind != CURRICULUM_FRONTIER)
        return;
    json_unpack(json_object_get(c->counted, task), "[I, I]", &tries_before, &passes_before);
    json_object_set_new(c->counted, task, json_pack("[I, I]", tries_before + tries, passes_before + passes));
}

/* --- the draw --- */

/* A task and what it is sorted by, least first. */
struct ranked {
    size_t index;
    double key, random;
};

static int
by_key(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->random > b->random) - (a->random < b->random);
}

static double
key_of(const struct curriculum *c, const struct task *task, double random)
{
    json_int_t tries = 0, passes = 0;
    double p;

    switch (c->kind) {
    case CURRICULUM_ADARFT:
        return fabs(100 * (task->level - 1) / 3.0 - c->target);
    case CURRICULUM_FRONTIER:
        /* The greatest u^(1/w) make a weighted draw without replacement (Efraimidis and Spirakis 2006). */
        json_unpack(json_object_get(c->counted, task->name), "[I, I]", &tries, &passes);
        p = ((double)passes + 1) / ((double)tries + 2);
        return -log(random) / (p * (1 - p));
    default:
        return 0;
    }
}

/* Of one level (0: any) the n that come first. */
static size_t
draw_of(const struct curriculum *c, const struct task_set *set, int level, size_t n, uint64_t *state,
        bool *is_drawn)
{
    AUTO_FREE struct ranked *ranked = calloc(set->n + 1, sizeof(*ranked));
    size_t found = 0;
    for (size_t i = 0; ranked && i < set->n; i++) {
        double random = ((double)(stats_random(state) >> 11) + 0.5) / 9007199254740992.0;
        if (level == 0 || set->tasks[i].level == level)
            ranked[found++] = (struct ranked){ i, key_of(c, &set->tasks[i], random), random };
    }
    if (found > 1)
        qsort(ranked, found, sizeof(*ranked), by_key);
    n = n < found ? n : found;
    for (size_t i = 0; i < n; i++)
        is_drawn[ranked[i].index] = true;
    return n;
}

size_t
curriculum_draw(const struct curriculum *c, const struct task_set *set, size_t n, uint64_t seed,
                bool *is_drawn)
{
    memset(is_drawn, 0, set->n * sizeof(*is_drawn));
    if (c->kind == CURRICULUM_ADARFT || c->kind == CURRICULUM_FRONTIER)
        return draw_of(c, set, 0, n, &seed, is_drawn);
    size_t n_two = n * (size_t)c->percent / 100;
    size_t drawn = draw_of(c, set, 1, n - n_two, &seed, is_drawn);
    return drawn + draw_of(c, set, 2, n_two, &seed, is_drawn);
}
