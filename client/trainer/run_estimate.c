#include "client/trainer/run_estimate.h"

#include <stdio.h>
#include <string.h>

#include "client/trainer/runconf.h"

static double
rows_expected(const struct run *r)
{
    double n = runconf_number(r->conf, "prepare", "max_samples");
    return n > 0 ? n : 18000; /* all of KernelBook */
}

double
run_hours(const struct run *r, json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "name"));
    const char *command = json_string_value(json_array_get(json_object_get(step, "argv"), 0));
    double token_s = 1 / runconf_number(r->conf, "estimate", "train_tokens_per_s");
    double sampled_s = 1 / runconf_number(r->conf, "estimate", "sample_tokens_per_s");
    double verdict_s = 1 / runconf_number(r->conf, "estimate", "verdicts_per_s");
    double row = runconf_number(r->conf, "estimate", "row_tokens");
    double answer = runconf_number(r->conf, "endpoint", "max_tokens") / 2, s = 0;
    double asked = runconf_number(r->conf, "rl", "max_tasks") * runconf_number(r->conf, "rl", "samples");
    const bool is_sft = strcmp(name, "sft") == 0;
    const char *section = is_sft ? "sft" : "train";

    if (strcmp(command, "prepare") == 0 && strcmp(name, "prepare") == 0)
        s = rows_expected(r) * verdict_s;
    else if (strcmp(command, "bestofn") == 0)
        s = asked * (answer * sampled_s + verdict_s);
    else if (strcmp(command, "evaluate") == 0)
        s = runconf_number(r->conf, "evaluate", "max_tasks") *
            runconf_number(r->conf, "evaluate", "samples") * (answer * sampled_s + verdict_s);
    else if (strcmp(command, "reinforce") == 0 || strcmp(command, "grpo") == 0)
        s = runconf_number(r->conf, "train", "epochs") * runconf_number(r->conf, "rl", "max_tasks") *
            runconf_number(r->conf, "train", "samples") *
            (runconf_number(r->conf, "train", "answer_tokens") / 2 * sampled_s + row * token_s + verdict_s);
    else if (json_is_true(json_object_get(step, "trains"))) {
        double rows =
            is_sft ? rows_expected(r)
                   : runconf_number(r->conf, "rl", "max_tasks") * runconf_number(r->conf, "rl", "keep");
        s = runconf_number(r->conf, section, "epochs") * rows * row * token_s;
    }
    return s / 3600;
}

int
run_estimate(const struct run *r)
{
    size_t i;
    json_t *step;
    double price = runconf_number(r->conf, "", "gpu_price"), total = 0;

    printf("%-20s %12s %12s\n", "step", "GPU hours", "price");
    json_array_foreach(r->steps, i, step)
    {
        double hours = run_hours(r, step);
        total += hours;
        printf("%-20s %12.2f %12.2f\n", json_string_value(json_object_get(step, "name")), hours,
               hours * price);
    }
    printf("%-20s %12.2f %12.2f\n", "all", total, total * price);
    printf("at %g trained and %g sampled tokens a second and %g verdicts a second of one GPU, %g tokens a "
           "row, %g for a GPU hour "
           "(section estimate, gpu_price)\n",
           runconf_number(r->conf, "estimate", "train_tokens_per_s"),
           runconf_number(r->conf, "estimate", "sample_tokens_per_s"),
           runconf_number(r->conf, "estimate", "verdicts_per_s"),
           runconf_number(r->conf, "estimate", "row_tokens"), price);
    return TRAINER_OK;
}
