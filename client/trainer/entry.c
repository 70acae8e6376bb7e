#include "client/trainer/entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/auto.h"
#include "common/utf8.h"

enum { SOURCE_MAX = 1024 * 1024 };

static const char *const sources[] = { "python_code", "pytorch_code", "reference", "code" };
static const char *const answers[] = { "triton_code", "output" };

void
entry_release(struct entry *e)
{
    json_decref(e->columns);
    json_decref(e->tree);
    free(e->license);
    *e = (struct entry){ 0 };
}

void
entry_drop(struct entry *e, const char *reason, const char *detail)
{
    e->reason = reason;
    snprintf(e->detail, sizeof(e->detail), "%s", detail ? detail : "");
    utf8_clean(e->detail); /* it may be cut inside a character */
}

void
entry_is_broken(struct entry *e, size_t number, const char *fault)
{
    *e = (struct entry){ .number = number };
    entry_drop(e, "not_json", fault);
}

/* --- the columns --- */

static const char *
text_in(json_t *row, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_is_string(json_object_get(row, names[i])))
            return json_string_value(json_object_get(row, names[i]));
    return NULL;
}

/* The first licence that is allowed, given; *has_any: the row names one at all. */
static char *
license_of(const char *allowed, json_t *row, bool *has_any)
{
    json_t *named = json_object_get(row, "licenses"), *one;
    size_t i;
    AUTO_JSON json_t *list = json_is_array(named) ? json_incref(named) : json_array();

    if (json_is_string(named))
        json_array_append(list, named);
    if (json_is_string(json_object_get(row, "license")))
        json_array_append(list, json_object_get(row, "license"));
    *has_any = json_array_size(list) > 0;
    json_array_foreach(list, i, one)
    {
        const char *text = json_string_value(one);
        size_t size = text ? strlen(text) : 0;
        for (const char *at = allowed; size && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
            if (strncasecmp(at, text, size) == 0 && (at[size] == ',' || !at[size]))
                return strdup(text);
    }
    return NULL;
}

static void
name_entry(struct entry *e, const char *data_set, json_t *row)
{
    static const char *const names[] = { "name", "id", "uuid" };
    const char *name = text_in(row, names, ARRAY_LEN(names));
    json_t *uuid = json_object_get(row, "uuid");

    if (name && name[0])
        snprintf(e->name, sizeof(e->name), "%.120s", name);
    else if (json_is_integer(uuid))
        snprintf(e->name, sizeof(e->name), "%s/%lld", data_set, (long long)json_integer_value(uuid));
    else
        snprintf(e->name, sizeof(e->name), "%.100s/row%zu", data_set, e->number);
    utf8_clean(e->name);
}

static void
keep_column(json_t *columns, json_t *row, const char *name)
{
    if (json_is_string(json_object_get(row, name)))
        json_object_set(columns, name, json_object_get(row, name));
}

/* A row may be 16 MiB, and several wait: what no later step asks for is let go. */
static void
keep_columns(struct entry *e, json_t *row)
{
    e->columns = json_object();
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        keep_column(e->columns, row, sources[i]);
    for (size_t i = 0; i < ARRAY_LEN(answers); i++)
        keep_column(e->columns, row, answers[i]);
    keep_column(e->columns, row, "entry_point");
}

/* The column that holds something else than a text or nothing, or NULL. */
static const char *
wrong_column(json_t *row)
{
    static const char *const texts[] = { "entry_point", "triton_code" };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_t *value = json_object_get(row, texts[i]);
        if (value && !json_is_null(value) && !json_is_string(value))
            return texts[i];
    }
    return NULL;
}

static void
read_columns(struct entry *e, const struct prepare_options *o, json_t *row)
{
    bool names_license;

    if (!json_is_object(row)) {
        entry_drop(e, "not_an_object", NULL);
        return;
    }
    name_entry(e, o->source, row);
    e->source = text_in(row, sources, ARRAY_LEN(sources));
    e->answer = text_in(row, answers, ARRAY_LEN(answers));
    if (wrong_column(row)) {
        entry_drop(e, "column_type", wrong_column(row));
        return;
    }
    if (!e->source || !e->source[0]) {
        entry_drop(e, "no_reference", NULL);
        return;
    }
    if (strlen(e->source) > SOURCE_MAX || (e->answer && strlen(e->answer) > SOURCE_MAX)) {
        entry_drop(e, "too_long", NULL);
        return;
    }
    e->entry_point = json_string_value(json_object_get(row, "entry_point"));
    e->entry_point = e->entry_point ? e->entry_point : "Model";
    e->license = license_of(o->licenses, row, &names_license);
    if (names_license && !e->license) {
        entry_drop(e, "license", NULL);
        return;
    }
    e->level = (int)json_integer_value(json_object_get(row, "level"));
    e->problem = (int)json_integer_value(json_object_get(row, "problem_id"));
    e->is_level_given = e->level >= 1 && e->level <= 4;
    keep_columns(e, row);
}

/* --- the syntax tree --- */

static int
level_of(int operations)
{
    return operations <= 1 ? 1 : operations <= 8 ? 2 : 3;
}

static int
read_tree(struct entry *e, const struct prepare_options *o, struct helper *h, struct error *err)
{
    AUTO_JSON json_t *asked = json_pack("{s:s, s:s, s:s?}", "source", e->source, "entry_point",
                                        e->entry_point, "answer", e->answer);
    int rc = helper_check(h, asked, &e->tree, err);

    if (rc == ERR_PROTOCOL)
        entry_drop(e, "syntax", err->text);
    if (rc != 0)
        return rc == ERR_PROTOCOL ? 0 : rc;
    json_t *fault = json_object_get(e->tree, "fault");
    if (fault) {
        const char *reason = json_string_value(json_array_get(fault, 0));
        entry_drop(e, reason ? reason : "syntax", json_string_value(json_array_get(fault, 1)));
        return 0;
    }
    const char *digest = json_string_value(json_object_get(e->tree, "digest"));
    snprintf(e->digest, sizeof(e->digest), "%s", digest ? digest : "");
    e->operations = (int)json_integer_value(json_object_get(e->tree, "operations"));
    if (!e->is_level_given && strcmp(o->labelled_by, "heuristic") == 0)
        e->level = (int)json_integer_value(json_object_get(e->tree, "guessed"));
    else if (!e->is_level_given)
        e->level = level_of(e->operations);
    const char *rewritten = json_string_value(json_object_get(e->tree, "source"));
    if (rewritten) { /* it was not in the form of a task */
        e->source = rewritten;
        e->entry_point = "Model";
    }
    if (json_integer_value(json_object_get(e->tree, "lines")) > o->lines_most)
        entry_drop(e, "too_long", NULL);
    return 0;
}

int
entry_read(struct entry *e, const struct prepare_options *o, struct helper *h, size_t number, json_t *row,
           struct error *err)
{
    *e = (struct entry){ .number = number };
    read_columns(e, o, row);
    return e->reason ? 0 : read_tree(e, o, h, err);
}

int
entry_of_task(struct entry *e, const struct prepare_options *o, struct helper *h, const char *source,
              const char *entry_point, struct error *err)
{
    *e = (struct entry){ .source = source, .entry_point = entry_point };
    return read_tree(e, o, h, err);
}

/* --- afterwards --- */

bool
entry_has_answer(const struct entry *e, const char **reason, const char **detail)
{
    json_t *fault = json_object_get(e->tree, "answer");

    *reason = json_string_value(json_array_get(fault, 0));
    *detail = json_string_value(json_array_get(fault, 1));
    return e->answer && e->answer[0] && !json_is_array(fault);
}

void
entry_relabel(struct entry *e, const struct prepare_options *o, json_t *operations)
{
    if (!json_is_integer(operations) || strcmp(o->labelled_by, "operations") != 0)
        return;
    e->operations = (int)json_integer_value(operations);
    e->is_traced = true;
    if (!e->is_level_given)
        e->level = level_of(e->operations);
}

const char *
entry_labelled_by(const struct entry *e, const struct prepare_options *o)
{
    if (e->is_level_given)
        return "given";
    if (strcmp(o->labelled_by, "heuristic") == 0)
        return "heuristic";
    return e->is_traced ? "traced_graph" : "syntax_tree";
}
