#include "client/trainer/rules.h"

#include "common/auto.h"
#include "common/policy.h"

int
rules_of(const char *text, int level, json_t *parts, json_t **out, struct error *err)
{
    AUTO_JSON json_t *found = NULL;
    int rc = text ? policy_parse(text, &found, err) : 0;

    *out = NULL;
    if (rc != 0)
        return rc;
    if (!found)
        found = json_string(level >= 2 ? "hybrid" : "strict");
    if (json_is_string(found) && !parts) {
        *out = json_incref(found);
        return 0;
    }
    AUTO_JSON json_t *object = json_is_string(found) ? json_pack("{s:O}", "name", found) : json_incref(found);
    if (!json_object_get(object, "name"))
        json_object_set_new(object, "name", json_string(level >= 2 ? "hybrid" : "strict"));
    if (!object || (parts && json_object_update_recursive(object, parts) != 0))
        return error_set(err, ERR_NOMEM, "out of memory");
    *out = json_incref(object);
    return 0;
}
