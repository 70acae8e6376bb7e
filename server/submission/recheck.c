#include "server/submission/recheck.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/json.h"
#include "common/log.h"
#include "server/store/store.h"
#include "server/submission/counters.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/submission.h"

static double
number_in(json_t *verdict, const char *key)
{
    return json_number_value(json_object_get(json_object_get(verdict, "timing"), key));
}

static bool
is_measured(json_t *verdict)
{
    return text_is(json_object_get(verdict, "timing"), "outcome", "measured");
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

/* The new verdict with the earlier one, which a thread of the store reads. */
struct recheck {
    struct funnel *funnel;
    struct submission_row now; /* owned */
    char then_id[ID_SIZE];
    char *then_class, *then_verdict; /* owned */
    int rc;
};

static void
read_cb(void *arg, struct store_reader *r)
{
    struct recheck *c = arg;
    struct submission_row then = { 0 };

    c->rc = reader_get_submission(r, c->then_id, &then, NULL);
    c->then_class = ptr_take(&then.class_);
    c->then_verdict = ptr_take(&then.verdict);
    submission_row_release(&then);
}

static void
compare(struct recheck *c)
{
    const struct submission_row *now = &c->now;
    AUTO_JSON json_t *old = json_of(c->then_verdict);
    AUTO_JSON json_t *new = json_of(now->verdict);
    bool is_same_stage = json_equal(json_object_get(old, "failed_at"), json_object_get(new, "failed_at"));
    bool is_same_class = c->then_class && strcmp(c->then_class, now->class_) == 0;

    if (is_same_class && is_same_stage && !is_other_speed(old, new))
        return;
    counters_count(c->funnel->counters, REUSE_DIFFERED);
    log_warn(now->id, "judged again, and not as before: %s, speedup %.4g now; %s, %.4g as %s", now->class_,
             number_in(new, "speedup"), c->then_class ? c->then_class : "nothing", number_in(old, "speedup"),
             c->then_id);
}

static void
done_cb(void *arg)
{
    struct recheck *c = arg;
    struct funnel *f = c->funnel;

    if (c->rc == 0)
        compare(c);
    submission_row_release(&c->now);
    free(c->then_class);
    free(c->then_verdict);
    free(c);
    pending_end_write(f->pending);
}

void
recheck_compare(struct submission *s)
{
    struct funnel *f = s->funnel;
    const struct submission_row *now = &s->attempt->row;

    if (!*s->recheck_of || now->state != SUBMISSION_DONE || !now->class_ ||
        class_info(class_find(now->class_))->fault == FAULT_SERVICE)
        return;
    struct recheck *c = calloc(1, sizeof(*c));
    if (!c || submission_row_copy(now, &c->now) != 0) {
        log_warn(s->id, "no memory to compare it with %s", s->recheck_of);
        if (c)
            submission_row_release(&c->now);
        free(c);
        return;
    }
    c->funnel = f;
    memcpy(c->then_id, s->recheck_of, sizeof(c->then_id));
    pending_begin_write(f->pending);
    if (store_read(f->store, read_cb, done_cb, c, NULL) != 0) {
        c->rc = ERR_UNAVAILABLE;
        done_cb(c);
    }
}
