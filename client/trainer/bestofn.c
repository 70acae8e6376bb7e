/* trainer bestofn: sample N answers for each task, have them judged, keep the best K for fine-tuning. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/endpoint.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/plan.h"
#include "client/trainer/prompt.h"
#include "client/trainer/round.h"
#include "common/auto.h"
#include "common/reward.h"

struct bestofn {
    struct trainer *trainer;
    struct task_options tasks;
    struct round_options round;
    struct plan_options plan;
    const char *name;
    json_t *reward; /* borrowed from bestofn_command() */
    int keep;
    double threshold; /* NAN: the kind's own */
    bool allows_incorrect, is_sft;
};

enum { OPT_KEEP = 'k', OPT_NAME = 512, OPT_THRESHOLD, OPT_INCORRECT, OPT_AS, OPT_STOP, OPT_STEP };

static const struct argp_option options[] = {
    { "keep", OPT_KEEP, "K", 0, "Keep so many answers for each task (default 3)", 0 },
    { "threshold", OPT_THRESHOLD, "R", 0,
      "Only answers whose reward is above this (default 0.3; 0.5 for best_of_n; 0 for other kinds)", 0 },
    { "allow-incorrect", OPT_INCORRECT, NULL, 0, "Keep by the reward alone, also what is not correct", 0 },
    { "stop-correct", OPT_STOP, "N", 0,
      "Once N answers to a task are correct, cancel the rest of them, and ask for no further turn (default: "
      "judge all, "
      "which ranking them wants)",
      0 },
    { "as", OPT_AS, "sft", 0,
      "The endpoint is a teacher's: write what is kept as sft_train.jsonl, too, its reasoning kept, and keep "
      "every "
      "answer in data/cache, so that none is paid for twice",
      0 },
    { "name", OPT_NAME, "NAME", 0, "Of the run: outputs/bestofn_NAME in the working directory (default: run)",
      0 },
    { "step", OPT_STEP, "N", 0,
      "It is this step of a run that is called as the working directory (or VERIFIERD_RUN), for the "
      "dashboard",
      0 },
    { 0 },
};

static bool
is_before_full(const char *stage)
{
    return stage && strcmp(stage, "full") != 0 && strcmp(stage, "timing") != 0;
}

static void
take_as(struct argp_state *state, const char *name, char *arg, void *out)
{
    if (strcmp(arg, "sft") != 0)
        argp_error(state, "%s takes sft, not \"%s\"", name, arg);
    *(bool *)out = true;
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct bestofn *b = state->input;
    const struct take rows[] = {
        TAKE_INPUT(b->trainer),
        TAKE_INPUT(&b->tasks),
        TAKE_INPUT(&b->round),
        TAKE_INPUT(&b->plan),
        TAKE_INT(OPT_KEEP, &b->keep, 1, 256),
        TAKE_NUMBER(OPT_THRESHOLD, &b->threshold, -1000, 1000),
        TAKE_FLAG(OPT_INCORRECT, &b->allows_incorrect),
        TAKE_CALL(OPT_NAME, option_name, &b->name),
        TAKE_CALL(OPT_AS, take_as, &b->is_sft),
        TAKE_INT(OPT_STEP, &b->round.step, 1, 1000000000),
        TAKE_INT(OPT_STOP, &b->round.stop_correct, 1, 256),
    };

    if (key == ARGP_KEY_END && b->round.stop_correct && is_before_full(b->round.until))
        argp_error(state, "--stop-correct: nothing is found correct with --until=%s", b->round.until);
    if (key == ARGP_KEY_END && b->is_sft && b->allows_incorrect)
        argp_error(state, "--as sft writes verified rows; --allow-incorrect keeps others");
    return take(rows, ARRAY_LEN(rows), key, arg, state);
}

static const struct argp_child children[] = {
    { &trainer_sampling_argp, 0, NULL, -1 },
    { &task_options_argp, 0, NULL, -2 },
    { &round_options_argp, 0, NULL, -2 },
    { &plan_options_argp, 0, NULL, -2 },
    { 0 },
};
static const struct argp argp = {
    options,  parse,
    NULL,     "Sample N answers for each task, have them judged, and keep the best K for fine-tuning.",
    children, NULL,
    NULL
};

static double
threshold_of(const struct bestofn *b)
{
    const char *kind = json_string_value(json_object_get(b->reward, "kind"));
    if (!isnan(b->threshold))
        return b->threshold;
    return !kind || strcmp(kind, "staged") == 0 ? 0.3 : strcmp(kind, "best_of_n") == 0 ? 0.5 : 0;
}

/* --- the best answers --- */

struct contender {
    json_t *answer; /* borrowed */
    double reward;
    size_t place; /* of equal ones the first is the better */
};

static int
by_reward(const void *left, const void *right)
{
    const struct contender *a = left, *b = right;
    return a->reward != b->reward ? (a->reward < b->reward) - (a->reward > b->reward)
                                  : (a->place > b->place) - (a->place < b->place);
}

static bool
is_kept(const struct bestofn *b, json_t *answer)
{
    double reward = answer_reward(answer);
    bool is_new = !json_object_get(json_object_get(answer, "verdict"), "duplicate_of");
    return is_new && reward > threshold_of(b) && (b->allows_incorrect || answer_is_correct(answer));
}

/* A row for fine-tuning: {"task", "level", "prompt", "instruction", "output", "code", "reward", ...}. */
static json_t *
kept_row(const struct bestofn *b, const struct round_result *result, json_t *answer)
{
    char digest[HASH_TEXT_SIZE];
    AUTO_BUFFER struct buffer prompt = BUFFER_INIT;
    AUTO_FREE char *wanted = task_class_wanted(result->task);
    json_t *text = json_object_get(answer, "text"), *verdict = json_object_get(answer, "verdict");
    AUTO_BUFFER struct buffer code = BUFFER_INIT;

    prompt_digest(b->round.policy, digest);
    if (!wanted || answer_code(answer, result->task, &code) != 0 ||
        prompt_make(result->task->reference, wanted, b->round.policy, &prompt) != 0)
        return NULL;
    json_t *row =
        json_pack("{s:s, s:i, s:s, s:s, s:O, s:s%, s:O, s:O, s:s, s:O, s:O}", "task", result->task->name,
                  "level", result->task->level, "prompt", digest, "instruction", prompt.data, "output", text,
                  "code", code.data, code.size, "reward", json_object_get(verdict, "reward"), "components",
                  json_object_get(verdict, "components"), "model", b->trainer->model, "turn",
                  json_object_get(answer, "turn"), "submission", json_object_get(verdict, "id"));
    if (row && json_object_get(answer, "reasoning"))
        json_object_set(row, "reasoning", json_object_get(answer, "reasoning"));
    return row;
}

/* The answer as a model would write it that thinks aloud: what the endpoint took apart is put together again. */
static int
whole_answer(json_t *answer, struct buffer *out)
{
    const char *reasoning = json_string_value(json_object_get(answer, "reasoning"));
    const char *text = json_string_value(json_object_get(answer, "text"));
    int rc = 0;

    if (reasoning && reasoning[0])
        rc = buffer_printf(out, "<think>\n%s\n</think>\n\n", reasoning);
    return rc == 0 ? buffer_add(out, text ? text : "") : rc;
}

/* As in sft_train.schema.json; row is kept_row()'s of the same answer. */
static json_t *
sft_row(const struct bestofn *b, const struct round_result *result, json_t *answer, json_t *row)
{
    AUTO_BUFFER struct buffer output = BUFFER_INIT;
    const struct task *task = result->task;
    char id[256];

    snprintf(id, sizeof(id), "%.200s/%lld.%lld", task->name,
             (long long)json_integer_value(json_object_get(answer, "turn")),
             (long long)json_integer_value(json_object_get(answer, "sample")));
    if (whole_answer(answer, &output) != 0)
        return NULL;
    json_t *out =
        json_pack("{s:s, s:s, s:O, s:O, s:s, s:s, s:O, s:s, s:O, s:n}", "id", id, "source", b->trainer->model,
                  "prompt", json_object_get(row, "prompt"), "instruction",
                  json_object_get(row, "instruction"), "output", output.data, "pytorch_code", task->reference,
                  "triton_code", json_object_get(row, "code"), "entry_point", task->entry_point, "verified",
                  json_object_get(json_object_get(answer, "verdict"), "policy"), "license");
    json_object_set_new(out, "difficulty",
                        task->level ? json_integer(task->level > 3 ? 3 : task->level) : json_null());
    return out;
}

/* An answer with its prompt: `trainer weighted` learns from these. */
static json_t *
candidate_row(const struct bestofn *b, const struct round_result *result, json_t *answer)
{
    char digest[HASH_TEXT_SIZE];
    AUTO_BUFFER struct buffer prompt = BUFFER_INIT;
    AUTO_FREE char *wanted = task_class_wanted(result->task);

    prompt_digest(b->round.policy, digest);
    if (!wanted || prompt_make(result->task->reference, wanted, b->round.policy, &prompt) != 0)
        return NULL;
    json_t *row = json_pack("{s:s, s:s, s:s}", "task", result->task->name, "prompt", digest, "instruction",
                            prompt.data);
    if (row)
        json_object_update(row, answer);
    return row;
}

/* The best K of one task, best first; returns how many. */
static size_t
keep(const struct bestofn *b, const struct round_result *result, struct output *out, struct output *sft)
{
    size_t n = 0, i;
    json_t *answer;
    AUTO_FREE struct contender *best = calloc(json_array_size(result->answers) + 1, sizeof(*best));

    if (!best) {
        out->is_bad = true;
        return 0;
    }
    json_array_foreach(result->answers, i, answer)
    {
        if (is_kept(b, answer))
            best[n++] = (struct contender){ answer, answer_reward(answer), i };
    }
    qsort(best, n, sizeof(*best), by_reward);
    n = n < (size_t)b->keep ? n : (size_t)b->keep;
    for (i = 0; i < n; i++) {
        AUTO_JSON json_t *row = kept_row(b, result, best[i].answer);
        output_line(out, row);
        if (b->is_sft) {
            AUTO_JSON json_t *taught = sft_row(b, result, best[i].answer, row);
            output_line(sft, taught);
        }
    }
    return n;
}

/* --- the report --- */

struct tally {
    size_t answers, correct, kept, tasks_correct, infra, cancelled;
    json_t *classes;
};

static void
count(const struct round_result *result, struct tally *tally)
{
    size_t i, correct = 0;
    json_t *answer;
    json_array_foreach(result->answers, i, answer)
    {
        json_t *verdict = json_object_get(answer, "verdict");
        const char *class_ = json_string_value(json_object_get(verdict, "class"));
        if (json_object_get(verdict, "duplicate_of"))
            continue;
        tally->cancelled += answer_is_cancelled(answer);
        if (!class_)
            continue;
        tally->answers++;
        tally->infra += strcmp(class_, "infra") == 0;
        correct += answer_is_correct(answer);
        json_object_set_new(tally->classes, class_,
                            json_integer(1 + json_integer_value(json_object_get(tally->classes, class_))));
    }
    tally->correct += correct;
    tally->tasks_correct += correct > 0;
}

static json_t *
report_json(const struct bestofn *b, const struct task_set *set, const struct round_totals *totals,
            const struct tally *tally)
{
    char digest[HASH_TEXT_SIZE];
    prompt_digest(b->round.policy, digest);
    return json_pack(
        "{s:s, s:s, s:o, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:O, s:f, s:f, s:f}",
        "name", b->name, "model", b->trainer->model, "sampling", endpoint_provenance(b->trainer), "prompt",
        digest, "tasks", (int)set->n, "tasks_failed", (int)totals->failed, "tasks_with_a_correct_answer",
        (int)tally->tasks_correct, "rows_skipped", (int)set->skipped, "answers", (int)totals->sampled,
        "distinct", (int)tally->answers, "correct", (int)tally->correct, "kept", (int)tally->kept, "infra",
        (int)tally->infra, "cancelled", (int)tally->cancelled, "threshold", threshold_of(b), "classes",
        tally->classes, "seconds", totals->seconds, "sampling_s", totals->sampling_s, "judging_s",
        totals->judging_s);
}

static void
print_report(const struct bestofn *b, json_t *report, const char *sub)
{
    const char *class_;
    json_t *n;
    double s = json_number_value(json_object_get(report, "seconds"));
    json_int_t answers = json_integer_value(json_object_get(report, "answers"));

    printf("kept %lld of %lld distinct answers to %lld tasks (%lld correct, threshold %g); %s/%s\n",
           (long long)json_integer_value(json_object_get(report, "kept")),
           (long long)json_integer_value(json_object_get(report, "distinct")),
           (long long)json_integer_value(json_object_get(report, "tasks")),
           (long long)json_integer_value(json_object_get(report, "correct")), threshold_of(b),
           b->trainer->workdir, sub);
    json_object_foreach(json_object_get(report, "classes"), class_, n)
        printf("  %-16s %6lld\n", class_, (long long)json_integer_value(n));
    json_int_t cancelled = json_integer_value(json_object_get(report, "cancelled"));
    if (cancelled)
        printf("  %-16s %6lld (no verdict; cancelled.jsonl)\n", "cancelled", (long long)cancelled);
    printf("%lld answers, %.0f s; summed over tasks, %.0f s of sampling and %.0f s of judging\n",
           (long long)answers, s, json_number_value(json_object_get(report, "sampling_s")),
           json_number_value(json_object_get(report, "judging_s")));
}

/*
 * The files of a round. An answer is in candidates.jsonl with its verdict, or in cancelled.jsonl without one;
 * sft_train.jsonl is there if it was requested.
 */
enum { KEPT, CANDIDATES, CANCELLED, SFT, FILES };

static int
begin_files(const struct bestofn *b, const char *sub, struct output files[FILES], struct error *err)
{
    static const char *const names[FILES] = { "kept.jsonl", "candidates.jsonl", "cancelled.jsonl",
                                              "sft_train.jsonl" };
    char path[OUTPUT_PATH_MAX];
    int rc = 0;
    for (int i = 0; rc == 0 && i < (b->is_sft ? FILES : SFT); i++) {
        rc = output_path(b->trainer->workdir, sub, names[i], path, err);
        rc = rc == 0 ? output_begin(&files[i], path, err) : rc;
    }
    return rc;
}

/* All of them, also when one fails. */
static int
end_files(struct output files[FILES], struct error *err)
{
    int rc = 0;
    for (int i = 0; i < FILES; i++) {
        struct error why;
        int one = files[i].file ? output_end(&files[i], &why) : 0;
        if (rc == 0 && one != 0)
            *err = why;
        rc = rc == 0 ? one : rc;
    }
    return rc;
}

static int
write_all(const struct bestofn *b, const struct task_set *set, const struct round_result *results,
          const struct round_totals *totals, const char *sub, struct error *err)
{
    AUTO_JSON json_t *classes = json_object();
    struct tally tally = { .classes = classes };
    struct output files[FILES] = { 0 };
    char path[OUTPUT_PATH_MAX];

    int rc = begin_files(b, sub, files, err);
    for (size_t i = 0; rc == 0 && i < set->n; i++) {
        size_t k;
        json_t *answer;
        tally.kept += keep(b, &results[i], &files[KEPT], &files[SFT]);
        count(&results[i], &tally);
        json_array_foreach(results[i].answers, k, answer)
        {
            AUTO_JSON json_t *row = candidate_row(b, &results[i], answer);
            output_line(&files[answer_is_cancelled(answer) ? CANCELLED : CANDIDATES], row);
        }
    }
    if (rc != 0) {
        for (int i = 0; i < FILES; i++)
            output_cancel(&files[i]);
        return rc;
    }
    rc = end_files(files, err);
    AUTO_JSON json_t *report = report_json(b, set, totals, &tally);
    rc = rc == 0 ? output_path(b->trainer->workdir, sub, "report.json", path, err) : rc;
    rc = rc == 0 ? output_document(path, report, err) : rc;
    if (rc == 0)
        print_report(b, report, sub);
    return rc;
}

/* By level, or by the curriculum, which has all levels to draw from. */
static int
load_tasks(struct bestofn *b, struct task_set *set, struct error *err)
{
    struct task_options all = { .path = b->tasks.path };
    if (!b->plan.kind)
        return task_options_load(&b->tasks, b->trainer->seed, set, err);
    int rc = task_options_load(&all, b->trainer->seed, set, err);
    size_t n = b->tasks.most ? (size_t)b->tasks.most : set->n;
    return rc == 0 ? plan_draw(&b->plan, b->trainer->workdir, b->name, n, b->trainer->seed, set, err) : rc;
}

int
bestofn_command(struct trainer *t, int argc, char **argv)
{
    AUTO_JSON json_t *reward = json_object();
    struct bestofn b = { .trainer = t,
                         .tasks = { .level = 2, .most = 100 },
                         .round = { .samples = 10, .turns = 1, .reward = reward },
                         .plan = { .percent = 50 },
                         .name = "run",
                         .reward = reward,
                         .keep = 3,
                         .threshold = NAN };
    struct task_set set = { 0 };
    struct round_result *results = NULL;
    struct round_totals totals;
    struct error err = { 0 };
    char sub[256], journal[OUTPUT_PATH_MAX], cache[OUTPUT_PATH_MAX];

    argp_parse(&argp, argc, argv, 0, NULL, &b);
    if (!t->endpoint_url || !t->model)
        return trainer_complain(TRAINER_USAGE,
                                "name the model and its endpoint: --endpoint URL --model NAME");
    int rc = b.is_sft ? output_path(t->workdir, "data/cache", "answers", cache, &err) : 0;
    t->cache = b.is_sft ? cache : NULL;
    rc = rc == 0 ? load_tasks(&b, &set, &err) : rc;
    snprintf(sub, sizeof(sub), "outputs/bestofn_%.200s", b.name);
    rc = rc == 0 ? output_path(t->workdir, sub, "journal.jsonl", journal, &err) : rc;
    b.round.journal = journal;
    rc = rc == 0 ? round_run(t, &b.round, &set, &results, &totals, &err) : rc;
    rc = rc == 0 ? write_all(&b, &set, results, &totals, sub, &err) : rc;
    if (rc == 0 && b.plan.kind && totals.failed < set.n)
        rc = plan_learn(&b.plan, t->workdir, results, set.n, &err);
    int status = rc == 0 ? (int)round_tell_failures(results, set.n) : trainer_failed(&err);
    round_free(results, set.n);
    tasks_free(&set);
    return status;
}
