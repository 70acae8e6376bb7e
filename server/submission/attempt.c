#include "server/submission/attempt.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/classes.h"
#include "common/json.h"
#include "common/policy.h"
#include "common/reward.h"
#include "common/stages.h"
#include "server/store/store.h"
#include "server/submission/parts.h"
#include "server/workers/scratch.h"

struct attempt *
attempt_alloc(void)
{
    struct attempt *j = calloc(1, sizeof(*j));

    if (j)
        j->plan_fd = j->images_fd = -1;
    return j;
}

static int
read_request(struct attempt *j, struct error *err)
{
    struct json_fault fault;
    const char *until, *seed;

    j->request = json_of(j->row.request);
    j->entry = json_string_value(json_object_get(j->request, "entry_point"));
    until = json_string_value(json_object_get(j->request, "until"));
    seed = json_string_value(json_object_get(j->request, "seed"));
    if (!j->entry || !seed ||
        policy_read(json_object_get(j->request, "policy"), "", &j->policy, &fault) != 0 ||
        reward_spec_read(json_object_get(j->request, "reward"), "", &j->reward, &fault) != 0)
        return error_set(err, ERR_STORE, "the stored request of %s cannot be read", j->row.id);
    j->until = until ? stage_find(until) : -1;
    j->seed = strtoull(seed, NULL, 16);
    j->policy_json = policy_json(&j->policy);
    json_t *flags = json_object_get(j->request, "flags");
    if (json_is_array(flags)) {
        json_decref(j->flags);
        j->flags = json_deep_copy(flags);
    }
    return 0;
}

/* So that the verdict on a request that cannot be read has all members, too. */
static void
set_defaults(struct attempt *j)
{
    const struct reward_spec standard = REWARD_SPEC_DEFAULT;

    j->stage = j->passed = j->failed_stage = j->until = -1;
    j->reward = standard;
    j->flags = json_array();
    policy_find("strict", &j->policy);
}

int
attempt_read_row(struct attempt *j, struct submission_row *row, struct error *err)
{
    set_defaults(j);
    j->row = *row;
    *row = (struct submission_row){ .reward = NAN };
    return read_request(j, err);
}

void
attempt_release_documents(struct attempt *j)
{
    json_t **const owned[] = { &j->request,  &j->policy_json, &j->error,  &j->flags,
                               &j->kernels,  &j->compiled,    &j->report, &j->tiny,
                               &j->full,     &j->timing,      &j->env,    &j->result,
                               &j->baseline, &j->untraced,    &j->plan,   &j->sanitize };

    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        json_decref(ptr_take(owned[i]));
    j->entry = NULL;
}

void
attempt_free(struct funnel *f, struct attempt *j)
{
    if (!j)
        return;
    assert(!j->child && !j->device_worker);
    if (j->cache[0])
        scratch_remove(f->loop, j->cache);
    submission_row_release(&j->row);
    task_row_release(&j->task);
    buffer_release(&j->source);
    buffer_release(&j->log);
    attempt_release_documents(j);
    auto_close(&j->plan_fd);
    auto_close(&j->images_fd);
    free(j->generality);
    free(j);
}

/* The answer of a timed call was wrong: `full` counts as not passed, as if it had been found there. */
static bool
is_refuted(int stage, enum verdict_class class_)
{
    return stage == STAGE_TIMING && class_info(class_)->stages == ON_DEVICE && !class_info(class_)->is_cheat;
}

void
attempt_fail(struct attempt *j, int stage, enum verdict_class class_, json_t *error, const char *format, ...)
{
    va_list args;

    /* Under a policy that goes on after a failure, a cheat that fails honestly first is a cheat still. */
    bool is_found_out = class_ == CLASS_HACK && j->class_ != CLASS_HACK && j->class_ != CLASS_INFRA;
    if (j->failed_stage >= 0 && !is_found_out)
        return;
    j->failed_stage = stage;
    j->class_ = class_;
    if (is_refuted(stage, class_) && j->passed > STAGE_TINY)
        j->passed = STAGE_TINY;
    j->rule[0] = j->neighbour[0] = '\0';
    json_decref(j->error);
    j->error = json_incref(error);
    va_start(args, format);
    vsnprintf(j->text, sizeof(j->text), format, args);
    va_end(args);
}

void
attempt_note_env(struct attempt *j, json_t *versions)
{
    const char *key;
    json_t *value;

    if (!j->env)
        j->env = json_object();
    json_object_foreach(versions, key, value) json_object_set(j->env, key, value);
}

bool
attempt_is_uncredited(const struct attempt *j)
{
    return (j->is_live || attempt_is_not_captured(j)) && !j->policy.credit_untraced;
}

bool
attempt_is_not_captured(const struct attempt *j)
{
    const char *why = json_string_value(json_object_get(j->timing, "not_captured"));

    return why && strncmp(why, "the candidate", strlen("the candidate")) == 0;
}

bool
attempt_goes_on(const struct attempt *j)
{
    if (j->stage == STAGE_TIMING || j->until == j->stage)
        return false;
    if (j->failed_stage < 0)
        return true;
    if (j->stage + 1 == STAGE_TIMING)
        return !j->policy.skip_timing_on_failure && (!j->policy.staged || j->failed_stage == STAGE_FULL);
    return !j->policy.staged;
}

void
attempt_add_flags(struct attempt *j, json_t *flags)
{
    json_t *flag;
    size_t i;

    json_array_foreach(flags, i,
                       flag) if (json_is_string(flag) && !json_has_text(j->flags, json_string_value(flag)))
        json_array_append(j->flags, flag);
}

void
attempt_add_flag(struct attempt *j, const char *name)
{
    AUTO_JSON json_t *flags = json_pack("[s]", name);
    attempt_add_flags(j, flags);
}

void
attempt_take_output(struct attempt *j, const struct buffer *output, int64_t lost, int64_t limit)
{
    size_t room = (size_t)limit > j->log.size ? (size_t)limit - j->log.size : 0;
    size_t kept = output->size < room ? output->size : room;

    if (kept > 0 && buffer_append(&j->log, output->data, kept) != 0)
        kept = 0;
    j->log_lost += lost + (int64_t)(output->size - kept);
}
