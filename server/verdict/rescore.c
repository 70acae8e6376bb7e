/*
 * rescore.c - rewards from verdicts as they are stored: another one than was asked for at
 * first, or one that needs the whole group. Nothing is judged again.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "server/submission/private.h"

enum { RESCORE_MAX = 1000 };

/* The share of its steps that the stage of this name got through. */
static double
progress_of(json_t *verdict, const char *stage)
{
    size_t i;
    json_t *record;
    json_array_foreach(json_object_get(verdict, "stages"), i, record)
    {
        const char *name = json_string_value(json_object_get(record, "stage"));
        double of = json_number_value(json_object_get(record, "of"));
        if (name && strcmp(name, stage) == 0 && of > 0)
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
    const char *state = json_string_value(json_object_get(verdict, "state"));
    const char *failed_at = json_string_value(json_object_get(verdict, "failed_at"));
    bool is_cancelled = state && strcmp(state, "cancelled") == 0;

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
static struct reward_input *
read_ranked(json_t *verdicts)
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
    AUTO_FREE struct reward_input *inputs = read_ranked(items);
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

/* client NULL: everybody's. */
static bool
is_of(json_t *verdict, const char *client)
{
    const char *owner = json_string_value(json_object_get(verdict, "client"));
    return !client || (owner && strcmp(owner, client) == 0);
}

/* The verdicts that the request names; NULL: fault or err is filled. */
static json_t *
find_verdicts(struct funnel *f, const char *client, const char *group, json_t *ids, struct json_fault *fault,
              struct error *err)
{
    if (group) {
        AUTO_JSON json_t *shown = funnel_show_group(f, group, err);
        json_t *items = json_object_get(shown, "items");
        /* A group's submissions are all of one client. */
        if (shown && !is_of(json_array_get(items, 0), client))
            error_set(err, ERR_NOTFOUND, "another client's");
        return shown && is_of(json_array_get(items, 0), client) ? json_incref(items) : NULL;
    }
    if (json_array_size(ids) > RESCORE_MAX) {
        json_refuse(fault, "/submissions", "more than %d ids", RESCORE_MAX);
        return NULL;
    }
    AUTO_JSON json_t *out = json_array();
    json_t *id;
    size_t i;
    json_array_foreach(ids, i, id)
    {
        char pointer[JSON_POINTER_SIZE];
        snprintf(pointer, sizeof(pointer), "/submissions/%zu", i);
        if (!json_is_string(id) || !id_is_valid(json_string_value(id))) {
            json_refuse(fault, pointer, "must be the id of a submission");
            return NULL;
        }
        json_t *verdict = funnel_show_submission(f, json_string_value(id), err);
        if (!verdict)
            return NULL;
        json_array_append_new(out, verdict);
        if (!is_of(verdict, client)) {
            error_set(err, ERR_NOTFOUND, "another client's");
            return NULL;
        }
    }
    return ptr_take(&out);
}

int
funnel_rescore(struct funnel *f, json_t *body, const char *client, json_t **out, struct json_fault *fault,
               struct error *err)
{
    const char *group = NULL;
    json_t *reward = NULL, *ids = NULL, *verdict;
    struct reward_spec spec;
    size_t i;
    const struct json_field fields[] = {
        { "reward", JSON_WANT_OBJECT, &reward, true, 0, 0 },
        { "group", JSON_WANT_STRING, &group, false, 0, 0 },
        { "submissions", JSON_WANT_ARRAY, &ids, false, 0, 0 },
    };

    *out = NULL;
    if (json_read(body, "", fields, ARRAY_LEN(fields), fault) < 0 ||
        reward_spec_read(reward, "/reward", &spec, fault) < 0)
        return ERR_INPUT;
    if ((group != NULL) == (ids != NULL))
        return json_refuse(fault, "", "needs either \"group\" or \"submissions\"");
    if (group && !id_is_valid(group))
        return json_refuse(fault, "/group", "must be the id of a group");
    fault->text[0] = '\0';
    AUTO_JSON json_t *verdicts = find_verdicts(f, client, group, ids, fault, err);
    if (!verdicts)
        return fault->text[0] ? ERR_INPUT : (int)err->code;
    AUTO_FREE struct reward_input *inputs = read_ranked(verdicts);
    AUTO_JSON json_t *items = json_array();
    json_array_foreach(verdicts, i, verdict)
    {
        const struct reward_input none = { .passed = STAGE_NONE, .is_masked = true };
        const struct reward_input *in = inputs ? &inputs[i] : &none;
        json_array_append_new(
            items,
            json_pack("{s:O, s:O, s:O, s:o, s:o, s:o, s:O}", "id", json_object_get(verdict, "id"), "state",
                      json_object_get(verdict, "state"), "class", json_object_get(verdict, "class"), "reward",
                      real_or_null(reward_compute(&spec, in)), "reward_parts", reward_parts_json(&spec, in),
                      "rank", real_or_null(in->components.rank), "stored_reward",
                      json_object_get(verdict, "reward")));
    }
    *out = json_pack("{s:o, s:O}", "reward_spec", reward_spec_json(&spec), "items", items);
    return *out ? 0 : error_set(err, ERR_NOMEM, "no memory to score again");
}
