#include "client/trainer/round.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/daemon.h"
#include "client/trainer/endpoint.h"
#include "client/trainer/journal.h"
#include "client/trainer/prompt.h"
#include "client/trainer/rules.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/extract.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/policy.h"
#include "common/statistics.h"

enum { FEEDBACK_MAX = 6000, LABEL_MAX_BYTES = 200 };

/* One turn of a task: its answers, and their verdicts. */
struct turn {
    json_t *answers; /* one for each sample; NULL, or fewer (of an endpoint): not all are sampled yet */
    char group[DAEMON_ID_SIZE];
    json_t *verdicts; /* one for each answer; NULL: not judged yet */
    int judged;       /* how often, by the journal */
};

struct work {
    const struct task *task;
    struct turn *turns;
    char *failure;
    bool is_resumed;
};

struct round {
    const struct trainer *trainer;
    const struct round_options *options;
    const struct task_set *set;
    struct work *work;
    struct journal *journal;
    char run
        [ID_SIZE]; /* of the journal: distinguishes this run's groups from those of another with the same prompts */
    json_t *header;
    int header_rc;
    struct error header_err;
    bool has_moved;                              /* the endpoint, since the run was begun */
    pthread_mutex_t mutex;                       /* protects the fields below */
    size_t next, done, done_here, answered_here; /* here: not found in the journal */
    struct round_totals totals;
    struct error stop; /* the journal cannot be written: nothing goes on */
    int64_t start_ns;
};

/* One thread's connections. */
struct hands {
    struct round *round;
    struct endpoint *endpoint;
    struct http_client *daemon;
};

/* --- answers --- */

static bool
verdict_is_correct(json_t *verdict)
{
    return json_number_value(json_object_get(json_object_get(verdict, "components"), "correct")) == 1;
}

bool
answer_is_correct(json_t *answer)
{
    return verdict_is_correct(json_object_get(answer, "verdict"));
}

bool
answer_is_cancelled(json_t *answer)
{
    return text_is(json_object_get(answer, "verdict"), "state", "cancelled");
}

bool
answer_is_last(json_t *answers, json_t *answer)
{
    json_t *last = json_array_get(answers, json_array_size(answers) - 1); /* turn by turn: join_answers() */
    return json_integer_value(json_object_get(answer, "turn")) ==
           json_integer_value(json_object_get(last, "turn"));
}

int
answer_code(json_t *answer, const struct task *task, struct buffer *out)
{
    json_t *code = json_object_get(answer, "code"), *text = json_object_get(answer, "text");
    AUTO_FREE char *wanted = task_class_wanted(task);
    struct extract found;

    if (json_is_string(code))
        return buffer_append(out, json_string_value(code), json_string_length(code));
    if (!wanted)
        return ERR_NOMEM;
    if (extract_code(json_string_value(text), json_string_length(text), wanted, &found) != 0)
        return buffer_add(out, "");
    return extract_append(&found, out);
}

double
answer_reward(json_t *answer)
{
    return number_or_nan(json_object_get(answer, "verdict"), "reward");
}

/* --- the journal --- */

/* Of a policy's file what it says, since that may change; a name or NAME,KEY=VALUE,... as it is. Given; NULL: none. */
static json_t *
policy_of(const char *text)
{
    json_t *policy = NULL;
    struct error err = { 0 };

    if (text && (strchr(text, '=') || policy_parse(text, &policy, &err) != 0))
        return json_string(text);
    return policy;
}

/* The settings that must be equal for a journal to be continued. */
static json_t *
header_of(const struct trainer *t, const struct round_options *o, const struct task_set *set)
{
    char prompt[HASH_TEXT_SIZE], tasks[HASH_TEXT_SIZE];
    AUTO_BUFFER struct buffer all = BUFFER_INIT;

    prompt_digest(o->policy, prompt);
    for (size_t i = 0; i < set->n; i++) {
        buffer_append(&all, set->tasks[i].name, strlen(set->tasks[i].name) + 1);
        buffer_append(&all, set->tasks[i].reference, strlen(set->tasks[i].reference) + 1);
    }
    hash_text(all.data ? all.data : "", all.size, tasks);
    json_t *sampling = o->source ? json_incref(o->source->provenance) : endpoint_provenance(t);
    json_t *stop = o->stop_correct ? json_integer(o->stop_correct) : json_null();
    return json_pack("{s:s, s:i, s:s, s:s, s:o, s:i, s:i, s:I, s:o?, s:s?, s:o, s:O*, s:O?}", "event",
                     "begin", "version", 1, "prompt", prompt, "tasks", tasks, "sampling", sampling, "samples",
                     o->samples, "turns", o->turns, "seed", (json_int_t)t->seed, "policy",
                     policy_of(o->policy), "until", o->until, "stop_correct", stop, "policy_parts",
                     o->policy_parts, "reward", o->reward);
}

static struct work *
find_work(struct round *r, const char *name)
{
    for (size_t i = 0; name && i < r->set->n; i++)
        if (strcmp(r->set->tasks[i].name, name) == 0)
            return &r->work[i];
    return NULL;
}

/* The first member that differs, or NULL. */
static const char *
difference(json_t *a, json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach(a, key, value)
    {
        json_t *other = json_object_get(b, key);
        if (!json_equal(value, other ? other : json_null()) && !(json_is_null(value) && !other))
            return key;
    }
    return NULL;
}

/* A model that has moved is the same model; what a checkpoint's weights are stands in the same place, and is compared. */
static void
allow_move(struct round *r, json_t *record)
{
    json_t *mine = json_object_get(r->header, "sampling"), *theirs = json_object_get(record, "sampling");
    const char *was = json_string_value(json_object_get(theirs, "endpoint"));

    if (r->options->source || r->trainer->endpoint_name || !was || strncmp(was, "http", 4) != 0 ||
        strcmp(was, r->trainer->endpoint_url) == 0)
        return;
    r->has_moved = true;
    json_object_set(mine, "endpoint", json_object_get(theirs, "endpoint"));
}

/* A journal that was begun before a policy's file was kept by what it says has the file's name. */
static void
allow_name(struct round *r, json_t *record)
{
    const char *was = json_string_value(json_object_get(record, "policy"));

    if (was && r->options->policy && strcmp(was, r->options->policy) == 0)
        json_object_set(r->header, "policy", json_object_get(record, "policy"));
}

static void
check_header(struct round *r, json_t *record)
{
    allow_move(r, record);
    allow_name(r, record);
    const char *key = difference(r->header, record);
    const char *part = key ? difference(json_object_get(r->header, key), json_object_get(record, key)) : NULL;
    if (key && strcmp(key, "prompt") == 0)
        r->header_rc =
            error_set(&r->header_err, ERR_INPUT,
                      "%.100s was begun with the prompt %.19s, and this trainer's is %.19s: name "
                      "another run",
                      r->options->journal, text_or(record, key, "none"), text_or(r->header, key, "none"));
    else if (key)
        r->header_rc = error_set(
            &r->header_err, ERR_INPUT,
            "%.100s is of another run: its \"%s\" differs%s%s. Name another one, or go on as it was begun",
            r->options->journal, key, part ? " in " : "", part ? part : "");
    snprintf(r->run, sizeof(r->run), "%s", text_or(record, "run", ""));
}

/* Behind those that came before. */
static void
add_answers(struct turn *at, json_t *answers)
{
    if (!at->answers)
        at->answers = json_array();
    json_array_extend(at->answers, answers);
}

static void
replay_cb(void *arg, json_t *record)
{
    struct round *r = arg;
    const char *event = text_or(record, "event", "");
    struct work *w = find_work(r, json_string_value(json_object_get(record, "task")));
    json_int_t turn = json_integer_value(json_object_get(record, "turn"));

    if (strcmp(event, "begin") == 0) {
        check_header(r, record);
        json_decref(r->header);
        r->header = NULL; /* it is there */
        return;
    }
    if (!w || turn < 0 || turn >= r->options->turns)
        return;
    struct turn *at = &w->turns[turn];
    if (strcmp(event, "sampled") == 0) {
        add_answers(at, json_object_get(record, "answers"));
    } else if (strcmp(event, "posted") == 0) {
        snprintf(at->group, sizeof(at->group), "%s", text_or(record, "group", ""));
    } else if (strcmp(event, "judged") == 0) {
        json_decref(at->verdicts);
        at->verdicts = json_incref(json_object_get(record, "verdicts"));
        at->group[0] = '\0'; /* it has ended: a later "posted" record is for another group */
        at->judged++;
    }
}

/* Write a record, or stop the whole round. record is taken. */
static int
note(struct round *r, json_t *record, struct error *err)
{
    int rc = record ? journal_add(r->journal, record, err) : error_set(err, ERR_NOMEM, "out of memory");
    json_decref(record);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&r->mutex);
    r->stop = *err;
    pthread_mutex_unlock(&r->mutex);
    return rc;
}

/* --- one turn of one task --- */

/* The messages to the model: the prompt, and for later turns this sample's answers and feedback so far. */
static json_t *
conversation(struct work *w, const char *policy, int turn, size_t sample)
{
    AUTO_BUFFER struct buffer prompt = BUFFER_INIT;
    AUTO_FREE char *wanted = task_class_wanted(w->task);

    if (!wanted || prompt_make(w->task->reference, wanted, policy, &prompt) != 0)
        return NULL;
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", prompt.data);
    for (int i = 0; messages && i < turn; i++) {
        json_t *answer = json_array_get(w->turns[i].answers, sample);
        json_t *verdict = json_array_get(w->turns[i].verdicts, sample);
        AUTO_BUFFER struct buffer said = BUFFER_INIT;
        buffer_printf(
            &said,
            "A verifier has judged your answer. %.*s\n\nAnswer with an improved `%s` in one python block.",
            FEEDBACK_MAX, text_or(json_object_get(verdict, "feedback"), "text", "It could not be judged."),
            wanted);
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "assistant", "content",
                                                  json_object_get(answer, "text")));
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", said.data));
    }
    return messages;
}

/* Different seeds for each task, sample and turn, the same in each run. */
static uint64_t
seed_of(const struct trainer *t, const struct task *task, int turn, size_t sample)
{
    uint64_t h = 14695981039346656037u ^ t->seed; /* FNV-1a */
    for (const char *at = task->name; *at; at++)
        h = (h ^ (unsigned char)*at) * 1099511628211u;
    return h + (uint64_t)turn * 1000003u + sample;
}

static int
ask(struct hands *hands, const struct task *task, json_t *messages, int n, uint64_t seed, json_t **answers,
    struct error *err)
{
    const struct round_source *source = hands->round->options->source;
    if (!messages)
        return error_set(err, ERR_INPUT, "the reference is not UTF-8");
    return source ? source->sample(source->arg, task, messages, n, seed, answers, err)
                  : endpoint_sample(hands->endpoint, messages, n, seed, answers, err);
}

static bool
has_all_answers(const struct round *r, const struct turn *at)
{
    return at->answers && (r->options->source || json_array_size(at->answers) >= (size_t)r->options->samples);
}

/*
 * All samples of a turn: in one request, and what is missing then one by one, as every later turn, in which each sample
 * has a conversation of its own. What has come is in the journal before more is asked for.
 */
static int
sample(struct hands *hands, struct work *w, int turn, struct error *err)
{
    struct round *r = hands->round;
    struct turn *at = &w->turns[turn];
    int rc = 0;

    while (rc == 0 && !has_all_answers(r, at)) {
        size_t n = json_array_size(at->answers);
        AUTO_JSON json_t *messages = conversation(w, r->options->policy, turn, n);
        AUTO_JSON json_t *some = NULL;
        rc = ask(hands, w->task, messages, n == 0 && turn == 0 ? r->options->samples : 1,
                 seed_of(r->trainer, w->task, turn, n), &some, err);
        if (rc == 0)
            rc = note(r,
                      json_pack("{s:s, s:s, s:i, s:O}", "event", "sampled", "task", w->task->name, "turn",
                                turn, "answers", some),
                      err);
        if (rc == 0)
            add_answers(at, some);
    }
    return rc;
}

/* For each answer the first one with the same code, by index. Given: free(). */
static size_t *
find_same(json_t *answers, const struct task *task)
{
    size_t n = json_array_size(answers), *first = calloc(n + 1, sizeof(*first));
    char(*hashes)[HASH_TEXT_SIZE] = calloc(n + 1, sizeof(*hashes));

    for (size_t i = 0; first && hashes && i < n; i++) {
        AUTO_BUFFER struct buffer code = BUFFER_INIT;
        if (answer_code(json_array_get(answers, i), task, &code) != 0) {
            free(hashes);
            hashes = NULL;
            break;
        }
        hash_text(code.data, code.size, hashes[i]);
        for (first[i] = 0; strcmp(hashes[first[i]], hashes[i]) != 0;)
            first[i]++;
    }
    if (!hashes) {
        free(first);
        first = NULL;
    }
    free(hashes);
    return first;
}

/* The run's name if the environment has none: that of the working directory if it has steps, else the journal's. */
static json_t *
run_of(const struct round *r)
{
    AUTO_FREE char *path =
        r->options->step ? realpath(r->trainer->workdir, NULL) : strdup(r->options->journal);
    char *end = path ? strrchr(path, '/') : NULL;

    if (end && !r->options->step) {
        *end = '\0';
        end = strrchr(path, '/');
    }
    const char *name = end ? end + 1 : path;
    return json_string(name && *name ? name : "trainer");
}

/* Labels by which the daemon's dashboard distinguishes runs, and the rounds of a run. */
static json_t *
labels_of(const struct round *r)
{
    const char *model = r->options->source ? NULL : r->trainer->model;
    json_t *run = r->trainer->run ? json_string(r->trainer->run) : run_of(r);

    /* A longer name is not accepted as a label (docs/http.md). */
    return json_pack("{s:o*, s:o*, s:s*}", "run", run, "step",
                     r->options->step ? json_integer(r->options->step) : NULL, "policy_version",
                     model && strlen(model) <= LABEL_MAX_BYTES ? model : NULL);
}

static json_t *
group_body(struct round *r, struct work *w, json_t *answers, const size_t *first, const char *task_id,
           json_t *policy)
{
    AUTO_FREE char *wanted = task_class_wanted(w->task);
    char prompt[HASH_TEXT_SIZE];
    json_t *candidates = json_array();
    json_t *body =
        json_pack("{s:s, s:o, s:O, s:s, s:s?, s:o}", "task", task_id, "candidates", candidates, "policy",
                  policy, "client", "trainer", "entry_point", wanted, "metadata", labels_of(r));
    json_t *answer;
    size_t i;

    prompt_digest(r->options->policy, prompt);
    json_array_foreach(answers, i, answer)
    {
        json_t *code = json_object_get(answer, "code");
        if (first[i] == i)
            json_array_append_new(candidates,
                                  json_pack("{s:O, s:{s:i, s:s}}", code ? "candidate" : "completion",
                                            code ? code : json_object_get(answer, "text"), "metadata",
                                            "sample", (int)i, "prompt", prompt));
    }
    if (r->options->until)
        json_object_set_new(body, "until", json_string(r->options->until));
    if (r->options->stop_correct)
        json_object_set_new(body, "stop", json_pack("{s:i}", "correct", r->options->stop_correct));
    if (r->options->reward)
        json_object_set(body, "reward", r->options->reward);
    return body;
}

/* Reasoning, in which no code is looked for, may make the answers of a group longer than a request may be. */
static void
leave_out_reasoning(json_t *body)
{
    json_t *candidate;
    size_t i;

    json_array_foreach(json_object_get(body, "candidates"), i, candidate)
    {
        json_t *whole = json_object_get(candidate, "completion");
        const char *text = json_string_value(whole);
        if (!text)
            continue;
        const char *answer = extract_answer(text, json_string_length(whole));
        json_object_set_new(candidate, "completion",
                            json_stringn(answer, json_string_length(whole) - (size_t)(answer - text)));
    }
}

/* {"mean", "std", "min", "max", "num_trials"} in ms, which is what KernelBench keeps of the samples; NULL: there are none. */
static json_t *
stats_of(json_t *samples_ns)
{
    size_t n = json_array_size(samples_ns);
    AUTO_FREE double *ms = calloc(n + 1, sizeof(*ms));
    double low = INFINITY, high = -INFINITY;

    for (size_t i = 0; ms && i < n; i++) {
        ms[i] = json_number_value(json_array_get(samples_ns, i)) / 1e6;
        low = fmin(low, ms[i]);
        high = fmax(high, ms[i]);
    }
    if (n == 0 || !ms)
        return NULL;
    double mean = stats_mean(ms, n), std = n < 2 ? 0 : stats_variation(ms, n) * mean;
    return json_pack("{s:f, s:f, s:f, s:f, s:i}", "mean", mean, "std", std, "min", low, "max", high,
                     "num_trials", (int)n);
}

/* The verdict as it is kept: without the raw samples and what the whole run shares. */
static json_t *
trimmed(json_t *verdict)
{
    static const char *const dropped[] = { "task", "task_name", "kernels", "metadata", "policy_on", "group" };
    json_t *out = json_copy(verdict);
    json_t *timing = json_copy(json_object_get(verdict, "timing"));
    for (size_t i = 0; i < ARRAY_LEN(dropped); i++)
        json_object_del(out, dropped[i]);
    if (json_is_object(timing)) {
        json_t *stats = stats_of(json_object_get(timing, "candidate_ns"));
        if (stats)
            json_object_set_new(timing, "candidate_stats", stats);
        json_object_del(timing, "reference_ns");
        json_object_del(timing, "candidate_ns");
        json_object_del(timing, "clocks");
        json_object_set(out, "timing", timing);
    }
    json_decref(timing);
    return out;
}

static int
post(struct hands *hands, struct work *w, int turn, const size_t *first, struct error *err)
{
    char task_id[DAEMON_ID_SIZE], group[DAEMON_ID_SIZE];
    int rc = daemon_add_task(hands->daemon, w->task, task_id, err);
    if (rc != 0)
        return rc;
    AUTO_JSON json_t *policy = NULL;
    const struct round_options *o = hands->round->options;
    int rules = rules_of(o->policy, w->task->level, o->policy_parts, &policy, err);
    if (rules != 0)
        return rules;
    AUTO_JSON json_t *body = group_body(hands->round, w, w->turns[turn].answers, first, task_id, policy);
    if (json_dumpb(body, NULL, 0, JSON_COMPACT) > HTTP_BODY_MAX)
        leave_out_reasoning(body);
    AUTO_BUFFER struct buffer run = BUFFER_INIT;
    int again = w->turns[turn].judged;
    if (buffer_printf(&run, "%s %s %d", hands->round->run, w->task->name, turn) != 0 ||
        (again > 0 && buffer_printf(&run, " %d", again) != 0))
        return error_set(err, ERR_NOMEM, "out of memory");
    rc = daemon_add_group(hands->daemon, run.data, body, group, err);
    if (rc == 0)
        rc = note(hands->round,
                  json_pack("{s:s, s:s, s:i, s:s}", "event", "posted", "task", w->task->name, "turn", turn,
                            "group", group),
                  err);
    if (rc == 0)
        snprintf(w->turns[turn].group, sizeof(w->turns[turn].group), "%s", group);
    return rc;
}

static int
judge(struct hands *hands, struct work *w, int turn, struct error *err)
{
    struct turn *at = &w->turns[turn];
    AUTO_FREE size_t *first = find_same(at->answers, w->task);
    AUTO_JSON json_t *group = NULL;
    int rc = 0;

    if (!first)
        return error_set(err, ERR_NOMEM, "out of memory");
    if (at->group[0])
        rc = daemon_wait_group(hands->daemon, at->group, &group, err);
    if (rc == ERR_NOTFOUND)
        at->group[0] = '\0'; /* a daemon with another store: have it judged there */
    if ((rc == 0 || rc == ERR_NOTFOUND) && !at->group[0]) {
        rc = post(hands, w, turn, first, err);
        rc = rc == 0 ? daemon_wait_group(hands->daemon, at->group, &group, err) : rc;
    }
    if (rc != 0)
        return rc;
    json_t *items = json_object_get(group, "items");
    AUTO_JSON json_t *verdicts = json_array();
    for (size_t i = 0, item = 0; i < json_array_size(at->answers); i++) {
        if (first[i] != i) { /* judged once, and once is how often it counts */
            AUTO_JSON json_t *copy = json_copy(json_array_get(verdicts, first[i]));
            json_object_set_new(copy, "duplicate_of", json_integer((json_int_t)first[i]));
            json_array_append(verdicts, copy);
            continue;
        }
        json_array_append_new(verdicts, trimmed(json_array_get(items, item++)));
    }
    rc = note(hands->round,
              json_pack("{s:s, s:s, s:i, s:O}", "event", "judged", "task", w->task->name, "turn", turn,
                        "verdicts", verdicts),
              err);
    if (rc == 0)
        at->verdicts = json_incref(verdicts);
    return rc;
}

/* --- the round --- */

static double
seconds_since(int64_t start_ns)
{
    return (double)(clock_monotonic_ns() - start_ns) / 1e9;
}

static void
add_seconds(struct round *r, double *total, int64_t start_ns)
{
    pthread_mutex_lock(&r->mutex);
    *total += seconds_since(start_ns);
    pthread_mutex_unlock(&r->mutex);
}

/* Has this turn as many correct answers as were wanted? Or the daemon has decided that, by cancelling the rest. */
static bool
is_decided(const struct round *r, const struct turn *at)
{
    json_t *verdict;
    size_t i;
    int n = 0;

    if (r->options->stop_correct == 0)
        return false;
    json_array_foreach(at->verdicts, i, verdict)
    {
        if (text_is(verdict, "cancel_reason", "group_decided"))
            return true;
        n += !json_object_get(verdict, "duplicate_of") && verdict_is_correct(verdict);
    }
    return n >= r->options->stop_correct;
}

static bool
is_finished(const struct round *r, const struct work *w)
{
    for (int turn = 0; turn < r->options->turns; turn++) {
        if (!w->turns[turn].verdicts)
            return false;
        if (is_decided(r, &w->turns[turn]))
            return true;
    }
    return true;
}

static bool
has_unjudged(json_t *verdicts)
{
    json_t *verdict;
    size_t i;

    json_array_foreach(verdicts, i, verdict)
    {
        if (text_is(verdict, "class", "infra") || text_is(verdict, "state", "cancelled"))
            return true;
    }
    return false;
}

/*
 * Answers that the daemon failed to judge in an earlier command, or that somebody cancelled, are judged again, with their
 * whole group, so that its verdicts are comparable; the daemon still has most of them. Not if the model has answered to
 * the verdict since, or if the group was decided without it.
 */
static void
forget_unjudged(struct round *r)
{
    for (size_t i = 0; i < r->set->n; i++)
        for (int turn = 0; turn < r->options->turns; turn++) {
            struct turn *at = &r->work[i].turns[turn];
            bool is_answered = turn + 1 < r->options->turns && at[1].answers;
            if (is_answered || !has_unjudged(at->verdicts) || is_decided(r, at))
                continue;
            json_decref(at->verdicts);
            at->verdicts = NULL;
        }
}

static int
run_turns(struct hands *hands, struct work *w, struct error *err)
{
    struct round *r = hands->round;
    int rc = 0;

    w->is_resumed = is_finished(r, w);
    for (int turn = 0; rc == 0 && !is_finished(r, w); turn++) {
        int64_t start_ns = clock_monotonic_ns();
        if (!has_all_answers(r, &w->turns[turn])) {
            rc = sample(hands, w, turn, err);
            add_seconds(r, &r->totals.sampling_s, start_ns);
        }
        start_ns = clock_monotonic_ns();
        if (rc == 0 && !w->turns[turn].verdicts) {
            rc = judge(hands, w, turn, err);
            add_seconds(r, &r->totals.judging_s, start_ns);
        }
    }
    return rc;
}

static void
show_progress(struct round *r, const struct work *w)
{
    double s = seconds_since(r->start_ns), left = 0;
    size_t correct = 0, n = 0;
    for (int turn = 0; turn < r->options->turns; turn++)
        for (size_t i = 0; i < json_array_size(w->turns[turn].verdicts); i++, n++)
            correct += verdict_is_correct(json_array_get(w->turns[turn].verdicts, i));
    if (!w->is_resumed) {
        r->done_here++;
        r->answered_here += n;
    }
    if (r->done_here > 0)
        left = s / (double)r->done_here * (double)(r->set->n - r->done);
    if (w->failure)
        fprintf(stderr, "[%zu/%zu] %s: failed: %s\n", r->done, r->set->n, w->task->name, w->failure);
    else
        fprintf(stderr,
                "[%zu/%zu] %s: %zu of %zu correct%s; %.0f s, %.1f answers a minute, about %.0f s left\n",
                r->done, r->set->n, w->task->name, correct, n, w->is_resumed ? " (done before)" : "", s,
                s > 0 ? 60 * (double)r->answered_here / s : 0, left);
}

static bool
is_over(struct round *r)
{
    return trainer_is_stopping() || r->stop.code != ERR_NONE;
}

static void *
run_thread(void *arg)
{
    struct hands hands = { .round = arg };
    struct round *r = arg;
    struct error err = { 0 };

    int rc = r->options->source ? 0 : endpoint_new(r->trainer, &hands.endpoint, &err);
    if (rc == 0)
        rc = daemon_open(r->trainer, &hands.daemon, &err);
    pthread_mutex_lock(&r->mutex);
    if (rc != 0)
        r->stop = err;
    while (!is_over(r) && r->next < r->set->n) {
        struct work *w = &r->work[r->next++];
        pthread_mutex_unlock(&r->mutex);
        err = (struct error){ 0 };
        rc = run_turns(&hands, w, &err);
        pthread_mutex_lock(&r->mutex);
        if (is_over(r))
            break;
        if (rc == ERR_UNAVAILABLE ||
            rc == ERR_SYS) { /* a service is gone, or the disk full: the others would fare
                                                         the same, later */
            r->stop = err;
            break;
        }
        if (rc != 0)
            w->failure = strdup(err.text);
        r->done++;
        show_progress(r, w);
    }
    pthread_mutex_unlock(&r->mutex);
    endpoint_free(hands.endpoint);
    http_client_free(hands.daemon);
    return NULL;
}

static void
run_threads(struct round *r)
{
    pthread_t threads[64];
    int n = 0, wanted = r->trainer->concurrency;

    if ((size_t)wanted > r->set->n)
        wanted = (int)r->set->n;
    while (n < wanted && n < (int)ARRAY_LEN(threads) && pthread_create(&threads[n], NULL, run_thread, r) == 0)
        n++;
    if (n == 0)
        run_thread(r);
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

/* The answers of all turns with their verdicts; counts them. */
static json_t *
join_answers(struct round *r, struct work *w)
{
    json_t *out = json_array();
    for (int turn = 0; turn < r->options->turns; turn++) {
        for (size_t i = 0; i < json_array_size(w->turns[turn].answers); i++) {
            json_t *answer = json_copy(json_array_get(w->turns[turn].answers, i));
            json_t *verdict = json_array_get(w->turns[turn].verdicts, i);
            json_object_set_new(answer, "turn", json_integer(turn));
            json_object_set_new(answer, "sample", json_integer((json_int_t)i));
            json_object_set(answer, "verdict", verdict);
            json_array_append_new(out, answer);
            r->totals.sampled++;
            r->totals.judged += verdict != NULL;
            r->totals.duplicates += json_object_get(verdict, "duplicate_of") != NULL;
        }
    }
    return out;
}

static struct round_result *
collect(struct round *r)
{
    struct round_result *results = calloc(r->set->n + 1, sizeof(*results));
    for (size_t i = 0; results && i < r->set->n; i++) {
        struct work *w = &r->work[i];
        results[i].task = w->task;
        results[i].failure = ptr_take(&w->failure);
        if (!results[i].failure)
            results[i].answers = join_answers(r, w);
        r->totals.failed += results[i].failure != NULL;
        r->totals.resumed += w->is_resumed;
    }
    return results;
}

static void
work_free(struct round *r)
{
    for (size_t i = 0; r->work && i < r->set->n; i++) {
        for (int turn = 0; r->work[i].turns && turn < r->options->turns; turn++) {
            json_decref(r->work[i].turns[turn].answers);
            json_decref(r->work[i].turns[turn].verdicts);
        }
        free(r->work[i].turns);
        free(r->work[i].failure);
    }
    free(r->work);
}

static int
prepare(struct round *r, struct error *err)
{
    r->header = header_of(r->trainer, r->options, r->set);
    r->work = calloc(r->set->n + 1, sizeof(*r->work));
    for (size_t i = 0; r->work && i < r->set->n; i++) {
        r->work[i].task = &r->set->tasks[i];
        r->work[i].turns = calloc((size_t)r->options->turns, sizeof(struct turn));
        if (!r->work[i].turns)
            return error_set(err, ERR_NOMEM, "out of memory");
    }
    if (!r->work || !r->header)
        return error_set(err, ERR_NOMEM, "out of memory");
    int rc = journal_open(r->options->journal, replay_cb, r, &r->journal, err);
    if (rc == 0 && r->header_rc != 0) {
        *err = r->header_err;
        return r->header_rc;
    }
    if (rc == 0)
        forget_unjudged(r);
    if (rc == 0 && r->has_moved)
        rc = note(r, json_pack("{s:s, s:s}", "event", "moved", "endpoint", r->trainer->endpoint_url), err);
    if (rc == 0 && r->header) {
        json_t *header = ptr_take(&r->header);
        id_new(r->run);
        json_object_set_new(header, "run", json_string(r->run));
        rc = note(r, header, err);
    }
    return rc;
}

int
round_run(const struct trainer *t, const struct round_options *options, const struct task_set *set,
          struct round_result **results, struct round_totals *totals, struct error *err)
{
    struct round r = { .trainer = t, .options = options, .set = set, .start_ns = clock_monotonic_ns() };

    *results = NULL;
    pthread_mutex_init(&r.mutex, NULL);
    int rc = prepare(&r, err);
    if (rc == 0) {
        run_threads(&r);
        if (r.stop.code != ERR_NONE) {
            *err = r.stop;
            rc = r.stop.code;
        } else if (r.done < set->n) {
            rc = error_set(err, ERR_UNAVAILABLE, "interrupted after %zu of %zu tasks; run it again to go on",
                           r.done, set->n);
        } else {
            *results = collect(&r);
            rc = *results ? 0 : error_set(err, ERR_NOMEM, "out of memory");
        }
    }
    r.totals.seconds = seconds_since(r.start_ns);
    *totals = r.totals;
    journal_close(r.journal);
    json_decref(r.header);
    work_free(&r);
    pthread_mutex_destroy(&r.mutex);
    return rc;
}

void
round_free(struct round_result *results, size_t n)
{
    for (size_t i = 0; results && i < n; i++) {
        json_decref(results[i].answers);
        free(results[i].failure);
    }
    free(results);
}

enum trainer_exit
round_tell_failures(const struct round_result *results, size_t n)
{
    const struct round_result *first = NULL;
    size_t failed = 0;

    for (size_t i = 0; i < n; i++) {
        failed += results[i].failure != NULL;
        first = first || !results[i].failure ? first : &results[i];
    }
    if (!first)
        return TRAINER_OK;
    trainer_complain(TRAINER_FAILED,
                     "%zu of %zu tasks failed, and are tried again by the same command; %s: %s", failed, n,
                     first->task->name, first->failure);
    return failed == n ? TRAINER_FAILED : TRAINER_OK;
}
