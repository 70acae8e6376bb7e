#include "client/trainer/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/embed.h"
#include "common/json.h"
#include "common/words.h"

EMBED_TEXT(finetune_settings, "client/python/finetune/settings.json");
EMBED_TEXT(finetune_layout, "client/python/finetune/layout.json");

json_t *
settings_table(void)
{
    return json_loads(finetune_settings, 0, NULL);
}

json_t *
settings_layout(void)
{
    return json_loads(finetune_layout, 0, NULL);
}

bool
settings_concern(json_t *row, const char *method)
{
    const char *methods = text_or(row, "methods", "");
    return strcmp(methods, "all") == 0 || words_have(methods, " ", method, strlen(method));
}

json_t *
settings_default(json_t *row, const char *method)
{
    json_t *preset = json_object_get(json_object_get(row, "presets"), method);
    return preset ? preset : json_object_get(row, "default");
}

static int
put_number(json_t *values, json_t *row, const char *text, struct error *err)
{
    const char *name = text_or(row, "name", "");
    bool is_int = strcmp(text_or(row, "type", ""), "int") == 0;
    double low = json_number_value(json_object_get(row, "min"));
    double high = json_number_value(json_object_get(row, "max"));
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= low && x <= high) || (is_int && x != floor(x)))
        return error_set(err, ERR_INPUT, "%s takes a %snumber from %g to %g, not \"%.60s\"", name,
                         is_int ? "whole " : "", low, high, text);
    json_object_set_new(values, name, is_int ? json_integer((json_int_t)x) : json_real(x));
    return 0;
}

int
settings_put(json_t *values, json_t *row, const char *text, struct error *err)
{
    const char *name = text_or(row, "name", ""), *type = text_or(row, "type", "");

    if (strcmp(type, "int") == 0 || strcmp(type, "float") == 0)
        return put_number(values, row, text, err);
    if (strcmp(type, "bool") == 0) {
        bool is_true = strcmp(text, "true") == 0;
        if (!is_true && strcmp(text, "false") != 0)
            return error_set(err, ERR_INPUT, "%s takes true or false, not \"%.60s\"", name, text);
        json_object_set_new(values, name, json_boolean(is_true));
        return 0;
    }
    if (strcmp(type, "choice") == 0 && !words_have(text_or(row, "choices", ""), " ", text, strlen(text)))
        return error_set(err, ERR_INPUT, "%s takes one of %s, not \"%.60s\"", name,
                         text_or(row, "choices", ""), text);
    json_t *value = json_string(text);
    if (!value)
        return error_set(err, ERR_INPUT, "%s is not UTF-8", name);
    json_object_set_new(values, name, value);
    return 0;
}
