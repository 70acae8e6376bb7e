/*
 * rewards.c - rewards from stored verdicts: another kind than the first request's, or one that needs the
 * whole group.
 */
#include "server/verdict/rewards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/json.h"
#include "common/reward.h"
#include "common/stages.h"

/* The share of its steps that the stage of this name got through. */
static double
progress_of(json_t *verdict, const char *stage)
{
    size_t i;
    json_t *record;
    json_array_foreach(json_object_get(verdict, "stages"), i, record)
    {
        double of = json_number_value(json_object_get(record, "of"));
        if (text_is(record, "stage", stage) && of > 0)
            return fmin(1, json_number_value(json_object_get(record, "done")) / of);
    }
    return 0;
}

/*
 * Verdicts are stored as they were given. Before there was a class `form`, what it means had class `policy`, which is a
 * cheat's: it counts as `form` here.
 */
static enum verdict_class
stored_class(json_t *verdict)
{
    static const char *const form[] = { "entry_class", "kernel_required", "kernel_reachable" };
    enum verdict_class class_ = class_find(json_string_value(json_object_get(verdict, "class")));
    const char *rule = json_string_value(json_object_get(verdict, "rule"));

    if (class_ != CLASS_POLICY || !rule ||
        stage_find(json_string_value(json_object_get(verdict, "failed_at"))) != STAGE_AST)
        return class_;
    for (size_t i = 0; i < ARRAY_LEN(form); i++)
        if (strcmp(rule, form[i]) == 0)
            return CLASS_FORM;
    return class_;
}

bool
verdict_input(json_t *verdict, struct reward_input *in)
{
    enum verdict_class class_ = stored_class(verdict);
    const char *failed_at = json_string_value(json_object_get(verdict, "failed_at"));
    bool is_cancelled = text_is(verdict, "state", "cancelled");

    *in = (struct reward_input){ .passed = STAGE_NONE, .is_masked = true };
    reward_components_init(&in->components);
    if (!is_cancelled && class_ == CLASS_NONE)
        return false;
    reward_components_read(json_object_get(verdict, "components"), &in->components);
    in->passed = stage_find(json_string_value(json_object_get(verdict, "passed_stage")));
    in->has_failed = failed_at != NULL;
    in->partial = failed_at ? progress_of(verdict, failed_at) : 0;
    in->is_masked = is_cancelled || class_info(class_)->fault == FAULT_SERVICE;
    in->is_hack = !is_cancelled && class_info(class_)->is_cheat;
    in->components.hack = in->is_hack; /* a verdict from before class form differs here */
    return true;
}

json_t *
reward_parts_json(const struct reward_spec *spec, const struct reward_input *in)
{
    struct reward_param parts[REWARD_PARTS_MAX];
    size_t n = reward_parts(spec, in, parts);
    json_t *out = n > 0 ? json_object() : json_null();

    for (size_t i = 0; i < n; i++)
        json_object_set_new(out, parts[i].name, real_or_null(parts[i].value));
    return out;
}

/* The inputs of verdicts with their ranks among each other; given. Those that are not finished are masked. */
struct reward_input *
verdict_inputs(json_t *verdicts)
{
    size_t i, n = json_array_size(verdicts);
    struct reward_input *inputs = calloc(n + 1, sizeof(*inputs));
    json_t *verdict;

    if (!inputs)
        return NULL;
    json_array_foreach(verdicts, i, verdict) verdict_input(verdict, &inputs[i]);
    reward_rank(inputs, n);
    return inputs;
}

void
rescore_group(json_t *items)
{
    AUTO_FREE struct reward_input *inputs = verdict_inputs(items);
    size_t i;
    json_t *item;

    json_array_foreach(items, i, item)
    {
        struct reward_spec spec;
        struct json_fault fault;
        if (!inputs || reward_spec_read(json_object_get(item, "reward_spec"), "", &spec, &fault) != 0)
            continue;
        json_object_set_new(json_object_get(item, "components"), "rank",
                            real_or_null(inputs[i].components.rank));
        if (reward_needs_rank(&spec))
            json_object_set_new(item, "reward", real_or_null(reward_compute(&spec, &inputs[i])));
    }
}

/* NAN where it takes a rank, which only the group has. */
double
verdict_reward(const struct reward_spec *spec, const struct reward_input *in)
{
    return reward_needs_rank(spec) && !in->is_hack ? NAN : reward_compute(spec, in);
}
