/*
 * Any JSON as what a candidate's processes and the referee left behind: made into a verdict, its reward, and what a
 * submitter is told of it. A refusal tells nothing whatever stands in them.
 */
#include <math.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/policy.h"
#include "common/stages.h"
#include "server/submission/attempt.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/verdict/disclosure.h"
#include "server/verdict/verdict.h"
#include "tests/fuzz/fuzz.h"

static void
judge_by(json_t *left, struct attempt *j)
{
    const struct reward_spec standard = REWARD_SPEC_DEFAULT;
    json_t *stage = json_object_get(left, "stage"), *error = json_object_get(left, "error");
    enum verdict_class class_ = class_find(json_string_value(json_object_get(left, "class")));

    j->row.finished_ms = j->row.created_ms = 1700000000000;
    j->stage = STAGE_TIMING;
    j->passed = j->failed_stage = j->until = -1;
    j->reward = standard;
    FUZZ_CHECK(policy_find("strict", &j->policy) == 0);
    j->flags = json_array();
    j->request = json_object();
    j->kernels = json_object_get(left, "kernels");
    j->compiled = json_object_get(left, "compiled");
    j->report = json_object_get(left, "claim");
    j->tiny = json_object_get(left, "tiny");
    j->full = json_object_get(left, "full");
    j->timing = json_object_get(left, "timing");
    j->env = json_object_get(left, "env");
    for (int i = 0; i < STAGE_NSTAGES; i++)
        j->stages[i].outcome = OUTCOME_PASS;
    if (class_) {
        int failed = json_is_integer(stage) ? (int)(json_integer_value(stage) & 3) : STAGE_FULL;
        j->stages[failed].outcome = OUTCOME_FAIL;
        const char *text = json_string_value(json_object_get(left, "text"));
        attempt_fail(j, failed, class_, json_is_object(error) ? error : NULL, "%s",
                     text ? text : class_name(class_));
    }
}

static void
check_told(json_t *verdict)
{
    AUTO_JSON json_t *told = disclosure_view(verdict);

    FUZZ_CHECK(told);
    FUZZ_CHECK(json_is_null(json_object_get(told, "evidence")));
    if (!disclosure_is_refused(verdict))
        return;
    static const char *const hidden[] = { "timing", "error", "rule", "stages", "correctness", "components" };
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        FUZZ_CHECK(json_is_null(json_object_get(told, hidden[i])));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_JSON json_t *left =
        json_loadb((const char *)data, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    struct attempt j = { 0 };
    struct submission s = { .attempt = &j, .state = STATE_DONE, .attempts = 1 };

    if (!json_is_object(left))
        return 0;
    snprintf(s.id, sizeof(s.id), "0199f2c4-0000-7000-8000-000000000000");
    judge_by(left, &j);
    AUTO_JSON json_t *verdict = verdict_json(&s);
    FUZZ_CHECK(verdict);
    json_t *reward = json_object_get(verdict, "reward");
    FUZZ_CHECK(json_is_null(reward) || isfinite(json_number_value(reward)));
    if (class_info(j.class_)->is_cheat)
        FUZZ_CHECK(json_number_value(reward) <= 0);
    AUTO_FREE char *text = json_dumps(verdict, JSON_COMPACT);
    FUZZ_CHECK(text);
    check_told(verdict);
    json_decref(j.flags);
    json_decref(j.request);
    json_decref(j.error);
    return 0;
}
