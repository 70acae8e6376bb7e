#include "server/workers/private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/utf8.h"
#include "server/workers/norms.h"

/*
 * A kernel whose answer and whose time are known is judged wherever the device or a worker may have been harmed: at
 * each start, and after an end by violence. A GPU is looked at by time, too: when a job ends and the last canary that
 * passed is canary_interval_s old, the next one comes first, and a timer looks at one that has nothing to do. So it
 * never runs beside a job, timing least of all, nor beside a child that is being made or ended: either would slow it.
 *
 * The referee says how long it took, and compares it with what it learned when it started. That would make a GPU that
 * has become slow the norm of fresh workers; so it is compared here with the GPU's own norm (norms.h), which is in the
 * store, and outlives both.
 *
 * A GPU that is quarantined for being slow alone (too hot, or somebody else's work on it) is looked at again by the
 * timer, with fresh workers; one that answers wrongly is not.
 */

#define CANARY_MS 60000

static bool
is_scheduled(const struct lane *l)
{
    return l->config->canary_interval_s > 0 && lane_gpu(l);
}

static int64_t
due_ms(const struct lane *l)
{
    return norm_due_ms(l->canary.passed_ns, l->config->canary_interval_s, clock_monotonic_ns());
}

bool
canary_is_due(const struct lane *l)
{
    return is_scheduled(l) && due_ms(l) == 0;
}

/* --- sending --- */

static void
canary_timer_cb(uv_timer_t *timer)
{
    struct lane *l = timer->data;
    process_kill(l->referee, "the canary does not answer");
}

void
canary_pump(struct lane *l)
{
    /* It is timed, so no child of the device may be at work beside it. */
    if (!l->canary.is_waiting || !runners_are_quiet(l))
        return;
    l->canary.is_waiting = false;
    referee_tell(l, json_pack("{s:s}", "op", "canary"), NULL, 0);
    uv_timer_start(&l->canary_timer, canary_timer_cb, CANARY_MS, 0);
}

void
canary_send(struct lane *l)
{
    l->state = LANE_CHECKING;
    l->canary.is_waiting = true;
    canary_pump(l);
}

/* --- by time --- */

void
canary_look_again(struct lane *l)
{
    if (l->state == LANE_QUARANTINED && l->canary.is_slow_only)
        process_kill(l->referee, "its device is quarantined, and looked at again");
}

static void
look_timer_cb(uv_timer_t *timer)
{
    struct lane *l = timer->data;

    canary_look_again(l);
    if (l->state == LANE_IDLE && canary_is_due(l))
        canary_send(l);
    else
        canary_schedule(l);
}

void
canary_schedule(struct lane *l)
{
    bool is_again = l->state == LANE_QUARANTINED && l->canary.is_slow_only;

    uv_timer_stop(&l->look_timer);
    if (is_scheduled(l) && is_again)
        uv_timer_start(&l->look_timer, look_timer_cb, (uint64_t)l->config->canary_interval_s * 1000, 0);
    else if (is_scheduled(l) && l->state == LANE_IDLE)
        uv_timer_start(&l->look_timer, look_timer_cb, (uint64_t)due_ms(l), 0);
}

void
canary_abandon(struct lane *l)
{
    l->canary.is_waiting = false;
    uv_timer_stop(&l->canary_timer);
    uv_timer_stop(&l->look_timer);
}

/* --- hearing --- */

/* False where the GPU or its canary has no name: then nothing is known of it. */
static bool
key_of(const struct lane *l, struct norm_key *out)
{
    json_t *gpu = lane_gpu(l);

    *out = (struct norm_key){ json_string_value(json_object_get(gpu, "uuid")),
                              json_string_value(json_object_get(gpu, "driver")), l->canary.kind };
    return out->gpu && out->driver && *out->kind && l->norms;
}

/* What the referee found wrong. */
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

/* Whether the last one is as it should be; l->canary says why not. */
static bool
judge(struct lane *l, const json_t *body)
{
    struct canary *c = &l->canary;
    const char *outcome = json_string_value(json_object_get(body, "outcome"));
    const json_t *detail = json_object_get(body, "detail");
    const char *kind = json_string_value(json_object_get(detail, "kind"));
    const char *around = json_string_value(json_object_get(detail, "disturbed"));
    int64_t ns = json_integer_value(json_object_get(detail, "ns"));
    bool is_well = outcome && strcmp(outcome, "pass") == 0;
    struct norm_key key;

    *c->why = '\0';
    c->is_slow_only = false;
    c->ns = ns >= 1 && ns <= NORM_NS_MAX ? ns : 0;
    snprintf(c->kind, sizeof(c->kind), "%s", kind ? kind : "");
    utf8_clean(c->kind);
    if (!is_well) {
        why_failed(detail, c->why, sizeof(c->why));
        c->is_slow_only = json_is_true(json_object_get(detail, "known_answer")) &&
                          json_is_true(json_object_get(detail, "memory_back"));
    }
    if (c->ns > 0 && key_of(l, &key)) {
        enum norm_finding found = norms_note(l->norms, &key, clock_wall_ms(), c->ns, is_well);
        if (found == NORM_FASTER) {
            l->drifts++;
            log_warn(l->device.name, "the canary is faster than its norm, which is learned anew");
        } else if (found == NORM_SLOWER && is_well) {
            is_well = false;
            c->is_slow_only = true;
            snprintf(c->why, sizeof(c->why), "it takes %.1f %% longer than this GPU's norm",
                     100 * norm_drift(norms_find(l->norms, &key), c->ns));
        }
    }
    if (!is_well && around && strlen(c->why) + strlen(around) + 3 < sizeof(c->why))
        snprintf(c->why + strlen(c->why), sizeof(c->why) - strlen(c->why), "; %s", around);
    utf8_clean(c->why);
    return is_well;
}

static void
passed(struct lane *l)
{
    if (l->is_suspect)
        log_info(l->device.name, "the canary passes again");
    l->canary.passes++;
    l->canary.passed_ns = clock_monotonic_ns();
    l->canary.passed_ms = clock_wall_ms();
    l->canary_failures = 0;
    l->is_suspect = false;
    lane_become_idle(l);
}

void
canary_answered(struct lane *l, const json_t *body)
{
    if (l->state != LANE_CHECKING || l->canary.is_waiting)
        return;
    uv_timer_stop(&l->canary_timer);
    if (judge(l, body)) {
        passed(l);
        return;
    }
    l->drifts++;
    l->canary.failures++;
    log_error(l->device.name, "the canary failed: %s", l->canary.why);
    if (++l->canary_failures < 2) {
        canary_send(l);
        return;
    }
    l->canary_failures = 0;
    if (!l->is_suspect) {
        l->is_suspect = true;
        process_kill(l->referee, "the canary failed twice");
    } else {
        l->state = LANE_QUARANTINED;
        log_error(l->device.name, "quarantined: the canary fails with fresh workers too");
        canary_schedule(l);
    }
}

/* --- looking --- */

static json_t *
at_json(int64_t wall_ms)
{
    char text[CLOCK_TEXT_SIZE];

    if (wall_ms == 0)
        return json_null();
    clock_text(wall_ms, text);
    return json_string(text);
}

/* Why no canary comes by time; NULL: it does. */
static const char *
why_not_scheduled(const struct lane *l)
{
    if (process_state(l->referee) != PROCESS_READY)
        return "its workers are being started";
    if (!lane_gpu(l))
        return "there is no GPU: nothing is timed, and no drift can be seen";
    return l->config->canary_interval_s == 0 ? "canary_interval_s is 0" : NULL;
}

json_t *
canary_json(const struct lane *l)
{
    const struct canary *c = &l->canary;
    const char *why_not = why_not_scheduled(l);
    struct norm_key key;
    const struct norm *norm = key_of(l, &key) ? norms_find(l->norms, &key) : NULL;
    double drift = norm && c->ns > 0 ? norm_drift(norm, c->ns) : NAN;

    return json_pack("{s:o, s:s?, s:o, s:o, s:I, s:I, s:s?, s:o, s:o, s:o, s:i, s:o}", "interval_s",
                     why_not ? json_null() : json_integer(l->config->canary_interval_s), "why_none", why_not,
                     "passed", at_json(c->passed_ms), "age_s",
                     c->passed_ns ? json_real((double)(clock_monotonic_ns() - c->passed_ns) / 1e9)
                                  : json_null(),
                     "passes", (json_int_t)c->passes, "failures", (json_int_t)c->failures, "failed",
                     *c->why ? c->why : NULL, "ns", c->ns > 0 ? json_integer(c->ns) : json_null(), "norm_ns",
                     norm ? json_integer(norm_ns(norm)) : json_null(), "drift",
                     isnan(drift) ? json_null() : json_real(round(drift * 1e4) / 1e4), "norm_samples",
                     norm ? norm->n_samples : 0, "norm_since", at_json(norm ? norm->since_ms : 0));
}
