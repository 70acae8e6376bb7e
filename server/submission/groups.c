#include "server/submission/groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>
#include <utlist.h>

#include "common/ids.h"
#include "common/log.h"

#define PUT_OFF_MS 1000

struct group {
    UT_hash_handle hh;
    struct groups *all;
    char id[ID_SIZE];
    int pending; /* submissions that are not finished */
    struct funnel_wait *waits;
    int time_top_k;            /* how many are timed at most; 0: all */
    int stop_correct;          /* it is decided once this many are correct; 0: never */
    int n_correct;             /* of those that are finished */
    int n_chosen, chosen_left; /* of those that were chosen to be timed: all, and those not finished */
    int n_parked, n_following, n_elsewhere;
    bool is_configured, is_decided, is_whole;
    struct group_member *parked;
    uv_timer_t *deadline; /* NULL: none */
    char *notify_url;     /* NULL: none */
};

struct groups {
    uv_loop_t *loop;
    void (*deadline_cb)(void *arg, struct group *g);
    void *arg;
    struct group *by_id;
};

struct groups *
groups_new(uv_loop_t *loop, void (*deadline_cb)(void *arg, struct group *g), void *arg)
{
    struct groups *gs = calloc(1, sizeof(*gs));

    if (gs)
        *gs = (struct groups){ .loop = loop, .deadline_cb = deadline_cb, .arg = arg };
    return gs;
}

struct group *
groups_find(struct groups *gs, const char *id)
{
    struct group *g;

    HASH_FIND_STR(gs->by_id, id, g);
    return g;
}

struct group *
groups_get(struct groups *gs, const char *id)
{
    struct group *g = groups_find(gs, id);

    if (g || !(g = calloc(1, sizeof(*g))))
        return g;
    g->all = gs;
    snprintf(g->id, sizeof(g->id), "%s", id);
    HASH_ADD_STR(gs->by_id, id, g);
    return g;
}

static void
timer_closed_cb(uv_handle_t *timer)
{
    free(timer);
}

void
group_free(struct group *g)
{
    if (g->deadline)
        uv_close((uv_handle_t *)g->deadline, timer_closed_cb);
    free(g->notify_url);
    free(g);
}

void
groups_free(struct groups *gs)
{
    struct group *g, *next;

    if (!gs)
        return;
    HASH_ITER(hh, gs->by_id, g, next)
    {
        HASH_DEL(gs->by_id, g);
        group_free(g);
    }
    free(gs);
}

const char *
group_id(const struct group *g)
{
    return g->id;
}

bool
group_is_configured(const struct group *g)
{
    return g->is_configured;
}

void
group_set_whole(struct group *g)
{
    g->is_whole = true;
}

bool
group_is_whole(const struct group *g)
{
    return g->is_whole;
}

bool
group_chooses(json_t *request)
{
    return json_is_integer(json_object_get(request, "time_top_k")) ||
           json_is_object(json_object_get(request, "stop"));
}

bool
group_stops_early(const struct group *g)
{
    return g->stop_correct > 0;
}

bool
group_times_some(const struct group *g)
{
    return g->time_top_k > 0;
}

const char *
group_notify_url(const struct group *g)
{
    return g->notify_url;
}

struct funnel_wait **
group_waits(struct group *g)
{
    return &g->waits;
}

static void
deadline_cb(uv_timer_t *timer)
{
    struct group *g = timer->data;

    g->all->deadline_cb(g->all->arg, g);
}

void
group_configure(struct group *g, json_t *request, int64_t age_ms)
{
    json_t *deadline = json_object_get(request, "deadline_s"), *url = json_object_get(request, "notify_url");

    g->is_configured = true;
    g->time_top_k = (int)json_integer_value(json_object_get(request, "time_top_k"));
    g->stop_correct = (int)json_integer_value(json_object_get(json_object_get(request, "stop"), "correct"));
    if (json_is_string(url) && !g->notify_url)
        g->notify_url = strdup(json_string_value(url));
    if (!json_is_number(deadline) || g->deadline || !(g->deadline = calloc(1, sizeof(*g->deadline))))
        return;
    int64_t left_ms = (int64_t)(json_number_value(deadline) * 1000) - age_ms;
    uv_timer_init(g->all->loop, g->deadline);
    g->deadline->data = g;
    uv_timer_start(g->deadline, deadline_cb, left_ms > 0 ? (uint64_t)left_ms : 0, 0);
}

/* --- how its members fare --- */

void
group_join(struct group *g)
{
    g->pending++;
}

bool
group_is_new(const struct group *g)
{
    return g->pending == 1;
}

void
group_add_correct(struct group *g)
{
    g->n_correct++;
}

void
group_begin_following(struct group *g)
{
    g->n_following++;
}

void
group_end_following(struct group *g)
{
    g->n_following--;
}

void
group_begin_elsewhere(struct group *g, const struct group_member *m)
{
    g->pending += !m;
    g->chosen_left -= m && m->is_chosen;
    g->n_elsewhere++;
}

void
group_end_elsewhere(struct group *g)
{
    g->n_elsewhere--;
    g->pending--;
}

bool
group_finish_elsewhere(struct group *g, bool is_correct)
{
    g->n_elsewhere--;
    return group_finish_one(g, false, is_correct);
}

void
group_park(struct group *g, struct group_member *m)
{
    m->is_parked = true;
    DL_APPEND(g->parked, m);
    g->n_parked++;
}

void
group_unpark(struct group *g, struct group_member *m)
{
    DL_DELETE(g->parked, m);
    g->n_parked--;
    m->is_parked = false;
}

bool
group_finish_one(struct group *g, bool was_chosen, bool is_correct)
{
    g->chosen_left -= was_chosen;
    g->n_correct += is_correct;
    if (--g->pending > 0)
        return false;
    HASH_DEL(g->all->by_id, g);
    return true;
}

/* --- what it decides --- */

bool
group_decides(struct group *g)
{
    /* Those that wait for the choice, and those that were chosen, are correct so far. */
    int n = g->n_correct + g->n_parked + g->chosen_left;

    if (g->is_decided || g->stop_correct == 0 || n < g->stop_correct)
        return false;
    g->is_decided = true;
    log_info(g->id, "%d are correct: the group is decided, and the rest is cancelled", n);
    return true;
}

void
group_put_off(struct group *g)
{
    g->is_decided = false;
    if (g->deadline && !uv_is_active((uv_handle_t *)g->deadline))
        uv_timer_start(g->deadline, deadline_cb, PUT_OFF_MS, 0);
}

/* The shorter call first; those without one after them, and otherwise in the group's order. */
static int
compare_rough(const void *left, const void *right)
{
    const struct group_member *a = *(struct group_member *const *)left,
                              *b = *(struct group_member *const *)right;

    if (isnan(a->rough_ms) != isnan(b->rough_ms))
        return isnan(a->rough_ms) ? 1 : -1;
    if (a->rough_ms < b->rough_ms || a->rough_ms > b->rough_ms)
        return a->rough_ms < b->rough_ms ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

size_t
group_choose(struct group *g, struct group_member **out)
{
    size_t n = 0;

    if (g->n_parked == 0 || g->n_parked + g->n_following + g->chosen_left + g->n_elsewhere < g->pending)
        return 0;
    while (g->parked) {
        out[n++] = g->parked;
        group_unpark(g, g->parked);
    }
    qsort(out, n, sizeof(struct group_member *), compare_rough);
    for (size_t i = 0; i < n && g->n_chosen < g->time_top_k; i++) {
        g->n_chosen++;
        g->chosen_left++;
        out[i]->is_chosen = true;
    }
    return n;
}
