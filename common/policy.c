#include "common/policy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/words.h"

#define FILE_MOST (64 << 10)

#define FUNNEL .staged = true, .skip_timing_on_failure = true, .tiny_first = true, .shapes = "report"
#define FIVE                                                    \
    {                                                           \
        .count = 5, .value = true, .shape = true, .dtype = true \
    }
#define PAIRED                                                                          \
    {                                                                                   \
        .warmup = 10, .trials = 50, .events = true, .cold = true, .estimator = "paired" \
    }

static const struct policy policies[] = {
    { .name = "strict",
      FUNNEL,
      .precision = "tf32",
      .foreign = "movement",
      .variations = FIVE,
      .timing = PAIRED },
    { .name = "hybrid",
      FUNNEL,
      .precision = "tf32",
      .foreign = "library",
      .variations = FIVE,
      .timing = PAIRED },
    /* The published rule: five seeds of the original input, no TF32, nothing else. */
    { .name = "kernelbench",
      FUNNEL,
      .precision = "ieee",
      .foreign = "any",
      .variations = { .count = 5 },
      .timing = PAIRED },
    /* As other benchmarks time: a fixed number of trials after the warm-up, and their trimmed means. */
    { .name = "classic",
      FUNNEL,
      .precision = "tf32",
      .foreign = "movement",
      .variations = FIVE,
      .timing = { .warmup = 10,
                  .trials = 50,
                  .fixed = true,
                  .events = true,
                  .cold = true,
                  .estimator = "trimmed" } },
};

#define AT(member) offsetof(struct policy, member)
static const struct policy_key keys[] = {
    { "", "staged", POLICY_BOOL, AT(staged), 0, 0, NULL, false, "Stop at the first stage that fails." },
    { "", "skip_timing_on_failure", POLICY_BOOL, AT(skip_timing_on_failure), 0, 0, NULL, false,
      "Time nothing that was found wrong." },
    { "", "tiny_first", POLICY_BOOL, AT(tiny_first), 0, 0, NULL, false,
      "The smallest case before the task's own." },
    { "", "precision", POLICY_WORD, AT(precision), 0, 0, "tf32,ieee", false,
      "Whether TF32 passes in a float32 task." },
    { "", "foreign", POLICY_WORD, AT(foreign), 0, 0, "movement,library,any", false,
      "What kernels that are not the candidate's may do." },
    { "", "shapes", POLICY_WORD, AT(shapes), 0, 0, "report,require", true,
      "Whether other sizes of a task whose shapes are fixed are left to the task, or judge." },
    { "", "require_plan", POLICY_BOOL, AT(require_plan), 0, 0, NULL, true,
      "A candidate of which no plan can be made is refused, instead of run live without credit for its "
      "speed." },
    { "", "credit_untraced", POLICY_BOOL, AT(credit_untraced), 0, 0, NULL, true,
      "The speed is credited, too, of a candidate of which no plan can be made, or whose plan is no CUDA "
      "graph." },
    { "", "sanitize", POLICY_BOOL, AT(sanitize), 0, 0, NULL, true,
      "A run of the plan under compute-sanitizer in the end; it decides nothing." },
    { "variations", "count", POLICY_INT, AT(variations.count), 1, 16, NULL, false,
      "How many cases `full` has at least." },
    { "variations", "value", POLICY_BOOL, AT(variations.value), 0, 0, NULL, false,
      "Cases with transformed values." },
    { "variations", "shape", POLICY_BOOL, AT(variations.shape), 0, 0, NULL, false,
      "Cases of other sizes, where those judge." },
    { "variations", "dtype", POLICY_BOOL, AT(variations.dtype), 0, 0, NULL, false,
      "A case in half precision, under shapes=require, where the reference takes it." },
    { "timing", "warmup", POLICY_INT, AT(timing.warmup), 0, 100, NULL, false,
      "Calls of each side before the trials; of plans bells, at least four." },
    { "timing", "trials", POLICY_INT, AT(timing.trials), 2, 1000, NULL, false, "The most trials." },
    { "timing", "fixed", POLICY_BOOL, AT(timing.fixed), 0, 0, NULL, false,
      "Exactly `trials`; no early stop." },
    { "timing", "events", POLICY_BOOL, AT(timing.events), 0, 0, NULL, false,
      "Live: CUDA events of both sides are shown." },
    { "timing", "cold", POLICY_BOOL, AT(timing.cold), 0, 0, NULL, false,
      "The L2 cache is flushed before each trial." },
    { "timing", "estimator", POLICY_WORD, AT(timing.estimator), 0, 0, "paired,trimmed", false,
      "The speed-up that is rewarded: of medians in pairs, or of 10 % trimmed means." },
    { "timing", "compile_baseline", POLICY_BOOL, AT(timing.compile_baseline), 0, 0, NULL, true,
      "The reference under torch.compile is timed as well." },
};

/* Keys that are gone: a policy that has one is refused with what to do instead. */
static const struct {
    const char *section, *name, *instead;
} removed[] = {
    { "timing", "variations",
      "only the task's own size is timed; register the task at another size to time that" },
    { "timing", "batched", "short calls are timed as a CUDA graph of many, always; take the key out" },
};

const struct policy_key *
policy_keys(size_t *n)
{
    *n = ARRAY_LEN(keys);
    return keys;
}

const struct policy *
policy_at(size_t i)
{
    return i < ARRAY_LEN(policies) ? &policies[i] : NULL;
}

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
        return json_refuse(fault, pointer, "there is no policy \"%.40s\"; there are " POLICY_NAMES, name);
    return 0;
}

/* --- values --- */

static void *
member(struct policy *p, const struct policy_key *key)
{
    return (char *)p + key->at;
}

/* Members that hold words have room for each of their own. */
static int
set_word(struct policy *p, const struct policy_key *key, const char *word, const char *pointer,
         struct json_fault *fault)
{
    if (!words_have(key->words, ",", word, strlen(word)))
        return json_refuse(fault, pointer, "is one of %s", key->words);
    memcpy(member(p, key), word, strlen(word) + 1);
    return 0;
}

json_t *
policy_value(const struct policy *p, const struct policy_key *key)
{
    const char *at = (const char *)p + key->at;
    int64_t number;

    if (key->type == POLICY_BOOL)
        return json_boolean(*(const bool *)at);
    if (key->type == POLICY_WORD)
        return json_string(at);
    memcpy(&number, at, sizeof(number));
    return json_integer(number);
}

/* --- reading --- */

#define SECTION_MOST 16

/* The keys of one section of a policy; other: what else it may have. */
static int
read_section(json_t *object, const char *base, const char *section, const struct json_field *other,
             size_t n_other, struct policy *p, struct json_fault *fault)
{
    struct json_field fields[SECTION_MOST];
    char pointer[JSON_POINTER_SIZE];
    const char *words[ARRAY_LEN(keys)] = { NULL };
    size_t n = n_other;

    for (size_t i = 0; i < ARRAY_LEN(removed); i++) {
        if (strcmp(removed[i].section, section) == 0 && json_object_get(object, removed[i].name))
            return json_refuse_at(fault, base, removed[i].name, "is not a key any more: %s",
                                  removed[i].instead);
    }
    if (n_other > 0)
        memcpy(fields, other, n_other * sizeof(*fields));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct policy_key *k = &keys[i];
        if (strcmp(k->section, section) != 0)
            continue;
        bool is_word = k->type == POLICY_WORD;
        fields[n++] = (struct json_field){ .key = k->name,
                                           .want = is_word                 ? JSON_WANT_STRING
                                                   : k->type == POLICY_INT ? JSON_WANT_INT
                                                                           : JSON_WANT_BOOL,
                                           .out = is_word ? (void *)&words[i] : member(p, k),
                                           .min = (double)k->least,
                                           .max = (double)k->most };
    }
    int rc = json_read(object, base, fields, n, fault);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(keys); i++) {
        snprintf(pointer, sizeof(pointer), "%.90s/%s", base, keys[i].name);
        if (words[i])
            rc = set_word(p, &keys[i], words[i], pointer, fault);
    }
    return rc;
}

static int
read_object(json_t *object, const char *base, struct policy *p, struct json_fault *fault)
{
    const char *name = NULL, *base_name = json_string_value(json_object_get(object, "name"));
    json_t *variations = NULL, *timing = NULL;
    int64_t version = POLICY_VERSION;
    char pointer[JSON_POINTER_SIZE];
    const struct json_field other[] = {
        { "name", JSON_WANT_STRING, &name, false, 0, 0 },
        { "version", JSON_WANT_INT, &version, false, POLICY_VERSION, POLICY_VERSION },
        { "variations", JSON_WANT_OBJECT, &variations, false, 0, 0 },
        { "timing", JSON_WANT_OBJECT, &timing, false, 0, 0 },
    };

    /* The name first: it says what the other keys change. */
    snprintf(pointer, sizeof(pointer), "%.100s/name", base);
    if (base_name && find_or_refuse(base_name, pointer, p, fault) != 0)
        return ERR_INPUT;
    int rc = read_section(object, base, "", other, ARRAY_LEN(other), p, fault);
    snprintf(pointer, sizeof(pointer), "%.100s/variations", base);
    if (rc == 0 && variations)
        rc = read_section(variations, pointer, "variations", NULL, 0, p, fault);
    snprintf(pointer, sizeof(pointer), "%.100s/timing", base);
    if (rc == 0 && timing)
        rc = read_section(timing, pointer, "timing", NULL, 0, p, fault);
    return rc;
}

/* --- as text --- */

/* A JSON value where the text is one (true, 7), else a word. */
static json_t *
value_of(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(text);
}

/* KEY=VALUE, or SECTION.KEY=VALUE, into an object. */
static int
put_pair(json_t *object, char *pair, struct error *err)
{
    char *value = strchr(pair, '='), *dot;

    if (!value || value == pair)
        return error_set(err, ERR_INPUT, "\"%s\" is not KEY=VALUE", pair);
    *value++ = '\0';
    dot = strchr(pair, '.');
    if (!dot)
        return json_object_set_new(object, pair, value_of(value));
    *dot = '\0';
    if (!json_object_get(object, pair))
        json_object_set_new(object, pair, json_object());
    if (!json_is_object(json_object_get(object, pair)))
        return error_set(err, ERR_INPUT, "%.60s is a section: %.60s.KEY=VALUE", pair, pair);
    return json_object_set_new(json_object_get(object, pair), dot + 1, value_of(value));
}

static int
parse_pairs(const char *text, json_t **out, struct error *err)
{
    AUTO_FREE char *copy = strdup(text);
    AUTO_JSON json_t *object = json_object();
    char *rest = copy;
    int rc = copy && object ? 0 : error_set(err, ERR_NOMEM, "out of memory");

    for (char *pair; rc == 0 && (pair = strsep(&rest, ","));) {
        if (pair == copy && !strchr(pair, '='))
            json_object_set_new(object, "name", json_string(pair));
        else
            rc = put_pair(object, pair, err);
    }
    if (rc == 0)
        *out = json_incref(object);
    return rc;
}

int
policy_read(json_t *value, const char *base, struct policy *out, struct json_fault *fault)
{
    const char *text = json_string_value(value);
    AUTO_JSON json_t *pairs = NULL;
    struct error err = { 0 };

    *out = policies[0];
    if (!value || json_is_null(value))
        return 0;
    if (text && !strchr(text, '='))
        return find_or_refuse(text, base, out, fault);
    if (text && parse_pairs(text, &pairs, &err) != 0)
        return json_refuse(fault, base, "%s", err.text);
    if (!text && !json_is_object(value))
        return json_refuse(fault, base, "must be a name or an object");
    return read_object(text ? pairs : value, base, out, fault);
}

static int
parse_file(const char *path, json_t **out, struct error *err)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct json_fault fault;

    if (access(path, F_OK) != 0)
        return error_set(err, ERR_SYS,
                         "there is no policy \"%.60s\" (there are " POLICY_NAMES "), and no file", path);
    if (buffer_read_file(&text, path, FILE_MOST, NULL) != 0)
        return error_set(err, ERR_INPUT, "%.150s cannot be read as a policy of at most %d KiB", path,
                         FILE_MOST >> 10);
    *out = json_parse(text.data, text.size, &fault);
    return *out ? 0 : error_set(err, ERR_INPUT, "%.100s: %s", path, fault.text);
}

int
policy_parse(const char *text, json_t **out, struct error *err)
{
    AUTO_JSON json_t *found = NULL;
    struct json_fault fault = { .pointer = "" };
    struct policy policy;
    int rc = 0;

    *out = NULL;
    if (policy_find(text, &policy) == 0) {
        *out = json_string(text);
        return *out ? 0 : error_set(err, ERR_NOMEM, "out of memory");
    }
    rc = strchr(text, '=') ? parse_pairs(text, &found, err) : parse_file(text, &found, err);
    if (rc == 0 && policy_read(found, "", &policy, &fault) != 0)
        rc = error_set(err, ERR_INPUT, "policy %.100s: %s%s%s", text, fault.pointer,
                       *fault.pointer ? ": " : "", fault.text);
    if (rc == 0)
        *out = json_incref(found);
    return rc;
}

/* --- the policy in a verdict --- */

json_t *
policy_parts_json(const struct policy *p)
{
    json_t *out = json_object();

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct policy_key *k = &keys[i];
        AUTO_JSON json_t *value = policy_value(p, k), *standard = policy_value(&policies[0], k);
        json_t *in = out;
        /* A key that is off by default is shown only if it is on, so that other verdicts did not change with it. */
        if (k->is_told_if_asked && json_equal(value, standard))
            continue;
        if (*k->section) {
            if (!json_object_get(out, k->section))
                json_object_set_new(out, k->section, json_object());
            in = json_object_get(out, k->section);
        }
        json_object_set(in, k->name, value);
    }
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
           p->credit_untraced > base->credit_untraced || p->tiny_first < base->tiny_first ||
           p->variations.count < base->variations.count || p->variations.value < base->variations.value ||
           p->variations.shape < base->variations.shape || p->variations.dtype < base->variations.dtype;
}

void
policy_shown(const struct policy *p, char out[POLICY_SHOWN_SIZE])
{
    struct policy base;
    bool is_known = policy_find(p->name, &base) == 0;

    snprintf(out, POLICY_SHOWN_SIZE, "%s%s", p->name, is_known && is_weakened(p, &base) ? "*" : "");
}
