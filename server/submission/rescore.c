/*
 * rescore.c - POST /v1/rescore: the rewards of verdicts as they are stored, by another specification. Nothing is judged
 * again.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/reward.h"
#include "common/stages.h"
#include "server/submission/funnel.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/seen.h"
#include "server/verdict/rewards.h"

enum { RESCORE_MAX = 1000 };

/* One request: the reward, the verdicts it names, and the results. */
struct rescoring {
    struct funnel *funnel;
    struct reward_spec spec;
    char *client;     /* NULL: all clients' */
    json_t *ids;      /* or a group's id, which the request no longer needs */
    bool lacks_ranks; /* the group is not finished */
    json_t *verdicts;
    struct seen *seen; /* of each id; those that have not ended are shown as they stand */
    json_t *out;
    struct json_fault fault;
    int rc;
    struct error err;
    struct pending_work work;
    funnel_rescored_cb *cb;
    void *arg;
};

static void
end(void *arg)
{
    struct rescoring *q = arg;

    q->cb(q->arg, q->out, &q->fault, &q->err);
    for (size_t i = 0; q->seen && i < json_array_size(q->ids); i++)
        seen_release(&q->seen[i]);
    free(q->seen);
    free(q->client);
    json_decref(q->ids);
    json_decref(q->verdicts);
    free(q);
}

static void
compute(void *arg)
{
    struct rescoring *q = arg;
    json_t *verdict;
    size_t i;

    AUTO_FREE struct reward_input *inputs = verdict_inputs(q->verdicts);
    AUTO_JSON json_t *items = json_array();
    json_array_foreach(q->verdicts, i, verdict)
    {
        const struct reward_input none = { .passed = STAGE_NONE, .is_masked = true };
        const struct reward_input *in = inputs ? &inputs[i] : &none;
        double reward = q->lacks_ranks ? verdict_reward(&q->spec, in) : reward_compute(&q->spec, in);
        double rank = q->lacks_ranks ? NAN : in->components.rank;
        json_array_append_new(
            items,
            json_pack("{s:O, s:O, s:O, s:o, s:o, s:o, s:O}", "id", json_object_get(verdict, "id"), "state",
                      json_object_get(verdict, "state"), "class", json_object_get(verdict, "class"), "reward",
                      real_or_null(reward), "reward_parts", reward_parts_json(&q->spec, in), "rank",
                      real_or_null(rank), "stored_reward", json_object_get(verdict, "reward")));
    }
    q->out = json_pack("{s:o, s:O}", "reward_spec", reward_spec_json(&q->spec), "items", items);
    if (!q->out)
        error_set(&q->err, ERR_NOMEM, "no memory to score again");
}

static void
score(struct rescoring *q)
{
    pending_work(q->funnel->pending, &q->work, compute, end, q);
}

static void
group_cb(void *arg, json_t *document, bool is_finished, const struct error *err)
{
    struct rescoring *q = arg;
    AUTO_JSON json_t *shown = document;
    json_t *items = json_object_get(shown, "items");

    q->lacks_ranks = !is_finished;
    q->err = *err;
    /* A group's submissions are all of one client. */
    if (shown && q->client && !text_is(json_array_get(items, 0), "client", q->client))
        error_set(&q->err, ERR_NOTFOUND, "another client's");
    else if (shown)
        q->verdicts = json_incref(items);
    if (q->verdicts)
        score(q);
    else
        end(q);
}

static void
read_cb(void *arg, struct store_reader *r)
{
    struct rescoring *q = arg;
    json_t *id;
    size_t i;

    json_array_foreach(q->ids, i, id)
    {
        struct seen *seen = &q->seen[i];
        q->rc = seen_read(r, json_string_value(id), seen, &q->err);
        const char *owner = q->rc == 0 ? seen->rows[0].client : NULL;
        if (q->rc == 0 && q->client && !(owner && strcmp(owner, q->client) == 0))
            q->rc = error_set(&q->err, ERR_NOTFOUND, "another client's");
        if (q->rc == ERR_NOTFOUND)
            json_refuse(&q->fault, "", "there is no submission %s", json_string_value(id));
        if (q->rc != 0)
            return;
        const char *text = seen->rows[0].verdict;
        json_array_append_new(q->verdicts, text ? json_of(text) : json_null());
    }
}

static void
read_done_cb(void *arg)
{
    struct rescoring *q = arg;
    struct funnel *f = q->funnel;
    size_t n = json_array_size(q->ids);

    if (q->rc == 0 && json_array_size(q->verdicts) != n)
        q->rc = error_set(&q->err, ERR_STORE, "a verdict cannot be read");
    for (size_t i = 0; i < n && q->rc == 0; i++) {
        if (!json_is_null(json_array_get(q->verdicts, i)))
            continue;
        json_t *now = funnel_show_submission(f, q->seen[i].rows, q->seen[i].task_name, &q->err);
        q->rc = now ? json_array_set_new(q->verdicts, i, now) : (int)q->err.code;
    }
    if (q->rc == 0)
        score(q);
    else
        end(q);
    pending_end_write(f->pending);
}

/* 0, or ERR_INPUT with fault filled. */
static int
check_ids(json_t *ids, struct json_fault *fault)
{
    json_t *id;
    size_t i;

    if (json_array_size(ids) > RESCORE_MAX)
        return json_refuse(fault, "/submissions", "more than %d ids", RESCORE_MAX);
    json_array_foreach(ids, i, id)
    {
        char pointer[JSON_POINTER_SIZE];
        snprintf(pointer, sizeof(pointer), "/submissions/%zu", i);
        if (!json_is_string(id) || !id_is_valid(json_string_value(id)))
            return json_refuse(fault, pointer, "must be the id of a submission");
    }
    return 0;
}

/* group or ids: borrowed. 0, or ERR_INPUT with fault filled. */
static int
read_request(json_t *body, struct reward_spec *spec, const char **group, json_t **ids,
             struct json_fault *fault)
{
    json_t *reward = NULL;
    const struct json_field fields[] = {
        { "reward", JSON_WANT_OBJECT, &reward, true, 0, 0 },
        { "group", JSON_WANT_STRING, group, false, 0, 0 },
        { "submissions", JSON_WANT_ARRAY, ids, false, 0, 0 },
    };

    if (json_read(body, "", fields, ARRAY_LEN(fields), fault) < 0 ||
        reward_spec_read(reward, "/reward", spec, fault) < 0)
        return ERR_INPUT;
    if ((*group != NULL) == (*ids != NULL))
        return json_refuse(fault, "", "needs either \"group\" or \"submissions\"");
    if (*ids && reward_needs_rank(spec))
        return json_refuse(fault, "/reward", "needs a rank, which only a group has: give \"group\"");
    if (*group && !id_is_valid(*group))
        return json_refuse(fault, "/group", "must be the id of a group");
    return check_ids(*ids, fault);
}

void
funnel_rescore(struct funnel *f, json_t *body, const char *client, funnel_rescored_cb *cb, void *arg)
{
    struct json_fault fault = { 0 };
    struct error err = { 0 };
    struct reward_spec spec;
    const char *group = NULL;
    json_t *ids = NULL;

    if (read_request(body, &spec, &group, &ids, &fault) != 0) {
        error_set(&err, ERR_INPUT, "%s", fault.text);
        cb(arg, NULL, &fault, &err);
        return;
    }
    struct rescoring *q = calloc(1, sizeof(*q));
    if (q)
        *q = (struct rescoring){ .funnel = f, .spec = spec, .ids = json_incref(ids), .cb = cb, .arg = arg };
    if (q && client)
        q->client = strdup(client);
    if (q && ids) {
        q->seen = calloc(json_array_size(ids) + 1, sizeof(*q->seen));
        q->verdicts = json_array();
    }
    if (!q) {
        error_set(&err, ERR_NOMEM, "no memory to score again");
        cb(arg, NULL, &fault, &err);
    } else if ((client && !q->client) || (ids && (!q->seen || !q->verdicts))) {
        error_set(&q->err, ERR_NOMEM, "no memory to score again");
        end(q);
    } else if (group) {
        funnel_show_group(f, group, group_cb, q);
    } else {
        pending_begin_write(f->pending);
        if (store_read(f->store, read_cb, read_done_cb, q, &q->err) != 0) {
            q->rc = q->err.code;
            read_done_cb(q);
        }
    }
}
