#include "server/funnel/policy.h"

#include <stdio.h>
#include <string.h>

#include "common/auto.h"

static const struct policy policies[] = {
    { "strict",
      true,
      true,
      true,
      "tf32",
      "movement",
      { 5, true, true, true },
      { 10, 50, false, true, true, "paired", false, false, false } },
    { "hybrid",
      true,
      true,
      true,
      "tf32",
      "library",
      { 5, true, true, true },
      { 10, 50, false, true, true, "paired", false, false, false } },
    /* The published rule: five seeds of the original input, no TF32, nothing else. */
    { "kernelbench",
      true,
      true,
      true,
      "ieee",
      "any",
      { 5, false, false, false },
      { 10, 50, false, true, true, "paired", false, false, false } },
};

int
policy_find(const char *name, struct policy *out)
{
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        if (strcmp(policies[i].name, name) == 0) {
            *out = policies[i];
            return 0;
        }
    }
    return ERR_NOTFOUND;
}

static int
find_or_refuse(const char *name, const char *pointer, struct policy *out, struct json_fault *fault)
{
    if (policy_find(name, out) != 0)
        return json_refuse(fault, pointer,
                           "there is no policy \"%.40s\"; there are strict, hybrid and kernelbench", name);
    return 0;
}

static int
read_variations(json_t *object, const char *base, struct policy *p, struct json_fault *fault)
{
    char pointer[JSON_POINTER_SIZE];
    const struct json_field fields[] = {
        { "count", JSON_WANT_INT, &p->variations.count, false, 1, 16 },
        { "value", JSON_WANT_BOOL, &p->variations.value, false, 0, 0 },
        { "shape", JSON_WANT_BOOL, &p->variations.shape, false, 0, 0 },
        { "dtype", JSON_WANT_BOOL, &p->variations.dtype, false, 0, 0 },
    };
    snprintf(pointer, sizeof(pointer), "%.100s/variations", base);
    return object ? json_read(object, pointer, fields, ARRAY_LEN(fields), fault) : 0;
}

static int
read_timing(json_t *object, const char *base, struct policy *p, struct json_fault *fault)
{
    char pointer[JSON_POINTER_SIZE];
    const char *estimator = p->timing.estimator;
    const struct json_field fields[] = {
        { "warmup", JSON_WANT_INT, &p->timing.warmup, false, 0, 100 },
        { "trials", JSON_WANT_INT, &p->timing.trials, false, 1, 50 },
        { "fixed", JSON_WANT_BOOL, &p->timing.fixed, false, 0, 0 },
        { "events", JSON_WANT_BOOL, &p->timing.events, false, 0, 0 },
        { "cold", JSON_WANT_BOOL, &p->timing.cold, false, 0, 0 },
        { "estimator", JSON_WANT_STRING, &estimator, false, 0, 0 },
        { "compile_baseline", JSON_WANT_BOOL, &p->timing.compile_baseline, false, 0, 0 },
        { "variations", JSON_WANT_BOOL, &p->timing.variations, false, 0, 0 },
        { "batched", JSON_WANT_BOOL, &p->timing.batched, false, 0, 0 },
    };
    snprintf(pointer, sizeof(pointer), "%.100s/timing", base);
    if (object && json_read(object, pointer, fields, ARRAY_LEN(fields), fault) != 0)
        return ERR_INPUT;
    snprintf(pointer, sizeof(pointer), "%.100s/timing/estimator", base);
    if (strcmp(estimator, "paired") != 0 && strcmp(estimator, "trimmed") != 0)
        return json_refuse(fault, pointer, "is one of paired, trimmed");
    if (estimator != p->timing.estimator)
        snprintf(p->timing.estimator, sizeof(p->timing.estimator), "%s", estimator);
    return 0;
}

static int
read_object(json_t *object, const char *base, struct policy *p, struct json_fault *fault)
{
    const char *name = NULL, *precision = NULL, *foreign = NULL;
    json_t *variations = NULL, *timing = NULL;
    int64_t version = POLICY_VERSION;
    char pointer[JSON_POINTER_SIZE];
    const struct json_field fields[] = {
        { "name", JSON_WANT_STRING, &name, false, 0, 0 },
        { "version", JSON_WANT_INT, &version, false, POLICY_VERSION, POLICY_VERSION },
        { "staged", JSON_WANT_BOOL, &p->staged, false, 0, 0 },
        { "skip_timing_on_failure", JSON_WANT_BOOL, &p->skip_timing_on_failure, false, 0, 0 },
        { "tiny_first", JSON_WANT_BOOL, &p->tiny_first, false, 0, 0 },
        { "precision", JSON_WANT_STRING, &precision, false, 0, 0 },
        { "foreign", JSON_WANT_STRING, &foreign, false, 0, 0 },
        { "variations", JSON_WANT_OBJECT, &variations, false, 0, 0 },
        { "timing", JSON_WANT_OBJECT, &timing, false, 0, 0 },
    };
    const char *base_name = json_string_value(json_object_get(object, "name"));

    /* The name first: it says what the other keys change. */
    snprintf(pointer, sizeof(pointer), "%.100s/name", base);
    if (base_name && find_or_refuse(base_name, pointer, p, fault) != 0)
        return ERR_INPUT;
    if (json_read(object, base, fields, ARRAY_LEN(fields), fault) != 0)
        return ERR_INPUT;
    snprintf(pointer, sizeof(pointer), "%.100s/precision", base);
    if (precision && strcmp(precision, "tf32") != 0 && strcmp(precision, "ieee") != 0)
        return json_refuse(fault, pointer, "is one of tf32, ieee");
    if (precision)
        snprintf(p->precision, sizeof(p->precision), "%s", precision);
    snprintf(pointer, sizeof(pointer), "%.100s/foreign", base);
    if (foreign && strcmp(foreign, "movement") != 0 && strcmp(foreign, "library") != 0 &&
        strcmp(foreign, "any") != 0)
        return json_refuse(fault, pointer, "is one of movement, library, any");
    if (foreign)
        snprintf(p->foreign, sizeof(p->foreign), "%s", foreign);
    if (read_variations(variations, base, p, fault) != 0)
        return ERR_INPUT;
    return read_timing(timing, base, p, fault);
}

int
policy_read(json_t *value, const char *base, struct policy *out, struct json_fault *fault)
{
    *out = policies[0];
    if (!value || json_is_null(value))
        return 0;
    if (json_is_string(value))
        return find_or_refuse(json_string_value(value), base, out, fault);
    if (!json_is_object(value))
        return json_refuse(fault, base, "must be a name or an object");
    return read_object(value, base, out, fault);
}

json_t *
policy_parts_json(const struct policy *p)
{
    json_t *out = json_pack(
        "{s:b, s:b, s:b, s:s, s:s, s:{s:I, s:b, s:b, s:b}, s:{s:I, s:I, s:b, s:b, s:b, s:s}}", "staged",
        (int)p->staged, "skip_timing_on_failure", (int)p->skip_timing_on_failure, "tiny_first",
        (int)p->tiny_first, "precision", p->precision, "foreign", p->foreign, "variations", "count",
        (json_int_t)p->variations.count, "value", (int)p->variations.value, "shape", (int)p->variations.shape,
        "dtype", (int)p->variations.dtype, "timing", "warmup", (json_int_t)p->timing.warmup, "trials",
        (json_int_t)p->timing.trials, "fixed", (int)p->timing.fixed, "events", (int)p->timing.events, "cold",
        (int)p->timing.cold, "estimator", p->timing.estimator);
    /* What is off by default is told where it is on: all else is as it was before there was such a thing. */
    if (p->timing.compile_baseline)
        json_object_set_new(json_object_get(out, "timing"), "compile_baseline", json_true());
    if (p->timing.variations)
        json_object_set_new(json_object_get(out, "timing"), "variations", json_true());
    if (p->timing.batched)
        json_object_set_new(json_object_get(out, "timing"), "batched", json_true());
    return out;
}

json_t *
policy_json(const struct policy *p)
{
    json_t *out = policy_parts_json(p);

    if (out) {
        json_object_set_new(out, "name", json_string(p->name));
        json_object_set_new(out, "version", json_integer(POLICY_VERSION));
    }
    return out;
}

static int
foreign_rank(const char *foreign)
{
    return strcmp(foreign, "movement") == 0 ? 0 : strcmp(foreign, "library") == 0 ? 1 : 2;
}

static bool
is_weakened(const struct policy *p, const struct policy *base)
{
    return foreign_rank(p->foreign) > foreign_rank(base->foreign) ||
           (strcmp(p->precision, "tf32") == 0 && strcmp(base->precision, "ieee") == 0) ||
           p->tiny_first < base->tiny_first || p->variations.count < base->variations.count ||
           p->variations.value < base->variations.value || p->variations.shape < base->variations.shape ||
           p->variations.dtype < base->variations.dtype;
}

void
policy_shown(const struct policy *p, char out[POLICY_SHOWN_SIZE])
{
    struct policy base;
    bool is_known = policy_find(p->name, &base) == 0;

    snprintf(out, POLICY_SHOWN_SIZE, "%s%s", p->name, is_known && is_weakened(p, &base) ? "*" : "");
}
