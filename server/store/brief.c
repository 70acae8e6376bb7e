#include "server/store/brief.h"

#include "common/auto.h"
#include "common/json.h"

/* How each stage ended, without its times. */
static json_t *
outcomes(json_t *stages)
{
    json_t *out = json_is_null(stages) ? json_null() : json_array();
    json_t *stage;
    size_t i;

    json_array_foreach(stages, i, stage)
        json_array_append_new(out, json_pack("{s:o, s:o}", "stage", get_or_null(stage, "stage"), "outcome",
                                             get_or_null(stage, "outcome")));
    return out;
}

json_t *
brief_of(json_t *document)
{
    static const char *const keys[] = { "id",    "group",        "task",      "task_name", "client", "state",
                                        "stage", "passed_stage", "failed_at", "class",     "reward", "flags",
                                        "cache", "attempts",     "created",   "finished" };
    static const char *const labels[] = { "run", "step", "policy_version" };
    json_t *out = json_object();

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *value = json_object_get(document, keys[i]);
        if (value)
            json_object_set(out, keys[i], value);
    }
    json_t *metadata = json_object_get(document, "metadata");
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        json_object_set_new(out, labels[i], get_or_null(metadata, labels[i]));
    json_object_set_new(out, "stages", outcomes(json_object_get(document, "stages")));
    json_object_set_new(out, "speedup", get_or_null(json_object_get(document, "components"), "speedup"));
    return out;
}

char *
brief_text(json_t *document)
{
    AUTO_JSON json_t *brief = brief_of(document);

    return brief ? json_dumps(brief, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
}

json_t *
verdict_read(const char *text)
{
    json_t *verdict = json_of(text);

    if (json_is_object(verdict))
        return verdict;
    json_decref(verdict);
    return NULL;
}
