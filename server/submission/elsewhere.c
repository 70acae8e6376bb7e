#include "server/submission/elsewhere.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/limits.h"
#include "common/log.h"
#include "server/workers/handle.h"

/*
 * Theory of operation. While anything is followed, a thread of the store reads its state every POLL_MS, beginning with
 * those not read for longest. A new id is read immediately, since it may have ended before.
 */

#define POLL_MS 250
#define POLL_MOST 1024 /* in one look */

struct look {
    char id[ID_SIZE];
    bool is_known; /* before the look */
    int code;
    struct elsewhere_news news;
    bool is_unfinished;
    char group_id[ID_SIZE];
    char *client, *verdict;
    struct elsewhere_member *members;
};

struct poll {
    struct elsewhere *all;
    struct error err; /* of the last of looks */
    size_t n;
    struct look looks[];
};

struct elsewhere {
    struct store *store;
    elsewhere_cb *cb;
    void *arg;
    uv_timer_t timer;
    struct elsewhere_entry *by_id;
    struct elsewhere_entry *oldest; /* by the last look */
    size_t n;
    int64_t n_owned;
    bool is_polling, is_urgent;
    bool is_blind; /* the last look failed, which was logged */
};

static void poll_timer_cb(uv_timer_t *timer);

struct elsewhere *
elsewhere_new(uv_loop_t *loop, struct store *store, elsewhere_cb *cb, void *arg)
{
    struct elsewhere *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    *e = (struct elsewhere){ .store = store, .cb = cb, .arg = arg };
    uv_timer_init(loop, &e->timer);
    uv_unref((uv_handle_t *)&e->timer);
    e->timer.data = e;
    return e;
}

static void
entry_free(struct elsewhere_entry *entry)
{
    free(entry->client);
    free(entry);
}

void
elsewhere_free(struct elsewhere *e)
{
    struct elsewhere_entry *entry, *next;

    if (!e)
        return;
    HASH_ITER(hh, e->by_id, entry, next)
    {
        elsewhere_remove(e, entry);
    }
    uv_close((uv_handle_t *)&e->timer, handle_free_cb);
}

static void
poll_in(struct elsewhere *e, uint64_t ms)
{
    if (e->is_polling || e->n == 0)
        return;
    uv_timer_start(&e->timer, poll_timer_cb, ms, 0);
}

struct elsewhere_entry *
elsewhere_find(struct elsewhere *e, const char *id)
{
    struct elsewhere_entry *found;

    HASH_FIND_STR(e->by_id, id, found);
    return found;
}

struct elsewhere_entry *
elsewhere_add(struct elsewhere *e, const char *id, const char *group_id, const char *client)
{
    struct elsewhere_entry *entry = calloc(1, sizeof(*entry));

    if (!entry || (client && !(entry->client = strdup(client)))) {
        free(entry);
        return NULL;
    }
    snprintf(entry->id, sizeof(entry->id), "%s", id);
    snprintf(entry->group_id, sizeof(entry->group_id), "%s", group_id);
    entry->is_known = true;
    HASH_ADD_STR(e->by_id, id, entry);
    DL_APPEND(e->oldest, entry);
    if (e->n++ == 0)
        poll_in(e, POLL_MS);
    return entry;
}

void
elsewhere_hurry(struct elsewhere *e)
{
    e->is_urgent = true;
    poll_in(e, 0);
}

struct elsewhere_entry *
elsewhere_ask(struct elsewhere *e, const char *id)
{
    struct elsewhere_entry *entry = elsewhere_find(e, id);

    if (entry || !(entry = elsewhere_add(e, id, "", NULL)))
        return entry;
    entry->is_known = false;
    DL_DELETE(e->oldest, entry);
    DL_PREPEND(e->oldest, entry);
    elsewhere_hurry(e);
    return entry;
}

void
elsewhere_own(struct elsewhere *e, struct elsewhere_entry *entry, struct client *owner)
{
    entry->owner = owner;
    e->n_owned++;
}

int64_t
elsewhere_owned(const struct elsewhere *e)
{
    return e->n_owned;
}

static void
end_following(struct elsewhere *e, struct elsewhere_entry *entry)
{
    HASH_DEL(e->by_id, entry);
    DL_DELETE(e->oldest, entry);
    e->n--;
    e->n_owned -= entry->owner != NULL;
}

void
elsewhere_remove(struct elsewhere *e, struct elsewhere_entry *entry)
{
    end_following(e, entry);
    entry_free(entry);
}

/* --- looking: a thread of the store --- */

static bool
member_cb(void *arg, const struct submission_row *row)
{
    struct look *look = arg;
    struct elsewhere_member *m = &look->members[look->news.n];

    if (look->news.n == GROUP_MAX || (row->client && !(m->client = strdup(row->client)))) {
        look->code = ERR_NOMEM;
        return false;
    }
    memcpy(m->id, row->id, sizeof(m->id));
    m->is_finished = row->state != SUBMISSION_QUEUED && row->state != SUBMISSION_RUNNING;
    look->news.n++;
    return true;
}

static void
look_at_group(struct look *look, struct store_reader *r, struct error *err)
{
    look->members = calloc(GROUP_MAX, sizeof(*look->members));
    look->code = 0;
    if (!look->members) {
        look->code = error_set(err, ERR_NOMEM, "no memory to look at %s", look->id);
        return;
    }
    look->news.what = ELSEWHERE_GROUP;
    int rc = reader_each_of_group(r, look->id, member_cb, look, err);
    if (rc == ERR_NOTFOUND)
        look->news.what = ELSEWHERE_GONE;
    else if (rc != 0)
        look->code = rc;
}

/* Reads the owner of a submission that was not known before. */
static void
look_closer(struct look *look, struct store_reader *r, struct error *err)
{
    struct submission_row row = { 0 };

    look->code = reader_get_submission(r, look->id, &row, err);
    memcpy(look->group_id, row.group_id, sizeof(look->group_id));
    submission_row_release(&row);
}

static void
look_at(struct look *look, struct store_reader *r, struct error *last)
{
    struct error err = { 0 };

    look->code = reader_get_answer(r, look->id, &look->client, &look->verdict, &err);
    if (look->code == 0) {
        look->news.what = ELSEWHERE_ENDED;
        look->is_unfinished = look->verdict == NULL;
        if (!look->is_known)
            look_closer(look, r, &err);
    } else if (look->code == ERR_NOTFOUND && !look->is_known) {
        look_at_group(look, r, &err);
    } else if (look->code == ERR_NOTFOUND) {
        look->news.what = ELSEWHERE_GONE;
        look->code = 0;
    }
    *last = look->code != 0 ? err : (struct error){ 0 };
}

static void
read_cb(void *arg, struct store_reader *r)
{
    struct poll *p = arg;

    for (size_t i = 0; i < p->n; i++)
        look_at(&p->looks[i], r, &p->err);
}

/* --- what was seen: the loop --- */

static void
tell(struct elsewhere *e, struct look *look)
{
    struct elsewhere_entry *entry = elsewhere_find(e, look->id);

    if (!entry || look->code != 0)
        return;
    if (!entry->is_known && look->news.what == ELSEWHERE_ENDED) {
        memcpy(entry->group_id, look->group_id, sizeof(entry->group_id));
        free(entry->client);
        entry->client = look->client;
        look->client = NULL;
        entry->is_known = true;
    }
    if (look->is_unfinished) {
        entry->is_news = true;
        return;
    }
    look->news.verdict = look->verdict;
    look->news.members = look->members;
    end_following(e, entry);
    e->cb(e->arg, entry, &look->news);
    entry_free(entry);
}

static void
poll_free(struct poll *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct look *look = &p->looks[i];
        free(look->client);
        free(look->verdict);
        for (size_t m = 0; look->members && m < GROUP_MAX; m++)
            free(look->members[m].client);
        free(look->members);
    }
    free(p);
}

static void
read_done_cb(void *arg)
{
    struct poll *p = arg;
    struct elsewhere *e = p->all;

    e->is_polling = false;
    if (p->err.code != ERR_NONE && !e->is_blind)
        log_warn(NULL, "it is not known what has ended elsewhere: %s", p->err.text);
    e->is_blind = p->err.code != ERR_NONE;
    for (size_t i = 0; i < p->n; i++)
        tell(e, &p->looks[i]);
    poll_in(e, e->is_urgent ? 0 : POLL_MS);
    poll_free(p);
}

/* The ids that were not read for longest. */
static void
choose(struct elsewhere *e, struct poll *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct elsewhere_entry *entry = e->oldest;
        DL_DELETE(e->oldest, entry);
        DL_APPEND(e->oldest, entry);
        memcpy(p->looks[i].id, entry->id, sizeof(entry->id));
        p->looks[i].is_known = entry->is_known;
    }
}

static void
poll_timer_cb(uv_timer_t *timer)
{
    struct elsewhere *e = timer->data;
    size_t n = e->n < POLL_MOST ? e->n : POLL_MOST;
    struct poll *p = n > 0 ? calloc(1, sizeof(*p) + n * sizeof(p->looks[0])) : NULL;
    struct error err = { 0 };

    if (n == 0)
        return;
    e->is_urgent = false;
    if (p) {
        p->all = e;
        p->n = n;
        choose(e, p);
    }
    e->is_polling = p && store_read(e->store, read_cb, read_done_cb, p, &err) == 0;
    if (e->is_polling)
        return;
    free(p);
    poll_in(e, POLL_MS);
}
