#include "client/trainer/inquiry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainer/daemon.h"
#include "client/trainer/enlarge.h"
#include "client/trainer/journal.h"
#include "client/trainer/rules.h"
#include "common/auto.h"
#include "common/hash.h"
#include "common/ids.h"

struct inquiry {
    const struct prepare_options *options;
    struct helper *helper;
    struct journal *journal;
    json_t *said; /* {key: where in the journal}: what is there from before */
    char
        run[ID_SIZE]; /* part of the idempotency keys: a group that was posted before a kill is found again */
};

static void
remember_cb(void *arg, json_t *record, off_t at)
{
    struct inquiry *q = arg;
    const char *key = json_string_value(json_object_get(record, "key"));
    const char *run = json_string_value(json_object_get(record, "run"));

    if (key)
        json_object_set_new(q->said, key, json_integer(at));
    if (run)
        snprintf(q->run, sizeof(q->run), "%s", run);
}

static int
note_run(struct inquiry *q, const char *run, struct error *err)
{
    AUTO_JSON json_t *record = json_pack("{s:s}", "run", run);
    return record ? journal_add(q->journal, record, err) : error_set(err, ERR_NOMEM, "out of memory");
}

/* What is ours to mend is asked again when the command is: under another key, or it would find the same verdict. */
static int
begin_afresh(struct inquiry *q, struct error *err)
{
    char next[ID_SIZE];
    id_new(next);
    return note_run(q, next, err);
}

int
inquiry_new(const struct prepare_options *options, struct helper *helper, const char *journal,
            struct inquiry **out, struct error *err)
{
    struct inquiry *q = calloc(1, sizeof(*q));
    json_t *said = json_object();

    *out = NULL;
    if (!q || !said) {
        free(q);
        json_decref(said);
        return error_set(err, ERR_NOMEM, "out of memory");
    }
    *q = (struct inquiry){ .options = options, .helper = helper, .said = said };
    int rc = journal_open(journal, remember_cb, q, &q->journal, err);
    if (rc == 0 && !q->run[0]) {
        id_new(q->run);
        rc = note_run(q, q->run, err);
    }
    if (rc != 0) {
        inquiry_free(q);
        return rc;
    }
    *out = q;
    return 0;
}

void
inquiry_free(struct inquiry *q)
{
    if (!q)
        return;
    journal_close(q->journal);
    json_decref(q->said);
    free(q);
}

/* Is the row's own answer to be judged? */
static bool
judges(const struct inquiry *q, const struct entry *e)
{
    const char *reason, *detail;
    return q->options->verifies && entry_has_answer(e, &reason, &detail);
}

/* Of all that the answer depends on. */
static int
make_key(const struct inquiry *q, const struct entry *e, char key[HASH_TEXT_SIZE], struct error *err)
{
    AUTO_BUFFER struct buffer all = BUFFER_INIT;
    bool is_judged = judges(q, e);

    if (buffer_printf(&all, "%s%c%s%c%s%c%s%s", e->entry_point, 0, e->source, 0, is_judged ? e->answer : "",
                      0, is_judged ? q->options->policy : "", q->options->enlarges ? "enlarged" : "") != 0)
        return error_set(err, ERR_NOMEM, "out of memory");
    hash_text(all.data, all.size, key);
    return 0;
}

int
inquiry_before(struct inquiry *q, const struct entry *e, json_t **out, struct error *err)
{
    char key[HASH_TEXT_SIZE];
    int rc = make_key(q, e, key, err);

    *out = NULL;
    json_t *at = rc == 0 ? json_object_get(q->said, key) : NULL;
    return at ? journal_read(q->journal, (off_t)json_integer_value(at), out, err) : rc;
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
judge_answer(struct inquiry *q, struct http_client *daemon, const struct entry *e, const char *task_id,
             char class_[32], struct error *err)
{
    char group[DAEMON_ID_SIZE], wanted[160];
    AUTO_JSON json_t *done = NULL;

    snprintf(wanted, sizeof(wanted), "%.150sNew", e->entry_point);
    AUTO_JSON json_t *policy = NULL;
    int rc = rules_of(q->options->policy, e->level, NULL, &policy, err);
    AUTO_JSON json_t *body =
        json_pack("{s:s, s:[{s:s}], s:O?, s:s, s:s, s:s}", "task", task_id, "candidates", "candidate",
                  e->answer, "policy", policy, "until", "full", "client", "trainer", "entry_point", wanted);
    rc = rc == 0 ? daemon_add_group(daemon, q->run, body, group, err) : rc;
    rc = rc == 0 ? daemon_wait_group(daemon, group, &done, err) : rc;
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

int
inquiry_ask(struct inquiry *q, struct http_client *daemon, const struct entry *e, json_t **out,
            struct error *err)
{
    char key[HASH_TEXT_SIZE], answer[32] = "", detail[256] = "";
    const char *reason = NULL;
    AUTO_JSON json_t *task = NULL;
    const struct task t = { .name = (char *)(uintptr_t)e->name,
                            .reference = (char *)(uintptr_t)e->source,
                            .entry_point = (char *)(uintptr_t)e->entry_point,
                            .level = e->level };

    *out = NULL;
    int rc = make_key(q, e, key, err);
    rc = rc == 0 ? daemon_register(daemon, &t, &task, err) : rc;
    if (rc == ERR_INPUT) {
        reason = "does_not_run";
        snprintf(detail, sizeof(detail), "%s", err->text);
        rc = 0;
    } else if (rc == 0) {
        reason = flagged(task);
    }
    const char *id = json_string_value(json_object_get(task, "id"));
    if (rc == 0 && !reason && judges(q, e))
        rc = judge_answer(q, daemon, e, id ? id : "", answer, err);
    if (rc != 0)
        return rc;
    json_t *record =
        json_pack("{s:s, s:s?, s:s?, s:s?, s:O?}", "key", key, "reason", reason, "detail",
                  detail[0] ? detail : NULL, "answer", answer[0] ? answer : NULL, "operations", traced(task));
    if (!record)
        return error_set(err, ERR_NOMEM, "out of memory");
    if (q->options->enlarges && !reason)
        rc = enlarge(daemon, q->helper, q->run, e, id ? id : "", record, err);
    if (rc == 0)
        rc = strcmp(answer, "infra") == 0 ? begin_afresh(q, err) : journal_add(q->journal, record, err);
    if (rc != 0) {
        json_decref(record);
        return rc;
    }
    *out = record;
    return 0;
}
