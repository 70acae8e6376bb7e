#include "server/verdict/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS (STATS_WINDOW_MAX_S / STATS_STEP_S + 1)

/* The pages of steps in which nothing happened are never touched. */
struct stats {
    int64_t started_s;
    struct step {
        int64_t number; /* 0: never used */
        struct stats_sum sum;
    } steps[STEPS];
};

struct stats *
stats_new(int64_t now_s)
{
    struct stats *st = calloc(1, sizeof(*st));

    if (st)
        st->started_s = now_s;
    return st;
}

void
stats_free(struct stats *st)
{
    free(st);
}

static int64_t
number_of(int64_t s)
{
    return s / STATS_STEP_S + 1;
}

struct stats_sum *
stats_now(struct stats *st, int64_t now_s)
{
    int64_t number = number_of(now_s);
    struct step *step = &st->steps[number % STEPS];

    if (step->number != number) {
        memset(step, 0, sizeof(*step));
        step->number = number;
    }
    return &step->sum;
}

static void
add_stage(struct stats_stage *to, const struct stats_stage *from)
{
    for (int i = 0; i < STATS_NOUTCOMES; i++)
        to->by_outcome[i] += from->by_outcome[i];
    to->spared += from->spared;
    to->waited += from->waited;
    to->wait_ms += from->wait_ms;
    to->run_ms += from->run_ms;
    to->device_s += from->device_s;
    to->wait_max_ms = fmaxf(to->wait_max_ms, from->wait_max_ms);
    to->run_max_ms = fmaxf(to->run_max_ms, from->run_max_ms);
}

int64_t
stats_read(struct stats *st, int64_t now_s, int64_t window_s, struct stats_sum *out)
{
    int64_t last = number_of(now_s), first = number_of(now_s - window_s) + 1;

    memset(out, 0, sizeof(*out));
    if (first < number_of(st->started_s))
        first = number_of(st->started_s);
    for (int64_t number = first; number <= last; number++) {
        const struct step *step = &st->steps[number % STEPS];
        if (step->number != number)
            continue;
        for (int i = 0; i < STAGE_NSTAGES; i++)
            add_stage(&out->stages[i], &step->sum.stages[i]);
        out->finished += step->sum.finished;
        out->shared += step->sum.shared;
        out->device_s += step->sum.device_s;
        for (int i = 0; i < STATS_NSAVED; i++)
            out->saved_s[i] += step->sum.saved_s[i];
    }
    int64_t begins = (first - 1) * STATS_STEP_S;
    if (begins < st->started_s)
        begins = st->started_s;
    return now_s > begins ? now_s - begins : 1;
}
