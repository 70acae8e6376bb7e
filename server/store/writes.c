#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "server/store/backend.h"
#include "server/store/changes.h"
#include "server/store/private.h"
#include "server/store/readers.h"
#include "server/store/rows.h"
#include "server/store/sweep.h"
#include "server/store/writer.h"

/* Each write of store.h: a copy of what it was given, queued, and the change that the writer's thread makes of it. */

struct piece {
    struct piece *next;
    char bytes[];
};

static void
free_write(struct write *w)
{
    for (struct piece *piece = w->pieces, *next; piece; piece = next) {
        next = piece->next;
        free(piece);
    }
    free(w);
}

/* size: of what is to be changed. NULL: no memory. */
static struct write *
write_new(change_fn *change, size_t size, store_done_cb *cb, void *arg)
{
    struct write *w = calloc(1, sizeof(*w) + size);

    if (w) {
        w->change = change;
        w->what = w + 1;
        w->free = free_write;
        w->rows = 1;
        w->cb = cb;
        w->arg = arg;
    }
    return w;
}

/* Room that lives as long as the write. NULL: no memory, and the write is refused when it is put. */
static void *
room(struct write *w, size_t size)
{
    struct piece *piece = calloc(1, sizeof(*piece) + size);

    if (!piece) {
        w->is_short = true;
        return NULL;
    }
    piece->next = w->pieces;
    w->pieces = piece;
    return piece->bytes;
}

/* A copy of bytes, with a 0 behind it; NULL stays NULL. */
static void *
kept_bytes(struct write *w, const void *bytes, size_t size)
{
    void *copy = bytes ? room(w, size + 1) : NULL;

    return copy && size > 0 ? memcpy(copy, bytes, size) : copy;
}

static char *
kept(struct write *w, const char *text)
{
    return kept_bytes(w, text, text ? strlen(text) : 0);
}

static struct store_source
kept_source(struct write *w, const void *bytes, size_t size)
{
    return (struct store_source){ .text = kept_bytes(w, bytes, size), .size = size };
}

/* w: taken, NULL if there was no memory for it. */
static int
put(struct store *s, struct write *w, struct error *err)
{
    if (w && !w->is_short)
        return writer_put(s->writer, w, err);
    if (w)
        w->free(w);
    return error_set(err, ERR_NOMEM, "no memory to queue a write");
}

/* --- room --- */

enum { PROBE_EVERY_NS = 1000000000 };

static void
probe_done(void *arg, int rc, const struct error *err)
{
    (void)rc, (void)err; /* the writer keeps what it found */
    ((struct store *)arg)->is_probing = false;
}

bool
store_is_writable(struct store *s)
{
    int64_t now_ns = clock_monotonic_ns();
    bool is_failing = writer_is_failing(s->writer);
    struct error unused;

    if (s->is_probing || (s->probed_ns != 0 && now_ns - s->probed_ns < PROBE_EVERY_NS))
        return !is_failing;
    struct write *w = write_new(s->backend->ops->probe, sizeof(bool), probe_done, s);
    if (!w)
        return !is_failing;
    s->probed_ns = now_ns;
    w->rows = 0;
    *(bool *)w->what = is_failing; /* then the database is written, too: it may have lacked more than room */
    /* Refused: the queue is long, and then writes say how the disk is. */
    s->is_probing = writer_put(s->writer, w, &unused) == 0;
    return !is_failing;
}

/* --- tasks --- */

int
store_add_task(struct store *s, const struct task_row *row, store_done_cb *cb, void *arg, struct error *err)
{
    struct write *w = write_new(change_add_task, sizeof(*row), cb, arg);

    if (w) {
        struct task_row *own = w->what;
        *own = *row;
        own->name = kept(w, row->name);
        own->entry_point = kept(w, row->entry_point);
        own->reference = kept_bytes(w, row->reference, row->reference_size);
        own->spec = kept(w, row->spec);
        own->metadata = kept(w, row->metadata);
        w->is_new_work = true;
        w->weight = row->reference_size;
    }
    return put(s, w, err);
}

static int
put_name(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
         change_fn *change, store_done_cb *cb, void *arg, struct error *err)
{
    struct write *w = write_new(change, sizeof(struct store_naming), cb, arg);

    if (w) {
        struct store_naming *n = w->what;
        strncpy(n->id, id, sizeof(n->id) - 1); /* a longer id is not a task's */
        n->now_ms = now_ms;
        n->client = kept(w, client);
        n->name = kept(w, name);
        w->is_new_work = true;
    }
    return put(s, w, err);
}

int
store_name_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                store_done_cb *cb, void *arg, struct error *err)
{
    return put_name(s, client ? client : "", name, id, now_ms, change_name_task, cb, arg, err);
}

int
store_rename_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                  store_done_cb *cb, void *arg, struct error *err)
{
    return put_name(s, client, name, id, now_ms, change_rename_task, cb, arg, err);
}

int
store_remove_task(struct store *s, const char *client, const char *id, store_done_cb *cb, void *arg,
                  struct error *err)
{
    return put_name(s, client, NULL, id, 0, change_remove_task, cb, arg, err);
}

/* --- new submissions --- */

static void
keep_row(struct write *w, const struct submission_row *row, struct submission_row *out)
{
    *out = *row;
    out->client = kept(w, row->client);
    out->request = kept(w, row->request);
    out->stage = kept(w, row->stage);
    out->class_ = kept(w, row->class_);
    out->verdict = kept(w, row->verdict);
    w->weight += submission_row_weight(row);
}

static struct group_row *
keep_group(struct write *w, const struct group_row *group)
{
    struct group_row *own = kept_bytes(w, group, sizeof(*group));

    if (own)
        own->request = kept(w, group->request);
    return own;
}

int
store_add_submissions(struct store *s, const struct group_row *group, const struct key_row *key,
                      const struct submission_row *rows, const struct store_source *sources, size_t n,
                      store_done_cb *cb, void *arg, struct error *err)
{
    struct write *w = write_new(change_add_submissions, sizeof(struct store_intake), cb, arg);

    if (!w)
        return put(s, NULL, err);
    struct submission_row *own_rows = room(w, n * sizeof(*rows));
    struct store_source *own_sources = room(w, n * sizeof(*sources));
    w->is_new_work = true;
    w->rows = (int)n + !!group + !!key;
    for (size_t i = 0; i < n && !w->is_short; i++) {
        keep_row(w, &rows[i], &own_rows[i]);
        own_sources[i] = kept_source(w, sources[i].text, sources[i].size);
        own_sources[i].answer = kept_bytes(w, sources[i].answer, sources[i].answer_size);
        own_sources[i].answer_size = sources[i].answer_size;
        w->weight += sources[i].size + sources[i].answer_size;
    }
    *(struct store_intake *)w->what = (struct store_intake){ .group = keep_group(w, group),
                                                             .key = kept_bytes(w, key, sizeof(*key)),
                                                             .rows = own_rows,
                                                             .sources = own_sources,
                                                             .n = n };
    return put(s, w, err);
}

/* --- ownership, and the end --- */

struct ownership {
    order_fn *order;
    struct store_order o;
    char *holder_out;
    struct store_lease *lease_out;
    struct store_claim *claims_out;
    size_t *n_out;
    store_done_cb *cb;
    void *arg;
};

/* The results are copied out once they are durable: a transaction that was rolled back has changed nothing. */
static void
own_done_cb(void *arg, int code, const struct error *err)
{
    struct ownership *w = arg;

    if (code == 0 && w->lease_out)
        *w->lease_out = w->o.got_lease;
    if (code == 0 && w->holder_out)
        memcpy(w->holder_out, w->o.holder, sizeof(w->o.holder));
    for (size_t i = 0; code == 0 && w->claims_out && i < w->o.n; i++)
        w->claims_out[i] = w->o.got[i];
    if (code == 0 && w->n_out)
        *w->n_out = w->o.n;
    w->cb(w->arg, code, err);
}

static int
run_order(struct store_backend *b, void *what, struct error *err)
{
    struct ownership *w = what;
    return w->order(b, &w->o, err);
}

/* Queue the write described by the template. */
static int
put_own(struct store *s, const struct ownership *template, store_done_cb *cb, void *arg, struct error *err)
{
    if (!template->order)
        return error_set(err, ERR_UNAVAILABLE, "no other daemon has this store");
    struct write *w = write_new(run_order, sizeof(*template), cb ? own_done_cb : NULL, NULL);
    if (w) {
        struct ownership *own = w->arg = w->what;
        *own = *template;
        own->cb = cb;
        own->arg = arg;
        own->o.wants.limits = kept(w, template->o.wants.limits);
    }
    return put(s, w, err);
}

static const struct ownership_ops *
owns(const struct store *s)
{
    return s->backend->ops->owns;
}

int
store_cancel(struct store *s, const char *id, int why, store_done_cb *cb, void *arg, struct error *err)
{
    struct ownership w = { .order = owns(s)->cancel, .o.why = why };

    snprintf(w.o.claim.id, sizeof(w.o.claim.id), "%s", id);
    return put_own(s, &w, cb, arg, err);
}

int
store_join(struct store *s, const char *node, int64_t lease_ms, struct store_lease *out, store_done_cb *cb,
           void *arg, struct error *err)
{
    struct ownership w = { .order = owns(s)->join, .o.lease_ms = lease_ms, .lease_out = out };

    if (!*node || strlen(node) >= sizeof(w.o.lease.node))
        return error_set(err, ERR_INPUT, "the name of a node has 1 to %d bytes", STORE_NODE_SIZE - 1);
    snprintf(w.o.lease.node, sizeof(w.o.lease.node), "%s", node);
    return put_own(s, &w, cb, arg, err);
}

/* A renewal that the keeper makes. */
struct renewal {
    struct store_lease lease;
    int64_t lease_ms;
    bool is_draining;
    char *about; /* owned */
    store_done_cb *cb;
    void *arg;
    int code;
    struct error err;
};

static void
keep_cb(void *arg, struct store_reader *r)
{
    struct renewal *n = arg;
    const struct store_node_state state = { n->is_draining, n->about };

    n->code = r->ops->renew(r, &n->lease, n->lease_ms, &state, &n->err);
}

static void
renewal_free(struct renewal *n)
{
    free(n->about);
    free(n);
}

static void
kept_cb(void *arg)
{
    struct renewal *n = arg;

    n->cb(n->arg, n->code, n->code == 0 ? NULL : &n->err);
    renewal_free(n);
}

int
store_renew(struct store *s, const struct store_lease *l, int64_t lease_ms,
            const struct store_node_state *state, store_done_cb *cb, void *arg, struct error *err)
{
    if (!s->keeper)
        return error_set(err, ERR_UNAVAILABLE, "no other daemon has this store");
    struct renewal *n = calloc(1, sizeof(*n));
    if (!n || (state->about && !(n->about = strdup(state->about)))) {
        free(n);
        return put(s, NULL, err);
    }
    n->lease = *l;
    n->lease_ms = lease_ms;
    n->is_draining = state->is_draining;
    n->cb = cb;
    n->arg = arg;
    int rc = readers_put(s->keeper, keep_cb, kept_cb, n, err);
    if (rc != 0)
        renewal_free(n);
    return rc;
}

int
store_reap(struct store *s, store_done_cb *cb, void *arg, struct error *err)
{
    const struct ownership w = { .order = owns(s)->reap, .holder_out = s->holder };
    return put_own(s, &w, cb, arg, err);
}

int
store_claim(struct store *s, const struct store_lease *l, const struct store_wants *wants, const char *id,
            struct store_claim *out, store_done_cb *cb, void *arg, struct error *err)
{
    struct ownership w = { .order = owns(s)->claim, .o.lease = *l, .claims_out = out };

    if (wants)
        w.o.wants = *wants;
    w.o.claim.number = out->number;
    w.o.claim.attempts = out->attempts;
    strncpy(w.o.claim.id, id, sizeof(w.o.claim.id) - 1); /* a longer id is not a submission's */
    return put_own(s, &w, cb, arg, err);
}

int
store_claim_next(struct store *s, const struct store_lease *l, const struct store_wants *wants, size_t most,
                 struct store_claim *out, size_t *n, store_done_cb *cb, void *arg, struct error *err)
{
    struct ownership w = {
        .order = owns(s)->claim_next, .o = { .lease = *l, .most = most }, .claims_out = out, .n_out = n
    };

    if (wants)
        w.o.wants = *wants;
    return put_own(s, &w, cb, arg, err);
}

int
store_release(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg, struct error *err)
{
    const struct ownership w = { .order = change_release, .o.claim = *c };
    return put_own(s, &w, cb, arg, err);
}

int
store_set_attempts(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg,
                   struct error *err)
{
    const struct ownership w = { .order = change_set_attempts, .o.claim = *c };
    return put_own(s, &w, cb, arg, err);
}

int
store_hand_on(struct store *s, const struct store_claim *c, const struct store_carried *carried,
              store_done_cb *cb, void *arg, struct error *err)
{
    if (!s->backend->ops->hand_on)
        return error_set(err, ERR_UNAVAILABLE, "no other daemon can have %s", c->id);
    struct write *w = write_new(s->backend->ops->hand_on, sizeof(struct store_handing_on), cb, arg);

    if (w) {
        struct store_handing_on *h = w->what;
        h->claim = *c;
        if (carried) {
            h->carried = *carried;
            h->carried.about = kept(w, carried->about);
            h->carried.bytes = kept_bytes(w, carried->bytes, carried->size);
            w->weight = carried->size;
        }
    }
    return put(s, w, err);
}

int
store_finish(struct store *s, const struct submission_row *row, const char *log, size_t log_size,
             store_done_cb *cb, void *arg, struct error *err)
{
    struct write *w = write_new(change_finish, sizeof(struct store_ending), cb, arg);

    if (w) {
        struct store_ending *e = w->what;
        w->weight = log_size;
        keep_row(w, row, &e->row);
        e->log = kept_source(w, log, log ? log_size : 0);
    }
    return put(s, w, err);
}

/* --- the machine --- */

int
store_add_calibration(struct store *s, const struct calibration_row *row, store_done_cb *cb, void *arg,
                      struct error *err)
{
    struct write *w = write_new(change_add_calibration, sizeof(*row), cb, arg);

    if (w) {
        struct calibration_row *own = w->what;
        *own = *row;
        own->gpu = kept(w, row->gpu);
        own->document = kept(w, row->document);
        w->weight = strlen(row->document);
    }
    return put(s, w, err);
}

int
store_put_canary(struct store *s, const struct canary_row *row, store_done_cb *cb, void *arg,
                 struct error *err)
{
    struct write *w = write_new(change_put_canary, sizeof(*row), cb, arg);

    if (w) {
        struct canary_row *own = w->what;
        *own = *row;
        own->gpu = kept(w, row->gpu);
        own->driver = kept(w, row->driver);
        own->kind = kept(w, row->kind);
        own->document = kept(w, row->document);
        w->weight = row->document ? strlen(row->document) : 0;
    }
    return put(s, w, err);
}

/* --- sweeping --- */

struct sweeping {
    struct store_sweep *step, start; /* it begins there again when it is tried again */
};

static int
sweep(struct store_backend *b, void *what, struct error *err)
{
    struct sweeping *w = what;

    *w->step = w->start;
    return sweep_step(b, w->step, err);
}

int
store_sweep_step(struct store *s, struct store_sweep *step, store_done_cb *cb, void *arg, struct error *err)
{
    struct write *w = write_new(sweep, sizeof(struct sweeping), cb, arg);

    if (w) {
        *(struct sweeping *)w->what = (struct sweeping){ step, *step };
        w->is_new_work = true; /* it can wait: a full queue refuses it first */
    }
    return put(s, w, err);
}
