#include "client/trainer/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/json.h"
#include "common/statistics.h"

static double
component(json_t *answer, const char *name)
{
    json_t *verdict = json_object_get(answer, "verdict");
    return number_or_nan(json_object_get(verdict, "components"), name);
}

static bool
is_class(json_t *answer, enum verdict_class class_)
{
    json_t *verdict = json_object_get(answer, "verdict");
    return class_find(json_string_value(json_object_get(verdict, "class"))) == class_;
}

/* It says nothing about the model: the daemon failed, or somebody cancelled it. */
static bool
is_unjudged(json_t *answer)
{
    return answer_is_cancelled(answer) || is_class(answer, CLASS_INFRA);
}

/* The speed that counts: of a correct and measured answer; 0 otherwise. */
static double
speed(json_t *answer)
{
    double s = component(answer, "speedup");
    return answer_is_correct(answer) && component(answer, "timed") == 1 && isfinite(s) && s > 0 ? s : 0;
}

/* The first sample that was judged, by its last turn; NULL: none was. */
static json_t *
first_of(const struct round_result *result)
{
    size_t i;
    json_t *answer;
    json_array_foreach(result->answers, i, answer)
    {
        if (answer_is_last(result->answers, answer) && !is_unjudged(answer))
            return answer;
    }
    return NULL;
}

static bool
is_of(const struct round_result *result, int level)
{
    return level == 0 || result->task->level == level;
}

struct sums {
    size_t tasks, samples, infra;
    double extracted, valid, compiled, correct, hack;
    double fast[6];
    double *logs; /* of the speeds */
    size_t n_logs;
};
static const double fast_p[6] = { 0, 0.5, 0.8, 1, 1.5, 2 };

static void
add_first(struct sums *s, json_t *answer)
{
    double x = speed(answer);
    s->extracted += component(answer, "extracted") == 1;
    s->valid += component(answer, "valid") == 1;
    s->compiled += component(answer, "compiled") == 1;
    s->correct += answer_is_correct(answer);
    s->hack += is_class(answer, CLASS_HACK);
    for (size_t i = 0; i < ARRAY_LEN(fast_p); i++)
        s->fast[i] += answer_is_correct(answer) && (fast_p[i] == 0 || x > fast_p[i]);
    if (x > 0 && s->logs)
        s->logs[s->n_logs++] = log(x);
}

/* 1 - C(n-c, k) / C(n, k), as a product that does not overflow. */
static double
pass_at(size_t n, size_t c, size_t k)
{
    double miss = 1;
    if (n - c < k)
        return 1;
    for (size_t i = n - c + 1; i <= n; i++)
        miss *= 1 - (double)k / (double)i;
    return 1 - miss;
}

static json_t *
pass_json(const struct round_result *results, size_t n, int level)
{
    static const size_t ks[] = { 1, 5, 10, 50, 100 };
    json_t *out = json_object();
    for (size_t k = 0; k < ARRAY_LEN(ks); k++) {
        double sum = 0;
        size_t tasks = 0;
        for (size_t i = 0; i < n; i++) {
            size_t samples = 0, correct = 0, a;
            json_t *answer;
            if (!is_of(&results[i], level))
                continue;
            json_array_foreach(results[i].answers, a, answer)
            {
                bool is_last = answer_is_last(results[i].answers, answer);
                samples += is_last && !is_unjudged(answer);
                correct += is_last && answer_is_correct(answer);
            }
            if (samples < ks[k])
                continue;
            tasks++;
            sum += pass_at(samples, correct, ks[k]);
        }
        char name[24];
        snprintf(name, sizeof(name), "%zu", ks[k]);
        if (tasks > 0)
            json_object_set_new(out, name, json_real(100 * sum / (double)tasks));
    }
    return out;
}

/* One figure over the logarithms with its percentile-bootstrap interval. */
static void
set_interval(json_t *out, const char *name, const struct sums *s, double (*figure)(const double *, size_t))
{
    AUTO_FREE double *drawn = calloc(s->n_logs + 1, sizeof(*drawn));
    AUTO_FREE double *figures = calloc(STATS_RESAMPLES, sizeof(*figures));
    char lo[40], hi[40];
    uint64_t state = STATS_SEED;

    snprintf(lo, sizeof(lo), "%s_lo", name);
    snprintf(hi, sizeof(hi), "%s_hi", name);
    bool has = s->n_logs > 0 && drawn && figures;
    for (int r = 0; has && r < STATS_RESAMPLES; r++) {
        for (size_t i = 0; i < s->n_logs; i++)
            drawn[i] = s->logs[stats_draw(&state, s->n_logs)];
        figures[r] = figure(drawn, s->n_logs);
    }
    json_object_set_new(out, name, real_or_null(has ? exp(figure(s->logs, s->n_logs)) : NAN));
    json_object_set_new(out, lo,
                        real_or_null(has ? exp(stats_quantile(figures, STATS_RESAMPLES, 0.025)) : NAN));
    json_object_set_new(out, hi,
                        real_or_null(has ? exp(stats_quantile(figures, STATS_RESAMPLES, 0.975)) : NAN));
}

json_t *
metrics_json(const struct round_result *results, size_t n, int level)
{
    AUTO_FREE double *logs = calloc(n + 1, sizeof(*logs));
    struct sums s = { .logs = logs };

    for (size_t i = 0; i < n; i++) {
        size_t a;
        json_t *answer, *first = first_of(&results[i]);
        if (!is_of(&results[i], level))
            continue;
        s.tasks++;
        json_array_foreach(results[i].answers, a, answer)
        {
            bool is_last = answer_is_last(results[i].answers, answer);
            s.samples += is_last;
            s.infra += is_last && is_unjudged(answer);
        }
        if (first)
            add_first(&s, first);
    }
    json_t *out = json_pack("{s:i, s:i, s:i}", "num_tasks", (int)s.tasks, "num_samples", (int)s.samples,
                            "infra", (int)s.infra);
    double whole = s.tasks > 0 ? (double)s.tasks / 100 : NAN;
    json_object_set_new(out, "extracted_rate", real_or_null(s.extracted / whole));
    json_object_set_new(out, "valid_rate", real_or_null(s.valid / whole));
    json_object_set_new(out, "compiled_rate", real_or_null(s.compiled / whole));
    json_object_set_new(out, "correct_rate", real_or_null(s.correct / whole));
    json_object_set_new(out, "hack_rate", real_or_null(s.hack / whole));
    json_t *fast = json_object();
    for (size_t i = 0; i < ARRAY_LEN(fast_p); i++) {
        char name[16];
        /* As in the daemon's curves of a run. */
        bool is_known = fast_p[i] == 0 || s.n_logs > 0 || s.correct == 0;
        snprintf(name, sizeof(name), "%g", fast_p[i]);
        json_object_set_new(fast, name, real_or_null(is_known ? s.fast[i] / whole : NAN));
    }
    json_object_set_new(out, "fast_p", fast);
    json_object_set_new(out, "pass_at", pass_json(results, n, level));
    json_object_set_new(out, "num_timed", json_integer((json_int_t)s.n_logs));
    set_interval(out, "speedup_geomean", &s, stats_mean);
    set_interval(out, "speedup_median", &s, stats_median);
    return out;
}
