#include "server/submission/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/extract.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/reward.h"
#include "common/policy.h"
#include "common/utf8.h"
#include "server/store/labels.h"

#define NAME_MAX_CHARS 200
#define NOTIFY_URL_MAX 2000
#define ENTRY_MAX_CHARS 200
#define USUAL_ENTRY "Model" /* the default entry point */
#define METADATA_MAX_BYTES (64 * 1024)
#define CASES_MAX 64
#define DEADLINE_MAX_S (7 * 86400)
#define REPLAY_FLAGS_MAX 64
#define BAD(refused) ((void)(refused), FUNNEL_BAD)

/* --- tasks --- */

static enum funnel_refusal
check_size(json_t *text, size_t most, const char *base, const char *key, struct json_fault *fault)
{
    if (!text || json_string_length(text) <= most)
        return FUNNEL_OK;
    json_refuse_at(fault, base, key, "has %zu bytes; %zu are allowed", json_string_length(text), most);
    return FUNNEL_TOO_LARGE;
}

static enum funnel_refusal
check_metadata(json_t *metadata, const char *base, struct json_fault *fault)
{
    size_t size = metadata ? json_dumpb(metadata, NULL, 0, JSON_COMPACT) : 0;

    if (size <= METADATA_MAX_BYTES)
        return FUNNEL_OK;
    json_refuse_at(fault, base, "metadata", "has %zu bytes; %d are allowed", size, METADATA_MAX_BYTES);
    return FUNNEL_TOO_LARGE;
}

/* The members of a submission's or a group's metadata that the daemon itself reads (server/store/labels.h). */
static const char *const label_names[] = { "run", "step", "policy_version" };

/* The labels of metadata (object or NULL) alone. Given; NULL: no memory. */
static json_t *
labels_of(json_t *metadata)
{
    json_t *out = json_object();

    for (size_t i = 0; out && i < ARRAY_LEN(label_names); i++) {
        json_t *value = json_object_get(metadata, label_names[i]);
        if (value)
            json_object_set(out, label_names[i], value);
    }
    return out;
}

/* Why /v1/runs/{run} could not name this run; NULL: it can. Clients take "/." and "/.." out of an address (RFC 3986). */
static const char *
wrong_run(const char *run)
{
    if (strcmp(run, ".") == 0 || strcmp(run, "..") == 0)
        return "must not be . or .., which an address cannot have";
    for (; *run; run++)
        if ((unsigned char)*run < ' ' || *run == 0x7f)
            return "must not contain control characters";
    return NULL;
}

static enum funnel_refusal
check_labels(json_t *metadata, const char *base, struct json_fault *fault)
{
    AUTO_JSON json_t *labels = labels_of(metadata);
    const char *run = NULL, *version = NULL;
    int64_t step = 0;
    char pointer[JSON_POINTER_SIZE];
    const struct json_field fields[] = {
        { "run", JSON_WANT_STRING, &run, false, 1, LABEL_MAX_CHARS },
        { "step", JSON_WANT_INT, &step, false, 0, LABEL_STEP_MAX },
        { "policy_version", JSON_WANT_STRING, &version, false, 1, LABEL_MAX_CHARS },
    };

    snprintf(pointer, sizeof(pointer), "%.100s/metadata", base);
    if (!labels)
        return FUNNEL_UNAVAILABLE;
    if (json_read(labels, pointer, fields, ARRAY_LEN(fields), fault) != 0)
        return FUNNEL_BAD;
    const char *wrong = run ? wrong_run(run) : NULL;
    if (!wrong)
        return check_metadata(metadata, base, fault);
    return BAD(json_refuse_at(fault, base, "metadata/run", "%s", wrong));
}

static int
hash_identity(const char *entry, const char *source_hash, bool dynamic_shapes, json_t *cases,
              char out[HASH_TEXT_SIZE])
{
    json_hash(json_pack("{s:s?, s:s, s:b, s:O?}", "entry_point", entry, "reference", source_hash,
                        "dynamic_shapes", (int)dynamic_shapes, "cases", cases),
              out);
    return *out ? 0 : ERR_NOMEM;
}

static bool
is_usual(const char *entry)
{
    return !entry || strcmp(entry, USUAL_ENTRY) == 0;
}

int
task_identity(const char *entry, const char *reference, size_t size, bool dynamic_shapes, json_t *cases,
              char out[HASH_TEXT_SIZE])
{
    char source[HASH_TEXT_SIZE];

    hash_text(reference, size, source);
    return hash_identity(is_usual(entry) ? NULL : entry, source, dynamic_shapes, cases, out);
}

static int
make_task_id(struct task_request *r)
{
    const char *entry = is_usual(r->entry) ? NULL : r->entry;
    char source[HASH_TEXT_SIZE];

    hash_text(json_string_value(r->reference), json_string_length(r->reference), source);
    int rc = hash_identity(entry, source, r->dynamic_shapes, r->cases, r->id);
    return rc == 0 ? hash_identity(entry ? NULL : USUAL_ENTRY, source, r->dynamic_shapes, r->cases, r->twin)
                   : rc;
}

/* {"name", "overrides": {size: integer >= 1}}; the reference's own process checks that the size exists. */
static int
check_case(json_t *item, const char *pointer, struct json_fault *fault)
{
    const char *name = NULL, *size;
    json_t *overrides = NULL, *value;
    const struct json_field fields[] = {
        { "name", JSON_WANT_STRING, &name, true, 1, NAME_MAX_CHARS },
        { "overrides", JSON_WANT_OBJECT, &overrides, true, 0, 0 },
    };

    if (json_read(item, pointer, fields, ARRAY_LEN(fields), fault) != 0)
        return ERR_INPUT;
    json_object_foreach(overrides, size, value)
    {
        char key[64];
        snprintf(key, sizeof(key), "overrides/%.40s", size);
        if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > INT32_MAX)
            return json_refuse_at(fault, pointer, key, "must be an integer from 1 to %d", INT32_MAX);
    }
    return 0;
}

static enum funnel_refusal
check_cases(json_t *cases, const char *base, struct json_fault *fault)
{
    char pointer[JSON_POINTER_SIZE];
    json_t *item;
    size_t i;

    if (json_array_size(cases) > CASES_MAX)
        return BAD(json_refuse_at(fault, base, "cases", "has %zu cases; %d are allowed",
                                  json_array_size(cases), CASES_MAX));
    json_array_foreach(cases, i, item)
    {
        snprintf(pointer, sizeof(pointer), "%.80s/cases/%zu", base, i);
        if (check_case(item, pointer, fault) != 0)
            return FUNNEL_BAD;
    }
    return FUNNEL_OK;
}

/* is_posted: by POST /v1/tasks, where it has a name and a client. source_key: "reference" there, "source" inline. */
static enum funnel_refusal
read_task(json_t *body, const char *base, const char *source_key, bool is_posted, struct task_request *out,
          struct json_fault *fault)
{
    const struct json_field fields[] = {
        { "name", JSON_WANT_STRING, &out->name, is_posted, 1, NAME_MAX_CHARS },
        { source_key, JSON_WANT_TEXT, &out->reference, true, 0, 0 },
        { "entry_point", JSON_WANT_STRING, &out->entry, false, 1, ENTRY_MAX_CHARS },
        { "level", JSON_WANT_INT, &out->level, false, 0, 1000 },
        { "dynamic_shapes", JSON_WANT_BOOL, &out->dynamic_shapes, false, 0, 0 },
        { "cases", JSON_WANT_ARRAY, &out->cases, false, 0, 0 },
        { "metadata", JSON_WANT_OBJECT, &out->metadata, false, 0, 0 },
        { "client", JSON_WANT_STRING, &out->client, false, 1, NAME_MAX_CHARS }, /* last: not inline */
    };

    if (json_read(body, base, fields, ARRAY_LEN(fields) - !is_posted, fault) != 0)
        return FUNNEL_BAD;
    enum funnel_refusal refusal = check_size(out->reference, REQUEST_SOURCE_MAX, base, source_key, fault);
    if (refusal == FUNNEL_OK)
        refusal = check_metadata(out->metadata, base, fault);
    if (refusal == FUNNEL_OK)
        refusal = check_cases(out->cases, base, fault);
    if (refusal == FUNNEL_OK && make_task_id(out) != 0)
        refusal = FUNNEL_UNAVAILABLE;
    return refusal;
}

enum funnel_refusal
task_request_read(json_t *body, struct task_request *out, struct json_fault *fault)
{
    *out = (struct task_request){ 0 };
    return read_task(body, "", "reference", true, out, fault);
}

enum funnel_refusal
task_name_read(json_t *body, const char **name, struct json_fault *fault)
{
    const struct json_field fields[] = { { "name", JSON_WANT_STRING, name, true, 1, NAME_MAX_CHARS } };

    *name = NULL;
    return json_read(body, "", fields, ARRAY_LEN(fields), fault) == 0 ? FUNNEL_OK : FUNNEL_BAD;
}

/* An inline reference: the source itself, or an object with the keys of a task. */
static enum funnel_refusal
read_inline(json_t *value, struct task_request *out, struct json_fault *fault)
{
    if (!json_is_string(value) && !json_is_object(value))
        return BAD(json_refuse(fault, "/reference", "must be a string or an object"));
    if (json_is_object(value))
        return read_task(value, "/reference", "source", false, out, fault);
    out->reference = value;
    enum funnel_refusal refusal = check_size(value, REQUEST_SOURCE_MAX, "", "reference", fault);
    if (refusal == FUNNEL_OK && make_task_id(out) != 0)
        refusal = FUNNEL_UNAVAILABLE;
    return refusal;
}

/* --- candidates --- */

/* The settings that all candidates of one request share. */
struct common {
    struct policy policy;
    struct reward_spec reward;
    const char *entry, *until, *priority, *gpu;
    json_t *metadata;
    bool cache; /* an identical one's verdict will do */
    char seed[17];
};

/* The keys of a submission and of a group alike. */
#define COMMON_FIELDS(c, out, policy, reward, reference)                          \
    { "entry_point", JSON_WANT_STRING, &(c).entry, false, 1, ENTRY_MAX_CHARS },   \
        { "policy", JSON_WANT_ANY, &(policy), false, 0, 0 },                      \
        { "reward", JSON_WANT_ANY, &(reward), false, 0, 0 },                      \
        { "until", JSON_WANT_STRING, &(c).until, false, 0, 0 },                   \
        { "gpu", JSON_WANT_STRING, &(c).gpu, false, 1, STORE_GPU_SIZE - 1 },      \
        { "priority", JSON_WANT_STRING, &(c).priority, false, 0, 0 },             \
        { "client", JSON_WANT_STRING, &(out)->client, false, 1, NAME_MAX_CHARS }, \
        { "metadata", JSON_WANT_OBJECT, &(c).metadata, false, 0, 0 },             \
        { "cache", JSON_WANT_BOOL, &(c).cache, false, 0, 0 },                     \
        { "task", JSON_WANT_STRING, &(out)->task, false, 1, NAME_MAX_CHARS },     \
    {                                                                             \
        "reference", JSON_WANT_ANY, &(reference), false, 0, 0                     \
    }

/* How the code was found in a model's answer. */
struct extraction {
    const char *fault; /* why there is none; NULL: there is */
    bool is_guess;     /* the whole text was taken for code, which counts only if it parses */
};

/* No more than the store keeps of it, and no partial character. */
static void
keep_answer(const char *text, size_t size, struct candidate_request *out)
{
    out->answer = text;
    out->answer_size = size > REQUEST_ANSWER_MAX ? utf8_cut(text, REQUEST_ANSWER_MAX) : size;
}

/* The code of a candidate, and what there is to say about how it was found. */
static enum funnel_refusal
read_source(json_t *candidate, json_t *completion, const char *entry, const char *base,
            struct candidate_request *out, json_t *flags, struct extraction *extraction,
            struct json_fault *fault)
{
    struct extract found;

    if (!candidate == !completion)
        return BAD(json_refuse(fault, base, "must have either \"candidate\" or \"completion\""));
    if (candidate) {
        enum funnel_refusal refusal = check_size(candidate, REQUEST_SOURCE_MAX, base, "candidate", fault);
        if (refusal == FUNNEL_OK &&
            buffer_append(&out->source, json_string_value(candidate), json_string_length(candidate)) != 0)
            refusal = FUNNEL_UNAVAILABLE;
        return refusal;
    }
    size_t size = json_string_length(completion);
    keep_answer(json_string_value(completion), size, out);
    if (extract_code(json_string_value(completion), size, entry, &found) != 0) {
        extraction->fault = size > EXTRACT_MAX ? "no code of at most 1 MiB was found in the answer"
                                               : "no code was found in the answer";
        return FUNNEL_OK;
    }
    if (found.is_unended)
        json_array_append_new(flags, json_string("unended_reasoning"));
    if (found.is_unended && found.from == EXTRACT_TEXT) {
        extraction->fault = "the reasoning never ended, and no code block is in it";
        return FUNNEL_OK;
    }
    extraction->is_guess = found.from == EXTRACT_TEXT;
    if (found.is_truncated)
        json_array_append_new(flags, json_string("truncated"));
    return extract_append(&found, &out->source) == 0 ? FUNNEL_OK : FUNNEL_UNAVAILABLE;
}

static enum funnel_refusal
write_request(struct candidate_request *out, const struct common *c, const char *entry, json_t *metadata,
              json_t *flags, const struct extraction *extraction)
{
    out->request = json_pack("{s:s, s:o, s:o, s:o, s:s, s:O?, s:O, s:o, s:b, s:b, s:s*}", "entry_point",
                             entry, "policy", policy_json(&c->policy), "reward", reward_spec_json(&c->reward),
                             "until", text_or_null(c->until), "seed", c->seed, "metadata", metadata, "flags",
                             flags, "extract_fault", text_or_null(extraction->fault), "is_guess",
                             (int)extraction->is_guess, "cache", (int)c->cache, "gpu", c->gpu);
    out->document = out->request ? json_dumps(out->request, JSON_COMPACT) : NULL;
    return out->document ? FUNNEL_OK : FUNNEL_UNAVAILABLE;
}

/* A candidate's own metadata, with the labels of its group. Given; NULL: there is none, or no memory. */
static json_t *
merged(json_t *own, json_t *common)
{
    if (!own || !common || own == common)
        return json_incref(own ? own : common);
    AUTO_JSON json_t *labels = labels_of(common);
    json_t *out = json_copy(own);
    json_object_update_missing(out, labels);
    return out;
}

static enum funnel_refusal
read_candidate(json_t *candidate, json_t *completion, const char *entry, json_t *metadata, const char *base,
               const struct common *c, struct candidate_request *out, struct json_fault *fault)
{
    AUTO_JSON json_t *flags = json_array();
    struct extraction extraction = { 0 };

    if (!entry)
        entry = c->entry ? c->entry : "ModelNew";
    enum funnel_refusal refusal = check_labels(metadata, base, fault);
    if (refusal == FUNNEL_OK)
        refusal = read_source(candidate, completion, entry, base, out, flags, &extraction, fault);
    if (refusal != FUNNEL_OK)
        return refusal;
    AUTO_JSON json_t *all = merged(metadata, c->metadata);
    return write_request(out, c, entry, all, flags, &extraction);
}

/* How it is judged: base is where the three keys stand. */
static enum funnel_refusal
read_rules(struct common *c, json_t *policy, json_t *reward, const char *base, struct json_fault *fault)
{
    const struct reward_spec standard = REWARD_SPEC_DEFAULT;
    char pointer[JSON_POINTER_SIZE];

    c->reward = standard;
    snprintf(pointer, sizeof(pointer), "%s/policy", base);
    if (policy_read(policy, pointer, &c->policy, fault) != 0)
        return FUNNEL_BAD;
    snprintf(pointer, sizeof(pointer), "%s/reward", base);
    if (reward && reward_spec_read(reward, pointer, &c->reward, fault) != 0)
        return FUNNEL_BAD;
    if (c->until && stage_find(c->until) < 0)
        return BAD(json_refuse_at(fault, base, "until", "is one of ast, compile, tiny, full, timing"));
    return FUNNEL_OK;
}

/* Checks what the fields' table cannot. */
static enum funnel_refusal
finish_common(struct common *c, json_t *policy, json_t *reward, json_t *reference, struct submit_request *out,
              struct json_fault *fault)
{
    if (read_rules(c, policy, reward, "", fault) != FUNNEL_OK)
        return FUNNEL_BAD;
    if (c->gpu && strlen(c->gpu) >= STORE_GPU_SIZE)
        return BAD(json_refuse(fault, "/gpu", "has more than %d bytes", STORE_GPU_SIZE - 1));
    out->gpu = c->gpu;
    if (c->priority && strcmp(c->priority, "interactive") != 0 && strcmp(c->priority, "batch") != 0)
        return BAD(json_refuse(fault, "/priority", "is one of interactive, batch"));
    if (c->priority)
        out->priority = strcmp(c->priority, "batch") == 0 ? PRIORITY_BATCH : PRIORITY_INTERACTIVE;
    if (!out->task == !reference)
        return BAD(json_refuse(fault, "", "must have either \"task\" or \"reference\""));
    out->is_inline = reference != NULL;
    snprintf(c->seed, sizeof(c->seed), "%016llx", (unsigned long long)random_u64());
    return reference ? read_inline(reference, &out->reference, fault) : FUNNEL_OK;
}

/* A kind alone, or an object. */
static json_t *
reward_object(json_t *reward)
{
    return json_is_string(reward) ? json_pack("{s:O}", "kind", reward) : json_incref(reward);
}

enum funnel_refusal
submit_request_read(json_t *body, struct submit_request *out, struct json_fault *fault)
{
    json_t *policy = NULL, *reward = NULL, *reference = NULL, *candidate = NULL, *completion = NULL;
    struct common c = { .cache = true };

    *out = (struct submit_request){ .priority = PRIORITY_INTERACTIVE };
    const struct json_field fields[] = {
        { "candidate", JSON_WANT_TEXT, &candidate, false, 0, 0 },
        { "completion", JSON_WANT_TEXT, &completion, false, 0, 0 },
        COMMON_FIELDS(c, out, policy, reward, reference),
    };
    if (json_read(body, "", fields, ARRAY_LEN(fields), fault) != 0)
        return FUNNEL_BAD;
    AUTO_JSON json_t *reward_spec = reward_object(reward);
    enum funnel_refusal refusal = finish_common(&c, policy, reward_spec, reference, out, fault);
    if (refusal != FUNNEL_OK)
        return refusal;
    if (reward_needs_rank(&c.reward))
        return BAD(json_refuse(fault, "/reward", "needs a rank, which only a group has: post /v1/groups"));
    out->candidates = calloc(1, sizeof(*out->candidates));
    if (!out->candidates)
        return FUNNEL_UNAVAILABLE;
    out->n = 1;
    return read_candidate(candidate, completion, NULL, c.metadata, "", &c, &out->candidates[0], fault);
}

static enum funnel_refusal
read_item(json_t *item, size_t i, const struct common *c, struct candidate_request *out,
          struct json_fault *fault)
{
    json_t *candidate = NULL, *completion = NULL, *metadata = NULL;
    const char *entry = NULL;
    char base[48];
    const struct json_field fields[] = {
        { "candidate", JSON_WANT_TEXT, &candidate, false, 0, 0 },
        { "completion", JSON_WANT_TEXT, &completion, false, 0, 0 },
        { "entry_point", JSON_WANT_STRING, &entry, false, 1, ENTRY_MAX_CHARS },
        { "metadata", JSON_WANT_OBJECT, &metadata, false, 0, 0 },
    };

    snprintf(base, sizeof(base), "/candidates/%zu", i);
    if (json_read(item, base, fields, ARRAY_LEN(fields), fault) != 0)
        return FUNNEL_BAD;
    return read_candidate(candidate, completion, entry, metadata, base, c, out, fault);
}

static enum funnel_refusal
read_items(json_t *items, const struct common *c, struct submit_request *out, struct json_fault *fault)
{
    enum funnel_refusal refusal = FUNNEL_OK;
    json_t *item;
    size_t i;

    if (json_array_size(items) < 1 || json_array_size(items) > GROUP_MAX) {
        json_refuse(fault, "/candidates", "has %zu; 1 to %d are allowed", json_array_size(items), GROUP_MAX);
        return FUNNEL_BAD;
    }
    out->candidates = calloc(json_array_size(items), sizeof(*out->candidates));
    if (!out->candidates)
        return FUNNEL_UNAVAILABLE;
    json_array_foreach(items, i, item)
    {
        out->n = i + 1;
        refusal = read_item(item, i, c, &out->candidates[i], fault);
        if (refusal != FUNNEL_OK)
            break;
    }
    return refusal;
}

/* When a group is decided. */
static enum funnel_refusal
read_stop(json_t *stop, const struct common *c, int64_t *correct, struct json_fault *fault)
{
    const struct json_field fields[] = { { "correct", JSON_WANT_INT, correct, true, 1, GROUP_MAX } };

    if (json_read(stop, "/stop", fields, ARRAY_LEN(fields), fault) != 0)
        return FUNNEL_BAD;
    if (c->until && stage_find(c->until) < STAGE_FULL)
        return BAD(json_refuse(fault, "/stop",
                               "nothing is found correct before \"full\", and until is \"%.16s\"", c->until));
    return FUNNEL_OK;
}

enum funnel_refusal
group_request_read(json_t *body, struct submit_request *out, struct json_fault *fault)
{
    json_t *policy = NULL, *reward = NULL, *reference = NULL, *items = NULL, *stop = NULL;
    const char *notify_url = NULL;
    int64_t time_top_k = 0, stop_correct = 0;
    double deadline_s = 0;
    struct common c = { .cache = true };

    *out = (struct submit_request){ .priority = PRIORITY_BATCH };
    const struct json_field fields[] = {
        { "candidates", JSON_WANT_ARRAY, &items, true, 0, 0 },
        COMMON_FIELDS(c, out, policy, reward, reference),
        { "time_top_k", JSON_WANT_INT, &time_top_k, false, 1, GROUP_MAX },
        { "deadline_s", JSON_WANT_NUMBER, &deadline_s, false, 0.001, DEADLINE_MAX_S },
        { "stop", JSON_WANT_OBJECT, &stop, false, 0, 0 },
        { "notify_url", JSON_WANT_STRING, &notify_url, false, 1, NOTIFY_URL_MAX },
    };
    if (json_read(body, "", fields, ARRAY_LEN(fields), fault) != 0)
        return FUNNEL_BAD;
    AUTO_JSON json_t *reward_spec = reward_object(reward);
    enum funnel_refusal refusal = finish_common(&c, policy, reward_spec, reference, out, fault);
    if (refusal == FUNNEL_OK)
        refusal = check_labels(c.metadata, "", fault);
    if (refusal == FUNNEL_OK && stop)
        refusal = read_stop(stop, &c, &stop_correct, fault);
    if (refusal == FUNNEL_OK)
        refusal = read_items(items, &c, out, fault);
    if (refusal == FUNNEL_OK) {
        AUTO_JSON json_t *document =
            json_pack("{s:o, s:O?, s:o, s:O?, s:o, s:o, s:s, s:s*}", "time_top_k",
                      time_top_k > 0 ? json_integer(time_top_k) : json_null(), "stop", stop, "deadline_s",
                      deadline_s > 0 ? json_real(deadline_s) : json_null(), "metadata", c.metadata, "policy",
                      policy_json(&c.policy), "reward", reward_spec_json(&c.reward), "seed", c.seed,
                      "notify_url", notify_url);
        out->document = document ? json_dumps(document, JSON_COMPACT) : NULL;
        out->keeps_together = time_top_k > 0 || stop;
        refusal = out->document ? FUNNEL_OK : FUNNEL_UNAVAILABLE;
    }
    return refusal;
}

/* --- replays --- */

/* A bundle's record of how its candidate was judged. */
struct replay {
    struct common common;
    const char *seed, *extract_fault;
    json_t *policy, *reward, *flags;
    bool is_guess;
};

static enum funnel_refusal
read_replay_rules(json_t *request, struct replay *r, struct json_fault *fault)
{
    const struct json_field fields[] = {
        { "entry_point", JSON_WANT_STRING, &r->common.entry, true, 1, ENTRY_MAX_CHARS },
        { "policy", JSON_WANT_OBJECT, &r->policy, true, 0, 0 },
        { "reward", JSON_WANT_OBJECT, &r->reward, true, 0, 0 },
        { "until", JSON_WANT_STRING, &r->common.until, false, 0, 0 },
        { "seed", JSON_WANT_STRING, &r->seed, true, 16, 16 },
        { "flags", JSON_WANT_ARRAY, &r->flags, false, 0, 0 },
        { "extract_fault", JSON_WANT_STRING, &r->extract_fault, false, 1, NAME_MAX_CHARS },
        { "is_guess", JSON_WANT_BOOL, &r->is_guess, false, 0, 0 },
    };
    json_t *flag;
    size_t i;

    if (json_read(request, "/request", fields, ARRAY_LEN(fields), fault) != 0)
        return FUNNEL_BAD;
    if (strspn(r->seed, "0123456789abcdef") != 16)
        return BAD(json_refuse(fault, "/request/seed", "is 16 hexadecimal digits"));
    json_array_foreach(r->flags, i, flag)
    {
        if (json_is_string(flag) && i < REPLAY_FLAGS_MAX)
            continue;
        return BAD(json_refuse(fault, "/request/flags", "is a list of at most %d words", REPLAY_FLAGS_MAX));
    }
    memcpy(r->common.seed, r->seed, sizeof(r->common.seed));
    return read_rules(&r->common, r->policy, r->reward, "/request", fault);
}

/* The candidate as it was judged before; its verdict is not reused, and names the original. */
static enum funnel_refusal
make_replay(const struct replay *r, json_t *candidate, json_t *verdict, struct candidate_request *out)
{
    const struct extraction extraction = { r->extract_fault, r->is_guess };
    const char *id = json_string_value(json_object_get(verdict, "id"));
    AUTO_JSON json_t *metadata = json_pack("{s:s?}", "replay_of", id);
    AUTO_JSON json_t *flags = r->flags ? json_copy(r->flags) : json_array();

    json_array_append_new(flags, json_string("replay"));
    if (buffer_append(&out->source, json_string_value(candidate), json_string_length(candidate)) != 0)
        return FUNNEL_UNAVAILABLE;
    return write_request(out, &r->common, r->common.entry, metadata, flags, &extraction);
}

enum funnel_refusal
replay_request_read(json_t *body, struct submit_request *out, struct json_fault *fault)
{
    json_t *task = NULL, *request = NULL, *candidate = NULL, *verdict = NULL;
    const char *format = NULL, *task_id = NULL, *made = NULL, *by = NULL;
    struct replay r = { .common = { .cache = false } };
    int64_t version = 0;

    *out = (struct submit_request){ .priority = PRIORITY_INTERACTIVE, .is_inline = true };
    const struct json_field fields[] = {
        { "format", JSON_WANT_STRING, &format, true, 0, 0 },
        { "version", JSON_WANT_INT, &version, true, BUNDLE_VERSION, BUNDLE_VERSION },
        { "made", JSON_WANT_STRING, &made, false, 0, 0 },
        { "by", JSON_WANT_STRING, &by, false, 0, 0 },
        { "client", JSON_WANT_STRING, &out->client, false, 1, NAME_MAX_CHARS },
        { "task_id", JSON_WANT_STRING, &task_id, true, 1, NAME_MAX_CHARS },
        { "task", JSON_WANT_OBJECT, &task, true, 0, 0 },
        { "candidate", JSON_WANT_TEXT, &candidate, true, 0, 0 },
        { "request", JSON_WANT_OBJECT, &request, true, 0, 0 },
        { "verdict", JSON_WANT_OBJECT, &verdict, false, 0, 0 },
    };
    if (json_read(body, "", fields, ARRAY_LEN(fields), fault) != 0)
        return FUNNEL_BAD;
    if (strcmp(format, BUNDLE_FORMAT) != 0)
        return BAD(json_refuse(fault, "/format", "is \"%s\"", BUNDLE_FORMAT));
    enum funnel_refusal refusal = check_size(candidate, REQUEST_SOURCE_MAX, "", "candidate", fault);
    if (refusal == FUNNEL_OK)
        refusal = read_task(task, "/task", "reference", false, &out->reference, fault);
    if (refusal == FUNNEL_OK && strcmp(out->reference.id, task_id) != 0 &&
        !(is_usual(out->reference.entry) && strcmp(out->reference.twin, task_id) == 0)) {
        json_refuse(fault, "/task_id", "is not what the task of the bundle makes: %.80s", out->reference.id);
        refusal = FUNNEL_BAD;
    }
    if (refusal == FUNNEL_OK)
        refusal = read_replay_rules(request, &r, fault);
    if (refusal != FUNNEL_OK)
        return refusal;
    out->candidates = calloc(1, sizeof(*out->candidates));
    if (!out->candidates)
        return FUNNEL_UNAVAILABLE;
    out->n = 1;
    return make_replay(&r, candidate, verdict, &out->candidates[0]);
}

void
submit_request_release(struct submit_request *r)
{
    for (size_t i = 0; i < r->n; i++) {
        buffer_release(&r->candidates[i].source);
        json_decref(r->candidates[i].request);
        free(r->candidates[i].document);
    }
    free(r->candidates);
    free(r->document);
    *r = (struct submit_request){ 0 };
}
