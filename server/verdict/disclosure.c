#include "server/verdict/disclosure.h"

#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/json.h"

/*
 * Every field of the document has a row: one without a row is shown to
 * readers and admins alone, and fails a test.
 */
enum told {
    TOLD_ALWAYS, /* the submitter's own input, and the outcome itself */
    TOLD_HONEST, /* of a verdict that is not a refusal */
    /*
     * The detector's own record. A submitter chooses the policy, and one that forbids nothing would show for every
     * cheat what the strict one sees of it.
     */
    TOLD_NEVER,
};

static const struct {
    const char *field;
    enum told told;
} fields[] = {
    { "id", TOLD_ALWAYS },           { "group", TOLD_ALWAYS },        { "group_index", TOLD_ALWAYS },
    { "task", TOLD_ALWAYS },         { "task_name", TOLD_ALWAYS },    { "state", TOLD_ALWAYS },
    { "class", TOLD_ALWAYS },        { "reward", TOLD_ALWAYS },       { "reward_spec", TOLD_ALWAYS },
    { "reward_parts", TOLD_ALWAYS }, { "policy", TOLD_ALWAYS },       { "policy_on", TOLD_ALWAYS },
    { "until", TOLD_ALWAYS },        { "entry_point", TOLD_ALWAYS },  { "source", TOLD_ALWAYS },
    { "client", TOLD_ALWAYS },       { "priority", TOLD_ALWAYS },     { "metadata", TOLD_ALWAYS },
    { "cache", TOLD_ALWAYS },        { "cached_from", TOLD_ALWAYS },  { "created", TOLD_ALWAYS },
    { "finished", TOLD_ALWAYS },     { "feedback", TOLD_HONEST }, /* a refusal has one of its own */
    { "stage", TOLD_HONEST },        { "passed_stage", TOLD_HONEST }, { "failed_at", TOLD_HONEST },
    { "rule", TOLD_HONEST },         { "flags", TOLD_HONEST }, /* and of those only some */
    { "generality", TOLD_HONEST },   { "components", TOLD_HONEST },   { "correctness", TOLD_HONEST },
    { "timing", TOLD_HONEST },       { "stages", TOLD_HONEST },       { "error", TOLD_HONEST },
    { "kernels", TOLD_HONEST },      { "env", TOLD_HONEST },          { "seed", TOLD_HONEST },
    { "attempts", TOLD_HONEST },     { "evidence", TOLD_NEVER },      { "cancel_reason", TOLD_ALWAYS },
    { "rerun", TOLD_HONEST },        { "plan", TOLD_HONEST },         { "sanitize", TOLD_HONEST },
};

/* Of the rules of class policy, those that a candidate cannot learn a way around from: what each must have. */
static const char *const open_rules[] = { "entry_class", "kernel_required", "kernel_reachable",
                                          "foreign_operator" };

/* Flags about the answer's form and about what could be compiled ahead. Others say what made a candidate suspect. */
static const char *const open_flags[] = { "truncated",   "unended_reasoning", "compile_deferred",
                                          "no_launch",   "autotune_bounded",  "launcher_not_built",
                                          "kernels_cut", "untraced" };

static bool
is_one_of(json_t *word, const char *const *words, size_t n)
{
    const char *text = json_string_value(word);

    for (size_t i = 0; text && i < n; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

bool
disclosure_is_refused(json_t *verdict)
{
    switch (class_info(class_find(json_string_value(json_object_get(verdict, "class"))))->disclosure) {
    case SHOWN:
        return false;
    case SHOWN_BY_RULE:
        return !is_one_of(json_object_get(verdict, "rule"), open_rules, ARRAY_LEN(open_rules));
    case HIDDEN:
        break;
    }
    return true;
}

bool
disclosure_is_classified(const char *field)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].field, field) == 0)
            return true;
    return false;
}

static json_t *
some_flags(json_t *flags)
{
    json_t *out = json_array(), *flag;
    size_t i;

    json_array_foreach(flags, i, flag) if (is_one_of(flag, open_flags, ARRAY_LEN(open_flags)))
        json_array_append(out, flag);
    return out;
}

static json_t *
feedback_of(json_t *verdict, bool is_refused)
{
    if (is_refused)
        return json_pack("{s:O, s:s}", "class", json_object_get(verdict, "class"), "text",
                         DISCLOSURE_REFUSED);
    if (text_is(verdict, "state", "cancelled"))
        return json_pack("{s:n, s:s}", "class", "text", "Cancelled before there was a verdict.");
    return json_null();
}

json_t *
disclosure_view(json_t *verdict)
{
    AUTO_JSON json_t *out = json_object();
    bool is_refused = disclosure_is_refused(verdict);
    bool is_open = text_is(verdict, "state", "done") && !is_refused;

    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        json_t *value = json_object_get(verdict, fields[i].field);
        if (!value)
            continue;
        bool is_told = fields[i].told == TOLD_ALWAYS || (fields[i].told == TOLD_HONEST && is_open);
        if (json_object_set(out, fields[i].field, is_told ? value : json_null()) != 0)
            return NULL;
    }
    if (is_open && json_object_get(out, "flags"))
        json_object_set_new(out, "flags", some_flags(json_object_get(verdict, "flags")));
    if (!is_open && json_object_get(out, "feedback"))
        json_object_set_new(out, "feedback", feedback_of(verdict, is_refused));
    return ptr_take(&out);
}
