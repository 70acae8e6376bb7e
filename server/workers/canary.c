#include "server/workers/canary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "server/workers/handle.h"

/*
 * A kernel with a known answer and a known time is judged whenever the device or a worker may have been damaged: at
 * each start, and after an abnormal end. A GPU is checked at intervals, too: when a job ends and the last canary that
 * passed is canary_interval_s old, the next one comes first, and a timer checks an idle GPU. So it never runs while a
 * job does, nor while a child is made or ended: either would slow it.
 *
 * The referee reports its time, and compares it with the time it measured when it started. That would make a GPU that
 * has become slow the norm of fresh workers; so it is compared here with the GPU's own norm (norms.h), which is in the
 * store, and outlives both.
 *
 * A GPU that is quarantined for being slow alone (too hot, or foreign work on it) is checked again by the timer, with
 * fresh workers; one with wrong answers is not.
 */

#define CANARY_MS 60000

struct canary {
    const struct config *config;
    char device[32];
    struct referee *referee;
    struct norms *norms;      /* a view; NULL: no time is compared with anything */
    uv_timer_t limit_timer;   /* of one that was sent */
    bool is_waiting;          /* to be sent once no child is being made or ended */
    bool is_sent;             /* the referee owes an answer */
    bool is_suspect;          /* the workers were started afresh because of it */
    bool is_slow_only;        /* the last one failed, and by its time alone */
    int failed_in_turn;       /* since the workers' start, or the last that passed */
    int64_t passed_ns;        /* monotonic; 0: none passed yet */
    int64_t passed_ms;        /* wall clock */
    int64_t passes, failures; /* since the start */
    int64_t drifts;           /* failures, and norms that were learned anew, since the start */
    int64_t ns;               /* the time of the last one; 0: not measured */
    char kind[32];            /* of that one; "": it has no time */
    char why[192];            /* the last one failed; "": it passed */
};

/* --- sending --- */

static void
limit_cb(uv_timer_t *timer)
{
    struct canary *c = timer->data;
    referee_kill(c->referee, "the canary does not answer");
}

void
canary_begin(struct canary *c)
{
    c->is_waiting = true;
}

void
canary_pump(struct canary *c, bool is_quiet)
{
    /* It is timed, so no child of the device may be at work meanwhile. */
    if (!c->is_waiting || !is_quiet)
        return;
    c->is_waiting = false;
    c->is_sent = true;
    referee_canary(c->referee);
    uv_timer_start(&c->limit_timer, limit_cb, CANARY_MS, 0);
}

void
canary_abandon(struct canary *c)
{
    c->is_waiting = c->is_sent = false;
    uv_timer_stop(&c->limit_timer);
}

/* --- by time --- */

int64_t
canary_due_ms(const struct canary *c)
{
    if (c->config->canary_interval_s == 0 || !referee_gpu(c->referee))
        return -1;
    return norm_due_ms(c->passed_ns, c->config->canary_interval_s, clock_monotonic_ns());
}

int64_t
canary_again_ms(const struct canary *c)
{
    if (c->config->canary_interval_s == 0 || !referee_gpu(c->referee) || !c->is_slow_only)
        return -1;
    return c->config->canary_interval_s * 1000;
}

bool
canary_is_slow_only(const struct canary *c)
{
    return c->is_slow_only;
}

/* --- its answer --- */

/* False where the GPU or its canary has no name: then nothing is known of it. */
static bool
key_of(const struct canary *c, struct norm_key *out)
{
    json_t *gpu = referee_gpu(c->referee);

    *out = (struct norm_key){ json_string_value(json_object_get(gpu, "uuid")),
                              json_string_value(json_object_get(gpu, "driver")), c->kind };
    return out->gpu && out->driver && *out->kind && c->norms;
}

/* The fault that the referee found. */
static void
why_failed(const json_t *detail, char *out, size_t size)
{
    const char *error = json_string_value(json_object_get(detail, "error"));
    json_t *drift = json_object_get(detail, "drift");

    if (json_is_false(json_object_get(detail, "known_answer")))
        snprintf(out, size, "it answers wrongly%s%s", error ? ": " : "", error ? error : "");
    else if (json_is_false(json_object_get(detail, "memory_back")))
        snprintf(out, size, "memory of children that are gone is not free again");
    else if (json_is_real(drift))
        snprintf(out, size, "it takes %+.1f %% longer than when its referee started",
                 100 * json_real_value(drift));
    else
        snprintf(out, size, "its referee does not say why");
}

/* Whether the last one passed; otherwise c->why has the reason. */
static bool
is_well(struct canary *c, const json_t *body)
{
    const json_t *detail = json_object_get(body, "detail");
    const char *kind = json_string_value(json_object_get(detail, "kind"));
    const char *around = json_string_value(json_object_get(detail, "disturbed"));
    int64_t ns = json_integer_value(json_object_get(detail, "ns"));
    bool is_good = text_is(body, "outcome", "pass");
    struct norm_key key;

    *c->why = '\0';
    c->is_slow_only = false;
    c->ns = ns >= 1 && ns <= NORM_NS_MAX ? ns : 0;
    snprintf(c->kind, sizeof(c->kind), "%s", kind ? kind : "");
    utf8_clean(c->kind);
    if (!is_good) {
        why_failed(detail, c->why, sizeof(c->why));
        c->is_slow_only = json_is_true(json_object_get(detail, "known_answer")) &&
                          json_is_true(json_object_get(detail, "memory_back"));
    }
    if (c->ns > 0 && key_of(c, &key)) {
        enum norm_finding found = norms_note(c->norms, &key, clock_wall_ms(), c->ns, is_good);
        if (found == NORM_FASTER) {
            c->drifts++;
            log_warn(c->device, "the canary is faster than its norm, which is learned anew");
        } else if (found == NORM_SLOWER && is_good) {
            is_good = false;
            c->is_slow_only = true;
            snprintf(c->why, sizeof(c->why), "it takes %.1f %% longer than this GPU's norm",
                     100 * norm_drift(norms_find(c->norms, &key), c->ns));
        }
    }
    if (!is_good && around && strlen(c->why) + strlen(around) + 3 < sizeof(c->why))
        snprintf(c->why + strlen(c->why), sizeof(c->why) - strlen(c->why), "; %s", around);
    utf8_clean(c->why);
    return is_good;
}

static void
passed(struct canary *c)
{
    if (c->is_suspect)
        log_info(c->device, "the canary passes again");
    c->passes++;
    c->passed_ns = clock_monotonic_ns();
    c->passed_ms = clock_wall_ms();
    c->failed_in_turn = 0;
    c->is_suspect = false;
}

enum canary_outcome
canary_answered(struct canary *c, const json_t *body)
{
    if (!c->is_sent)
        return CANARY_NOT_ASKED;
    c->is_sent = false;
    uv_timer_stop(&c->limit_timer);
    if (is_well(c, body)) {
        passed(c);
        return CANARY_PASSED;
    }
    c->drifts++;
    c->failures++;
    log_error(c->device, "the canary failed: %s", c->why);
    if (++c->failed_in_turn < 2)
        return CANARY_AGAIN;
    c->failed_in_turn = 0;
    if (c->is_suspect) {
        log_error(c->device, "quarantined: the canary fails with fresh workers too");
        return CANARY_QUARANTINE;
    }
    c->is_suspect = true;
    return CANARY_RESTART;
}

/* --- looking --- */

bool
canary_is_suspect(const struct canary *c)
{
    return c->is_suspect;
}

int64_t
canary_drifts(const struct canary *c)
{
    return c->drifts;
}

/* Why no canary comes by time; NULL: it does. */
static const char *
why_not_scheduled(const struct canary *c)
{
    if (process_state(referee_process(c->referee)) != PROCESS_READY)
        return "its workers are being started";
    if (!referee_gpu(c->referee))
        return "there is no GPU: nothing is timed, and no drift can be seen";
    return c->config->canary_interval_s == 0 ? "canary_interval_s is 0" : NULL;
}

json_t *
canary_json(const struct canary *c)
{
    const char *why_not = why_not_scheduled(c);
    struct norm_key key;
    const struct norm *norm = key_of(c, &key) ? norms_find(c->norms, &key) : NULL;
    double drift = norm && c->ns > 0 ? norm_drift(norm, c->ns) : NAN;

    return json_pack(
        "{s:o, s:s?, s:o, s:o, s:I, s:I, s:s?, s:o, s:o, s:o, s:i, s:o}", "interval_s",
        why_not ? json_null() : json_integer(c->config->canary_interval_s), "why_none", why_not, "passed",
        time_or_null(c->passed_ms), "age_s",
        c->passed_ns ? json_real((double)(clock_monotonic_ns() - c->passed_ns) / 1e9) : json_null(), "passes",
        (json_int_t)c->passes, "failures", (json_int_t)c->failures, "failed", *c->why ? c->why : NULL, "ns",
        c->ns > 0 ? json_integer(c->ns) : json_null(), "norm_ns",
        norm ? json_integer(norm_ns(norm)) : json_null(), "drift", real_or_null(round(drift * 1e4) / 1e4),
        "norm_samples", norm ? norm->n_samples : 0, "norm_since", time_or_null(norm ? norm->since_ms : 0));
}

/* --- its life --- */

int
canary_new(uv_loop_t *loop, const struct config *config, const char *device, struct referee *referee,
           struct norms *norms, struct canary **out, struct error *err)
{
    struct canary *c = calloc(1, sizeof(*c));

    *out = NULL;
    if (!c)
        return error_set(err, ERR_NOMEM, "no memory for the canary of %s", device);
    *c = (struct canary){ .config = config, .referee = referee, .norms = norms };
    snprintf(c->device, sizeof(c->device), "%s", device);
    uv_timer_init(loop, &c->limit_timer);
    c->limit_timer.data = c;
    *out = c;
    return 0;
}

void
canary_free(struct canary *c)
{
    if (c)
        uv_close((uv_handle_t *)&c->limit_timer, handle_free_cb);
}
