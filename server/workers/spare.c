#include "server/workers/spare.h"

#include <stdbool.h>
#include <stdlib.h>

#include <utlist.h>

#include "common/log.h"

/*
 * Theory of operation. A child of a stage hears its request whenever it comes, so one that was made early differs from
 * one that was made late only in the wait. Making one takes some ten milliseconds, and requests come one after the
 * other or in bunches, so a few are enough and their number is fixed. They are made when a child has ended, not when
 * one is taken: whoever was taken has the cores first.
 */

#define RETRY_MS 1000 /* after one that could not be made, or died; doubled each time, up to: */
#define RETRY_MAX_MS 60000

struct spare {
    struct spare *prev, *next;
    struct spares *owner;
    struct child *child;
};

struct spares {
    uv_loop_t *loop;
    struct zygote *zygote;
    enum child_role role;
    int64_t most, kept, taken, missed, lost;
    struct spare *waiting; /* the oldest first */
    uv_timer_t timer;
    uint64_t retry_ms;
};

static void
timer_cb(uv_timer_t *timer)
{
    spares_fill(timer->data);
}

static void
remove_spare(struct spare *one)
{
    struct spares *s = one->owner;

    DL_DELETE(s->waiting, one);
    s->kept--;
    free(one);
}

static void
try_later(struct spares *s)
{
    uv_timer_start(&s->timer, timer_cb, s->retry_ms, 0);
    s->retry_ms = s->retry_ms * 2 < RETRY_MAX_MS ? s->retry_ms * 2 : RETRY_MAX_MS;
}

static void
ended_cb(void *arg, struct child *c)
{
    struct spare *one = arg;
    struct spares *s = one->owner;

    child_free(c);
    remove_spare(one);
    if (!zygote_is_ready(s->zygote))
        return; /* it took them along */
    s->lost++;
    log_warn("spare", "a child was lost before it was used");
    try_later(s);
}

/* It has nothing to say before it is asked. */
static void
message_cb(void *arg, struct child *c, struct message *m)
{
    (void)arg;
    (void)m;
    child_kill(c);
}

static const struct child_ops spare_ops = { .message = message_cb, .ended = ended_cb };

static int
make_one(struct spares *s, struct error *err)
{
    struct spare *one = calloc(1, sizeof(*one));

    if (!one)
        return error_set(err, ERR_NOMEM, "no memory for a child");
    one->owner = s;
    if (child_new(s->zygote, s->role, &spare_ops, one, &one->child, err) != 0) {
        free(one);
        return err->code;
    }
    DL_APPEND(s->waiting, one);
    s->kept++;
    return 0;
}

void
spares_fill(struct spares *s)
{
    struct error err = { 0 };

    if (uv_is_active((uv_handle_t *)&s->timer))
        return;
    while (s->kept < s->most && zygote_is_ready(s->zygote)) {
        if (make_one(s, &err) != 0) {
            log_warn("spare", "%s", err.text);
            try_later(s);
            return;
        }
    }
}

int
spares_take(struct spares *s, const struct child_ops *ops, void *arg, struct child **out, struct error *err)
{
    struct spare *one = s->waiting;

    if (!one) {
        s->missed += s->most > 0;
        return child_new(s->zygote, s->role, ops, arg, out, err);
    }
    *out = one->child;
    child_hand_over(one->child, ops, arg);
    remove_spare(one);
    s->taken++;
    s->retry_ms = RETRY_MS;
    return 0;
}

json_t *
spares_json(const struct spares *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "most", (json_int_t)s->most, "kept", (json_int_t)s->kept,
                     "taken", (json_int_t)s->taken, "missed", (json_int_t)s->missed, "lost",
                     (json_int_t)s->lost);
}

int
spares_new(uv_loop_t *loop, struct zygote *z, enum child_role role, int64_t most, struct spares **out,
           struct error *err)
{
    struct spares *s = calloc(1, sizeof(*s));

    *out = NULL;
    if (!s)
        return error_set(err, ERR_NOMEM, "no memory for a pool of children");
    *s = (struct spares){ .loop = loop, .zygote = z, .role = role, .most = most, .retry_ms = RETRY_MS };
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    *out = s;
    return 0;
}

static void
closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

void
spares_free(struct spares *s)
{
    if (s)
        uv_close((uv_handle_t *)&s->timer, closed_cb);
}
