#include "server/submission/counters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/histogram.h"

#define RULE_SIZE 64
#define PAUSE_S 60 /* a longer gap between two verdicts is not used to estimate how long work takes */

enum saved { SAVED_BY_REJECTION, SAVED_BY_REUSE, SAVED_N };

struct stage_counts {
    int64_t entered, by_outcome[OUTCOME_N], spared, waited;
    double run_ms, wait_ms, device_s;
};

/* Rules are named by us, not by candidates: there are few. */
struct rejection_count {
    enum verdict_class class_;
    char rule[RULE_SIZE];
    int64_t n;
};

struct counters {
    uint64_t generation;
    struct stage_counts stages[STAGE_NSTAGES];
    struct histogram run_seconds[STAGE_NSTAGES], rewards, speedups;
    double device_s, saved_s[SAVED_N]; /* that devices were held, and were not */
    int64_t classes[CLASS_N];          /* those without one were cancelled */
    struct rejection_count rejections[256];
    size_t n_rejections;
    int64_t counts[COUNT_N];
    double verdict_s; /* sum, from submission to verdict */
    int64_t finished, shared, started_ns, last_finish_ns;
    double service_s;
};

/* The place of each: in an object of counters_json(), or at its top level. */
static const struct {
    const char *in, *name;
} shown[] = {
    [COUNT_RETURNED] = { NULL, "returned" },
    [COUNT_FENCED] = { NULL, "fenced" },
    [COUNT_HANDED_ON] = { NULL, "handed_on" },
    [COUNT_CARRIED] = { NULL, "carried" },
    [REUSE_HIT] = { "cache", "hits" },
    [REUSE_JOINED] = { "cache", "joined" },
    [REUSE_MISS] = { "cache", "misses" },
    [REUSE_RECHECKED] = { "cache", "rechecked" },
    [REUSE_DIFFERED] = { "cache", "differed" },
    [RERUN_REFUSED] = { "reruns", "refused" },
    [RERUN_CONFIRMED] = { "reruns", "confirmed" },
    [RERUN_CLEARED] = { "reruns", "cleared" },
};
_Static_assert(ARRAY_LEN(shown) == COUNT_N, "show every count");

static const struct histogram_bounds reward_bounds = {
    12, { -0.5, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1 }
};
static const struct histogram_bounds speedup_bounds = {
    12, { 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10 }
};

struct counters *
counters_new(void)
{
    struct counters *c = calloc(1, sizeof(*c));

    if (c)
        c->started_ns = clock_monotonic_ns();
    return c;
}

void
counters_touch(struct counters *c)
{
    c->generation++;
}

uint64_t
counters_generation(const struct counters *c)
{
    return c->generation;
}

/* --- stages --- */

void
counters_enter_stage(struct counters *c, enum stage stage)
{
    c->generation++;
    c->stages[stage].entered++;
}

void
counters_wait(struct counters *c, enum stage stage, double wait_ms)
{
    c->generation++;
    c->stages[stage].waited++;
    c->stages[stage].wait_ms += wait_ms;
}

void
counters_end_stage(struct counters *c, enum stage stage, enum outcome outcome, double run_ms, bool has_device)
{
    c->generation++;
    c->stages[stage].by_outcome[outcome]++;
    c->stages[stage].run_ms += run_ms;
    histogram_add(&c->run_seconds[stage], &histogram_seconds, run_ms / 1000);
    if (has_device)
        c->stages[stage].device_s += run_ms / 1000;
}

void
counters_skip_stage(struct counters *c, enum stage stage)
{
    c->generation++;
    c->stages[stage].by_outcome[OUTCOME_SKIP]++;
}

void
counters_spare_stage(struct counters *c, enum stage stage)
{
    struct stage_counts *counts = &c->stages[stage];
    int64_t through = 0;

    c->generation++;
    counts->spared++;
    for (int i = 0; i < OUTCOME_N; i++)
        through += counts->by_outcome[i];
    if (through > 0)
        c->saved_s[SAVED_BY_REJECTION] += counts->device_s / (double)through;
}

void
counters_hold_device(struct counters *c, double seconds)
{
    c->generation++;
    c->device_s += seconds;
}

/* --- ends --- */

void
counters_count(struct counters *c, enum count what)
{
    c->generation++;
    c->counts[what]++;
}

void
counters_add_reward(struct counters *c, double reward, double speedup)
{
    c->generation++;
    histogram_add(&c->rewards, &reward_bounds, reward);
    if (isfinite(speedup))
        histogram_add(&c->speedups, &speedup_bounds, speedup);
}

static void
measure_service(struct counters *c)
{
    int64_t now_ns = clock_monotonic_ns();
    double gap_s = (double)(now_ns - c->last_finish_ns) / 1e9;

    if (c->last_finish_ns && gap_s < PAUSE_S)
        c->service_s = c->service_s > 0 ? 0.9 * c->service_s + 0.1 * gap_s : gap_s;
    c->last_finish_ns = now_ns;
}

void
counters_finish(struct counters *c, enum verdict_class class_, double took_s, bool is_shared)
{
    c->generation++;
    c->classes[class_]++;
    c->finished++;
    c->shared += is_shared;
    c->verdict_s += took_s;
    if (!is_shared)
        measure_service(c);
}

void
counters_reject(struct counters *c, enum verdict_class class_, const char *rule)
{
    size_t i = 0;

    c->generation++;
    while (i < c->n_rejections &&
           (c->rejections[i].class_ != class_ || strcmp(c->rejections[i].rule, rule) != 0))
        i++;
    if (i == ARRAY_LEN(c->rejections)) /* reasons beyond the table are counted by class alone */
        return;
    struct rejection_count *r = &c->rejections[i];
    if (i == c->n_rejections) {
        c->n_rejections++;
        r->class_ = class_;
        snprintf(r->rule, sizeof(r->rule), "%s", rule);
    }
    r->n++;
}

double
counters_service_s(const struct counters *c)
{
    return c->service_s;
}

void
counters_save_by_reuse(struct counters *c, double seconds)
{
    c->generation++;
    c->saved_s[SAVED_BY_REUSE] += seconds;
}

/* --- showing --- */

static json_t *
saved_json(double used_s, const double *saved_s)
{
    return json_pack("{s:f, s:f, s:f}", "used", used_s, "saved_by_rejection", saved_s[SAVED_BY_REJECTION],
                     "saved_by_cache", saved_s[SAVED_BY_REUSE]);
}

static json_t *
stage_json(const struct counters *c, int stage)
{
    const struct stage_counts *s = &c->stages[stage];

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:f, s:f, s:o}", "entered", (json_int_t)s->entered,
                     "spared", (json_int_t)s->spared, "pass", (json_int_t)s->by_outcome[OUTCOME_PASS], "fail",
                     (json_int_t)s->by_outcome[OUTCOME_FAIL], "skip", (json_int_t)s->by_outcome[OUTCOME_SKIP],
                     "run_ms", s->run_ms, "waited", (json_int_t)s->waited, "wait_ms", s->wait_ms, "device_s",
                     s->device_s, "run_seconds", histogram_json(&c->run_seconds[stage], &histogram_seconds));
}

json_t *
counters_json(const struct counters *c, double rerun_held_s)
{
    json_t *stages = json_object(), *classes = json_object(), *rejections = json_array();

    for (int i = 0; i < STAGE_NSTAGES; i++)
        json_object_set_new(stages, stage_name((enum stage)i), stage_json(c, i));
    for (int i = 0; i < CLASS_N; i++)
        if (c->classes[i] > 0)
            json_object_set_new(classes, i == CLASS_NONE ? "cancelled" : class_name((enum verdict_class)i),
                                json_integer(c->classes[i]));
    for (size_t i = 0; i < c->n_rejections; i++)
        json_array_append_new(rejections,
                              json_pack("{s:s, s:s, s:I}", "class", class_name(c->rejections[i].class_),
                                        "rule", c->rejections[i].rule, "n", (json_int_t)c->rejections[i].n));
    json_t *out = json_pack("{s:o, s:o, s:o, s:{}, s:{s:f}, s:f, s:I, s:o, s:o, s:o}", "stages", stages,
                            "classes", classes, "rejections", rejections, "cache", "reruns", "held_s",
                            rerun_held_s, "verdict_s", c->verdict_s, "finished", (json_int_t)c->finished,
                            "rewards", histogram_json(&c->rewards, &reward_bounds), "speedups",
                            histogram_json(&c->speedups, &speedup_bounds), "device_s",
                            saved_json(c->device_s, c->saved_s));
    for (int i = 0; i < COUNT_N; i++)
        json_object_set_new(shown[i].in ? json_object_get(out, shown[i].in) : out, shown[i].name,
                            json_integer(c->counts[i]));
    return out;
}

/* {"n","sum","mean"}; null where there is none. */
static json_t *
spread_json(int64_t n, double sum)
{
    return n == 0 ? json_null()
                  : json_pack("{s:I, s:f, s:f}", "n", (json_int_t)n, "sum", sum, "mean", sum / (double)n);
}

static json_t *
stage_stats_json(const struct stage_counts *s, int stage)
{
    int64_t pass = s->by_outcome[OUTCOME_PASS], fail = s->by_outcome[OUTCOME_FAIL],
            skip = s->by_outcome[OUTCOME_SKIP], decided = pass + fail + skip;

    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:f}", "stage", stage_name((enum stage)stage),
                     "decided", (json_int_t)decided, "pass", (json_int_t)pass, "fail", (json_int_t)fail,
                     "skip", (json_int_t)skip, "spared", (json_int_t)s->spared, "wait_ms",
                     spread_json(s->waited, s->wait_ms), "service_ms", spread_json(decided, s->run_ms),
                     "device_s", s->device_s);
}

json_t *
counters_stats_json(const struct counters *c, int devices)
{
    double covered_s = (double)(clock_monotonic_ns() - c->started_ns) / 1e9;
    json_t *stages = json_array();

    for (int i = 0; i < STAGE_NSTAGES; i++)
        json_array_append_new(stages, stage_stats_json(&c->stages[i], i));
    return json_pack("{s:f, s:I, s:I, s:f, s:o, s:o, s:i, s:f}", "covered_s", covered_s, "finished",
                     (json_int_t)c->finished, "shared", (json_int_t)c->shared, "finished_per_s",
                     (double)c->finished / covered_s, "stages", stages, "device_s",
                     saved_json(c->device_s, c->saved_s), "devices", devices, "device_busy",
                     devices > 0 ? c->device_s / (covered_s * devices) : 0.0);
}
