#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/clock.h"
#include "server/store/backend.h"
#include "server/store/changes.h"
#include "server/store/private.h"
#include "server/store/readers.h"
#include "server/store/rows.h"
#include "server/store/sweep.h"
#include "server/store/writer.h"

/* Each write of store.h: a copy of what it was given, queued, and the back end's operation that the writer's thread runs. */

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

/* size: of the struct that begins with the write. NULL: no memory. */
static void *
write_new(size_t size, int (*apply)(struct write *, struct store_backend *, struct error *),
          store_done_cb *cb, void *arg)
{
    struct write *w = calloc(1, size);

    if (w) {
        w->apply = apply;
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
static char *
kept_bytes(struct write *w, const void *bytes, size_t size)
{
    char *copy = bytes ? room(w, size + 1) : NULL;

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

struct probe_write {
    struct write write;
    struct store *store;
    bool is_failing; /* then the database is written, too: room is not all that it may have lacked */
};

static int
apply_probe(struct write *write, struct store_backend *b, struct error *err)
{
    return b->ops->probe(b, ((struct probe_write *)write)->is_failing, err);
}

static void
free_probe(struct write *write)
{
    ((struct probe_write *)write)->store->is_probing = false;
    free(write);
}

static void
probe_done(void *arg, int rc, const struct error *err)
{
    (void)arg, (void)rc, (void)err; /* the writer keeps what it found */
}

bool
store_is_writable(struct store *s)
{
    int64_t now_ns = clock_monotonic_ns();
    bool is_failing = writer_is_failing(s->writer);
    struct error unused;

    if (s->is_probing || (s->probed_ns != 0 && now_ns - s->probed_ns < PROBE_EVERY_NS))
        return !is_failing;
    struct probe_write *w = write_new(sizeof(*w), apply_probe, probe_done, NULL);
    if (!w)
        return !is_failing;
    s->probed_ns = now_ns;
    s->is_probing = true;
    w->write.free = free_probe;
    w->write.rows = 0;
    w->store = s;
    w->is_failing = is_failing;
    writer_put(s->writer, &w->write,
               &unused); /* refused: the queue is long, and then writes say how the disk is */
    return !is_failing;
}

/* --- tasks --- */

struct task_write {
    struct write write;
    struct task_row row;
};

static int
apply_task(struct write *write, struct store_backend *b, struct error *err)
{
    return change_add_task(b, &((struct task_write *)write)->row, err);
}

int
store_add_task(struct store *s, const struct task_row *row, store_done_cb *cb, void *arg, struct error *err)
{
    struct task_write *w = write_new(sizeof(*w), apply_task, cb, arg);

    if (w) {
        w->write.is_new_work = true;
        w->write.weight = row->reference_size;
        w->row = *row;
        w->row.name = kept(&w->write, row->name);
        w->row.entry_point = kept(&w->write, row->entry_point);
        w->row.reference = kept_bytes(&w->write, row->reference, row->reference_size);
        w->row.spec = kept(&w->write, row->spec);
        w->row.metadata = kept(&w->write, row->metadata);
    }
    return put(s, (struct write *)w, err);
}

/* --- names of tasks --- */

struct name_write {
    struct write write;
    const char *client, *name; /* NULL: all clients; none */
    char id[HASH_TEXT_SIZE];
    int64_t now_ms;
};

static int
apply_name(struct write *write, struct store_backend *b, struct error *err)
{
    const struct name_write *w = (const struct name_write *)write;
    return change_name_task(b, w->client, w->name, w->id, w->now_ms, err);
}

static int
apply_rename(struct write *write, struct store_backend *b, struct error *err)
{
    const struct name_write *w = (const struct name_write *)write;
    return change_rename_task(b, w->client, w->name, w->id, w->now_ms, err);
}

static int
apply_remove(struct write *write, struct store_backend *b, struct error *err)
{
    const struct name_write *w = (const struct name_write *)write;
    return change_remove_task(b, w->client, w->id, err);
}

static int
put_name(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
         int (*apply)(struct write *, struct store_backend *, struct error *), store_done_cb *cb, void *arg,
         struct error *err)
{
    struct name_write *w = write_new(sizeof(*w), apply, cb, arg);

    if (w) {
        w->write.is_new_work = true;
        strncpy(w->id, id, sizeof(w->id) - 1); /* a longer id is not a task's */
        w->now_ms = now_ms;
        w->client = kept(&w->write, client);
        w->name = kept(&w->write, name);
    }
    return put(s, (struct write *)w, err);
}

int
store_name_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                store_done_cb *cb, void *arg, struct error *err)
{
    return put_name(s, client ? client : "", name, id, now_ms, apply_name, cb, arg, err);
}

int
store_rename_task(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
                  store_done_cb *cb, void *arg, struct error *err)
{
    return put_name(s, client, name, id, now_ms, apply_rename, cb, arg, err);
}

int
store_remove_task(struct store *s, const char *client, const char *id, store_done_cb *cb, void *arg,
                  struct error *err)
{
    return put_name(s, client, NULL, id, 0, apply_remove, cb, arg, err);
}

/* --- new submissions --- */

struct submissions_write {
    struct write write;
    bool has_group, has_key;
    struct group_row group;
    struct key_row key;
    size_t n;
    struct submission_row *rows;
    struct store_source *sources;
};

static int
apply_submissions(struct write *write, struct store_backend *b, struct error *err)
{
    const struct submissions_write *w = (const struct submissions_write *)write;
    const struct store_intake intake = { .group = w->has_group ? &w->group : NULL,
                                         .key = w->has_key ? &w->key : NULL,
                                         .rows = w->rows,
                                         .sources = w->sources,
                                         .n = w->n };
    return change_add_submissions(b, &intake, err);
}

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

int
store_add_submissions(struct store *s, const struct group_row *group, const struct key_row *key,
                      const struct submission_row *rows, const struct store_source *sources, size_t n,
                      store_done_cb *cb, void *arg, struct error *err)
{
    struct submissions_write *w = write_new(sizeof(*w), apply_submissions, cb, arg);

    if (!w)
        return put(s, NULL, err);
    w->write.is_new_work = true;
    w->write.rows = (int)n + !!group + !!key;
    if (group) {
        w->has_group = true;
        w->group = *group;
        w->group.request = kept(&w->write, group->request);
    }
    if (key) {
        w->has_key = true;
        w->key = *key;
    }
    w->rows = room(&w->write, n * sizeof(*w->rows));
    w->sources = room(&w->write, n * sizeof(*w->sources));
    for (size_t i = 0; i < n && !w->write.is_short; i++) {
        keep_row(&w->write, &rows[i], &w->rows[i]);
        w->sources[i] = kept_source(&w->write, sources[i].text, sources[i].size);
        w->sources[i].answer = kept_bytes(&w->write, sources[i].answer, sources[i].answer_size);
        w->sources[i].answer_size = sources[i].answer_size;
        w->write.weight += sources[i].size + sources[i].answer_size;
    }
    w->n = n;
    return put(s, &w->write, err);
}

/* --- ownership, and the end --- */

struct own_write {
    struct write write;
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
    struct own_write *w = arg;

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
apply_order(struct write *write, struct store_backend *b, struct error *err)
{
    struct own_write *w = (struct own_write *)write;
    return w->order(b, &w->o, err);
}

/* Queue the write described by the template. */
static int
put_own(struct store *s, const struct own_write *template, store_done_cb *cb, void *arg, struct error *err)
{
    if (!template->order)
        return error_set(err, ERR_UNAVAILABLE, "no other daemon has this store");
    struct own_write *w = write_new(sizeof(*w), apply_order, cb ? own_done_cb : NULL, NULL);
    if (w) {
        const struct write write = w->write;
        *w = *template;
        w->write = write;
        w->write.arg = w;
        w->cb = cb;
        w->arg = arg;
        w->o.wants.limits = kept(&w->write, template->o.wants.limits);
    }
    return put(s, (struct write *)w, err);
}

static const struct ownership_ops *
owns(const struct store *s)
{
    return s->backend->ops->owns;
}

int
store_cancel(struct store *s, const char *id, int why, store_done_cb *cb, void *arg, struct error *err)
{
    struct own_write w = { .order = owns(s)->cancel, .o.why = why };

    snprintf(w.o.claim.id, sizeof(w.o.claim.id), "%s", id);
    return put_own(s, &w, cb, arg, err);
}

int
store_join(struct store *s, const char *node, int64_t lease_ms, struct store_lease *out, store_done_cb *cb,
           void *arg, struct error *err)
{
    struct own_write w = { .order = owns(s)->join, .o.lease_ms = lease_ms, .lease_out = out };

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
    const struct own_write w = { .order = owns(s)->reap, .holder_out = s->holder };
    return put_own(s, &w, cb, arg, err);
}

int
store_claim(struct store *s, const struct store_lease *l, const struct store_wants *wants, const char *id,
            struct store_claim *out, store_done_cb *cb, void *arg, struct error *err)
{
    struct own_write w = { .order = owns(s)->claim, .o.lease = *l, .claims_out = out };

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
    struct own_write w = {
        .order = owns(s)->claim_next, .o = { .lease = *l, .most = most }, .claims_out = out, .n_out = n
    };

    if (wants)
        w.o.wants = *wants;
    return put_own(s, &w, cb, arg, err);
}

int
store_release(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg, struct error *err)
{
    const struct own_write w = { .order = change_release, .o.claim = *c };
    return put_own(s, &w, cb, arg, err);
}

int
store_set_attempts(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg,
                   struct error *err)
{
    const struct own_write w = { .order = change_set_attempts, .o.claim = *c };
    return put_own(s, &w, cb, arg, err);
}

struct hand_on_write {
    struct write write;
    struct store_claim claim;
    bool has_carried;
    char *about;
    struct store_source bytes;
};

static int
apply_hand_on(struct write *write, struct store_backend *b, struct error *err)
{
    const struct hand_on_write *w = (const struct hand_on_write *)write;
    const struct store_carried carried = { w->about, w->bytes.text, w->bytes.size };

    return b->ops->hand_on(b, &w->claim, w->has_carried ? &carried : NULL, err);
}

int
store_hand_on(struct store *s, const struct store_claim *c, const struct store_carried *carried,
              store_done_cb *cb, void *arg, struct error *err)
{
    if (!s->backend->ops->hand_on)
        return error_set(err, ERR_UNAVAILABLE, "no other daemon can have %s", c->id);
    struct hand_on_write *w = write_new(sizeof(*w), apply_hand_on, cb, arg);

    if (w)
        w->claim = *c;
    if (w && carried) {
        w->has_carried = true;
        w->write.weight = carried->size;
        w->about = kept(&w->write, carried->about);
        w->bytes = kept_source(&w->write, carried->bytes, carried->size);
    }
    return put(s, (struct write *)w, err);
}

struct finish_write {
    struct write write;
    struct submission_row row;
    struct store_source log;
};

static int
apply_finish(struct write *write, struct store_backend *b, struct error *err)
{
    const struct finish_write *w = (const struct finish_write *)write;
    return change_finish(b, &w->row, w->log.text, w->log.size, err);
}

int
store_finish(struct store *s, const struct submission_row *row, const char *log, size_t log_size,
             store_done_cb *cb, void *arg, struct error *err)
{
    struct finish_write *w = write_new(sizeof(*w), apply_finish, cb, arg);

    if (w) {
        w->write.weight = log_size;
        keep_row(&w->write, row, &w->row);
        w->log = kept_source(&w->write, log, log ? log_size : 0);
    }
    return put(s, (struct write *)w, err);
}

/* --- calibrations --- */

struct calibration_write {
    struct write write;
    struct calibration_row row;
};

static int
apply_calibration(struct write *write, struct store_backend *b, struct error *err)
{
    return change_add_calibration(b, &((struct calibration_write *)write)->row, err);
}

int
store_add_calibration(struct store *s, const struct calibration_row *row, store_done_cb *cb, void *arg,
                      struct error *err)
{
    struct calibration_write *w = write_new(sizeof(*w), apply_calibration, cb, arg);

    if (w) {
        w->write.weight = strlen(row->document);
        w->row = *row;
        w->row.gpu = kept(&w->write, row->gpu);
        w->row.document = kept(&w->write, row->document);
    }
    return put(s, (struct write *)w, err);
}

/* --- canaries --- */

struct canary_write {
    struct write write;
    struct canary_row row;
};

static int
apply_canary(struct write *write, struct store_backend *b, struct error *err)
{
    return change_put_canary(b, &((struct canary_write *)write)->row, err);
}

int
store_put_canary(struct store *s, const struct canary_row *row, store_done_cb *cb, void *arg,
                 struct error *err)
{
    struct canary_write *w = write_new(sizeof(*w), apply_canary, cb, arg);

    if (w) {
        w->write.weight = row->document ? strlen(row->document) : 0;
        w->row = *row;
        w->row.gpu = kept(&w->write, row->gpu);
        w->row.driver = kept(&w->write, row->driver);
        w->row.kind = kept(&w->write, row->kind);
        w->row.document = kept(&w->write, row->document);
    }
    return put(s, (struct write *)w, err);
}

/* --- sweeping --- */

struct sweep_write {
    struct write write;
    struct store_sweep *step, start; /* it begins there again when it is tried again */
};

static int
apply_sweep(struct write *write, struct store_backend *b, struct error *err)
{
    struct sweep_write *w = (struct sweep_write *)write;

    *w->step = w->start;
    return sweep_step(b, w->step, err);
}

int
store_sweep_step(struct store *s, struct store_sweep *step, store_done_cb *cb, void *arg, struct error *err)
{
    struct sweep_write *w = write_new(sizeof(*w), apply_sweep, cb, arg);

    if (w) {
        w->write.is_new_work = true; /* it can wait: a full queue refuses it first */
        w->step = step;
        w->start = *step;
    }
    return put(s, (struct write *)w, err);
}
