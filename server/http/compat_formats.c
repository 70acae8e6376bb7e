#include "server/http/compat.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/limits.h"
#include "server/http/handlers.h"

/* The formats, one after the other; the table stands at the end. What each client does was read in its own source. */

/* --- what they have in common --- */

/* A key of an object, wherever it may be missing; a JSON null is missing, too. */
static json_t *
get(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static json_t *
get_string(json_t *object, const char *key, const char *base, struct json_fault *fault)
{
    json_t *value = get(object, key);

    if (json_is_string(value))
        return value;
    json_refuse_at(fault, base, key, value ? "must be a string" : "is missing");
    return NULL;
}

/*
 * The task of a sample: an id or a name; the reference itself, which has more than one line; or an object (or its text)
 * with the keys of the table. Fills body.
 */
static int
read_task(json_t *told, const char *pointer, json_t *body, struct json_fault *fault)
{
    static const char *const keys[] = { "task", "reference", "entry_point", "policy", "reward" };
    const char *key;
    json_t *value;

    if (json_is_object(told)) {
        json_object_foreach(told, key, value)
        {
            size_t i = 0;
            while (i < ARRAY_LEN(keys) && strcmp(keys[i], key) != 0)
                i++;
            if (i == ARRAY_LEN(keys))
                return json_refuse_at(fault, pointer, key,
                                      "is not a key here: task, reference, entry_point, policy and "
                                      "reward are");
            json_object_set(body, key, value);
        }
        return 0;
    }
    if (!json_is_string(told) || json_string_length(told) == 0)
        return json_refuse(fault, pointer,
                           "must say the task: its id or name, the reference's source, or an object");
    const char *text = json_string_value(told);
    size_t size = json_string_length(told);
    if (text[strspn(text, " \t\r\n")] == '{') {
        struct json_fault inner;
        AUTO_JSON json_t *object = json_parse(text, size, &inner);
        if (!json_is_object(object))
            return json_refuse(fault, pointer, "looks like a JSON object, and is none: %.100s", inner.text);
        return read_task(object, pointer, body, fault);
    }
    json_object_set(body, memchr(text, '\n', size) ? "reference" : "task", told);
    return 0;
}

static enum verdict_class
class_of(const struct compat_item *item)
{
    return class_find(json_string_value(json_object_get(item->verdict, "class")));
}

static bool
is_hack(const struct compat_item *item)
{
    return class_info(class_of(item))->is_cheat;
}

/* A component as a number; 0 where it is not known. */
static double
component(const struct compat_item *item, const char *name)
{
    double value = compat_component(item, name);
    return isfinite(value) ? value : 0;
}

/* Whether it counts as having passed this: not where there is no reward, whatever stage was reached before. */
static bool
has_passed(const struct compat_item *item, const char *name)
{
    return component(item, name) == 1 && !is_hack(item) && !item->is_filled;
}

static const char *
feedback_of(const struct compat_item *item)
{
    return text_or(json_object_get(item->verdict, "feedback"), "text", "");
}

/* {"error","code"}: clients that look at the status alone. */
static json_t *
refuse_plainly(enum problem problem, const char *pointer, const char *detail, unsigned *status)
{
    (void)status;
    return json_pack("{s:s, s:s, s:s}", "error", detail, "code", problem_kinds[problem].code, "pointer",
                     pointer);
}

/* As FastAPI refuses a body: 422 {"detail":[{"loc","msg","type"}]}, and anything else {"detail"}. */
static json_t *
refuse_as_fastapi(enum problem problem, const char *pointer, const char *detail, unsigned *status)
{
    if (problem != PROBLEM_BODY)
        return json_pack("{s:s}", "detail", detail);
    json_t *loc = json_pack("[s]", "body");
    const char *at = pointer;
    while (*at == '/') {
        size_t size = strcspn(++at, "/");
        json_array_append_new(loc, json_stringn(at, size));
        at += size;
    }
    *status = 422;
    return json_pack("{s:[{s:o, s:s, s:s}]}", "detail", "loc", loc, "msg", detail, "type", "value_error");
}

/* Components as a trainer may add them up; is_masked: the reward is the filler. */
static json_t *
numbers_of(const struct compat_item *item)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i}", "extracted", component(item, "extracted"),
                     "valid", component(item, "valid"), "compiled", component(item, "compiled"), "correct",
                     component(item, "correct"), "hack", (double)is_hack(item), "speedup",
                     compat_speedup(item), "coverage", component(item, "coverage"), "masked",
                     (int)item->is_filled);
}

/* --- OpenRLHF: {"query": [text], "prompts": [text], "labels": [task]} --- */

/* Ends of the heading of an answer in the usual chat templates. */
static const char *const answer_marks[] = {
    "<|im_start|>assistant",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|assistant|>",
    "<|Assistant|>",
    "<｜Assistant｜>",
    "<start_of_turn>model",
    "[/INST]",
};

struct text {
    const char *start;
    size_t size;
};

static bool
starts_with(struct text t, struct text head)
{
    return head.size <= t.size && memcmp(t.start, head.start, head.size) == 0;
}

/* The text after the last of these marks; false: there is none. */
static bool
behind_last_mark(struct text t, struct text *out)
{
    const char *end = t.start + t.size, *last = NULL;

    for (size_t i = 0; i < ARRAY_LEN(answer_marks); i++) {
        size_t size = strlen(answer_marks[i]);
        for (const char *p = t.start; (p = memmem(p, (size_t)(end - p), answer_marks[i], size)) != NULL;) {
            p += size;
            if (!last || p > last)
                last = p;
        }
    }
    if (last)
        *out = (struct text){ last, (size_t)(end - last) };
    return last != NULL;
}

/*
 * The answer in a query: the query is the decoded prompt followed by the answer, special tokens kept. Where the decoded
 * prompt differs from the prompt (it was truncated at its left, or has an added first token), the chat template's marks
 * show where the answer begins. The prompt is never read as part of the answer: it may hold a solution.
 */
static bool
answer_of(json_t *query, json_t *prompt, struct text *out)
{
    struct text whole = { json_string_value(query), json_string_length(query) };
    struct text head = { json_string_value(prompt), json_string_length(prompt) };
    const char *found = head.size > 0 ? memmem(whole.start, whole.size, head.start, head.size) : NULL;

    if (starts_with(whole, head))
        *out = (struct text){ whole.start + head.size, whole.size - head.size };
    else if (found && found - whole.start <= 64) /* behind a first token */
        *out = (struct text){ found + head.size, whole.size - head.size - (size_t)(found - whole.start) };
    else if (!behind_last_mark(whole, out))
        return false;
    return true;
}

static int
openrlhf_read(struct compat_job *job, struct json_fault *fault)
{
    json_t *queries = get(job->request, "query"), *prompts = get(job->request, "prompts"),
           *labels = get(job->request, "labels"), *query;
    struct text answer;
    char pointer[48];
    size_t i;

    if (!json_is_array(queries))
        return json_refuse(fault, "/query", "must be an array of texts");
    size_t n = json_array_size(queries);
    if (json_array_size(prompts) != n)
        return json_refuse(fault, "/prompts", "must be an array as long as query");
    if (json_array_size(labels) != n)
        return json_refuse(fault, "/labels", "must be an array as long as query");
    if (n > GROUP_MAX)
        return json_refuse(fault, "/query", "has %zu texts; %d are allowed", n, GROUP_MAX);
    json_array_foreach(queries, i, query)
    {
        json_t *prompt = json_array_get(prompts, i);
        snprintf(pointer, sizeof(pointer), "/query/%zu", i);
        if (!json_is_string(query) || !json_is_string(prompt))
            return json_refuse(fault, pointer, "must be a text, and its prompt too");
        if (!answer_of(query, prompt, &answer))
            return json_refuse(
                fault, pointer,
                "does not begin with its prompt, and no chat template tells where the answer begins");
        json_t *body = json_object();
        json_object_set_new(body, "completion", json_stringn(answer.start, answer.size));
        if (!compat_add(job, body, NULL, fault))
            return ERR_INPUT;
        snprintf(pointer, sizeof(pointer), "/labels/%zu", i);
        if (read_task(json_array_get(labels, i), pointer, body, fault) != 0)
            return ERR_INPUT;
    }
    return 0;
}

/* extra_logs are made into tensors: numbers alone, and every key always there. */
static json_t *
openrlhf_write(const struct compat_job *job)
{
    json_t *rewards = json_array(), *scores = json_array(), *logs = json_object();

    for (size_t i = 0; i < job->n; i++) {
        const struct compat_item *item = &job->items[i];
        AUTO_JSON json_t *numbers = numbers_of(item);
        const char *key;
        json_t *value;
        json_array_append_new(rewards, json_real(item->reward));
        json_array_append_new(scores, json_real(has_passed(item, "correct")));
        json_object_foreach(numbers, key, value)
        {
            if (!json_object_get(logs, key))
                json_object_set_new(logs, key, json_array());
            json_array_append(json_object_get(logs, key), value);
        }
    }
    return json_pack("{s:o, s:o, s:o}", "rewards", rewards, "scores", scores, "extra_logs", logs);
}

/* --- slime: {"prompt", "response": text, "label": task} --- */

static int
slime_read(struct compat_job *job, struct json_fault *fault)
{
    json_t *response = get_string(job->request, "response", "", fault);

    if (!response)
        return ERR_INPUT;
    json_t *body = json_object();
    json_object_set(body, "completion", response);
    if (!compat_add(job, body, NULL, fault))
        return ERR_INPUT;
    return read_task(get(job->request, "label"), "/label", body, fault);
}

/* The whole answer is the reward, or an object of which --reward-key names one. */
static json_t *
slime_write(const struct compat_job *job)
{
    const struct compat_item *item = &job->items[0];

    if (!job->is_asked)
        return json_real(item->reward);
    json_t *out = numbers_of(item);
    json_object_set_new(out, "score", json_real(item->reward));
    return out;
}

/* --- SandboxFusion, as verl asks it: {"code", "stdin": {"task" …, "gate"}, "language", …} --- */

struct gate {
    char name[24];
    double bound;
};

/* "correct", "speedup>=1.2", "reward>=0.3" */
static bool
read_gate(const char *text, struct gate *out)
{
    static const char *const names[] = { "reward", "extracted", "valid",    "compiled", "correct",
                                         "timed",  "speedup",   "coverage", "sol",      "cases_passed" };
    size_t size = strcspn(text, ">= ");
    char *end;

    *out = (struct gate){ .bound = 1 };
    if (size >= sizeof(out->name))
        return false;
    memcpy(out->name, text, size);
    const char *rest = text + size + strspn(text + size, " ");
    bool is_known = false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        is_known |= strcmp(names[i], out->name) == 0;
    if (!is_known || (*rest && strncmp(rest, ">=", 2) != 0))
        return false;
    if (!*rest)
        return true;
    out->bound = strtod(rest + 2, &end);
    return end != rest + 2 && !*end && isfinite(out->bound);
}

static double
gate_value(const struct compat_item *item, const char *name)
{
    if (strcmp(name, "reward") == 0)
        return item->reward;
    return strcmp(name, "speedup") == 0 ? compat_speedup(item) : component(item, name);
}

/* The client adds an empty assertion to the code, so what differs in its end is the same code. */
static json_t *
trimmed(json_t *code)
{
    const char *text = json_string_value(code);
    size_t size = json_string_length(code);

    while (size > 0 && isspace((unsigned char)text[size - 1]))
        size--;
    return json_stringn(text, size);
}

/* Seconds that this client waits: what it allows for compiling and running, and ten more. */
static double
sandboxfusion_wait_s(json_t *request)
{
    json_t *compile = get(request, "compile_timeout"), *run = get(request, "run_timeout");

    return (json_is_number(compile) ? json_number_value(compile) : 10) +
           (json_is_number(run) ? json_number_value(run) : 10) + 10;
}

static int
sandboxfusion_read(struct compat_job *job, struct json_fault *fault)
{
    json_t *code = get_string(job->request, "code", "", fault);
    json_t *stdin_ = code ? get_string(job->request, "stdin", "", fault) : NULL;
    const char *language = json_string_value(get(job->request, "language"));
    struct json_fault inner;
    struct gate gate;

    if (!stdin_)
        return ERR_INPUT;
    if (language && strcmp(language, "python") != 0 && strcmp(language, "python_gpu") != 0)
        return json_refuse(fault, "/language", "must be python: what runs here is a Triton kernel");
    AUTO_JSON json_t *told = json_parse(json_string_value(stdin_), json_string_length(stdin_), &inner);
    const char *text = json_string_value(get(told, "gate"));
    if (!json_is_object(told) || !text)
        return json_refuse(fault, "/stdin", "must be a JSON object with task (or reference) and gate");
    if (!read_gate(text, &gate))
        return json_refuse(
            fault, "/stdin/gate",
            "must be one of reward, extracted, valid, compiled, correct, timed, speedup, coverage, "
            "sol, cases_passed, with a bound if need be: speedup>=1.2");
    json_t *body = json_pack("{s:o}", "candidate", trimmed(code));
    if (!compat_add(job, body, json_string(text), fault))
        return ERR_INPUT;
    double wait_s = sandboxfusion_wait_s(job->request) - 5;
    job->deadline_ns = clock_monotonic_ns() + (int64_t)(fmax(1, fmin(wait_s, 600)) * 1e9);
    json_object_del(told, "gate");
    return read_task(told, "/stdin", body, fault);
}

static json_t *
command_result(const char *out)
{
    return json_pack("{s:s, s:f, s:i, s:s, s:s}", "status", "Finished", "execution_time", 0.0, "return_code",
                     0, "stdout", out, "stderr", "");
}

/*
 * A gate is a test case, and its output is "1" or "0". A failure to compile is reported like any other: verl counts one
 * such response as the failure of all later cases.
 */
static json_t *
sandboxfusion_write(const struct compat_job *job)
{
    const struct compat_item *item = &job->items[0];
    struct gate gate;

    if (item->is_filled)
        return json_pack("{s:s, s:s, s:n, s:n, s:n, s:{}}", "status", "SandboxError", "message",
                         "it could not be judged", "compile_result", "run_result", "executor_pod_name",
                         "files");
    read_gate(json_string_value(item->aside), &gate);
    bool is_open = gate_value(item, gate.name) >= gate.bound;
    return json_pack("{s:s, s:s, s:o, s:o, s:n, s:{}}", "status", "Success", "message", "", "compile_result",
                     command_result(""), "run_result", command_result(is_open ? "1\n" : "0\n"),
                     "executor_pod_name", "files");
}

/* --- KernelGYM: {"task_id", "reference_code", "kernel_code", "entry_point", …} --- */

static bool
is_false(json_t *object, const char *key)
{
    return json_is_false(get(object, key));
}

static int
expect_word(json_t *object, const char *base, const char *key, const char *const *words,
            struct json_fault *fault)
{
    json_t *value = get(object, key);

    if (!value)
        return 0;
    for (size_t i = 0; json_is_string(value) && words[i]; i++)
        if (strcmp(json_string_value(value), words[i]) == 0)
            return 0;
    return json_refuse_at(fault, base, key, "must be %s%s%s here", words[0], words[1] ? " or " : "",
                          words[1] ? words[1] : "");
}

static int
kernelgym_read_one(struct compat_job *job, json_t *request, const char *base, struct json_fault *fault)
{
    static const char *const kernelbench[] = { "kernelbench", NULL };
    static const char *const triton[] = { "triton", "auto", NULL };
    char entry[256];

    if (!json_is_object(request))
        return json_refuse(fault, base, "must be an object");
    json_t *id = get_string(request, "task_id", base, fault);
    json_t *reference = id ? get_string(request, "reference_code", base, fault) : NULL;
    json_t *code = reference ? get_string(request, "kernel_code", base, fault) : NULL;
    if (!code)
        return ERR_INPUT;
    if (json_string_length(id) < 1 || json_string_length(id) > 100)
        return json_refuse_at(fault, base, "task_id", "must be between 1 and 100 characters");
    const char *model = text_or(request, "entry_point", "Model");
    if (expect_word(request, base, "toolkit", kernelbench, fault) != 0 ||
        expect_word(request, base, "backend_adapter", kernelbench, fault) != 0 ||
        expect_word(request, base, "workflow", kernelbench, fault) != 0 ||
        expect_word(request, base, "backend", triton, fault) != 0)
        return ERR_INPUT;
    snprintf(entry, sizeof(entry), "%.200sNew", model);
    json_t *body =
        json_pack("{s:{s:O, s:s}, s:O, s:s, s:s, s:{s:O}}", "reference", "source", reference, "entry_point",
                  model, "candidate", code, "entry_point", entry, "priority",
                  text_is(request, "priority", "high") ? "interactive" : "batch", "metadata", "task_id", id);
    if (is_false(request, "measure_performance") || is_false(request, "run_performance"))
        json_object_set_new(body, "until", json_string("full"));
    struct compat_item *item = compat_add(job, body, json_incref(id), fault);
    if (!item)
        return ERR_INPUT;
    item->must_renew = json_is_true(get(request, "force_refresh"));
    return 0;
}

/* The client reads until its own timeout, and polls if the state is "processing". */
static void
kernelgym_deadline(struct compat_job *job, json_t *request)
{
    json_t *timeout = get(request, "timeout");
    double s = json_is_number(timeout) ? json_number_value(timeout) : 300;

    job->deadline_ns = clock_monotonic_ns() + (int64_t)(fmax(1, fmin(s - 5, job->format->hold_s)) * 1e9);
}

static int
kernelgym_read(struct compat_job *job, struct json_fault *fault)
{
    json_t *tasks = get(job->request, "tasks"), *task;
    char base[32];
    size_t i;

    if (!job->is_batch) {
        kernelgym_deadline(job, job->request);
        return kernelgym_read_one(job, job->request, "", fault);
    }
    if (!get_string(job->request, "batch_id", "", fault))
        return ERR_INPUT;
    if (json_array_size(tasks) < 1 || json_array_size(tasks) > 100)
        return json_refuse(fault, "/tasks", "must be an array of 1 to 100 tasks");
    json_array_foreach(tasks, i, task)
    {
        snprintf(base, sizeof(base), "/tasks/%zu", i);
        if (i == 0)
            kernelgym_deadline(job, task);
        if (kernelgym_read_one(job, task, base, fault) != 0)
            return ERR_INPUT;
    }
    return 0;
}

static const char *
kernelgym_error(const struct compat_item *item)
{
    switch (class_of(item)) {
    case CLASS_EXTRACT:
    case CLASS_FORM:
    case CLASS_POLICY:
    case CLASS_HACK:
        return "VALIDATION_ERROR";
    case CLASS_SYNTAX:
        return "SYNTAX_ERROR";
    case CLASS_IMPORT:
        return "IMPORT_ERROR";
    case CLASS_COMPILE:
        return "COMPILATION_ERROR";
    case CLASS_LAUNCH:
    case CLASS_CRASH:
        return "RUNTIME_ERROR";
    case CLASS_TIMEOUT:
        return "TIMEOUT_ERROR";
    case CLASS_OOM:
        return "RESOURCE_ERROR";
    case CLASS_SHAPE:
    case CLASS_DTYPE:
    case CLASS_NONFINITE:
    case CLASS_MISMATCH:
    case CLASS_NONDETERMINISTIC:
    case CLASS_MUTATED_INPUT:
    case CLASS_OUT_OF_BOUNDS:
        return "CORRECTNESS_ERROR";
    case CLASS_INFRA:
        return "SYSTEM_ERROR";
    case CLASS_OK:
    case CLASS_NONE:
    case CLASS_N:
        break;
    }
    return NULL;
}

/*
 * coverage is the share of a call's work in kernels of the candidate's own; this client divides two times, so they are
 * given as the candidate's time per call and that share of it.
 */
static json_t *
kernelgym_metadata(const struct compat_item *item)
{
    json_t *timing = json_object_get(item->verdict, "timing"), *env = json_object_get(item->verdict, "env");
    double us = number_or_nan(timing, "candidate_ms") * 1000, coverage = compat_component(item, "coverage");
    json_t *out = json_pack(
        "{s:O?, s:O?, s:O?, s:O?, s:s}", "submission", json_object_get(item->verdict, "id"), "class",
        json_object_get(item->verdict, "class"), "timing_outcome", json_object_get(timing, "outcome"),
        "gpu_name", json_object_get(env, "gpu"), "backend", "triton");

    if (isfinite(us) && isfinite(coverage)) {
        json_object_set_new(out, "total_kernel_run_time_in_profiling_us", json_real(us));
        json_object_set_new(out, "custom_kernel_cuda_time_in_profiling_us", json_real(us * coverage));
    }
    return out;
}

/* A result of EvaluationResponse's keys. */
static json_t *
kernelgym_result(const struct compat_item *item)
{
    json_t *timing = json_object_get(item->verdict, "timing");
    const char *error = kernelgym_error(item);
    bool is_ok = class_of(item) == CLASS_OK;

    if (item->state == COMPAT_UNFINISHED)
        return json_pack("{s:O, s:s}", "task_id", item->aside, "status", "processing");
    if (item->state == COMPAT_REFUSED)
        return json_pack("{s:O, s:s, s:b, s:b, s:b, s:f, s:s, s:s}", "task_id", item->aside, "status",
                         "failed", "compiled", 0, "correctness", 0, "decoy_kernel", 0, "speedup", 0.0,
                         "error_message", item->answer.fault.text, "error_code",
                         item->answer.refusal == FUNNEL_BAD ? "VALIDATION_ERROR" : "SYSTEM_ERROR");
    return json_pack(
        "{s:O, s:s, s:b, s:b, s:b, s:o, s:o, s:f, s:o, s:o, s:s?, s:O?, s:O?}", "task_id", item->aside,
        "status", item->is_filled ? "failed" : "completed", "compiled", has_passed(item, "compiled"),
        "correctness", has_passed(item, "correct"), "decoy_kernel", (int)is_hack(item), "reference_runtime",
        real_or_null(number_or_nan(timing, "reference_ms")), "kernel_runtime",
        real_or_null(number_or_nan(timing, "candidate_ms")), "speedup", compat_speedup(item), "metadata",
        kernelgym_metadata(item), "error_message", is_ok ? json_null() : json_string(feedback_of(item)),
        "error_code", error, "submitted_at", json_object_get(item->verdict, "created"), "completed_at",
        json_object_get(item->verdict, "finished"));
}

static json_t *
kernelgym_write(const struct compat_job *job)
{
    json_t *id = get(job->request, "batch_id"), *results = json_array();
    int failed = 0, unfinished = 0;

    if (!id) {
        json_decref(results);
        return kernelgym_result(&job->items[0]);
    }
    for (size_t i = 0; i < job->n; i++) {
        const struct compat_item *item = &job->items[i];
        unfinished += item->state == COMPAT_UNFINISHED;
        failed += item->state == COMPAT_REFUSED || (item->state == COMPAT_JUDGED && item->is_filled);
        json_array_append_new(results, kernelgym_result(item));
    }
    return json_pack("{s:O, s:i, s:i, s:i, s:o, s:s, s:o}", "batch_id", id, "total_tasks", (int)job->n,
                     "completed_tasks", (int)job->n - failed - unfinished, "failed_tasks", failed, "results",
                     results, "batch_status", unfinished ? "processing" : "completed", "completed_at",
                     time_json(clock_wall_ms()));
}

static json_t *
kernelgym_refuse(enum problem problem, const char *pointer, const char *detail, unsigned *status)
{
    bool is_request = *status < 429;

    (void)pointer;
    if (problem == PROBLEM_NOT_FOUND)
        return json_pack("{s:s}", "detail", detail);
    return json_pack("{s:s, s:s, s:s, s:n, s:o}", "error",
                     problem == PROBLEM_BODY ? "RequestValidationError" : problem_kinds[problem].title,
                     "message", detail, "error_code",
                     is_request       ? "VALIDATION_ERROR"
                     : *status == 429 ? "RESOURCE_ERROR"
                                      : "SYSTEM_ERROR",
                     "task_id", "timestamp", time_json(clock_wall_ms()));
}

/* {"task_id","status",…}: pending, processing, completed, failed */
static json_t *
kernelgym_status(const struct compat_item *item, const char *state)
{
    const char *status = strcmp(state, "queued") == 0 ? "pending" : "processing";

    if (item->state == COMPAT_JUDGED)
        status = item->is_filled ? "failed" : "completed";
    return json_pack("{s:O, s:s, s:o, s:n, s:n, s:n, s:o}", "task_id", item->aside, "status", status,
                     "progress", item->state == COMPAT_JUDGED ? json_real(100) : json_null(),
                     "estimated_completion", "queue_position", "assigned_device", "error_message",
                     item->state == COMPAT_JUDGED && item->is_filled ? json_string(feedback_of(item))
                                                                     : json_null());
}

static void
status_found(struct exchange *x, const struct compat_item *item, const char *state)
{
    exchange_json(x, 200, kernelgym_status(item, state));
}

void
compat_task_status(struct exchange *x)
{
    compat_look_up(x, x->target.segments[3], status_found);
}

static void
result_found(struct exchange *x, const struct compat_item *item, const char *state)
{
    (void)state;
    if (item->state == COMPAT_JUDGED)
        exchange_json(x, 200, kernelgym_result(item));
    else
        exchange_problem(x, PROBLEM_NOT_FOUND, "Task %.100s has no result yet",
                         json_string_value(item->aside));
}

void
compat_task_results(struct exchange *x)
{
    compat_look_up(x, x->target.segments[3], result_found);
}

/* --- TritonForge: {"original_model_src", "custom_model_src", …} --- */

static int
tritonforge_read(struct compat_job *job, struct json_fault *fault)
{
    static const char *const triton[] = { "triton", NULL };
    json_t *reference = get_string(job->request, "original_model_src", "", fault);
    json_t *code = reference ? get_string(job->request, "custom_model_src", "", fault) : NULL;

    if (!code || expect_word(job->request, "", "backend", triton, fault) != 0)
        return ERR_INPUT;
    json_t *body = json_pack("{s:O, s:O}", "reference", reference, "candidate", code);
    if (is_false(job->request, "measure_performance"))
        json_object_set_new(body, "until", json_string("full"));
    return compat_add(job, body, NULL, fault) ? 0 : ERR_INPUT;
}

/* KernelBench's result of one evaluation; -1 stands there for a time that was not measured. */
static json_t *
tritonforge_write(const struct compat_job *job)
{
    const struct compat_item *item = &job->items[0];
    json_t *timing = json_object_get(item->verdict, "timing");
    double ms = compat_speedup(item) > 0 ? number_or_nan(timing, "candidate_ms") : NAN;
    json_t *stats = json_object();

    if (isfinite(ms)) {
        json_object_set_new(stats, "median", json_real(ms));
        json_object_set_new(stats, "speedup", json_real(compat_speedup(item)));
        json_object_set_new(stats, "reference", real_or_null(number_or_nan(timing, "reference_ms")));
    }
    return json_pack("{s:b, s:b, s:{s:O?, s:O?, s:s, s:b}, s:f, s:o}", "compiled",
                     has_passed(item, "compiled"), "correctness", has_passed(item, "correct"), "metadata",
                     "submission", json_object_get(item->verdict, "id"), "class",
                     json_object_get(item->verdict, "class"), "feedback", feedback_of(item), "masked",
                     (int)item->is_filled, "runtime", isfinite(ms) ? ms : -1.0, "runtime_stats", stats);
}

/* --- the table --- */

const struct compat_format compat_formats[] = {
    { .prefix = "compat/openrlhf",
      .name = "openrlhf",
      .hold_s = 170, /* of 180 */
      .again = 503,
      .names = { { "/task", "/labels" },
                 { "/reference", "/labels" },
                 { "/completion", "/query" },
                 { "/entry_point", "/labels" },
                 { "/policy", "/labels" } },
      .read = openrlhf_read,
      .write = openrlhf_write,
      .refuse = refuse_plainly },
    { .prefix = "compat/slime",
      .name = "slime",
      .hold_s = 110, /* of 120 */
      .again = 503,
      .names = { { "/task", "/label" },
                 { "/reference", "/label" },
                 { "/completion", "/response" },
                 { "/entry_point", "/label" },
                 { "/policy", "/label" } },
      .read = slime_read,
      .write = slime_write,
      .refuse = refuse_plainly },
    { .prefix = "compat/sandboxfusion",
      .name = "sandboxfusion",
      .hold_s = 25, /* of 30, unless the request says otherwise */
      .again = 504,
      .names = { { "/task", "/stdin" },
                 { "/reference", "/stdin" },
                 { "/candidate", "/code" },
                 { "/entry_point", "/stdin" },
                 { "/policy", "/stdin" } },
      .read = sandboxfusion_read,
      .write = sandboxfusion_write,
      .refuse = refuse_as_fastapi },
    { .prefix = "compat/kernelgym",
      .name = "kernelgym",
      .hold_s = 3600, /* the request's own timeout, less a little */
      .again = 503,
      .has_names = true,
      .takes_progress = true,
      .names = { { "/reference/source", "/reference_code" },
                 { "/reference", "/reference_code" },
                 { "/candidate", "/kernel_code" },
                 { "/entry_point", "/entry_point" } },
      .read = kernelgym_read,
      .write = kernelgym_write,
      .refuse = kernelgym_refuse },
    { .prefix = "compat/tritonforge",
      .name = "tritonforge",
      .hold_s = 590, /* it has no limit of its own, its server had 600 */
      .again = 503,
      .names = { { "/reference", "/original_model_src" }, { "/candidate", "/custom_model_src" } },
      .read = tritonforge_read,
      .write = tritonforge_write,
      .refuse = refuse_as_fastapi },
};
const size_t compat_formats_count = ARRAY_LEN(compat_formats);
