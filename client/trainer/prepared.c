#include "client/trainer/prepared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/prompt.h"
#include "client/trainer/tasks.h"
#include "common/auto.h"
#include "common/buffer.h"

int
prepared_open(struct prepared *p, const struct prepare_options *options, const char *workdir,
              struct error *err)
{
    static const char *const names[] = { "tasks.jsonl", "sft_train.jsonl", "difficulty_labels.jsonl",
                                         "dropped.jsonl" };
    struct output *const outputs[] = { &p->tasks, &p->sft, &p->labels, &p->dropped };
    char path[OUTPUT_PATH_MAX];
    int rc = 0;

    *p = (struct prepared){ .options = options, .reasons = json_object(), .names = json_object() };
    prompt_digest(options->policy, p->prompt);
    if (!p->reasons || !p->names)
        return error_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(names); i++) {
        rc = output_path(workdir, "data/processed", names[i], path, err);
        rc = rc == 0 ? output_begin(outputs[i], path, err) : rc;
    }
    return rc;
}

int
prepared_close(struct prepared *p, bool is_whole, struct error *err)
{
    struct output *const outputs[] = { &p->tasks, &p->sft, &p->labels, &p->dropped };
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
        if (!outputs[i]->file)
            continue;
        if (is_whole && rc == 0) {
            rc = output_end(outputs[i], err);
            continue;
        }
        output_cancel(outputs[i]);
    }
    json_decref(p->reasons);
    json_decref(p->names);
    p->reasons = p->names = NULL;
    return rc;
}

/* A row that is left out, or something of it; detail may be NULL. */
static void
drop(struct prepared *p, const struct entry *e, const char *reason, const char *detail)
{
    AUTO_JSON json_t *row =
        json_pack("{s:I, s:s?, s:s, s:s?}", "row", (json_int_t)e->number, "id", e->name[0] ? e->name : NULL,
                  "reason", reason, "detail", detail && detail[0] ? detail : NULL);
    if (!row) /* a detail that is no UTF-8 */
        row = json_pack("{s:I, s:s}", "row", (json_int_t)e->number, "reason", reason);
    output_line(&p->dropped, row);
    json_object_set_new(p->reasons, reason,
                        json_integer(1 + json_integer_value(json_object_get(p->reasons, reason))));
}

/* The task's row; said: what the daemon said, or NULL. */
static json_t *
task_row(const struct prepared *p, const struct entry *e, json_t *said)
{
    const struct prepare_options *o = p->options;
    json_t *larger = json_object_get(said, "enlarged"), *ms = json_object_get(said, "ms");
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s?, s:s, s:s}", "name", e->name, "source", o->source,
                  "pytorch_code", e->source, "entry_point", e->entry_point, "level", e->level, "operations",
                  e->operations, "digest", e->digest, "license", e->license, "checked",
                  o->is_static ? "static" : "ran", "timing", o->enlarges ? "window" : "untimed");
    if (e->problem > 0) /* KernelBench's, by which its problems are known */
        json_object_set_new(row, "problem_id", json_integer(e->problem));
    if (ms)
        json_object_set(row, "reference_ms", ms);
    if (larger) { /* both shapes are kept */
        json_object_set_new(row, "pytorch_code_own", json_string(e->source));
        json_object_set(row, "pytorch_code", json_object_get(larger, "source"));
        json_object_set_new(row, "enlarged",
                            json_pack("{s:O, s:O}", "how", json_object_get(larger, "how"), "factor",
                                      json_object_get(larger, "factor")));
    }
    return row;
}

static int
difficulty_of(const struct entry *e)
{
    return e->level > 3 ? 3 : e->level;
}

static void
write_answer(struct prepared *p, const struct entry *e)
{
    const struct prepare_options *o = p->options;
    AUTO_BUFFER struct buffer instruction = BUFFER_INIT, output = BUFFER_INIT;
    const struct task task = { .entry_point = (char *)(uintptr_t)e->entry_point };
    AUTO_FREE char *wanted = task_class_wanted(&task);

    if (!wanted || prompt_make(e->source, wanted, o->policy, &instruction) != 0 ||
        buffer_printf(&output, "```python\n%s%s```\n", e->answer,
                      e->answer[strlen(e->answer) - 1] == '\n' ? "" : "\n") != 0) {
        p->sft.is_bad = true;
        return;
    }
    AUTO_JSON json_t *row = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s?}", "id", e->name, "source", o->source,
        "prompt", p->prompt, "instruction", instruction.data, "output", output.data, "pytorch_code",
        e->source, "triton_code", e->answer, "entry_point", e->entry_point, "difficulty", difficulty_of(e),
        "verified", o->verifies ? o->policy : "no", "license", e->license);
    output_line(&p->sft, row);
    p->answers++;
}

/* The label with what it is of, so that the file is a list of tasks by itself. */
static json_t *
label_row(struct prepared *p, const struct entry *e, json_t *task)
{
    AUTO_BUFFER struct buffer instruction = BUFFER_INIT;
    const struct task of = { .entry_point = (char *)(uintptr_t)e->entry_point };
    AUTO_FREE char *wanted = task_class_wanted(&of);
    json_t *reference = json_object_get(task, "pytorch_code");

    if (!wanted || prompt_make(json_string_value(reference), wanted, p->options->policy, &instruction) != 0)
        return NULL;
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:O, s:s}", "id", e->name, "difficulty",
                     difficulty_of(e), "operations", e->operations, "method",
                     entry_labelled_by(e, p->options), "digest", e->digest, "prompt", p->prompt,
                     "instruction", instruction.data, "pytorch_code", reference, "entry_point",
                     e->entry_point);
}

static void
keep(struct prepared *p, const struct entry *e, json_t *said, bool has_answer)
{
    bool is_task = !p->options->enlarges || json_object_get(said, "ms");
    AUTO_JSON json_t *task = task_row(p, e, said);
    AUTO_JSON json_t *label = label_row(p, e, task);
    if (is_task) {
        output_line(&p->tasks, task);
        p->levels[e->level]++;
        p->kept++;
    }
    if (is_task || has_answer)
        output_line(&p->labels, label);
    if (has_answer)
        write_answer(p, e);
}

void
prepared_add(struct prepared *p, struct entry *e, json_t *said)
{
    const char *fault, *detail, *class_ = json_string_value(json_object_get(said, "answer"));
    const char *reason = e->reason ? e->reason : json_string_value(json_object_get(said, "reason"));

    if (e->name[0] && json_object_get(p->names, e->name)) /* the journal of a round knows tasks by name */
        snprintf(e->name + strlen(e->name), 30, "-row%zu", e->number);
    entry_relabel(e, p->options, json_object_get(said, "operations"));
    if (reason) {
        drop(p, e, reason, e->reason ? e->detail : json_string_value(json_object_get(said, "detail")));
        return;
    }
    bool has_answer = entry_has_answer(e, &fault, &detail);
    if (fault)
        drop(p, e, fault, detail);
    else if (class_ && strcmp(class_, "ok") != 0)
        drop(p, e, "answer_fails", class_);
    if (p->options->verifies)
        has_answer = has_answer && class_ && strcmp(class_, "ok") == 0;
    json_object_set_new(p->names, e->name, json_true());
    if (p->options->enlarges && !json_object_get(said, "ms"))
        drop(p, e, "run_time", "no shape that was tried brings the reference to 50 us to 20 ms");
    keep(p, e, said, has_answer);
}

json_t *
prepared_summary(const struct prepared *p, json_t *fetched, size_t rows, double seconds)
{
    const struct prepare_options *o = p->options;
    json_t *levels = json_object();
    for (int level = 1; level <= 4; level++) {
        char name[8];
        snprintf(name, sizeof(name), "%d", level);
        if (p->levels[level])
            json_object_set_new(levels, name,
                                json_pack("{s:i, s:f}", "tasks", (int)p->levels[level], "percent",
                                          100.0 * (double)p->levels[level] / (double)p->kept));
    }
    return json_pack("{s:s, s:s?, s:O?, s:s, s:i, s:i, s:i, s:O, s:o, s:s, s:s, s:s?, s:f}", "source",
                     o->source, "file", o->file, "fetched", fetched, "prompt", p->prompt, "rows", (int)rows,
                     "kept", (int)p->kept, "with_answer", (int)p->answers, "dropped", p->reasons, "levels",
                     levels, "labels", o->labelled_by, "checked", o->is_static ? "static" : "ran", "verified",
                     o->verifies ? o->policy : NULL, "seconds", seconds);
}

void
prepared_print(json_t *summary)
{
    const char *name;
    json_t *value;
    printf("%lld rows, %lld kept, %lld of them with an answer\n",
           (long long)json_integer_value(json_object_get(summary, "rows")),
           (long long)json_integer_value(json_object_get(summary, "kept")),
           (long long)json_integer_value(json_object_get(summary, "with_answer")));
    json_object_foreach(json_object_get(summary, "levels"), name, value)
        printf("  level %s         %6lld  %5.1f%%\n", name,
               (long long)json_integer_value(json_object_get(value, "tasks")),
               json_number_value(json_object_get(value, "percent")));
    json_object_foreach(json_object_get(summary, "dropped"), name, value)
        printf("  %-15s %6lld\n", name, (long long)json_integer_value(value));
}
