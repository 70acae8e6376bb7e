#include "client/cli/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/table.h"
#include "client/cli/text.h"
#include "common/auto.h"
#include "common/buffer.h"

#define LABEL_WIDTH 16
#define CELLS_MAX 10

/* One row being put together: the cells share a life. */
struct cells {
    struct buffer text[CELLS_MAX];
    const char *view[CELLS_MAX];
};

static void
cells_release(struct cells *c)
{
    for (size_t i = 0; i < CELLS_MAX; i++)
        buffer_release(&c->text[i]);
}

#define AUTO_CELLS __attribute__((cleanup(cells_release)))

static void
add_row(struct table *t, struct cells *c)
{
    for (size_t i = 0; i < CELLS_MAX; i++)
        c->view[i] = c->text[i].data;
    table_row(t, c->view);
}

/* "label   text", further lines of the text below its first. */
void
view_label(const char *label, const char *text)
{
    printf("%-*s", LABEL_WIDTH, label);
    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        AUTO_FREE char *line = strndup(text, (size_t)(end - text));
        text_print(stdout, line ? line : "");
        if (!end[1]) {
            putchar('\n');
            return;
        }
        printf("\n%*s", LABEL_WIDTH, "");
    }
    text_print(stdout, text);
    putchar('\n');
}

static void
print_member(const json_t *object, const char *key, const char *label)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return;
    text_value(&text, value);
    view_label(label, text.data ? text.data : "");
}

/* --- one submission --- */

static void
print_stages(json_t *submission)
{
    static const char *const titles[] = { "STAGE", "OUTCOME", ">WAIT ms", ">RUN ms" };
    json_t *stages = json_object_get(submission, "stages"), *stage;
    size_t i;

    if (json_array_size(stages) == 0)
        return;
    putchar('\n');
    AUTO_TABLE struct table *t = table_new(titles, ARRAY_LEN(titles));
    json_array_foreach(stages, i, stage)
    {
        AUTO_CELLS struct cells c = { 0 };
        text_value(&c.text[0], json_object_get(stage, "stage"));
        text_value(&c.text[1], json_object_get(stage, "outcome"));
        text_number(&c.text[2], stage, "wait_ms", 1);
        text_number(&c.text[3], stage, "run_ms", 1);
        add_row(t, &c);
        if (text_is(stage, "outcome", "pass") || text_is(stage, "outcome", "fail"))
            table_mark(t, 1, text_is(stage, "outcome", "pass"));
    }
    table_print(t);
}

static void
print_reward(json_t *submission)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *spec = json_object_get(submission, "reward_spec");
    const char *kind = text_member(spec, "kind");

    if (!json_is_number(json_object_get(submission, "reward"))) {
        if (text_is(submission, "state", "done"))
            view_label("reward", "none: this says nothing about the candidate, leave the sample out");
        return;
    }
    text_number(&text, submission, "reward", 4);
    if (kind)
        buffer_printf(&text, "  (%s, version %lld)", kind,
                      (long long)json_integer_value(json_object_get(spec, "version")));
    view_label("reward", text.data);
}

static void
print_timing(json_t *submission)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *timing = json_object_get(submission, "timing"), *c = json_object_get(submission, "components");
    const char *outcome = text_member(timing, "outcome");

    if (!outcome)
        return;
    buffer_add(&text, outcome);
    if (json_is_string(json_object_get(timing, "why")))
        buffer_printf(&text, ": %s", text_member(timing, "why"));
    if (json_is_number(json_object_get(timing, "candidate_ms"))) {
        buffer_add(&text, "; reference ");
        text_number(&text, timing, "reference_ms", 4);
        buffer_add(&text, " ms, candidate ");
        text_number(&text, timing, "candidate_ms", 4);
        buffer_add(&text, " ms");
    }
    view_label("timing", text.data);
    buffer_clear(&text);
    if (!json_is_number(json_object_get(c, "speedup")))
        return;
    text_number(&text, c, "speedup", 3);
    buffer_add(&text, "  (95% interval ");
    text_number(&text, c, "speedup_lo", 3);
    buffer_add(&text, " to ");
    text_number(&text, c, "speedup_hi", 3);
    buffer_add(&text, ")");
    view_label("speedup", text.data);
}

/* "case original, output 0, index [3, 7]: expected 1.5, got 0; 12 of 4096 differ" */
static void
print_mismatch(json_t *submission)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *m = json_object_get(json_object_get(submission, "correctness"), "first_mismatch");
    static const struct {
        const char *before, *key;
    } parts[] = {
        { "case ", "case" },     { ", output ", "output" },
        { ", index ", "index" }, { ": expected ", "expected" },
        { ", got ", "got" },     { "; ", "differing" },
        { " of ", "of" },
    };

    if (!json_is_object(m))
        return;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buffer_add(&text, parts[i].before);
        text_value(&text, json_object_get(m, parts[i].key));
    }
    buffer_add(&text, " differ");
    view_label("first mismatch", text.data);
}

static void
print_correctness(json_t *submission)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *c = json_object_get(submission, "correctness");

    if (!json_is_number(json_object_get(c, "cases")))
        return;
    text_value(&text, json_object_get(c, "passed"));
    buffer_add(&text, " of ");
    text_value(&text, json_object_get(c, "cases"));
    buffer_add(&text, " cases passed");
    json_t *most = json_object_get(c, "max_abs"); /* of a wrong answer that is all NaN: 0 */
    if (json_is_number(most) && (json_number_value(most) > 0 ||
                                 json_equal(json_object_get(c, "passed"), json_object_get(c, "cases")))) {
        buffer_add(&text, ", largest error ");
        text_value(&text, most);
    }
    view_label("correctness", text.data);
    print_mismatch(submission);
}

static void
print_flags(json_t *submission)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *flag;
    size_t i;

    json_array_foreach(json_object_get(submission, "flags"), i, flag)
    {
        buffer_add(&text, i ? ", " : "");
        text_value(&text, flag);
    }
    if (text.size > 0)
        view_label("flags", text.data);
}

static void
print_feedback(json_t *submission)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    const json_t *feedback = json_object_get(json_object_get(submission, "feedback"), "text");

    if (json_string_length(feedback) == 0)
        return;
    text_value(&text, feedback);
    view_label("feedback", text.data ? text.data : "");
}

/* "    KERNEL, FILE:LINE: what, thread (0,0,0) of block (0,0,0): text (N reports)" */
static void
add_finding(struct buffer *out, json_t *finding)
{
    const char *kernel = text_member(finding, "kernel"), *file = text_member(finding, "file"),
               *thread = text_member(finding, "thread"), *block = text_member(finding, "block"),
               *text = text_member(finding, "text");

    buffer_printf(out, "\n  %s", kernel ? kernel : "no kernel");
    if (file)
        buffer_printf(out, ", %s:%lld", file,
                      (long long)json_integer_value(json_object_get(finding, "line")));
    buffer_printf(out, ": %s", text_member(finding, "what"));
    if (thread && block)
        buffer_printf(out, ", thread %s of block %s", thread, block);
    if (text && *text)
        buffer_printf(out, ": %s", text);
    if (json_integer_value(json_object_get(finding, "reports")) > 1)
        buffer_printf(out, " (%lld times)",
                      (long long)json_integer_value(json_object_get(finding, "reports")));
}

/* What compute-sanitizer saw: a line for each tool, and below it what it found. */
static void
print_sanitize(json_t *submission)
{
    json_t *seen = json_object_get(submission, "sanitize"), *tool, *finding;
    const char *why = text_member(seen, "why");
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    size_t i, k;

    if (!json_is_object(seen))
        return;
    if (why)
        buffer_printf(&text, "not run: %s", why);
    json_array_foreach(json_object_get(seen, "tools"), i, tool)
    {
        const char *failed = text_member(tool, "why");
        buffer_printf(&text, "%s%s: ", i ? "\n" : "", text_member(tool, "tool"));
        if (json_is_true(json_object_get(tool, "ran")))
            buffer_printf(&text, "%lld errors%s",
                          (long long)json_integer_value(json_object_get(tool, "errors")), failed ? "; " : "");
        buffer_add(&text, failed ? failed : "");
        json_array_foreach(json_object_get(tool, "findings"), k, finding) add_finding(&text, finding);
    }
    view_label("sanitize", text.data ? text.data : "");
}

void
view_submission(json_t *submission)
{
    print_member(submission, "id", "submission");
    print_member(submission, json_is_string(json_object_get(submission, "task_name")) ? "task_name" : "task",
                 "task");
    print_member(submission, "state", "state");
    print_member(submission, "class", "class");
    print_member(submission, "failed_at", "failed at");
    print_member(submission, "cached_from", "verdict of");
    print_reward(submission);
    print_correctness(submission);
    print_timing(submission);
    print_member(submission, "generality", "generality");
    print_flags(submission);
    print_feedback(submission);
    print_sanitize(submission);
    print_stages(submission);
}

/* --- lists --- */

static void
add_verdict_cells(struct cells *c, size_t at, json_t *submission)
{
    text_value(&c->text[at], json_object_get(submission, "state"));
    text_value(&c->text[at + 1], json_object_get(submission, "class"));
    text_value(&c->text[at + 2], json_object_get(submission, "stage"));
    text_number(&c->text[at + 3], submission, "reward", 4);
    /* Lists are brief, and have the speedup next to the reward. */
    bool is_brief = json_object_get(submission, "speedup") != NULL;
    text_number(&c->text[at + 4], is_brief ? submission : json_object_get(submission, "components"),
                "speedup", 3);
}

static void
mark_class(struct table *t, size_t column, json_t *submission)
{
    if (text_member(submission, "class"))
        table_mark(t, column, text_is(submission, "class", "ok"));
}

void
view_group(json_t *group, const char *const *names)
{
    const char *const titles[] = {
        ">#", names ? "CANDIDATE" : "ID", "STATE", "CLASS", "STAGE", ">REWARD", ">SPEEDUP"
    };
    json_t *item;
    size_t i;

    print_member(group, "id", "group");
    print_member(group, "state", "state");
    AUTO_TABLE struct table *t = table_new(titles, ARRAY_LEN(titles));
    json_array_foreach(json_object_get(group, "items"), i, item)
    {
        AUTO_CELLS struct cells c = { 0 };
        buffer_printf(&c.text[0], "%zu", i);
        if (names)
            buffer_add(&c.text[1], names[i]);
        else
            text_value(&c.text[1], json_object_get(item, "id"));
        add_verdict_cells(&c, 2, item);
        add_row(t, &c);
        mark_class(t, 3, item);
    }
    table_print(t);
    if (json_array_size(json_object_get(group, "ranking")) > 0)
        print_member(group, "ranking", "best first");
}

/* Of a page of any kind: its rows. */
static json_t *
items_of(json_t *page)
{
    json_t *items = json_object_get(page, "items");
    return items ? items : page;
}

void
view_submissions(json_t *page)
{
    static const char *const titles[] = { "ID",    "TASK",    "STATE",    "CLASS",
                                          "STAGE", ">REWARD", ">SPEEDUP", "CREATED" };
    json_t *item;
    size_t i;

    AUTO_TABLE struct table *t = table_new(titles, ARRAY_LEN(titles));
    json_array_foreach(items_of(page), i, item)
    {
        AUTO_CELLS struct cells c = { 0 };
        const char *name = text_member(item, "task_name");
        text_value(&c.text[0], json_object_get(item, "id"));
        text_value(&c.text[1], json_object_get(item, name ? "task_name" : "task"));
        add_verdict_cells(&c, 2, item);
        text_value(&c.text[7], json_object_get(item, "created"));
        add_row(t, &c);
        mark_class(t, 3, item);
    }
    table_print(t);
}

void
view_rows(json_t *page, const struct view_column *columns, size_t n)
{
    const char *titles[CELLS_MAX];
    json_t *item;
    size_t i;

    for (size_t k = 0; k < n; k++)
        titles[k] = columns[k].title;
    AUTO_TABLE struct table *t = table_new(titles, n);
    json_array_foreach(items_of(page), i, item)
    {
        AUTO_CELLS struct cells c = { 0 };
        for (size_t k = 0; k < n; k++)
            text_value(&c.text[k], json_object_get(item, columns[k].key));
        add_row(t, &c);
    }
    table_print(t);
}

void
view_more(json_t *page)
{
    const char *next = text_member(page, "next");

    fflush(stdout);
    if (next)
        fprintf(stderr, "verifier: there are more: --cursor '%s'\n", next);
}

/* --- documents with unknown members: scalars as labels, objects below their name, lists as tables --- */

static void print_document(json_t *object, const char *prefix);

/* A list of objects as a table: its columns are the scalar members of the first. */
static void
print_objects(json_t *list)
{
    struct view_column columns[CELLS_MAX];
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach(json_array_get(list, 0), key, value)
    {
        if (n < CELLS_MAX && !json_is_object(value) && !json_is_array(value))
            columns[n++] = (struct view_column){ key, key };
    }
    if (n > 0)
        view_rows(list, columns, n);
}

static void
print_part(const char *name, json_t *value)
{
    if (json_is_object(value)) {
        print_document(value, name);
    } else if (json_is_object(json_array_get(value, 0))) {
        text_print(stdout, name);
        puts(":");
        print_objects(value);
    } else {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        text_value(&text, value);
        text_print(stdout, name);
        printf(": ");
        text_print(stdout, text.data ? text.data : "");
        putchar('\n');
    }
}

static void
print_document(json_t *object, const char *prefix)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        AUTO_BUFFER struct buffer name = BUFFER_INIT;
        if (buffer_printf(&name, "%s%s%s", prefix, prefix[0] ? "." : "", key) == 0)
            print_part(name.data, value);
    }
}

/* --- one task --- */

static void add_items(struct buffer *out, const json_t *items);

/* A value as the worker protocol writes it: "float32[4, 8]", "3", "(float32[4], int64[4])". */
static void
add_value(struct buffer *out, const json_t *value)
{
    const json_t *tensor = json_object_get(value, "tensor"), *number = json_object_get(value, "float");
    const json_t *items = json_object_get(value, "list");

    if (!items)
        items = json_object_get(value, "tuple");
    if (tensor) {
        text_value(out, json_object_get(tensor, "dtype"));
        text_value(out, json_object_get(tensor, "shape"));
    } else if (number) {
        buffer_printf(out, "%.7g", strtod(json_string_value(number) ? json_string_value(number) : "", NULL));
    } else if (items) {
        buffer_add(out, "(");
        add_items(out, items);
        buffer_add(out, ")");
    } else {
        text_value(out, value);
    }
}

static void
add_items(struct buffer *out, const json_t *items)
{
    for (size_t i = 0; i < json_array_size(items); i++) {
        buffer_add(out, i ? ", " : "");
        add_value(out, json_array_get(items, i));
    }
}

/* "ROWS = 50, COLUMNS = 300" */
static void
add_sizes(struct buffer *out, json_t *sizes)
{
    const char *key, *before = "";
    json_t *value;

    json_object_foreach(sizes, key, value)
    {
        buffer_printf(out, "%s%s = ", before, key);
        text_value(out, value);
        before = ", ";
    }
}

static void
add_case(struct table *t, json_t *one)
{
    AUTO_CELLS struct cells c = { 0 };

    if (!json_is_object(one))
        return;
    text_value(&c.text[0], json_object_get(one, "name"));
    add_sizes(&c.text[1], json_object_get(one, "overrides"));
    add_value(&c.text[2], json_object_get(one, "inputs"));
    add_value(&c.text[3], json_object_get(one, "outputs"));
    text_value(&c.text[4], json_object_get(one, "elements"));
    add_row(t, &c);
}

static void
print_cases(json_t *cases)
{
    static const char *const titles[] = { "CASE", "CHANGED", "INPUTS", "OUTPUTS", ">ELEMENTS" };
    json_t *one;
    size_t i;

    if (!json_is_object(cases))
        return;
    putchar('\n');
    AUTO_TABLE struct table *t = table_new(titles, ARRAY_LEN(titles));
    add_case(t, json_object_get(cases, "own"));
    add_case(t, json_object_get(cases, "tiny"));
    json_array_foreach(json_object_get(cases, "shapes"), i, one)
    {
        add_case(t, one);
    }
    table_print(t);
}

void
view_task(json_t *task)
{
    AUTO_BUFFER struct buffer sizes = BUFFER_INIT;
    json_t *spec = json_object_get(task, "spec");

    print_member(task, "id", "task");
    print_member(task, "name", "name");
    print_member(task, "entry_point", "entry point");
    print_member(task, "level", "level");
    print_member(task, "dynamic_shapes", "dynamic shapes");
    print_member(task, "created", "created");
    print_member(task, "metadata", "metadata");
    add_sizes(&sizes, json_object_get(spec, "knobs"));
    if (sizes.size > 0)
        view_label("sizes", sizes.data);
    print_cases(json_object_get(spec, "cases"));
}

void
view_document(json_t *document)
{
    print_document(document, "");
}
