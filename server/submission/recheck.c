#include "server/submission/recheck.h"

#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/log.h"
#include "server/store/store.h"
#include "server/submission/counters.h"
#include "server/submission/parts.h"
#include "server/submission/submission.h"

static double
number_in(json_t *verdict, const char *key)
{
    return json_number_value(json_object_get(json_object_get(verdict, "timing"), key));
}

static bool
is_measured(json_t *verdict)
{
    const char *outcome = json_string_value(json_object_get(json_object_get(verdict, "timing"), "outcome"));
    return outcome && strcmp(outcome, "measured") == 0;
}

/* Machines drift by a few percent from day to day, so intervals have to lie well apart. */
#define DRIFT 1.1

static bool
is_other_speed(json_t *a, json_t *b)
{
    return is_measured(a) && is_measured(b) &&
           (number_in(a, "speedup_lo") > DRIFT * number_in(b, "speedup_hi") ||
            number_in(b, "speedup_lo") > DRIFT * number_in(a, "speedup_hi"));
}

void
recheck_compare(struct submission *s)
{
    struct funnel *f = s->funnel;
    const struct submission_row *now = &s->attempt->row;
    struct submission_row then = { 0 };

    if (!*s->recheck_of || now->state != SUBMISSION_DONE || !now->class_ ||
        class_info(class_find(now->class_))->fault == FAULT_SERVICE ||
        store_get_submission(f->store, s->recheck_of, &then, NULL) != 0)
        return;
    AUTO_JSON json_t *old = json_loads(then.verdict ? then.verdict : "", JSON_ALLOW_NUL, NULL);
    AUTO_JSON json_t *new = json_loads(now->verdict ? now->verdict : "", JSON_ALLOW_NUL, NULL);
    bool is_same_stage = json_equal(json_object_get(old, "failed_at"), json_object_get(new, "failed_at"));
    if (!then.class_ || strcmp(then.class_, now->class_) != 0 || !is_same_stage || is_other_speed(old, new)) {
        counters_reuse(f->counters, REUSE_DIFFERED);
        log_warn(s->id, "judged again, and not as before: %s, speedup %.4g now; %s, %.4g as %s", now->class_,
                 number_in(new, "speedup"), then.class_ ? then.class_ : "nothing", number_in(old, "speedup"),
                 then.id);
    }
    submission_row_release(&then);
}
