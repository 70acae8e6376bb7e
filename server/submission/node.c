#include "server/submission/node.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/queue/clients.h"
#include "server/queue/scheduler.h"
#include "server/submission/adopt.h"
#include "server/submission/cancel.h"
#include "server/submission/groups.h"
#include "server/submission/node_about.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/registry.h"
#include "server/submission/reuse.h"
#include "server/submission/seen.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/workers/device_worker.h"
#include "server/workers/scratch.h"

/*
 * Theory of operation. A lease that ends is renewed each third of its length, and claims under leases that have ended
 * are reaped at the same time. By the clock of this machine, counted from before a renewal was sent, the lease is
 * treated as lost while a third of it is left (where a write hangs, once all of it has passed, since the renewals have
 * a separate connection): then all claims are dropped, before another node may take them, and the node joins anew.
 * Later writes under the old lease are refused by the store.
 *
 * While nothing is queued here and a slot is free, the store is polled for waiting submissions: those accepted by
 * another node, those released, and those that could not be queued for lack of memory. Each is claimed before it is
 * read. A node with work for all of its slots claims one at a time, too: else the submissions of a dead node would wait
 * until another node is idle.
 */

#define LOOK_MS 250
#define CHECK_MOST 256     /* of the queue, and of what is to be cancelled, in one look */
#define LOOK_ALONE_MS 1000 /* if no other daemon shares the store */

/* A waiting submission that was claimed, and that this daemon does not know. */
struct take {
    struct store_claim claim;
    bool is_read;
    struct submission_row row;  /* owned */
    struct adopted_group group; /* of row */
    struct seen rest;           /* owned: what waits with it, of a group that is judged by one node */
};

struct node {
    struct funnel *funnel;
    struct store_lease lease, joined;
    struct store_lease looking; /* a copy, for the thread that reads */
    struct store_wants wants;   /* the same, but for the limits, which a look does not read */
    int64_t until_ns, sent_ns;  /* monotonic */
    bool is_lost;               /* it has to join anew */
    bool is_asking;             /* a renewal or a joining is under way */
    bool is_ahead;              /* as of the last check */
    bool has_found;
    bool is_blind; /* the last look failed, which was logged */
    struct store_claim claims[STORE_CLAIMS_MAX];
    struct take takes[STORE_CLAIMS_MAX]; /* of these */
    size_t nclaims, ntakes;
    char taken[ID_SIZE]; /* the last that was taken without a free slot */
    struct error err;
    int code;
    bool is_checking;
    char checked[ID_SIZE]; /* the last one checked */
    uv_timer_t renew_timer, look_timer, check_timer;
};

static void look_again(struct node *n, bool is_at_once);

const struct store_lease *
node_lease(const struct node *n)
{
    return &n->lease;
}

double
node_lease_s(const struct node *n)
{
    if (store_lease_ms(n->funnel->store) == STORE_LEASE_ENDLESS)
        return INFINITY;
    return n->is_lost ? -1 : (double)(n->until_ns - clock_monotonic_ns()) / 1e9;
}

bool
node_is_ahead(const struct node *n)
{
    return n->is_ahead;
}

struct store_wants
node_wants(const struct funnel *f)
{
    struct store_wants wants = { .is_compiler = config_has_role(f->config, "compile"),
                                 .limits = clients_limits(f->clients) };

    for (int i = 0; i < f->n_device_workers; i++) {
        const char *name =
            json_string_value(json_object_get(device_worker_gpu(f->device_workers[i]), "name"));
        if (!name || (i > 0 && strcmp(name, wants.gpu) != 0))
            return (struct store_wants){ .is_compiler = wants.is_compiler, .limits = wants.limits };
        snprintf(wants.gpu, sizeof(wants.gpu), "%s", name);
    }
    return wants;
}

static bool
is_shared(const struct node *n)
{
    return store_lease_ms(n->funnel->store) != STORE_LEASE_ENDLESS;
}

/* --- the lease --- */

/* False: it stays, since it is not claimed, or its end is on its way into the store, which decides. */
static bool
begin_drop(struct submission *s)
{
    if (state_is_final(s->state) || s->is_claiming || (s->attempt && s->attempt->is_finishing) ||
        (s->state == STATE_QUEUED && !s->is_claimed))
        return false;
    if (stage_of_state(s->state) >= 0) { /* once its processes are gone */
        s->is_taken = true;
        submission_stop(s);
        return false;
    }
    submission_leave_queue(s);
    return true;
}

static void
lose(struct node *n, const char *why)
{
    struct funnel *f = n->funnel;

    if (n->is_lost)
        return;
    log_warn(NULL, "the lease of node %s is lost: %s; what it had claimed is left to others", n->lease.node,
             why);
    n->is_lost = true;
    for (struct registry_entry *e = registry_first(f->registry), *next; e; e = next) {
        struct submission *s = scheduler_owner(e, struct submission, entry);
        next = registry_after(e);
        if (begin_drop(s))
            f->taken(s);
    }
}

static void
renewed_cb(void *arg, int code, const struct error *err)
{
    struct node *n = arg;

    n->is_asking = false;
    if (code == 0)
        n->until_ns = n->sent_ns + store_lease_ms(n->funnel->store) * 1000000;
    else if (code == ERR_CONFLICT)
        lose(n, err->text);
    else
        log_warn(NULL, "the lease is not renewed: %s", err->text);
}

static void
joined_cb(void *arg, int code, const struct error *err)
{
    struct node *n = arg;

    n->is_asking = false;
    if (code != 0) {
        log_warn(NULL, "node %s cannot join again: %s", n->lease.node, err->text);
        return;
    }
    if (clock_monotonic_ns() > n->sent_ns + store_lease_ms(n->funnel->store) * 1000000 / 3 * 2)
        return; /* too late: the lease may end before the next renewal, and it joins once more then */
    n->lease = n->joined;
    n->until_ns = n->sent_ns + store_lease_ms(n->funnel->store) * 1000000;
    n->is_lost = false;
    log_info(NULL, "node %s has joined again", n->lease.node);
    scheduler_kick(n->funnel->scheduler);
}

static void
reaped_cb(void *arg, int code, const struct error *err)
{
    (void)arg;
    if (code != 0)
        log_warn(NULL, "what dead nodes had claimed is not put back yet: %s", err->text);
}

static int
renew(struct node *n, int64_t lease_ms, struct error *err)
{
    AUTO_JSON json_t *about = node_about(n->funnel);
    AUTO_FREE char *text = json_dumps(about, JSON_COMPACT);
    const struct store_node_state state = { pending_is_draining(n->funnel->pending), text };

    return store_renew(n->funnel->store, &n->lease, lease_ms, &state, renewed_cb, n, err);
}

static void
renew_timer_cb(uv_timer_t *timer)
{
    struct node *n = timer->data;
    struct store *store = n->funnel->store;
    int64_t lease_ms = store_lease_ms(store);
    struct error err = { 0 };

    if (clock_monotonic_ns() > n->until_ns - lease_ms * 1000000 / 3)
        lose(n, "it was not renewed in time");
    else if (store_writing_ms(store) > lease_ms)
        lose(n, "one write has waited for the database for longer than it lasts");
    if (n->is_asking)
        return;
    n->sent_ns = clock_monotonic_ns();
    int rc = n->is_lost ? store_join(store, n->lease.node, lease_ms, &n->joined, joined_cb, n, &err)
                        : renew(n, lease_ms, &err);
    n->is_asking = rc == 0;
    if (rc == 0)
        rc = store_reap(store, reaped_cb, n, &err);
    if (rc != 0)
        log_warn(NULL, "the lease is not renewed: %s", err.text);
}

/* --- what waits in the store --- */

/* Where this node has as much to do as it can, one at a time is taken, and is the next of its client. */
static bool
may_take(const struct node *n)
{
    const struct funnel *f = n->funnel;

    if (n->is_lost || pending_is_draining(f->pending) || n->is_ahead || scratch_trouble(f->config->scratch) ||
        !zygotes_are_ready(f))
        return false;
    /* A file's submissions are all known here: one that waits for a slot is claimed when it begins, not before. */
    if (!is_shared(n) && registry_oldest_s(f->registry, REGISTRY_FOR_SLOT) >= 0)
        return false;
    const struct submission *s = *n->taken ? submission_by_id(f, n->taken) : NULL;
    return scheduler_has_room(f->scheduler) ||
           (is_shared(n) && scheduler_is_open(f->scheduler) && !(s && s->state == STATE_QUEUED));
}

static void
released_cb(void *arg, int code, const struct error *err)
{
    (void)arg;
    if (code != 0)
        log_warn(NULL, "a submission that was taken is not given back: %s", err->text);
}

static void
give_back(struct node *n, struct store_claim *claim)
{
    struct error err = { 0 };

    claim->attempts--;
    if (store_release(n->funnel->store, claim, released_cb, n, &err) != 0)
        released_cb(n, (int)err.code, &err);
}

static void
end_look(struct node *n, bool is_at_once)
{
    for (size_t i = 0; i < n->ntakes; i++) {
        submission_row_release(&n->takes[i].row);
        json_decref(n->takes[i].group.request);
        seen_release(&n->takes[i].rest);
    }
    n->ntakes = 0;
    look_again(n, is_at_once);
    pending_end_write(n->funnel->pending);
}

/*
 * Of a group that chooses among its submissions the others come with it, so that the choice is among all of them. They are
 * queued as if they had been accepted here, and each is claimed when it begins.
 */
static void
take_in_rest(struct funnel *f, const struct take *t)
{
    for (size_t i = 0; i < t->rest.n; i++) {
        const struct submission_row *row = &t->rest.rows[i];
        struct submission *s = submission_by_id(f, row->id) || row->attempts >= f->config->max_attempts
                                   ? NULL
                                   : adopt(f, row, &t->group, false);
        if (s)
            reuse_enqueue(s);
    }
}

/* It is this node's, and this daemon does not know it. */
static void
take_up(struct node *n, struct take *t)
{
    struct funnel *f = n->funnel;

    t->row.claim = t->claim.number;
    t->row.attempts = t->claim.attempts;
    struct submission *s = adopt(f, &t->row, &t->group, true);
    if (!s) {
        log_error(t->row.id, "no memory to take it up: it waits in the store");
        give_back(n, &t->claim);
        return;
    }
    s->claim = t->claim;
    log_info(s->id, "taken up from the store, attempt %d", t->claim.attempts);
    /* Each attempt before this one ended with the node that made it. */
    if (t->claim.attempts > f->config->max_attempts) {
        s->claim.attempts--;
        if (adopt_give_up(s))
            return;
    }
    reuse_enqueue(s);
    take_in_rest(f, t);
}

/* If it was dropped here and its processes are still ending, it is released: it could not be judged here. */
static void
take_known(struct node *n, struct submission *s, struct store_claim *claim)
{
    if (s->is_taken) {
        give_back(n, claim);
        return;
    }
    s->claim = *claim;
    s->is_claimed = s->state == STATE_QUEUED;
    s->is_unread = false;
}

static void
rows_read_cb(void *arg)
{
    struct node *n = arg;
    bool is_row = false;

    for (size_t i = 0; i < n->ntakes; i++) {
        struct take *t = &n->takes[i];
        struct submission *s = submission_by_id(n->funnel, t->claim.id);
        is_row |= t->is_read;
        if (s) /* it came in while it was read, with its group or to be cancelled */
            take_known(n, s, &t->claim);
        else if (!t->is_read || pending_is_draining(n->funnel->pending) || n->is_lost)
            give_back(n, &t->claim);
        else
            take_up(n, t);
    }
    scheduler_kick(n->funnel->scheduler);
    end_look(n, is_row);
}

static bool
rest_row_cb(void *arg, const struct submission_row *row)
{
    return row->state != SUBMISSION_QUEUED || seen_add(arg, row) == 0;
}

/* Its group, and the waiting members of that: a member that is missed is adopted by itself. False: it is not known. */
static bool
read_group(struct take *t, struct store_reader *r, bool is_shared)
{
    bool is_known = adopt_read_group(r, t->row.group_id, &t->group);
    if (is_shared && group_chooses(t->group.request))
        reader_each_of_group(r, t->row.group_id, rest_row_cb, &t->rest, NULL);
    return is_known;
}

/* Of several of one group the first one brings it along. */
static bool
is_first_of_group(const struct node *n, const struct take *t)
{
    for (const struct take *before = n->takes; before < t; before++)
        if (before->is_read && strcmp(before->row.group_id, t->row.group_id) == 0)
            return false;
    return true;
}

static void
read_rows_cb(void *arg, struct store_reader *r)
{
    struct node *n = arg;
    struct error err = { 0 };

    for (size_t i = 0; i < n->ntakes; i++) {
        struct take *t = &n->takes[i];
        t->is_read = reader_get_submission(r, t->claim.id, &t->row, &err) == 0;
        if (!t->is_read)
            log_warn(t->claim.id, "it cannot be taken up: %s", err.text);
        else if (*t->row.group_id && is_first_of_group(n, t))
            t->is_read = read_group(t, r, is_shared(n)); /* without its rules it would never be decided */
    }
}

static void
taken_cb(void *arg, int code, const struct error *err)
{
    struct node *n = arg;
    bool has_taken = false;

    if (code != 0 && code != ERR_NOTFOUND)
        log_warn(NULL, "nothing is taken up: %s", err->text);
    if (code == 0 && n->nclaims == 1)
        memcpy(n->taken, n->claims[0].id, ID_SIZE);
    for (size_t i = 0; code == 0 && i < n->nclaims; i++) {
        struct submission *s = submission_by_id(n->funnel, n->claims[i].id);
        has_taken |= !s || !s->is_taken;
        if (s)
            take_known(n, s, &n->claims[i]);
        else
            n->takes[n->ntakes++] = (struct take){ .claim = n->claims[i] };
    }
    if (n->ntakes > 0 && store_read(n->funnel->store, read_rows_cb, rows_read_cb, n, &n->err) == 0)
        return;
    for (size_t i = 0; i < n->ntakes; i++)
        give_back(n, &n->takes[i].claim);
    end_look(n, has_taken && n->ntakes == 0);
}

/* The number of free slots, or one. */
static size_t
most_to_take(const struct node *n)
{
    const struct scheduler *q = n->funnel->scheduler;
    struct scheduler_counts counts;

    scheduler_count(q, &counts);
    int64_t room = counts.slots - counts.cpu_running;
    return room <= 0 || !scheduler_has_room(q) ? 1
           : room < STORE_CLAIMS_MAX           ? (size_t)room
                                               : STORE_CLAIMS_MAX;
}

/* A look costs no write where nothing waits that may be claimed. */
static void
look_cb(void *arg, struct store_reader *r)
{
    struct node *n = arg;

    n->code = reader_waits(r, &n->looking, &n->wants, &n->has_found, &n->err);
}

static void
looked_cb(void *arg)
{
    struct node *n = arg;
    const struct store_wants wants = node_wants(n->funnel);

    if (n->code != 0 && !n->is_blind)
        log_warn(NULL, "it is not known what waits in the store: %s", n->err.text);
    n->is_blind = n->code != 0;
    if (n->code != 0 || !n->has_found || !may_take(n) ||
        store_claim_next(n->funnel->store, &n->lease, &wants, most_to_take(n), n->claims, &n->nclaims,
                         taken_cb, n, &n->err) != 0)
        end_look(n, false);
}

static void
look_timer_cb(uv_timer_t *timer)
{
    struct node *n = timer->data;

    if (!may_take(n)) {
        look_again(n, false);
        return;
    }
    n->looking = n->lease;
    n->wants = node_wants(n->funnel);
    pending_begin_write(n->funnel->pending);
    if (store_read(n->funnel->store, look_cb, looked_cb, n, &n->err) != 0)
        end_look(n, false);
}

static void
look_again(struct node *n, bool is_at_once)
{
    if (!pending_is_draining(n->funnel->pending))
        uv_timer_start(&n->look_timer, look_timer_cb,
                       is_at_once     ? 0
                       : is_shared(n) ? LOOK_MS
                                      : LOOK_ALONE_MS,
                       0);
}

/* --- queued submissions that may have ended on another node --- */

struct check {
    struct node *node;
    size_t n;
    struct {
        char id[ID_SIZE];
        bool is_unfinished;
    } items[CHECK_MOST];
    char node_name[STORE_NODE_SIZE];
    bool is_compiler, is_ahead;
    size_t norders;
    struct {
        char id[ID_SIZE];
        int order;
    } orders[CHECK_MOST]; /* to cancel */
};

static void
order_cb(void *arg, const char *id, int order)
{
    struct check *c = arg;

    snprintf(c->orders[c->norders].id, ID_SIZE, "%s", id);
    c->orders[c->norders++].order = order;
}

static void
check_read_cb(void *arg, struct store_reader *r)
{
    struct check *c = arg;

    for (size_t i = 0; i < c->n; i++)
        if (reader_is_unfinished(r, c->items[i].id, &c->items[i].is_unfinished, NULL) != 0)
            c->items[i].is_unfinished = true;                           /* not known: it is asked again */
    reader_each_cancel(r, c->node_name, CHECK_MOST, order_cb, c, NULL); /* the same */
    if (c->is_compiler)
        reader_is_ahead(r, &c->is_ahead, NULL);
}

static bool
is_unclaimed(const struct submission *s)
{
    return s->state == STATE_QUEUED && !s->is_claimed && !s->is_claiming && !s->attempt;
}

static void
note_ahead(struct node *n, bool is_ahead)
{
    if (n->is_ahead == is_ahead)
        return;
    n->is_ahead = is_ahead;
    log_info(NULL, is_ahead ? "enough that was compiled waits for a GPU: nothing more is begun"
                            : "less that was compiled waits for a GPU: it goes on");
    scheduler_kick(n->funnel->scheduler);
}

static void
checked_cb(void *arg)
{
    struct check *c = arg;
    struct node *n = c->node;
    struct funnel *f = n->funnel;

    n->is_checking = false;
    for (size_t i = 0; i < c->n; i++) {
        struct submission *s = c->items[i].is_unfinished ? NULL : submission_by_id(f, c->items[i].id);
        if (!s || !is_unclaimed(s))
            continue;
        submission_leave_queue(s);
        f->taken(s);
    }
    for (size_t i = 0; i < c->norders && !pending_is(f->pending, PENDING_STOPPING); i++)
        cancel_ordered(f, c->orders[i].id, c->orders[i].order);
    note_ahead(n, c->is_ahead);
    free(c);
    pending_end_write(f->pending);
}

/* Some of them after the other, the oldest first. What another node was asked to cancel. And how far it is ahead. */
static void
check_queued(struct node *n)
{
    struct funnel *f = n->funnel;
    struct check *c = n->is_checking ? NULL : calloc(1, sizeof(*c));

    if (!c)
        return;
    c->node = n;
    c->is_compiler = config_has_role(f->config, "compile");
    c->is_ahead = n->is_ahead;
    snprintf(c->node_name, sizeof(c->node_name), "%s", n->lease.node);
    struct registry_entry *last = registry_find(f->registry, n->checked);
    struct registry_entry *e = last ? registry_after(last) : NULL;
    for (e = e ? e : registry_first(f->registry); e && c->n < CHECK_MOST; e = registry_after(e)) {
        memcpy(n->checked, e->id, ID_SIZE);
        if (is_unclaimed(scheduler_owner(e, struct submission, entry)))
            memcpy(c->items[c->n++].id, e->id, ID_SIZE);
    }
    pending_begin_write(f->pending);
    n->is_checking = store_read(f->store, check_read_cb, checked_cb, c, NULL) == 0;
    if (n->is_checking)
        return;
    pending_end_write(f->pending);
    free(c);
}

static void
check_timer_cb(uv_timer_t *timer)
{
    struct node *n = timer->data;

    if (pending_is(n->funnel->pending, PENDING_STOPPING))
        return;
    check_queued(n);
    scheduler_kick(n->funnel->scheduler); /* clients that were held (client_hold()) are tried again */
}

/* --- life --- */

struct node *
node_new(struct funnel *f)
{
    struct node *n = calloc(1, sizeof(*n));
    int64_t lease_ms = store_lease_ms(f->store);

    if (!n)
        return NULL;
    n->funnel = f;
    n->lease = *store_lease(f->store);
    n->until_ns = clock_monotonic_ns() + (is_shared(n) ? lease_ms * 1000000 : 0);
    uv_timer_init(f->loop, &n->renew_timer);
    uv_timer_init(f->loop, &n->look_timer);
    uv_timer_init(f->loop, &n->check_timer);
    n->renew_timer.data = n->look_timer.data = n->check_timer.data = n;
    uv_unref((uv_handle_t *)&n->check_timer);
    uv_unref((uv_handle_t *)&n->renew_timer);
    uv_unref((uv_handle_t *)&n->look_timer);
    if (is_shared(n)) {
        uv_timer_start(&n->renew_timer, renew_timer_cb, 0, (uint64_t)lease_ms / 3);
        uv_timer_start(&n->check_timer, check_timer_cb, LOOK_MS, LOOK_MS);
    }
    look_again(n, false);
    return n;
}

void
node_drain(struct node *n)
{
    uv_timer_stop(&n->look_timer);
    if (is_shared(n)) /* the others are to know */
        uv_timer_start(&n->renew_timer, renew_timer_cb, 0, (uint64_t)store_lease_ms(n->funnel->store) / 3);
}

static void
closed_cb(uv_handle_t *handle)
{
    struct node *n = handle->data;

    if (handle == (uv_handle_t *)&n->renew_timer)
        uv_close((uv_handle_t *)&n->look_timer, closed_cb);
    else if (handle == (uv_handle_t *)&n->look_timer)
        uv_close((uv_handle_t *)&n->check_timer, closed_cb);
    else
        free(n);
}

void
node_free(struct node *n)
{
    if (n)
        uv_close((uv_handle_t *)&n->renew_timer, closed_cb);
}
