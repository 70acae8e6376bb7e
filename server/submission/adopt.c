#include "server/submission/adopt.h"

#include <string.h>

#include <jansson.h>

#include "common/auto.h"
#include "common/classes.h"
#include "common/log.h"
#include "common/stages.h"
#include "server/store/store.h"
#include "server/submission/attempt.h"
#include "server/submission/conclude.h"
#include "server/submission/elsewhere.h"
#include "server/submission/groups.h"
#include "server/submission/parts.h"
#include "server/submission/reuse_keys.h"
#include "server/submission/submission.h"
#include "server/submission/wait.h"
#include "server/verdict/verdict.h"

static bool
count_correct_cb(void *arg, const struct submission_row *row)
{
    struct group *g = arg;
    AUTO_JSON json_t *verdict = row->verdict ? json_loads(row->verdict, JSON_ALLOW_NUL, NULL) : NULL;

    if (verdict_is_correct(verdict))
        group_add_correct(g);
    return true;
}

/* What its request said of the whole counts from when it came, and so does what is finished. */
static void
restore_group(struct funnel *f, struct group *g)
{
    struct group_row row = { 0 };
    struct error err = { 0 };

    if (reader_get_group(store_reader(f->store), group_id(g), &row, NULL) == 0) {
        AUTO_JSON json_t *request = json_loads(row.request ? row.request : "", JSON_ALLOW_NUL, NULL);
        group_configure(g, request, row.age_ms);
    }
    group_row_release(&row);
    if (store_lease_ms(f->store) == STORE_LEASE_ENDLESS) /* the others come, too */
        group_set_whole(g);
    if (group_stops_early(g) &&
        reader_each_of_group(store_reader(f->store), group_id(g), count_correct_cb, g, &err) != 0)
        log_warn(group_id(g), "%s", err.text);
}

/* Who followed it in the store waits for it here from now on. */
static void
end_following(struct funnel *f, struct submission *s)
{
    struct elsewhere_entry *e = elsewhere_find(f->elsewhere, s->id);

    if (!e)
        return;
    waits_move(&e->waits, &s->waits);
    if (e->group)
        group_end_elsewhere(e->group);
    elsewhere_remove(f->elsewhere, e);
}

struct submission *
adopt(struct funnel *f, const struct submission_row *row, bool is_claimed)
{
    AUTO_JSON json_t *request = json_loads(row->request ? row->request : "", JSON_ALLOW_NUL, NULL);
    struct submission *s =
        submission_new(f, row->id, row->group_id, row->client, row->priority, row->attempts);

    if (!s)
        return NULL;
    memcpy(s->claim.id, row->id, sizeof(s->claim.id));
    s->claim.number = row->claim;
    s->claim.attempts = row->attempts;
    s->is_claimed = is_claimed;
    end_following(f, s);
    if (s->group && !group_is_configured(s->group))
        restore_group(f, s->group);
    reuse_content(row, request, s->content);
    return s;
}

bool
adopt_give_up(struct submission *s)
{
    struct error err = { 0 };

    if (!submission_make_attempt(s))
        return false;
    if (submission_load_attempt(s, &err) != 0)
        attempt_fail(s->attempt, STAGE_AST, CLASS_INFRA, NULL, "It could not be judged: %s.", err.text);
    else
        attempt_fail(s->attempt, STAGE_AST, CLASS_INFRA, NULL,
                     "The service went down %d times while judging it.", s->attempts);
    submission_conclude(s, EVENT_FINISH);
    return true;
}
