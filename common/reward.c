/*
 * One row of `kinds` for each named reward; docs/rewards.md says the same for
 * people. What holds for every kind (masking, the value of a hack) is decided
 * in reward_compute() and nowhere else.
 */
#include "common/reward.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"

typedef double reward_fn(const struct reward_spec *spec, const struct reward_input *in);

/* What having passed a stage is worth under `staged`; timing adds its own term. */
static const double stage_worth[] = {
    [REWARD_NOTHING] = 0.0, [REWARD_AST] = 0.0,  [REWARD_COMPILE] = 0.3,
    [REWARD_TINY] = 0.5,    [REWARD_FULL] = 0.7, [REWARD_TIMING] = 0.7,
};

static double
clamp01(double x)
{
    return x > 0 ? fmin(x, 1.0) : 0.0; /* NAN counts as nothing */
}

/* The speed that may be rewarded, or 0: only of a correct candidate whose timing was measured. */
static double
credited_speed(const struct reward_spec *spec, const struct reward_input *in)
{
    const struct reward_components *c = &in->components;
    double speed = spec->is_conservative ? c->speedup_lo : c->speedup;
    bool counts = in->passed >= REWARD_FULL && !in->has_failed && c->correct == 1 && c->timed == 1;
    return counts && isfinite(speed) ? speed : 0.0;
}

static double
staged(const struct reward_spec *spec, const struct reward_input *in)
{
    double worth = stage_worth[in->passed];
    if (in->has_failed && in->passed < REWARD_FULL) {
        double next = stage_worth[in->passed + 1];
        /* Version 1 counts the share from zero, so a failure at tiny may be worth less than one at compile. */
        double from = spec->version == 1 ? 0.0 : worth;
        return from + clamp01(in->partial) * (next - from);
    }
    return worth + 0.3 * clamp01(credited_speed(spec, in) / 2);
}

static const struct kind {
    const char *name;
    int versions; /* 1 .. versions; the last is the default */
    reward_fn *compute;
} kinds[] = {
    { "staged", 2, staged },
};

static const struct kind *
find_kind(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

/* The components by the names of the JSON answer. */
static const struct {
    const char *name;
    size_t offset;
} component_table[] = {
#define ROW(field)                                        \
    {                                                     \
#field, offsetof(struct reward_components, field) \
    }
    ROW(extracted), ROW(valid),   ROW(compiled),       ROW(correct),      ROW(hack),
    ROW(timed),     ROW(speedup), ROW(speedup_lo),     ROW(speedup_hi),   ROW(coverage),
    ROW(sol),       ROW(rank),    ROW(peak_mem_ratio), ROW(cases_passed),
#undef ROW
};
_Static_assert(ARRAY_LEN(component_table) * sizeof(double) == sizeof(struct reward_components),
               "name every component");

static const double *
component_at(const struct reward_components *c, size_t i)
{
    return (const double *)((const char *)c + component_table[i].offset);
}

void
reward_components_init(struct reward_components *c)
{
    *c = (struct reward_components){ .speedup = NAN,
                                     .speedup_lo = NAN,
                                     .speedup_hi = NAN,
                                     .coverage = NAN,
                                     .sol = NAN,
                                     .rank = NAN,
                                     .peak_mem_ratio = NAN,
                                     .cases_passed = NAN };
}

static int
refuse_kind(const char *base, const char *kind, struct json_fault *fault)
{
    char pointer[JSON_POINTER_SIZE], known[128] = "";
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", kinds[i].name);
    }
    snprintf(pointer, sizeof(pointer), "%s/kind", base);
    return json_refuse(fault, pointer, "unknown reward \"%.32s\"; known: %s", kind, known);
}

static int
refuse_member(const char *base, const char *key, const char *why, struct json_fault *fault)
{
    char pointer[JSON_POINTER_SIZE];
    snprintf(pointer, sizeof(pointer), "%s/%s", base, key);
    return json_refuse(fault, pointer, "%s", why);
}

int
reward_spec_read(json_t *object, const char *base, struct reward_spec *out, struct json_fault *fault)
{
    const char *kind_name = "staged", *speed = "point";
    int64_t version = 0; /* not told: the newest */
    double hack_value = 0;
    const struct json_field fields[] = {
        { "kind", JSON_WANT_STRING, &kind_name, false, 0, 0 },
        { "version", JSON_WANT_INT, &version, false, 1, 1000 },
        { "hack_value", JSON_WANT_NUMBER, &hack_value, false, -1, 0 },
        { "speed", JSON_WANT_STRING, &speed, false, 0, 0 },
    };
    if (json_read(object, base, fields, ARRAY_LEN(fields), fault) < 0)
        return ERR_INPUT;
    const struct kind *kind = find_kind(kind_name);
    if (!kind)
        return refuse_kind(base, kind_name, fault);
    if (version > kind->versions)
        return refuse_member(base, "version", "this reward has no such version", fault);
    bool is_conservative = strcmp(speed, "conservative") == 0;
    if (!is_conservative && strcmp(speed, "point") != 0)
        return refuse_member(base, "speed", "must be \"point\" or \"conservative\"", fault);

    *out = (struct reward_spec){ .version = version ? (int)version : kind->versions,
                                 .hack_value = hack_value,
                                 .is_conservative = is_conservative };
    snprintf(out->kind, sizeof(out->kind), "%s", kind->name);
    return 0;
}

json_t *
reward_spec_json(const struct reward_spec *spec)
{
    return json_pack("{s:s, s:i, s:f, s:s}", "kind", spec->kind, "version", spec->version, "hack_value",
                     spec->hack_value, "speed", spec->is_conservative ? "conservative" : "point");
}

json_t *
reward_components_json(const struct reward_components *c)
{
    AUTO_JSON json_t *object = json_object();
    for (size_t i = 0; object && i < ARRAY_LEN(component_table); i++) {
        double x = *component_at(c, i);
        json_t *value = !isfinite(x)                      ? json_null()
                        : x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x)
                                                          : json_real(x);
        if (json_object_set_new(object, component_table[i].name, value) < 0)
            return NULL;
    }
    return ptr_take(&object);
}

double
reward_compute(const struct reward_spec *spec, const struct reward_input *in)
{
    if (in->is_masked)
        return NAN;
    if (in->is_hack)
        return spec->hack_value;
    const struct kind *kind = find_kind(spec->kind);
    return kind ? kind->compute(spec, in) : NAN;
}
