#include "client/trainer/notice.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/auto.h"

static const struct notice none = { NOTICE_NONE, 0, "" };

/* The text of a key of an answer of 200 that is a JSON object, or NULL; *document is given. */
static const char *
text_in(long status, const char *body, const char *key, json_t **document)
{
    *document = status == 200 && body ? json_loads(body, 0, NULL) : NULL;
    return json_string_value(json_object_get(*document, key));
}

bool
notice_token(long status, const char *body, char *out)
{
    size_t size = status == 200 && body ? strlen(body) : 0;
    if (size == 0 || size > 255 || strpbrk(body, "\r\n"))
        return false;
    memcpy(out, body, size + 1);
    return true;
}

struct notice
notice_aws_action(long status, const char *body)
{
    static const char *const ends[] = { "terminate", "stop", "hibernate" };
    AUTO_JSON json_t *document = NULL;
    struct notice out = { NOTICE_LEAVE, NOTICE_AWS_S, "" };
    const char *action = text_in(status, body, "action", &document);
    const char *when = json_string_value(json_object_get(document, "time"));

    for (size_t i = 0; action && i < ARRAY_LEN(ends); i++)
        if (strcmp(action, ends[i]) == 0) {
            snprintf(out.text, sizeof(out.text), "AWS: %s at %.64s", ends[i],
                     when ? when : "a time not told");
            return out;
        }
    return none;
}

struct notice
notice_aws_rebalance(long status, const char *body)
{
    AUTO_JSON json_t *document = NULL;
    struct notice out = { NOTICE_ADVICE, 0, "" };
    const char *when = text_in(status, body, "noticeTime", &document);
    if (!when)
        return none;
    snprintf(out.text, sizeof(out.text), "AWS recommends to move, since %.64s", when);
    return out;
}

struct notice
notice_gcp_preempted(long status, const char *body)
{
    const struct notice out = { NOTICE_LEAVE, NOTICE_GCP_S, "GCP: this instance is being preempted" };
    return status == 200 && body && strncmp(body, "TRUE", 4) == 0 ? out : none;
}

struct notice
notice_gcp_maintenance(long status, const char *body)
{
    struct notice out = { NOTICE_LEAVE, NOTICE_GCP_S, "" };
    if (status != 200 || !body || strncmp(body, "TERMINATE", 9) != 0)
        return none;
    snprintf(out.text, sizeof(out.text), "GCP: %.64s", body);
    return out;
}

/* Is the event of this machine? */
static bool
concerns(json_t *event, const char *machine)
{
    size_t i;
    json_t *resources = json_object_get(event, "Resources"), *one;
    if (!*machine || json_array_size(resources) == 0)
        return true;
    json_array_foreach(resources, i, one) if (json_is_string(one) &&
                                              strcmp(json_string_value(one), machine) == 0) return true;
    return false;
}

struct notice
notice_azure(long status, const char *body, const char *machine)
{
    AUTO_JSON json_t *document = status == 200 && body ? json_loads(body, 0, NULL) : NULL;
    struct notice out = { NOTICE_LEAVE, NOTICE_AZURE_S, "" };
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(document, "Events"), i, event)
    {
        const char *kind = json_string_value(json_object_get(event, "EventType"));
        const char *when = json_string_value(json_object_get(event, "NotBefore"));
        if (!kind || (strcmp(kind, "Preempt") != 0 && strcmp(kind, "Terminate") != 0) ||
            !concerns(event, machine))
            continue;
        snprintf(out.text, sizeof(out.text), "Azure: %.32s, not before %.64s", kind,
                 when && *when ? when : "now");
        return out;
    }
    return none;
}

double
notice_grace_s(const struct notice *n)
{
    return n->seconds * 2 / 3.0;
}
