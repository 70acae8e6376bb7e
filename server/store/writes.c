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

static void
write_init(struct write *w, int (*apply)(struct write *, struct store_backend *, struct error *),
           void (*release)(struct write *), store_done_cb *cb, void *arg)
{
    memset(w, 0, sizeof(*w));
    w->apply = apply;
    w->free = release;
    w->rows = 1;
    w->cb = cb;
    w->arg = arg;
}

static int
no_memory(struct error *err)
{
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
    struct probe_write *w = calloc(1, sizeof(*w));
    if (!w)
        return !is_failing;
    s->probed_ns = now_ns;
    s->is_probing = true;
    write_init(&w->write, apply_probe, free_probe, probe_done, NULL);
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

static void
free_task_write(struct write *write)
{
    task_row_release(&((struct task_write *)write)->row);
    free(write);
}

int
store_add_task(struct store *s, const struct task_row *row, store_done_cb *cb, void *arg, struct error *err)
{
    struct task_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_task, free_task_write, cb, arg);
    w->write.is_new_work = true;
    w->write.weight = row->reference_size;
    if (task_row_copy(row, &w->row) < 0) {
        free_task_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

/* --- names of tasks --- */

struct name_write {
    struct write write;
    char *client, *name; /* NULL: anybody; none */
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

static void
free_name_write(struct write *write)
{
    struct name_write *w = (struct name_write *)write;

    free(w->client);
    free(w->name);
    free(w);
}

static int
put_name(struct store *s, const char *client, const char *name, const char *id, int64_t now_ms,
         int (*apply)(struct write *, struct store_backend *, struct error *), store_done_cb *cb, void *arg,
         struct error *err)
{
    struct name_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply, free_name_write, cb, arg);
    w->write.is_new_work = true;
    strncpy(w->id, id, sizeof(w->id) - 1); /* an id that is longer is no task's */
    w->now_ms = now_ms;
    w->client = client ? strdup(client) : NULL;
    w->name = name ? strdup(name) : NULL;
    if ((client && !w->client) || (name && !w->name)) {
        free_name_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
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
    struct store_source *sources; /* copies */
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
free_submissions_write(struct write *write)
{
    struct submissions_write *w = (struct submissions_write *)write;

    group_row_release(&w->group);
    for (size_t i = 0; i < w->n; i++) {
        submission_row_release(&w->rows[i]);
        free((char *)(uintptr_t)w->sources[i].text);
    }
    free(w->rows);
    free(w->sources);
    free(w);
}

static int
copy_bytes(const char *bytes, size_t size, struct store_source *out)
{
    char *copy = malloc(size + 1);

    if (!copy)
        return ERR_NOMEM;
    if (size > 0)
        memcpy(copy, bytes, size);
    *out = (struct store_source){ copy, size };
    return 0;
}

static int
copy_submissions(struct submissions_write *w, const struct submission_row *rows,
                 const struct store_source *sources, size_t n)
{
    w->rows = calloc(n, sizeof(*w->rows));
    w->sources = calloc(n, sizeof(*w->sources));
    if (!w->rows || !w->sources)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        w->n = i + 1; /* what free_submissions_write() has to look at */
        if (submission_row_copy(&rows[i], &w->rows[i]) < 0)
            return ERR_NOMEM;
        if (copy_bytes(sources[i].text, sources[i].size, &w->sources[i]) < 0)
            return ERR_NOMEM;
        w->write.weight += sources[i].size + submission_row_weight(&rows[i]);
    }
    return 0;
}

int
store_add_submissions(struct store *s, const struct group_row *group, const struct key_row *key,
                      const struct submission_row *rows, const struct store_source *sources, size_t n,
                      store_done_cb *cb, void *arg, struct error *err)
{
    struct submissions_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_submissions, free_submissions_write, cb, arg);
    w->write.is_new_work = true;
    w->write.rows = (int)n + !!group + !!key;
    w->has_group = group;
    w->has_key = key;
    if (key)
        w->key = *key;
    if ((group && group_row_copy(group, &w->group) < 0) || copy_submissions(w, rows, sources, n) < 0) {
        free_submissions_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

/* --- ownership, and the end --- */

struct own_write {
    struct write write;
    char holder[STORE_HOLDER_SIZE];
    char *holder_out;
    struct store_lease lease, got_lease, *lease_out;
    struct store_wants wants;
    struct store_claim claim, got_claims[STORE_CLAIMS_MAX], *claims_out;
    size_t most, n, *n_out;
    int64_t lease_ms;
    int why; /* it is to be cancelled */
    store_done_cb *cb;
    void *arg;
};

/* What was got is handed out once it is durable: a transaction that was rolled back has changed nothing. */
static void
own_done_cb(void *arg, int code, const struct error *err)
{
    struct own_write *w = arg;

    if (code == 0 && w->lease_out)
        *w->lease_out = w->got_lease;
    if (code == 0 && w->holder_out)
        memcpy(w->holder_out, w->holder, sizeof(w->holder));
    for (size_t i = 0; code == 0 && w->claims_out && i < w->n; i++)
        w->claims_out[i] = w->got_claims[i];
    if (code == 0 && w->n_out)
        *w->n_out = w->n;
    w->cb(w->arg, code, err);
}

static int
apply_join(struct write *write, struct store_backend *b, struct error *err)
{
    struct own_write *w = (struct own_write *)write;
    return b->ops->join(b, w->lease.node, w->lease_ms, &w->got_lease, err);
}

static int
apply_renew(struct write *write, struct store_backend *b, struct error *err)
{
    const struct own_write *w = (const struct own_write *)write;
    return b->ops->renew(b, &w->lease, w->lease_ms, &(struct store_node_state){ false, NULL }, err);
}

static int
apply_reap(struct write *write, struct store_backend *b, struct error *err)
{
    return b->ops->reap(b, ((struct own_write *)write)->holder, err);
}

static int
apply_claim(struct write *write, struct store_backend *b, struct error *err)
{
    struct own_write *w = (struct own_write *)write;
    w->n = 1;
    return b->ops->claim(b, &w->lease, &w->wants, &w->claim, w->got_claims, err);
}

static int
apply_claim_next(struct write *write, struct store_backend *b, struct error *err)
{
    struct own_write *w = (struct own_write *)write;
    return b->ops->claim_next(b, &w->lease, &w->wants, w->most, w->got_claims, &w->n, err);
}

static int
apply_release(struct write *write, struct store_backend *b, struct error *err)
{
    const struct own_write *w = (const struct own_write *)write;
    return b->ops->release(b, &w->claim, err);
}

static int
apply_set_attempts(struct write *write, struct store_backend *b, struct error *err)
{
    const struct own_write *w = (const struct own_write *)write;
    return b->ops->set_attempts(b, &w->claim, err);
}

static int
apply_cancel(struct write *write, struct store_backend *b, struct error *err)
{
    const struct own_write *w = (const struct own_write *)write;
    return b->ops->cancel(b, w->claim.id, w->why, err);
}

static void
free_own_write(struct write *write)
{
    free(write);
}

/* Queue what the template says. */
static int
put_own(struct store *s, const struct own_write *template,
        int (*apply)(struct write *, struct store_backend *, struct error *), store_done_cb *cb, void *arg,
        struct error *err)
{
    struct own_write *w = malloc(sizeof(*w));

    if (!w)
        return no_memory(err);
    *w = *template;
    write_init(&w->write, apply, free_own_write, cb ? own_done_cb : NULL, w);
    w->cb = cb;
    w->arg = arg;
    return writer_put(s->writer, &w->write, err);
}

int
store_cancel(struct store *s, const char *id, int why, store_done_cb *cb, void *arg, struct error *err)
{
    struct own_write w = { .why = why };

    if (!s->backend->ops->cancel)
        return error_set(err, ERR_UNAVAILABLE, "no other daemon has %s", id);
    snprintf(w.claim.id, sizeof(w.claim.id), "%s", id);
    return put_own(s, &w, apply_cancel, cb, arg, err);
}

int
store_join(struct store *s, const char *node, int64_t lease_ms, struct store_lease *out, store_done_cb *cb,
           void *arg, struct error *err)
{
    struct own_write w = { .lease_ms = lease_ms, .lease_out = out };

    if (!*node || strlen(node) >= sizeof(w.lease.node))
        return error_set(err, ERR_INPUT, "the name of a node has 1 to %d bytes", STORE_NODE_SIZE - 1);
    snprintf(w.lease.node, sizeof(w.lease.node), "%s", node);
    return put_own(s, &w, apply_join, cb, arg, err);
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
    const struct own_write w = { .lease = *l, .lease_ms = lease_ms };

    if (!s->keeper)
        return put_own(s, &w, apply_renew, cb, arg, err);
    struct renewal *n = calloc(1, sizeof(*n));
    if (!n || (state->about && !(n->about = strdup(state->about)))) {
        free(n);
        return no_memory(err);
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
    const struct own_write w = { .holder_out = s->holder };
    return put_own(s, &w, apply_reap, cb, arg, err);
}

int
store_claim(struct store *s, const struct store_lease *l, const struct store_wants *wants, const char *id,
            struct store_claim *out, store_done_cb *cb, void *arg, struct error *err)
{
    struct own_write w = { .lease = *l, .claims_out = out };

    if (wants)
        w.wants = *wants;
    w.claim.number = out->number;
    w.claim.attempts = out->attempts;
    strncpy(w.claim.id, id, sizeof(w.claim.id) - 1); /* an id that is longer is nobody's */
    return put_own(s, &w, apply_claim, cb, arg, err);
}

int
store_claim_next(struct store *s, const struct store_lease *l, const struct store_wants *wants, size_t most,
                 struct store_claim *out, size_t *n, store_done_cb *cb, void *arg, struct error *err)
{
    struct own_write w = { .lease = *l, .most = most, .claims_out = out, .n_out = n };

    if (wants)
        w.wants = *wants;
    return put_own(s, &w, apply_claim_next, cb, arg, err);
}

int
store_release(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg, struct error *err)
{
    const struct own_write w = { .claim = *c };
    return put_own(s, &w, apply_release, cb, arg, err);
}

int
store_set_attempts(struct store *s, const struct store_claim *c, store_done_cb *cb, void *arg,
                   struct error *err)
{
    const struct own_write w = { .claim = *c };
    return put_own(s, &w, apply_set_attempts, cb, arg, err);
}

struct hand_on_write {
    struct write write;
    struct store_claim claim;
    bool has_carried;
    char *about;
    struct store_source bytes; /* a copy */
};

static int
apply_hand_on(struct write *write, struct store_backend *b, struct error *err)
{
    const struct hand_on_write *w = (const struct hand_on_write *)write;
    const struct store_carried carried = { w->about, w->bytes.text, w->bytes.size };

    return b->ops->hand_on(b, &w->claim, w->has_carried ? &carried : NULL, err);
}

static void
free_hand_on_write(struct write *write)
{
    struct hand_on_write *w = (struct hand_on_write *)write;

    free(w->about);
    free((char *)(uintptr_t)w->bytes.text);
    free(w);
}

int
store_hand_on(struct store *s, const struct store_claim *c, const struct store_carried *carried,
              store_done_cb *cb, void *arg, struct error *err)
{
    struct hand_on_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_hand_on, free_hand_on_write, cb, arg);
    w->claim = *c;
    w->has_carried = carried;
    int rc =
        s->backend->ops->hand_on ? 0 : error_set(err, ERR_UNAVAILABLE, "no other daemon can have %s", c->id);
    if (rc == 0 && carried) {
        w->write.weight = carried->size;
        w->about = strdup(carried->about);
        if (!w->about || copy_bytes(carried->bytes, carried->size, &w->bytes) < 0)
            rc = no_memory(err);
    }
    if (rc != 0) {
        free_hand_on_write(&w->write);
        return rc;
    }
    return writer_put(s->writer, &w->write, err);
}

struct finish_write {
    struct write write;
    struct submission_row row;
    struct store_source log; /* a copy */
};

static int
apply_finish(struct write *write, struct store_backend *b, struct error *err)
{
    const struct finish_write *w = (const struct finish_write *)write;
    return b->ops->finish(b, &w->row, w->log.text, w->log.size, err);
}

static void
free_finish_write(struct write *write)
{
    struct finish_write *w = (struct finish_write *)write;

    submission_row_release(&w->row);
    free((char *)(uintptr_t)w->log.text);
    free(w);
}

int
store_finish(struct store *s, const struct submission_row *row, const char *log, size_t log_size,
             store_done_cb *cb, void *arg, struct error *err)
{
    struct finish_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_finish, free_finish_write, cb, arg);
    w->write.weight = submission_row_weight(row) + log_size;
    if (submission_row_copy(row, &w->row) < 0 || (log_size > 0 && copy_bytes(log, log_size, &w->log) < 0)) {
        free_finish_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
}

/* --- calibrations --- */

struct calibration_write {
    struct write write;
    struct calibration_row row;
    char *gpu, *document; /* what the row points at */
};

static int
apply_calibration(struct write *write, struct store_backend *b, struct error *err)
{
    return change_add_calibration(b, &((struct calibration_write *)write)->row, err);
}

static void
free_calibration_write(struct write *write)
{
    struct calibration_write *w = (struct calibration_write *)write;

    free(w->gpu);
    free(w->document);
    free(w);
}

int
store_add_calibration(struct store *s, const struct calibration_row *row, store_done_cb *cb, void *arg,
                      struct error *err)
{
    struct calibration_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_calibration, free_calibration_write, cb, arg);
    w->write.weight = strlen(row->document);
    w->gpu = strdup(row->gpu);
    w->document = strdup(row->document);
    if (!w->gpu || !w->document) {
        free_calibration_write(&w->write);
        return no_memory(err);
    }
    w->row = *row;
    w->row.gpu = w->gpu;
    w->row.document = w->document;
    return writer_put(s->writer, &w->write, err);
}

/* --- canaries --- */

struct canary_write {
    struct write write;
    char *gpu, *driver, *kind;
    int64_t changed_ms;
    char *document; /* NULL: it is forgotten */
};

static int
apply_canary(struct write *write, struct store_backend *b, struct error *err)
{
    const struct canary_write *w = (const struct canary_write *)write;
    const struct canary_row row = { w->gpu, w->driver, w->kind, w->changed_ms, w->document };
    return change_put_canary(b, &row, err);
}

static void
free_canary_write(struct write *write)
{
    struct canary_write *w = (struct canary_write *)write;

    free(w->gpu);
    free(w->driver);
    free(w->kind);
    free(w->document);
    free(w);
}

int
store_put_canary(struct store *s, const struct canary_row *row, store_done_cb *cb, void *arg,
                 struct error *err)
{
    struct canary_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_canary, free_canary_write, cb, arg);
    w->write.weight = row->document ? strlen(row->document) : 0;
    w->changed_ms = row->changed_ms;
    w->gpu = strdup(row->gpu);
    w->driver = strdup(row->driver);
    w->kind = strdup(row->kind);
    w->document = row->document ? strdup(row->document) : NULL;
    if (!w->gpu || !w->driver || !w->kind || (row->document && !w->document)) {
        free_canary_write(&w->write);
        return no_memory(err);
    }
    return writer_put(s->writer, &w->write, err);
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
    struct sweep_write *w = calloc(1, sizeof(*w));

    if (!w)
        return no_memory(err);
    write_init(&w->write, apply_sweep, free_own_write, cb, arg);
    w->write.is_new_work = true; /* it can wait: a full queue refuses it first */
    w->step = step;
    w->start = *step;
    return writer_put(s->writer, &w->write, err);
}
