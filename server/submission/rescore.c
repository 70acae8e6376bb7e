/*
 * rescore.c - POST /v1/rescore: the rewards of verdicts as they are stored, by another specification. Nothing is judged
 * again.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/reward.h"
#include "common/stages.h"
#include "server/submission/funnel.h"
#include "server/verdict/rewards.h"
#include "server/verdict/values.h"

enum { RESCORE_MAX = 1000 };

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
    AUTO_FREE struct reward_input *inputs = verdict_inputs(verdicts);
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
