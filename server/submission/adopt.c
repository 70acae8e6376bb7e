#include "server/submission/adopt.h"

#include <string.h>

#include <jansson.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/log.h"
#include "server/queue/clients.h"
#include "server/store/store.h"
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
    int *n_correct = arg;
    AUTO_JSON json_t *verdict = json_of(row->verdict);

    *n_correct += verdict_is_correct(verdict);
    return true;
}

bool
adopt_read_group(struct store_reader *r, const char *id, struct adopted_group *out)
{
    struct group_row row = { 0 };
    struct error err = { 0 };

    *out = (struct adopted_group){ 0 };
    int rc = reader_get_group(r, id, &row, &err);
    if (rc == 0) {
        out->request = json_of(row.request);
        out->age_ms = row.age_ms;
        if (json_object_get(out->request, "stop"))
            rc = reader_each_of_group(r, id, count_correct_cb, &out->n_correct, &err);
    }
    if (rc != 0)
        log_warn(id, "%s", err.text);
    group_row_release(&row);
    return rc != ERR_UNAVAILABLE;
}

/* The request's settings for the group count from its arrival, and its finished submissions are counted. */
static void
restore_group(struct funnel *f, struct group *g, const struct adopted_group *from)
{
    group_configure(g, from->request, from->age_ms);
    if (store_lease_ms(f->store) == STORE_LEASE_ENDLESS) /* the others come, too */
        group_set_whole(g);
    for (int i = 0; i < from->n_correct; i++)
        group_add_correct(g);
}

/* Its followers in the store are followers of it here from now on. */
static void
end_following(struct funnel *f, struct submission *s)
{
    struct elsewhere_entry *e = elsewhere_find(f->elsewhere, s->id);

    if (!e)
        return;
    waits_move(&e->waits, &s->waits);
    if (e->owner) {
        s->is_accepted = true;
        client_drop_submission(e->owner);
    }
    if (e->group)
        group_end_elsewhere(e->group);
    elsewhere_remove(f->elsewhere, e);
}

struct submission *
adopt(struct funnel *f, const struct submission_row *row, const struct adopted_group *group, bool is_claimed)
{
    AUTO_JSON json_t *request = json_of(row->request);
    struct submission *s =
        submission_new(f, row->id, row->group_id, row->client, row->priority, row->attempts);

    if (!s)
        return NULL;
    memcpy(s->claim.id, row->id, sizeof(s->claim.id));
    s->claim.number = row->claim;
    s->claim.attempts = row->attempts;
    s->is_claimed = is_claimed;
    end_following(f, s);
    if (s->group && group && !group_is_configured(s->group))
        restore_group(f, s->group, group);
    reuse_content(row, request, s->content);
    return s;
}

bool
adopt_give_up(struct submission *s)
{
    s->is_exhausted = s->is_claimed = true;
    if (!submission_make_attempt(s))
        return false;
    s->funnel->begin(s);
    return true;
}
