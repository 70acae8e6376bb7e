/*
 * One row of `kinds` for each version of each named reward; docs/rewards.md says
 * the same for people. What holds for every kind (masking, the value of a hack,
 * whether a speed counts) is decided here in one place and not in the rows.
 */
#include "common/reward.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/statistics.h"

/* The value of having passed a stage under `staged`; timing adds its own term. */
static const double stage_worth[] = {
    [STAGE_AST] = 0.0, [STAGE_COMPILE] = 0.3, [STAGE_TINY] = 0.5, [STAGE_FULL] = 0.7, [STAGE_TIMING] = 0.7,
};
_Static_assert(ARRAY_LEN(stage_worth) == STAGE_NSTAGES, "the worth of every stage");

/*
 * The names that an expression may use, with the components and the kind's parameters:
 *   s          the speed that counts: 0 unless correct, measured and nothing failed
 *   has_speed  s is such a speed
 *   passed     last stage passed: 0 none, 1 ast, 2 compile, 3 tiny, 4 full, 5 timing
 *   failed     a stage failed (1), or it ended by a skip or by until (0)
 *   partial    progress in the stage that failed
 *   worth, next_worth   of the last stage passed and of the one after it
 */
static const struct kind {
    const char *name;
    int version;
    const char *expression;
    struct {
        const char *name;
        double value, min, max;
    } params[REWARD_PARAMS_MAX];
    struct {
        const char *name, *expression;
    } parts[REWARD_PARTS_MAX];
} kinds[] = {
    /* This project's own. Version 1 counts the partial credit from zero: the literal older formula. */
    { .name = "staged",
      .version = 1,
      .expression = "failed && passed < 4 ? partial*next_worth : worth + 0.3*clamp(s/2, 0, 1)" },
    { .name = "staged",
      .version = 2,
      .expression =
          "failed && passed < 4 ? worth + partial*(next_worth - worth) : worth + 0.3*clamp(s/2, 0, 1)" },
    { .name = "best_of_n",
      .version = 1,
      .expression = "correct + w_speed*s",
      .params = { { "w_speed", 0.3, 0, 100 } } },
    { .name = "hierarchical",
      .version = 1,
      .expression = "valid*(w_correct*correct + w_speed*s)",
      .params = { { "w_correct", 0.7, 0, 100 }, { "w_speed", 0.3, 0, 100 } } },
    { .name = "gated",
      .version = 1,
      .expression = "valid*(beta*correct + (1 - beta)*correct*min(s, cap)/cap)",
      .params = { { "beta", 0.5, 0, 1 }, { "cap", 3, 0.1, 1000 } } },
    /* TritonRL, arXiv 2510.17891 v2: the plan's tokens get the speed, the code's tokens the correctness. */
    { .name = "tritonrl",
      .version = 1,
      .expression = "alpha*valid*correct*min(s, cap) + valid*correct",
      .params = { { "alpha", 0.1, 0, 100 }, { "cap", 2, 0.1, 1000 } },
      .parts = { { "plan", "valid*correct*min(s, cap)" }, { "code", "valid*correct" } } },
    { .name = "rank",
      .version = 1,
      .expression = "valid*(beta*correct + (1 - beta)*correct*rank)",
      .params = { { "beta", 0.5, 0, 1 } } },
    /* Kevin-32B, arXiv 2507.11948. cap 0: as published, unbounded. */
    { .name = "kevin",
      .version = 1,
      .expression = "0.3*correct + correct*(cap > 0 ? min(s, cap) : s)",
      .params = { { "cap", 0, 0, 1000 } } },
    /* Dr.Kernel, arXiv 2602.05885; keep_prob: the chance with which its rejection sampling keeps a sample. */
    { .name = "drkernel",
      .version = 1,
      .expression = "correct ? w_correct + w_speed*clamp(s, 0, 3) + w_coverage*coverage : 0",
      .params = { { "w_correct", 1, 0, 100 }, { "w_speed", 1, 0, 100 }, { "w_coverage", 0.5, 0, 100 } },
      .parts = { { "keep_prob", "clamp((coverage - 0.3)/0.1, 0, 1)" } } },
    /* KernelGYM's like_kernel table. Correct but not timed: neither slower nor faster. */
    { .name = "tiers",
      .version = 1,
      .expression = "!compiled ? -0.5 : !correct ? -0.3 : !has_speed ? 0 : s >= 3 ? 1 : s >= 2 ? 0.8 :"
                    " s >= 1.5 ? 0.6 : s >= 1.2 ? 0.4 : s >= 1 ? 0.2 : -0.1" },
    /* CUDA Agent, arXiv 2602.24286: more than 5 % faster than eager, and than torch.compile too. */
    { .name = "milestones",
      .version = 1,
      .expression = "!correct ? -1 : s <= 1.05 ? 1 : has_speed && speedup_compile > 1.05 ? 3 : 2" },
    /* AutoTriton, arXiv 2507.05687. */
    { .name = "binary", .version = 1, .expression = "valid*correct" },
    /* After DRTriton, arXiv 2603.21465 (log s), and KernelZero, arXiv 2609.33074 (1 + weight*speed). */
    { .name = "log",
      .version = 1,
      .expression = "correct*(1 + lambda*clamp(has_speed ? log(s) : 0, -limit, limit))",
      .params = { { "lambda", 0.5, 0, 100 }, { "limit", 2, 0.01, 20 } } },
    /* SOL-ExecBench's score: 0.5 is the reference's speed, 1 the roofline. */
    { .name = "sol", .version = 1, .expression = "has_speed ? correct*sol : 0" },
};

static const char EXPR[] = "expr";

static double
clamp01(double x)
{
    return x > 0 ? fmin(x, 1.0) : 0.0; /* NAN counts as nothing */
}

/* The speed that may be rewarded, or NAN: only of a correct candidate whose timing was measured. */
static double
credited_speed(bool is_conservative, const struct reward_input *in)
{
    const struct reward_components *c = &in->components;
    double speed = is_conservative ? c->speedup_lo : c->speedup;
    bool counts = in->passed >= STAGE_FULL && !in->has_failed && c->correct == 1 && c->timed == 1;
    return counts && isfinite(speed) && speed > 0 ? speed : NAN;
}

/* The row of a kind; version 0: the newest. NULL: there is none. */
static const struct kind *
find_kind(const char *name, int version)
{
    const struct kind *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0 && (version == 0 || kinds[i].version == version))
            found = &kinds[i];
    return found;
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
    ROW(extracted), ROW(valid),          ROW(compiled),     ROW(correct),         ROW(hack),     ROW(timed),
    ROW(speedup),   ROW(speedup_lo),     ROW(speedup_hi),   ROW(speedup_compile), ROW(coverage), ROW(sol),
    ROW(rank),      ROW(peak_mem_ratio), ROW(cases_passed), ROW(generality),
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
                                     .speedup_compile = NAN,
                                     .coverage = NAN,
                                     .sol = NAN,
                                     .rank = NAN,
                                     .peak_mem_ratio = NAN,
                                     .cases_passed = NAN,
                                     .generality = NAN };
}

/* --- what an expression may name --- */

enum { N_COMPONENTS = ARRAY_LEN(component_table) };
static const char *const other_names[] = { "s",       "has_speed", "passed",    "failed",
                                           "partial", "worth",     "next_worth" };
enum { N_OTHERS = ARRAY_LEN(other_names), N_NAMES = N_COMPONENTS + N_OTHERS + REWARD_PARAMS_MAX };

/* Fill names with all that an expression of this spec may name; returns how many. */
static size_t
names_of(const struct reward_spec *spec, const char *names[N_NAMES])
{
    size_t n = 0;
    for (size_t i = 0; i < N_COMPONENTS; i++)
        names[n++] = component_table[i].name;
    for (size_t i = 0; i < N_OTHERS; i++)
        names[n++] = other_names[i];
    for (size_t i = 0; i < spec->n_params; i++)
        names[n++] = spec->params[i].name;
    return n;
}

/* The values in the order of names_of(). */
static void
values_of(const struct reward_spec *spec, const struct reward_input *in, double values[N_NAMES])
{
    double speed = credited_speed(spec->is_conservative, in);
    enum stage next = in->passed < STAGE_TIMING ? in->passed + 1 : in->passed;
    const double others[] = {
        speed,
        !isnan(speed),
        in->passed + 1,
        in->has_failed,
        clamp01(in->partial),
        in->passed == STAGE_NONE ? 0.0 : stage_worth[in->passed],
        stage_worth[next],
    };
    _Static_assert(ARRAY_LEN(others) == N_OTHERS, "a value for each name");
    size_t n = 0;
    for (size_t i = 0; i < N_COMPONENTS; i++)
        values[n++] = *component_at(&in->components, i);
    for (size_t i = 0; i < N_OTHERS; i++)
        values[n++] = others[i];
    for (size_t i = 0; i < spec->n_params; i++)
        values[n++] = spec->params[i].value;
}

static double
evaluate(const char *text, const struct reward_spec *spec, const struct reward_input *in)
{
    const char *names[N_NAMES];
    double values[N_NAMES];
    struct expression e;
    struct expression_fault fault;

    if (expression_compile(text, names, names_of(spec, names), &e, &fault) != 0)
        return NAN; /* reward_spec_read() refuses such a text */
    values_of(spec, in, values);
    double result = expression_value(&e, values);
    return isfinite(result) ? result : NAN;
}

/* --- specifications --- */

static int
refuse_kind(const char *base, const char *kind, struct json_fault *fault)
{
    char known[160] = "";
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (find_kind(kinds[i].name, 0) != &kinds[i])
            continue; /* an older version */
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s, ", kinds[i].name);
    }
    return json_refuse_at(fault, base, "kind", "unknown reward \"%.32s\"; known: %s%s", kind, known, EXPR);
}

static struct reward_param *
find_param(struct reward_spec *spec, const char *name)
{
    for (size_t i = 0; i < spec->n_params; i++)
        if (strcmp(spec->params[i].name, name) == 0)
            return &spec->params[i];
    return NULL;
}

/* A name of a parameter that a client brings with its own expression. */
static bool
is_new_name(struct reward_spec *spec, const char *name)
{
    const char *names[N_NAMES];
    size_t size = strlen(name), n = names_of(spec, names);
    bool is_word =
        size > 0 && size < sizeof(spec->params[0].name) && (isalpha((unsigned char)*name) || *name == '_');
    for (size_t i = 0; i < size; i++)
        is_word = is_word && (isalnum((unsigned char)name[i]) || name[i] == '_');
    for (size_t i = 0; i < n; i++)
        is_word = is_word && strcmp(names[i], name) != 0;
    return is_word;
}

/* The kind's own parameters (row is NULL for expr: any parameters), overridden by params. */
static int
read_params(json_t *params, const struct kind *row, const char *base, struct reward_spec *out,
            struct json_fault *fault)
{
    const char *key;
    json_t *value;

    for (size_t i = 0; row && i < REWARD_PARAMS_MAX && row->params[i].name; i++) {
        struct reward_param *p = &out->params[out->n_params++];
        snprintf(p->name, sizeof(p->name), "%s", row->params[i].name);
        p->value = row->params[i].value;
    }
    json_object_foreach(params, key, value)
    {
        char member[64];
        snprintf(member, sizeof(member), "params/%.40s", key);
        struct reward_param *p = find_param(out, key);
        double x = json_number_value(value);
        if (!json_is_number(value))
            return json_refuse_at(fault, base, member, "must be a number");
        if (!p && row)
            return json_refuse_at(fault, base, member, "reward \"%s\" has no such parameter", row->name);
        if (!p && out->n_params == REWARD_PARAMS_MAX)
            return json_refuse_at(fault, base, member, "more than %d parameters", REWARD_PARAMS_MAX);
        if (!p && !is_new_name(out, key))
            return json_refuse_at(fault, base, member, "not a word of at most 23 letters that is still free");
        if (!p) {
            p = &out->params[out->n_params++];
            snprintf(p->name, sizeof(p->name), "%s", key);
        } else if (row) {
            size_t i = (size_t)(p - out->params);
            if (x < row->params[i].min || x > row->params[i].max)
                return json_refuse_at(fault, base, member, "must be from %g to %g", row->params[i].min,
                                      row->params[i].max);
        }
        p->value = x;
    }
    return 0;
}

static int
read_expression(const char *text, const char *base, struct reward_spec *out, struct json_fault *fault)
{
    const char *names[N_NAMES];
    struct expression e;
    struct expression_fault found;

    if (expression_compile(text, names, names_of(out, names), &e, &found) != 0)
        return json_refuse_at(fault, base, EXPR, "column %zu: %s", found.column, found.text);
    snprintf(out->expr, sizeof(out->expr), "%s", text);
    return 0;
}

int
reward_spec_read(json_t *object, const char *base, struct reward_spec *out, struct json_fault *fault)
{
    const char *kind = "staged", *speed = "point", *expr = NULL;
    json_t *params = NULL;
    int64_t version = 0; /* not given: the newest */
    double hack_value = 0;
    const struct json_field fields[] = {
        { "kind", JSON_WANT_STRING, &kind, false, 0, 0 },
        { "version", JSON_WANT_INT, &version, false, 1, 1000 },
        { "hack_value", JSON_WANT_NUMBER, &hack_value, false, -1, 0 },
        { "speed", JSON_WANT_STRING, &speed, false, 0, 0 },
        { "params", JSON_WANT_OBJECT, &params, false, 0, 0 },
        { EXPR, JSON_WANT_STRING, &expr, false, 1, EXPRESSION_TEXT_MAX },
    };
    if (json_read(object, base, fields, ARRAY_LEN(fields), fault) < 0)
        return ERR_INPUT;
    bool is_expr = strcmp(kind, EXPR) == 0;
    const struct kind *row = find_kind(kind, (int)version);
    if (!is_expr && !find_kind(kind, 0))
        return refuse_kind(base, kind, fault);
    if (is_expr ? version > 1 : !row)
        return json_refuse_at(fault, base, "version", "this reward has no such version");
    if (is_expr != (expr != NULL))
        return json_refuse_at(fault, base, EXPR,
                              is_expr ? "is missing" : "goes with \"kind\": \"expr\" and no other");
    bool is_conservative = strcmp(speed, "conservative") == 0;
    if (!is_conservative && strcmp(speed, "point") != 0)
        return json_refuse_at(fault, base, "speed", "must be \"point\" or \"conservative\"");

    *out = (struct reward_spec){ .version = row ? row->version : 1,
                                 .hack_value = hack_value,
                                 .is_conservative = is_conservative };
    snprintf(out->kind, sizeof(out->kind), "%s", is_expr ? EXPR : row->name);
    int rc = read_params(params, row, base, out, fault);
    return rc == 0 && is_expr ? read_expression(expr, base, out, fault) : rc;
}

json_t *
reward_spec_json(const struct reward_spec *spec)
{
    AUTO_JSON json_t *out =
        json_pack("{s:s, s:i, s:f, s:s}", "kind", spec->kind, "version", spec->version, "hack_value",
                  spec->hack_value, "speed", spec->is_conservative ? "conservative" : "point");
    AUTO_JSON json_t *params = json_object();
    for (size_t i = 0; params && i < spec->n_params; i++)
        json_object_set_new(params, spec->params[i].name, json_real(spec->params[i].value));
    if (out && spec->n_params > 0)
        json_object_set(out, "params", params);
    if (out && spec->expr[0])
        json_object_set_new(out, EXPR, json_string(spec->expr));
    return ptr_take(&out);
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

void
reward_components_read(json_t *object, struct reward_components *c)
{
    for (size_t i = 0; i < N_COMPONENTS; i++)
        *(double *)((char *)c + component_table[i].offset) = number_or_nan(object, component_table[i].name);
}

/* --- rewards --- */

double
reward_compute(const struct reward_spec *spec, const struct reward_input *in)
{
    if (in->is_masked)
        return NAN;
    if (in->is_hack)
        return spec->hack_value;
    const struct kind *row = find_kind(spec->kind, spec->version);
    return evaluate(row ? row->expression : spec->expr, spec, in);
}

size_t
reward_parts(const struct reward_spec *spec, const struct reward_input *in,
             struct reward_param out[REWARD_PARTS_MAX])
{
    const struct kind *row = find_kind(spec->kind, spec->version);
    size_t n = 0;

    for (; row && n < REWARD_PARTS_MAX && row->parts[n].name; n++) {
        snprintf(out[n].name, sizeof(out[n].name), "%s", row->parts[n].name);
        out[n].value = in->is_masked ? NAN
                       : in->is_hack ? spec->hack_value
                                     : evaluate(row->parts[n].expression, spec, in);
    }
    return n;
}

bool
reward_needs_rank(const struct reward_spec *spec)
{
    const struct kind *row = find_kind(spec->kind, spec->version);
    const char *names[N_NAMES];
    struct expression e;
    struct expression_fault fault;
    size_t rank = 0, n = names_of(spec, names);

    while (rank < n && strcmp(names[rank], "rank") != 0)
        rank++;
    return expression_compile(row ? row->expression : spec->expr, names, n, &e, &fault) == 0 &&
           expression_names(&e, rank);
}

/* --- rank within a group --- */

/* One member's speed: natural logarithms. */
struct standing {
    double at, low, high;
};

/* Beyond which logarithms of speeds are clipped. scratch: room for n numbers. */
static void
winsor_limits(const struct standing *all, size_t n, double *scratch, double *low, double *high)
{
    for (size_t i = 0; i < n; i++)
        scratch[i] = all[i].at;
    if (n >= 20) {
        *low = stats_quantile(scratch, n, 0.05);
        *high = stats_quantile(scratch, n, 0.95);
        return;
    }
    double median = stats_median(scratch, n);
    for (size_t i = 0; i < n; i++)
        scratch[i] = fabs(all[i].at - median);
    double reach = fmax(3 * 1.4826 * stats_median(scratch, n), REWARD_REACH);
    *low = median - reach;
    *high = median + reach;
}

static double
clip(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

/* The share of a against b: 1, or a half if they cannot be distinguished, or 0. */
static double
win(const struct standing *a, const struct standing *b)
{
    if (fabs(a->at - b->at) < REWARD_TIE || (a->low <= b->high && b->low <= a->high))
        return 0.5;
    return a->at > b->at;
}

size_t
reward_rank(struct reward_input *members, size_t n)
{
    AUTO_FREE struct standing *all = calloc(n + 1, sizeof(*all));
    AUTO_FREE double *scratch = calloc(n + 1, sizeof(*scratch));
    AUTO_FREE size_t *of = calloc(n + 1, sizeof(*of));
    size_t m = 0, clipped = 0;

    for (size_t i = 0; i < n; i++) {
        const struct reward_components *c = &members[i].components;
        double speed = credited_speed(false, &members[i]);
        members[i].components.rank = NAN;
        if (isnan(speed) || !all || !scratch || !of)
            continue;
        of[m] = i;
        all[m++] = (struct standing){ log(speed), log(isfinite(c->speedup_lo) ? c->speedup_lo : speed),
                                      log(isfinite(c->speedup_hi) ? c->speedup_hi : speed) };
    }
    if (m == 0)
        return 0;
    double low, high;
    winsor_limits(all, m, scratch, &low, &high);
    for (size_t i = 0; i < m; i++) {
        clipped += all[i].at < low || all[i].at > high;
        all[i] = (struct standing){ clip(all[i].at, low, high), clip(all[i].low, low, high),
                                    clip(all[i].high, low, high) };
    }
    all[m] = (struct standing){ 0, 0, 0 }; /* the reference: not faster than itself */
    for (size_t i = 0; i < m; i++) {
        double wins = 0;
        for (size_t j = 0; j <= m; j++)
            wins += j != i ? win(&all[i], &all[j]) : 0;
        members[of[i]].components.rank = wins / (double)m;
    }
    return clipped;
}
