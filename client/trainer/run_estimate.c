#include "client/trainer/run_estimate.h"

#include <stdio.h>
#include <string.h>

#include "client/trainer/run_machine.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"

/* Where the configuration says "all of it". */
enum { KERNELBOOK_ROWS = 18000, KERNELBENCH_TASKS = 270 };

static double
number(const struct run *r, const char *section, const char *key)
{
    return runconf_number(r->conf, section, key);
}

static double
or_all(double n, double all)
{
    return n > 0 ? n : all;
}

static double
trained_s(const struct run *r, double rows)
{
    return rows * number(r, "estimate", "row_tokens") / number(r, "estimate", "train_tokens_per_s");
}

/* Answers of half their greatest length, and a verdict for each. */
static double
sampled_s(const struct run *r, double answers, double most_tokens)
{
    return answers * (most_tokens / 2 / number(r, "estimate", "sample_tokens_per_s") +
                      1 / number(r, "estimate", "verdicts_per_s"));
}

/* The rows that a training step goes through once. */
static double
rows_of(const struct run *r, bool is_sft)
{
    bool is_weighted = strcmp(run_text(r, "rl", "method"), "weighted") == 0;
    return is_sft ? or_all(number(r, "prepare", "max_samples"), KERNELBOOK_ROWS)
                  : number(r, "rl", "max_tasks") * number(r, "rl", is_weighted ? "samples" : "keep");
}

double
run_hours(const struct run *r, json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "name"));
    const char *command = json_string_value(json_array_get(json_object_get(step, "argv"), 0));
    const double longest = number(r, "endpoint", "max_tokens");
    const bool is_sft = strcmp(name, "sft") == 0;
    double s = 0;

    if (strcmp(name, "prepare") == 0) {
        bool is_judged = json_is_true(runconf_get(r->conf, "prepare", "verify")) &&
                         !json_is_true(runconf_get(r->conf, "prepare", "static"));
        s = is_judged ? rows_of(r, true) / number(r, "estimate", "verdicts_per_s") : 0;
    } else if (strcmp(command, "bestofn") == 0) {
        s = sampled_s(r, number(r, "rl", "max_tasks") * number(r, "rl", "samples"), longest);
    } else if (strcmp(command, "evaluate") == 0) {
        bool is_held_out = strncmp(name, "held_out", strlen("held_out")) == 0;
        s = sampled_s(r,
                      is_held_out ? number(r, "rl", "held_out_tasks")
                                  : or_all(number(r, "evaluate", "max_tasks"), KERNELBENCH_TASKS) *
                                        number(r, "evaluate", "samples"),
                      longest);
    } else if (strcmp(command, "reinforce") == 0 || strcmp(command, "grpo") == 0) {
        double answers =
            number(r, "train", "epochs") * number(r, "rl", "max_tasks") * number(r, "train", "samples");
        s = sampled_s(r, answers, number(r, "train", "answer_tokens")) + trained_s(r, answers);
    } else if (json_is_true(json_object_get(step, "trains"))) {
        s = trained_s(r, number(r, is_sft ? "sft" : "train", "epochs") * rows_of(r, is_sft));
    }
    return s / 3600;
}

/* What a step or a phase takes: hours of GPUs that work, hours on the clock, hours of GPUs that wait meanwhile and are paid for. */
struct hours {
    double busy, wall, idle;
};

static void
add(struct hours *to, const struct hours *h)
{
    to->busy += h->busy;
    to->wall += h->wall;
    to->idle += h->idle;
}

/* Training and sampling have the run's GPUs; a step that only judges has verifierd's, which are all where the file does not say. */
static struct hours
hours_of(const struct run *r, json_t *step)
{
    const double own = number(r, "", "gpus"),
                 judging = run_devices_number(run_text(r, "verifier", "devices"));
    const bool is_own = json_is_true(json_object_get(step, "trains")) || json_object_get(step, "serve");
    const double all = own + judging, used = is_own ? own : judging > 0 ? judging : all;
    struct hours h = { .busy = run_hours(r, step) };
    h.wall = h.busy / used;
    h.idle = h.wall * all - h.busy;
    return h;
}

static void
print_row(const struct run *r, const char *name, const struct hours *h)
{
    printf("%-20s %12.2f %12.2f %12.2f %12.2f\n", name, h->busy, h->wall, h->idle,
           (h->busy + h->idle) * runconf_number(r->conf, "", "gpu_price"));
}

int
run_estimate(const struct run *r)
{
    static const char *const phases[] = { "prepare", "sft", "rl", "evaluate" };
    struct hours by_phase[ARRAY_LEN(phases)] = { 0 }, all = { 0 };
    size_t i;
    json_t *step;

    printf("%-20s %12s %12s %12s %12s\n", "step", "GPU hours", "wall clock h", "idle GPU h", "price");
    json_array_foreach(r->steps, i, step)
    {
        struct hours h = hours_of(r, step);
        const char *stage = json_string_value(json_object_get(step, "stage"));
        add(&all, &h);
        for (size_t p = 0; p < ARRAY_LEN(phases); p++)
            if (strcmp(phases[p], stage) == 0)
                add(&by_phase[p], &h);
        print_row(r, json_string_value(json_object_get(step, "name")), &h);
    }
    for (size_t p = 0; p < ARRAY_LEN(phases); p++) {
        char name[32];
        snprintf(name, sizeof(name), "phase %s", phases[p]);
        if (by_phase[p].wall > 0)
            print_row(r, name, &by_phase[p]);
    }
    print_row(r, "all", &all);
    printf("at %g trained and %g sampled tokens a second and %g verdicts a second of one GPU, %g tokens a "
           "row, %g for a GPU hour, idle ones counted "
           "(section estimate, gpu_price)\n",
           runconf_number(r->conf, "estimate", "train_tokens_per_s"),
           runconf_number(r->conf, "estimate", "sample_tokens_per_s"),
           runconf_number(r->conf, "estimate", "verdicts_per_s"),
           runconf_number(r->conf, "estimate", "row_tokens"), runconf_number(r->conf, "", "gpu_price"));
    return TRAINER_OK;
}
