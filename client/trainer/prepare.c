/*
 * trainer prepare: of a data set's rows those that are fit to be tasks.
 *
 * Row by row, so that the file may be larger than memory: what is kept in memory is a digest for each row. What costs little
 * comes first: the columns, the text, the syntax tree (Python's own parser, in a process of its own; nothing of a row is run here),
 * what is there already, and at last the daemon, which runs the reference in its sandbox. What the daemon said is in a
 * journal, by the row's content: a run that is begun again asks for nothing twice.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trainer/daemon.h"
#include "client/trainer/helper.h"
#include "client/trainer/hub.h"
#include "client/trainer/journal.h"
#include "client/trainer/options.h"
#include "client/trainer/output.h"
#include "client/trainer/prompt.h"
#include "client/trainer/rows.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/ids.h"

enum { SOURCE_MAX = 1024 * 1024 };
enum {
    OPT_FILE = 512,
    OPT_OVERLAP,
    OPT_MAX_SAMPLES,
    OPT_MAX_LINES,
    OPT_LICENSES,
    OPT_STATIC,
    OPT_VERIFY,
    OPT_PYTHON,
    OPT_SOURCE,
    OPT_ID,
    OPT_REVISION,
    OPT_DIGEST,
    OPT_FILES,
    OPT_LABELS,
    OPT_ENLARGE
};

/* How long a reference may run that is learnt from by rewards: shorter is launch overhead, longer is the others' time. */
#define WINDOW_MIN_MS 0.05
#define WINDOW_MAX_MS 20.0
enum { EXPONENT_MAX = 24, TRIES_MAX = 12 };

/* What --source fetches where no --file is given. */
static const struct {
    const char *name, *id, *pattern;
} known_sources[] = {
    { "kernelbook", "GPUMODE/KernelBook", "dataset_permissive.json" },
    { "kernelbench", "ScalingIntelligence/KernelBench", "data/level_*.parquet" },
};

static const char licenses_default[] =
    "MIT,BSD-2-Clause,BSD-3-Clause,Apache-2.0,ISC,Unlicense,CC0-1.0,Zlib,0BSD,BSL-1.0";

struct prepare {
    struct trainer *trainer;
    const char *file, *source, *overlap, *licenses, *python, *policy, *labelled_by;
    struct hub_options hub;
    int most, lines_most;
    bool is_static, verifies, enlarges;
    /* what is under way */
    json_t *fetched; /* what hub_fetch() said, or NULL */
    struct helper *helper;
    struct http_client *daemon;
    struct journal *journal;
    json_t *asked;   /* {key: outcome}: what the daemon said, this time and before */
    json_t *digests; /* {digest: where it was first} */
    json_t *names;   /* {name: true} */
    json_t *reasons; /* {reason: count} */
    struct output tasks, sft, labels, dropped;
    size_t rows, row_base, kept, answers, levels[5]; /* row_base: rows of the files before */
    int64_t start_ns, told_ns;
    char digest[HASH_TEXT_SIZE]; /* of the prompt */
    char run[ID_SIZE];           /* of this run */
};

/* One row, as far as it is known. Strings are the row's. */
struct entry {
    size_t number;
    char name[160], digest[HASH_TEXT_SIZE];
    const char *source, *entry_point, *answer, *license;
    int level, operations;
    bool is_traced; /* operations: of a run, and not of the text */
    bool is_level_given;
};

static const struct argp_option options[] = {
    { "file", OPT_FILE, "PATH", 0,
      "The data set: a JSON array, JSON Lines, parquet (with pyarrow), a KernelBench checkout, TritonBench's "
      "T",
      0 },
    { "source", OPT_SOURCE, "NAME", 0,
      "What the rows say of where they come from (default: the file's name); without --file, kernelbook and "
      "kernelbench are fetched from the hub (HF_ENDPOINT, HF_TOKEN) into data/raw",
      0 },
    { "id", OPT_ID, "ID", 0, "Of the data set on the hub (default: the source's)", 0 },
    { "revision", OPT_REVISION, "REV", 0, "A branch, a tag or a commit of it (default main)", 0 },
    { "files", OPT_FILES, "PATTERN", 0, "Which of its files (default: the source's)", 0 },
    { "digest", OPT_DIGEST, "sha256:HEX", 0, "What the fetched file's digest has to be", 0 },
    { "labels", OPT_LABELS, "METHOD", 0,
      "operations (default): by how many forward does; heuristic: level 2 where forward has several calls, "
      "chained "
      "ones, more than 50 tokens, or the text says \"fused\"",
      0 },
    { "overlap", OPT_OVERLAP, "PATH", 0, "Tasks of an evaluation: a row that is one of them is dropped", 0 },
    { "max-samples", OPT_MAX_SAMPLES, "N", 0, "Stop when so many rows are kept (default 1000; 0: all)", 0 },
    { "max-lines", OPT_MAX_LINES, "N", 0, "Of a reference, blank ones not counted (default 200)", 0 },
    { "licenses", OPT_LICENSES, "LIST", 0, "SPDX names, one of which a row that names licences must name",
      0 },
    { "static", OPT_STATIC, NULL, 0, "Ask no daemon: no reference is run", 0 },
    { "verify", OPT_VERIFY, NULL, 0,
      "Have each row's own Triton code judged, under --policy (default kernelbench), and make no fine-tuning "
      "row of what fails",
      0 },
    { "policy", 'p', "NAME", 0, "Of --verify", 0 },
    { "enlarge", OPT_ENLARGE, NULL, 0,
      "On a GPU, enlarge each task's shapes until its reference runs 50 us to 20 ms, and leave out of "
      "tasks.jsonl what "
      "does not get there",
      0 },
    { "python", OPT_PYTHON, "PROGRAM", 0, "The interpreter that parses (default python3)", 0 },
    { 0 },
};

/* What is fetched from the hub, where nothing is there already. */
static void
choose_source(struct prepare *p, struct argp_state *state)
{
    if (p->file && (p->hub.id || p->hub.digest || p->hub.pattern))
        argp_error(state, "--file is read as it lies; --id, --files and --digest are the hub's");
    if (p->file)
        return;
    for (size_t i = 0; i < ARRAY_LEN(known_sources); i++) {
        if (!p->source || strcmp(p->source, known_sources[i].name) != 0)
            continue;
        p->hub.id = p->hub.id ? p->hub.id : known_sources[i].id;
        p->hub.pattern = p->hub.pattern ? p->hub.pattern : known_sources[i].pattern;
    }
    if (!p->hub.id || !p->hub.pattern)
        argp_error(
            state,
            "which data set? --file PATH, --source kernelbook or kernelbench, or --id ID --files PATTERN");
    if (p->hub.digest && (strncmp(p->hub.digest, "sha256:", 7) != 0 || strlen(p->hub.digest) != 71))
        argp_error(state, "--digest takes sha256: and 64 digits, not \"%s\"", p->hub.digest);
}

static error_t
parse(int key, char *arg, struct argp_state *state)
{
    struct prepare *p = state->input;
    const char **const texts[] = { &p->file,   &p->overlap,      &p->licenses,   &p->python,     &p->source,
                                   &p->hub.id, &p->hub.revision, &p->hub.digest, &p->hub.pattern };
    static const int text_keys[] = { OPT_FILE, OPT_OVERLAP,  OPT_LICENSES, OPT_PYTHON, OPT_SOURCE,
                                     OPT_ID,   OPT_REVISION, OPT_DIGEST,   OPT_FILES };

    for (size_t i = 0; i < ARRAY_LEN(text_keys); i++) {
        if (key == text_keys[i]) {
            *texts[i] = arg;
            return 0;
        }
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = p->trainer;
        return 0;
    case OPT_MAX_SAMPLES:
        p->most = option_int(state, "--max-samples", arg, 0, 100000000);
        return 0;
    case OPT_MAX_LINES:
        p->lines_most = option_int(state, "--max-lines", arg, 1, 100000);
        return 0;
    case OPT_STATIC:
        p->is_static = true;
        return 0;
    case OPT_VERIFY:
        p->verifies = true;
        return 0;
    case OPT_ENLARGE:
        p->enlarges = true;
        return 0;
    case 'p':
        p->policy = arg;
        return 0;
    case OPT_LABELS:
        p->labelled_by = arg;
        if (strcmp(arg, "operations") != 0 && strcmp(arg, "heuristic") != 0)
            argp_error(state, "--labels takes operations or heuristic, not \"%s\"", arg);
        return 0;
    case ARGP_KEY_END:
        choose_source(p, state);
        if (p->is_static && p->enlarges)
            argp_error(state, "--enlarge needs the daemon's GPU, and --static does not ask the daemon");
        if (p->is_static && p->verifies)
            argp_error(state, "--verify needs the daemon, which --static does not ask");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &trainer_common_argp, 0, NULL, -1 }, { 0 } };
static const struct argp argp = { options,
                                  parse,
                                  NULL,
                                  "Of a data set's rows keep those that are fit to be tasks, in "
                                  "data/processed of the working directory: tasks.jsonl, "
                                  "sft_train.jsonl (rows with an answer), difficulty_labels.jsonl, "
                                  "dropped.jsonl with a reason for each other row.",
                                  children,
                                  NULL,
                                  NULL };

/* --- what is left out --- */

static int
drop(struct prepare *p, const struct entry *e, const char *reason, const char *detail)
{
    AUTO_JSON json_t *row = json_pack("{s:I, s:s?, s:s, s:s?}", "row", (json_int_t)e->number, "id",
                                      e->name[0] ? e->name : NULL, "reason", reason, "detail", detail);
    if (!row) /* a detail that is no UTF-8 */
        row = json_pack("{s:I, s:s}", "row", (json_int_t)e->number, "reason", reason);
    output_line(&p->dropped, row);
    json_object_set_new(p->reasons, reason,
                        json_integer(1 + json_integer_value(json_object_get(p->reasons, reason))));
    return 0;
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

/* The first licence that is allowed; *has_any: the row names one at all. */
static const char *
license_of(const struct prepare *p, json_t *row, bool *has_any)
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
        for (const char *at = p->licenses; size && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
            if (strncasecmp(at, text, size) == 0 && (at[size] == ',' || !at[size]))
                return text; /* list is the row's, but for one text, which is the row's too */
    }
    return NULL;
}

static void
name_entry(struct prepare *p, struct entry *e, json_t *row)
{
    static const char *const names[] = { "name", "id", "uuid" };
    const char *name = text_in(row, names, ARRAY_LEN(names));
    json_t *uuid = json_object_get(row, "uuid");

    if (name && name[0])
        snprintf(e->name, sizeof(e->name), "%.120s", name);
    else if (json_is_integer(uuid))
        snprintf(e->name, sizeof(e->name), "%s/%lld", p->source, (long long)json_integer_value(uuid));
    else
        snprintf(e->name, sizeof(e->name), "%.100s/row%zu", p->source, e->number);
    if (json_object_get(p->names, e->name)) /* the journal of a round knows tasks by name */
        snprintf(e->name + strlen(e->name), 30, "-row%zu", e->number);
}

/* NULL, or why the row is dropped. */
static const char *
read_columns(struct prepare *p, struct entry *e, json_t *row, const char **detail)
{
    static const char *const sources[] = { "python_code", "pytorch_code", "reference", "code" };
    static const char *const answers[] = { "triton_code", "output" };
    static const char *const wrong[] = { "entry_point", "triton_code" };
    bool names_license;

    if (!json_is_object(row))
        return "not_an_object";
    name_entry(p, e, row);
    e->source = text_in(row, sources, ARRAY_LEN(sources));
    e->answer = text_in(row, answers, ARRAY_LEN(answers));
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        json_t *value = json_object_get(row, wrong[i]);
        if (value && !json_is_null(value) && !json_is_string(value)) {
            *detail = wrong[i];
            return "column_type";
        }
    }
    if (!e->source || !e->source[0])
        return "no_reference";
    if (strlen(e->source) > SOURCE_MAX || (e->answer && strlen(e->answer) > SOURCE_MAX))
        return "too_long";
    e->entry_point = json_string_value(json_object_get(row, "entry_point"));
    e->entry_point = e->entry_point ? e->entry_point : "Model";
    e->license = license_of(p, row, &names_license);
    if (names_license && !e->license)
        return "license";
    e->level = (int)json_integer_value(json_object_get(row, "level"));
    e->is_level_given = e->level >= 1 && e->level <= 4;
    return NULL;
}

/* --- the syntax tree --- */

static int
level_of(int operations)
{
    return operations <= 1 ? 1 : operations <= 8 ? 2 : 3;
}

/* 0; *reason is why it is dropped, or NULL. */
static int
check_tree(struct prepare *p, struct entry *e, json_t **reply, const char **reason, const char **detail,
           struct error *err)
{
    AUTO_JSON json_t *asked = json_pack("{s:s, s:s, s:s?}", "source", e->source, "entry_point",
                                        e->entry_point, "answer", e->answer);
    json_t *fault;

    *reason = NULL;
    int rc = helper_check(p->helper, asked, reply, err);
    if (rc == ERR_PROTOCOL)
        *reason = "syntax";
    if (rc == ERR_PROTOCOL)
        *detail = err->text;
    if (rc != 0)
        return rc == ERR_PROTOCOL ? 0 : rc;
    fault = json_object_get(*reply, "fault");
    if (fault) {
        *reason = json_string_value(json_array_get(fault, 0));
        *detail = json_string_value(json_array_get(fault, 1));
        *reason = *reason ? *reason : "syntax";
        return 0;
    }
    const char *digest = json_string_value(json_object_get(*reply, "digest"));
    snprintf(e->digest, sizeof(e->digest), "%s", digest ? digest : "");
    e->operations = (int)json_integer_value(json_object_get(*reply, "operations"));
    if (!e->is_level_given && strcmp(p->labelled_by, "heuristic") == 0)
        e->level = json_is_true(json_object_get(*reply, "several")) ? 2 : 1;
    else if (!e->is_level_given)
        e->level = level_of(e->operations);
    const char *rewritten = json_string_value(json_object_get(*reply, "source"));
    if (rewritten) { /* it was not in the form of a task; a view into the reply, which outlives the entry */
        e->source = rewritten;
        e->entry_point = "Model";
    }
    if (json_integer_value(json_object_get(*reply, "lines")) > p->lines_most)
        *reason = "too_long";
    return 0;
}

/* --- the daemon --- */

static void
remember_cb(void *arg, json_t *record)
{
    struct prepare *p = arg;
    const char *key = json_string_value(json_object_get(record, "key"));
    if (key)
        json_object_set(p->asked, key, record);
}

/* Why a registered task is none to learn from, or NULL. */
static const char *
flagged(json_t *task)
{
    static const struct {
        const char *flag, *reason;
    } rows[] = { { "random_reference", "random" },
                 { "output_constant", "constant" },
                 { "output_insensitive", "insensitive" } };
    json_t *flag;
    size_t i;
    json_array_foreach(json_object_get(task, "flags"), i, flag)
    {
        for (size_t k = 0; k < ARRAY_LEN(rows); k++)
            if (json_is_string(flag) && strcmp(json_string_value(flag), rows[k].flag) == 0)
                return rows[k].reason;
    }
    return NULL;
}

/* How many calls that compute the daemon saw when it ran the reference; NULL: it is of before they were counted. */
static json_t *
traced(json_t *task)
{
    json_t *cases = json_object_get(json_object_get(task, "spec"), "cases");
    return json_object_get(json_object_get(cases, "own"), "operations");
}

/* The class of the row's own answer: "ok", or why not. */
static int
judge_answer(struct prepare *p, const struct entry *e, const char *task_id, char class_[32],
             struct error *err)
{
    char group[DAEMON_ID_SIZE], wanted[160];
    AUTO_JSON json_t *done = NULL;

    snprintf(wanted, sizeof(wanted), "%.150sNew", e->entry_point);
    AUTO_JSON json_t *body = json_pack("{s:s, s:[{s:s}], s:s, s:s, s:s, s:s}", "task", task_id, "candidates",
                                       "candidate", e->answer, "policy", p->policy, "until", "full", "client",
                                       "trainer", "entry_point", wanted);
    int rc = daemon_add_group(p->daemon, p->run, body, group, err);
    rc = rc == 0 ? daemon_wait_group(p->daemon, group, &done, err) : rc;
    if (rc != 0)
        return rc;
    json_t *verdict = json_array_get(json_object_get(done, "items"), 0);
    json_t *correct = json_object_get(json_object_get(verdict, "components"), "correct");
    const char *found = json_string_value(json_object_get(verdict, "class"));
    snprintf(class_, 32, "%s",
             json_number_value(correct) == 1     ? "ok"
             : found && strcmp(found, "ok") != 0 ? found
                                                 : "skipped");
    return 0;
}

/* --- larger shapes --- */

/* The reference's time in ms as its own candidate; 0: too short to be told; NAN: it was not timed. */
static int
time_reference(struct prepare *p, const struct entry *e, const char *source, const char *task_id, double *ms,
               struct error *err)
{
    char group[DAEMON_ID_SIZE];
    AUTO_JSON json_t *done = NULL;
    AUTO_JSON json_t *body =
        json_pack("{s:s, s:[{s:s}], s:s, s:s, s:s}", "task", task_id, "candidates", "candidate", source,
                  "policy", "kernelbench", "client", "trainer", "entry_point", e->entry_point);

    *ms = NAN;
    int rc = daemon_add_group(p->daemon, p->run, body, group, err);
    rc = rc == 0 ? daemon_wait_group(p->daemon, group, &done, err) : rc;
    if (rc != 0)
        return rc;
    json_t *timing = json_object_get(json_array_get(json_object_get(done, "items"), 0), "timing");
    json_t *found = json_object_get(timing, "reference_ms");
    const char *outcome = json_string_value(json_object_get(timing, "outcome"));
    if (json_is_number(found))
        *ms = json_number_value(found);
    else if (outcome && strcmp(outcome, "too_small") == 0)
        *ms = 0;
    return 0;
}

/* The reference with its sizes times 2^exponent; NULL: it has none to change. *out is given. */
static int
grow(struct prepare *p, const struct entry *e, const char *how, int exponent, char **out, struct error *err)
{
    AUTO_JSON json_t *reply = NULL;
    AUTO_JSON json_t *asked =
        json_pack("{s:s, s:s, s:I}", "source", e->source, "how", how, "factor", (json_int_t)1 << exponent);
    int rc = helper_check(p->helper, asked, &reply, err);

    *out = NULL;
    if (rc == ERR_PROTOCOL)
        return 0;
    const char *source = json_string_value(json_object_get(reply, "source"));
    if (rc == 0 && source && !(*out = strdup(source)))
        rc = error_set(err, ERR_NOMEM, "out of memory");
    return rc;
}

/* How long one size runs: NAN where the daemon refuses it, which is taken for too large. */
static int
try_size(struct prepare *p, const struct entry *e, const char *source, double *ms, struct error *err)
{
    AUTO_JSON json_t *task = NULL;
    struct task t = { .name = (char *)e->name,
                      .reference = (char *)source,
                      .entry_point = (char *)e->entry_point,
                      .level = e->level };
    int rc = daemon_register(p->daemon, &t, &task, err);

    *ms = NAN;
    if (rc == ERR_INPUT)
        return 0;
    const char *id = json_string_value(json_object_get(task, "id"));
    return rc != 0 ? rc : time_reference(p, e, source, id ? id : "", ms, err);
}

/* Look for the smallest power of two that brings it into the window; *found: {"how", "factor", "source", "ms"} or NULL. */
static int
search(struct prepare *p, const struct entry *e, const char *how, double own_ms, json_t **found,
       struct error *err)
{
    int low = 0, high = EXPONENT_MAX + 1; /* too short at low, too long or refused at high */
    double ms = own_ms;

    *found = NULL;
    for (int tries = 0; tries < TRIES_MAX && high - low > 1; tries++) {
        AUTO_FREE char *source = NULL;
        double steps = ms > 0 ? log2(2 * WINDOW_MIN_MS / ms) : 8; /* as if time grew with size */
        int next = high <= EXPONENT_MAX ? (low + high) / 2
                                        : low + (steps < 1   ? 1
                                                 : steps > 8 ? 8
                                                             : (int)steps);
        next = next >= high ? high - 1 : next;
        int rc = grow(p, e, how, next, &source, err);
        if (rc != 0 || !source)
            return rc;
        double seen = NAN;
        rc = try_size(p, e, source, &seen, err);
        if (rc != 0)
            return rc;
        if (seen >= WINDOW_MIN_MS && seen <= WINDOW_MAX_MS) {
            *found = json_pack("{s:s, s:I, s:s, s:f}", "how", how, "factor", (json_int_t)1 << next, "source",
                               source, "ms", seen);
            return 0;
        }
        if (seen < WINDOW_MIN_MS)
            low = next;
        else
            high = next;
        ms = seen < WINDOW_MIN_MS ? seen : ms;
    }
    return 0;
}

/* record gets "ms" and, where other shapes were needed, "enlarged"; or nothing, where nothing brings it into the window. */
static int
enlarge(struct prepare *p, const struct entry *e, const char *task_id, json_t *record, struct error *err)
{
    json_t *found = NULL;
    double ms;
    int rc = time_reference(p, e, e->source, task_id, &ms, err);

    if (rc == 0 && ms >= WINDOW_MIN_MS && ms <= WINDOW_MAX_MS)
        return json_object_set_new(record, "ms", json_real(ms));
    if (rc == 0 && ms < WINDOW_MIN_MS)
        rc = search(p, e, "batch", ms, &found, err);
    if (rc == 0 && !found && ms < WINDOW_MIN_MS)
        rc = search(p, e, "all", ms, &found, err);
    if (found) {
        json_object_set(record, "ms", json_object_get(found, "ms"));
        json_object_set_new(record, "enlarged", found);
    }
    return rc;
}

/* What the daemon says of a row, or said: {"key", "reason", "detail", "answer", "ms", "enlarged"}. *out is borrowed from p->asked. */
static int
ask_daemon(struct prepare *p, struct entry *e, bool has_answer, json_t **out, struct error *err)
{
    char key[HASH_TEXT_SIZE], answer[32] = "", detail[256] = "";
    const char *reason = NULL;
    AUTO_BUFFER struct buffer all = BUFFER_INIT;
    AUTO_JSON json_t *task = NULL;
    bool judges = p->verifies && has_answer;

    buffer_printf(&all, "%s%c%s%c%s%c%s%s", e->entry_point, 0, e->source, 0, judges ? e->answer : "", 0,
                  judges ? p->policy : "", p->enlarges ? "enlarged" : "");
    hash_text(all.data, all.size, key);
    if ((*out = json_object_get(p->asked, key)) != NULL)
        return 0;
    struct task t = { .name = e->name,
                      .reference = (char *)e->source,
                      .entry_point = (char *)e->entry_point,
                      .level = e->level };
    int rc = daemon_register(p->daemon, &t, &task, err);
    if (rc == ERR_INPUT) {
        reason = "does_not_run";
        snprintf(detail, sizeof(detail), "%s", err->text);
        rc = 0;
    } else if (rc == 0) {
        reason = flagged(task);
    }
    if (rc == 0 && !reason && judges)
        rc = judge_answer(p, e, json_string_value(json_object_get(task, "id")), answer, err);
    if (rc != 0)
        return rc;
    json_t *record =
        json_pack("{s:s, s:s?, s:s?, s:s?, s:O?}", "key", key, "reason", reason, "detail",
                  detail[0] ? detail : NULL, "answer", answer[0] ? answer : NULL, "operations", traced(task));
    if (!record)
        return error_set(err, ERR_NOMEM, "out of memory");
    if (p->enlarges && !reason)
        rc = enlarge(p, e, json_string_value(json_object_get(task, "id")), record, err);
    if (rc != 0) {
        json_decref(record);
        return rc;
    }
    /* What is ours to mend is asked again the next time. */
    rc = strcmp(answer, "infra") == 0 ? 0 : journal_add(p->journal, record, err);
    json_object_set_new(p->asked, key, record);
    *out = record;
    return rc;
}

/* --- what is kept --- */

/* The task's row; said: what the daemon said, or NULL. */
static json_t *
task_row(struct prepare *p, const struct entry *e, json_t *said)
{
    json_t *larger = json_object_get(said, "enlarged"), *ms = json_object_get(said, "ms");
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s?, s:s, s:s}", "name", e->name, "source", p->source,
                  "pytorch_code", e->source, "entry_point", e->entry_point, "level", e->level, "operations",
                  e->operations, "digest", e->digest, "license", e->license, "checked",
                  p->is_static ? "static" : "ran", "timing", p->enlarges ? "window" : "untimed");
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

/* What was seen when it ran says more than its text: a loop's calls, and those of modules that it does not define. */
static void
relabel(const struct prepare *p, struct entry *e, json_t *operations)
{
    if (!json_is_integer(operations) || strcmp(p->labelled_by, "operations") != 0)
        return;
    e->operations = (int)json_integer_value(operations);
    e->is_traced = true;
    if (!e->is_level_given)
        e->level = level_of(e->operations);
}

/* With its task, or for fine-tuning alone. */
static void
write_entry(struct prepare *p, const struct entry *e, json_t *said, bool has_answer)
{
    bool is_task = !p->enlarges || json_object_get(said, "ms");
    const char *method = e->is_level_given                          ? "given"
                         : strcmp(p->labelled_by, "heuristic") == 0 ? "heuristic"
                         : e->is_traced                             ? "traced_graph"
                                                                    : "syntax_tree";
    AUTO_JSON json_t *task = task_row(p, e, said);
    AUTO_JSON json_t *label =
        json_pack("{s:s, s:i, s:i, s:s, s:s}", "id", e->name, "difficulty", e->level > 3 ? 3 : e->level,
                  "operations", e->operations, "method", method, "digest", e->digest);
    if (is_task) {
        output_line(&p->tasks, task);
        p->levels[e->level]++;
        p->kept++;
    }
    if (is_task || has_answer)
        output_line(&p->labels, label);
    if (!has_answer)
        return;
    AUTO_BUFFER struct buffer instruction = BUFFER_INIT, output = BUFFER_INIT;
    AUTO_FREE char *wanted = task_class_wanted(&(struct task){ .entry_point = (char *)e->entry_point });
    if (!wanted || prompt_make(e->source, wanted, &instruction) != 0 ||
        buffer_printf(&output, "```python\n%s%s```\n", e->answer,
                      e->answer[strlen(e->answer) - 1] == '\n' ? "" : "\n") != 0) {
        p->sft.is_bad = true;
        return;
    }
    AUTO_JSON json_t *row = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s?}", "id", e->name, "source", p->source,
        "prompt", p->digest, "instruction", instruction.data, "output", output.data, "pytorch_code",
        e->source, "triton_code", e->answer, "entry_point", e->entry_point, "difficulty",
        e->level > 3 ? 3 : e->level, "verified", p->verifies ? p->policy : "no", "license", e->license);
    output_line(&p->sft, row);
    p->answers++;
}

static void
tell_progress(struct prepare *p, bool is_last)
{
    int64_t now_ns = clock_monotonic_ns();
    if (!is_last && now_ns - p->told_ns < 2000000000)
        return;
    double s = (double)(now_ns - p->start_ns) / 1e9;
    p->told_ns = now_ns;
    if (p->most && p->kept)
        fprintf(stderr, "%zu rows read, %zu of %d kept; %.0f s, about %.0f s left at most\n", p->rows,
                p->kept, p->most, s, s / (double)p->kept * (double)((size_t)p->most - p->kept));
    else
        fprintf(stderr, "%zu rows read, %zu kept; %.0f s\n", p->rows, p->kept, s);
}

/* Marks a digest; what it was seen as before, or NULL. */
static const char *
seen_before(struct prepare *p, const char *digest, const char *where)
{
    const char *before = json_string_value(json_object_get(p->digests, digest));
    if (!before)
        json_object_set_new(p->digests, digest, json_string(where));
    return before;
}

static int
take_row(struct prepare *p, struct entry *e, json_t *row, struct error *err)
{
    const char *reason, *detail = NULL;
    AUTO_JSON json_t *reply = NULL;
    json_t *said = NULL;

    reason = read_columns(p, e, row, &detail);
    int rc = reason ? 0 : check_tree(p, e, &reply, &reason, &detail, err);
    if (rc != 0)
        return rc;
    if (!reason) {
        char where[32];
        snprintf(where, sizeof(where), "row %zu", e->number);
        const char *before = seen_before(p, e->digest, where);
        detail = before;
        reason = !before ? NULL : strncmp(before, "row ", 4) == 0 ? "duplicate" : "overlap";
    }
    if (reason)
        return drop(p, e, reason, detail);
    json_t *fault = json_object_get(reply, "answer");
    bool has_answer = e->answer && e->answer[0] && !json_is_array(fault);
    if (!p->is_static)
        rc = ask_daemon(p, e, has_answer, &said, err);
    if (rc != 0)
        return rc;
    relabel(p, e, json_object_get(said, "operations"));
    reason = json_string_value(json_object_get(said, "reason"));
    if (reason)
        return drop(p, e, reason, json_string_value(json_object_get(said, "detail")));
    const char *class_ = json_string_value(json_object_get(said, "answer"));
    if (json_is_array(fault))
        drop(p, e, json_string_value(json_array_get(fault, 0)), json_string_value(json_array_get(fault, 1)));
    else if (class_ && strcmp(class_, "ok") != 0)
        drop(p, e, "answer_fails", class_);
    has_answer = has_answer && (!p->verifies || (class_ && strcmp(class_, "ok") == 0));
    json_object_set_new(p->names, e->name, json_true());
    if (p->enlarges && !json_object_get(said, "ms"))
        drop(p, e, "run_time", "no shape that was tried brings the reference to 50 us to 20 ms");
    write_entry(p, e, said, has_answer);
    return 0;
}

static int
row_cb(void *arg, size_t number, json_t *row, const char *fault, struct error *err)
{
    struct prepare *p = arg;
    struct entry e = { .number = p->row_base + number };

    if (trainer_is_stopping())
        return error_set(err, ERR_UNAVAILABLE, "interrupted after %zu rows; run it again to go on", p->rows);
    p->rows++;
    int rc = row ? take_row(p, &e, row, err) : drop(p, &e, "not_json", fault);
    tell_progress(p, false);
    if (rc == 0 && p->most && p->kept == (size_t)p->most)
        return ERR_FULL; /* enough */
    return rc;
}

/* --- the data set --- */

/* A directory's modules as rows. */
static int
each_task(struct prepare *p, const char *path, rows_cb *cb, struct error *err)
{
    struct task_set set;
    int rc = tasks_load(path, 0, &set, err);
    for (size_t i = 0; rc == 0 && i < set.n; i++) {
        AUTO_JSON json_t *row =
            json_pack("{s:s, s:s, s:s, s:i}", "name", set.tasks[i].name, "code", set.tasks[i].reference,
                      "entry_point", set.tasks[i].entry_point, "level", set.tasks[i].level);
        rc = cb(p, i + 1, row, row ? NULL : "not UTF-8", err);
    }
    tasks_free(&set);
    return rc;
}

static bool
ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static int
each_row_of(struct prepare *p, const char *file, struct error *err)
{
    struct helper *parquet;
    struct stat status;
    char path[32];

    if (access(file, R_OK) != 0)
        return error_set(err, ERR_SYS, "cannot read %s", file);
    if (ends_with(file, ".parquet")) {
        int rc = helper_parquet(p->python, file, path, &parquet, err);
        if (rc != 0)
            return rc;
        rc = rows_each(path, row_cb, p, err);
        if (rc == 0)
            rc = helper_ended(parquet, err);
        helper_free(parquet);
        return rc;
    }
    if (stat(file, &status) == 0 && S_ISDIR(status.st_mode))
        return each_task(p, file, row_cb, err);
    return rows_each(file, row_cb, p, err);
}

static int
each_row(struct prepare *p, struct error *err)
{
    json_t *row;
    size_t i;
    int rc = 0;

    if (!p->fetched)
        return each_row_of(p, p->file, err);
    json_array_foreach(json_object_get(p->fetched, "files"), i, row)
    {
        p->row_base = p->rows;
        if (rc == 0)
            rc = each_row_of(p, json_string_value(json_object_get(row, "file")), err);
    }
    return rc;
}

/* The digests of an evaluation's tasks. */
static int
read_overlap(struct prepare *p, struct error *err)
{
    struct task_set set;
    int rc = tasks_load(p->overlap, 0, &set, err);
    for (size_t i = 0; rc == 0 && i < set.n; i++) {
        struct entry e = { .source = set.tasks[i].reference, .entry_point = set.tasks[i].entry_point };
        const char *reason, *detail;
        AUTO_JSON json_t *reply = NULL;
        rc = check_tree(p, &e, &reply, &reason, &detail, err);
        if (rc == 0 && !e.digest[0])
            fprintf(stderr, "trainer: %s of %s: %s; nothing is compared with it\n", set.tasks[i].name,
                    p->overlap, reason);
        else if (rc == 0)
            seen_before(p, e.digest, set.tasks[i].name);
    }
    tasks_free(&set);
    return rc;
}

/* --- the files --- */

static int
open_outputs(struct prepare *p, struct error *err)
{
    static const char *const names[] = { "tasks.jsonl", "sft_train.jsonl", "difficulty_labels.jsonl",
                                         "dropped.jsonl" };
    struct output *const outputs[] = { &p->tasks, &p->sft, &p->labels, &p->dropped };
    char path[OUTPUT_PATH_MAX];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(names); i++) {
        rc = output_path(p->trainer->workdir, "data/processed", names[i], path, err);
        rc = rc == 0 ? output_begin(outputs[i], path, err) : rc;
    }
    return rc;
}

/* Under their names, or, when the run failed, gone. */
static int
close_outputs(struct prepare *p, bool is_whole, struct error *err)
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
    return rc;
}

static json_t *
summary_json(const struct prepare *p)
{
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
                     p->source, "file", p->file, "fetched", p->fetched, "prompt", p->digest, "rows",
                     (int)p->rows, "kept", (int)p->kept, "with_answer", (int)p->answers, "dropped",
                     p->reasons, "levels", levels, "labels", p->labelled_by, "checked",
                     p->is_static ? "static" : "ran", "verified", p->verifies ? p->policy : NULL, "seconds",
                     (double)(clock_monotonic_ns() - p->start_ns) / 1e9);
}

static void
print_summary(json_t *summary)
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

/* Without a GPU nothing can be enlarged: rows say that they are untimed. */
static int
need_gpu(struct prepare *p, struct error *err)
{
    int rc = daemon_has_gpu(p->daemon, &p->enlarges, err);
    if (rc == 0 && !p->enlarges)
        fprintf(stderr, "trainer: the daemon has no GPU: nothing is enlarged, and rows are untimed\n");
    return rc;
}

static int
open_all(struct prepare *p, struct error *err)
{
    char path[OUTPUT_PATH_MAX];
    int rc = helper_new(p->python, &p->helper, err);

    rc = rc == 0 ? open_outputs(p, err) : rc;
    rc = rc == 0 && p->overlap ? read_overlap(p, err) : rc;
    if (rc != 0 || p->is_static)
        return rc;
    rc = http_client_new(p->trainer->daemon_url, p->trainer->daemon_token, &p->daemon, err);
    rc = rc == 0 && p->enlarges ? need_gpu(p, err) : rc;
    rc =
        rc == 0 ? output_path(p->trainer->workdir, "data/processed", "prepare.journal.jsonl", path, err) : rc;
    id_new(p->run);
    return rc == 0 ? journal_open(path, remember_cb, p, &p->journal, err) : rc;
}

static const char *
last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int
prepare_command(struct trainer *t, int argc, char **argv)
{
    struct prepare p = { .trainer = t,
                         .most = 1000,
                         .lines_most = 200,
                         .licenses = licenses_default,
                         .python = "python3",
                         .policy = "kernelbench",
                         .labelled_by = "operations",
                         .hub = { .revision = "main" },
                         .start_ns = clock_monotonic_ns() };
    struct error err = { 0 };
    char path[OUTPUT_PATH_MAX];

    argp_parse(&argp, argc, argv, 0, NULL, &p);
    if (!p.source)
        p.source = last_part(p.file ? p.file : p.hub.id);
    p.hub.attempts = t->attempts;
    p.asked = json_object();
    p.digests = json_object();
    p.names = json_object();
    p.reasons = json_object();
    prompt_digest(p.digest);
    int rc = p.file ? 0 : hub_fetch(&p.hub, t->workdir, &p.fetched, &err);
    rc = rc == 0 ? open_all(&p, &err) : rc;
    rc = rc == 0 ? each_row(&p, &err) : rc;
    rc = rc == ERR_FULL ? 0 : rc;
    int closed = close_outputs(&p, rc == 0, &err);
    rc = rc == 0 ? closed : rc;
    if (rc == 0) {
        AUTO_JSON json_t *summary = summary_json(&p);
        rc = output_path(t->workdir, "data/processed", "prepare.json", path, &err);
        rc = rc == 0 ? output_document(path, summary, &err) : rc;
        if (rc == 0)
            print_summary(summary);
    }
    helper_free(p.helper);
    http_client_free(p.daemon);
    journal_close(p.journal);
    json_decref(p.asked);
    json_decref(p.digests);
    json_decref(p.names);
    json_decref(p.reasons);
    json_decref(p.fetched);
    return rc == 0 ? TRAINER_OK : trainer_failed(&err);
}
