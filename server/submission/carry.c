#include "server/submission/carry.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/log.h"
#include "common/stages.h"
#include "server/submission/attempt.h"
#include "server/submission/conclude.h"
#include "server/submission/counters.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/reuse_keys.h"
#include "server/submission/state.h"
#include "server/submission/submission.h"
#include "server/workers/channel.h"

/*
 * Theory of operation. The results of `ast` and `compile` for a candidate with a plan are a document of a few
 * kilobytes, and the plan with its kernels' images: both are stored with the job until it ends. They are used only
 * where the same harness with the same packages would have compiled for the same target. Other submissions are handed
 * on without them and compiled again: those judged live (their files are a directory), those that failed under a policy
 * that goes on, and those larger than CARRY_MAX.
 */

#define CARRY_MAX (4 << 20) /* bytes of images and captured output */

static bool
can_be_carried(const struct attempt *j, off_t images)
{
    return j->plan && j->failed_stage < 0 && j->log_lost == 0 && images + (off_t)j->log.size <= CARRY_MAX;
}

static json_t *
about(const struct submission *s, size_t images)
{
    const struct attempt *j = s->attempt;
    const struct stage_record *compile = &j->stages[STAGE_COMPILE];
    char key[HASH_TEXT_SIZE];

    reuse_compiled_key(s->funnel, key);
    return json_pack("{s:s, s:I, s:[f, f], s:i, s:i, s:O, s:O?, s:O?, s:O}", "key", key, "images",
                     (json_int_t)images, "run_ms", j->stages[STAGE_AST].run_ms, compile->run_ms, "done",
                     compile->done, "of", compile->of, "flags", j->flags, "kernels", j->kernels, "compiled",
                     j->compiled, "plan", j->plan);
}

/* The images, and what its processes printed. 0, or an error: it goes without. */
static int
gather(const struct attempt *j, size_t images, struct buffer *out)
{
    int rc = buffer_reserve(out, images + j->log.size + 1);

    for (size_t at = 0; rc == 0 && at < images;) {
        ssize_t n = pread(j->images_fd, out->data + at, images - at, (off_t)at);
        if (n <= 0)
            return ERR_SYS;
        at += (size_t)n;
    }
    if (rc == 0)
        out->size = images;
    return rc == 0 && j->log.size > 0 ? buffer_append(out, j->log.data, j->log.size) : rc;
}

static void
handed_on_cb(void *arg, int code, const struct error *err)
{
    struct submission *s = arg;
    struct funnel *f = s->funnel;

    s->is_claiming = false;
    if (code == 0) {
        log_info(s->id, "compiled, and left to a node with a device");
        counters_count(f->counters, COUNT_HANDED_ON);
        f->taken(s);
    } else if (code == ERR_CONFLICT || code == ERR_NOTFOUND) {
        log_warn(s->id, "it is not handed on: %s", err->text);
        counters_count(f->counters, COUNT_FENCED);
        f->taken(s);
    } else if (s->is_cancelled) {
        submission_conclude(s, EVENT_CANCEL);
    } else if (s->attempt->images_fd >= 0) { /* these bytes may be what the store cannot take */
        log_warn(s->id, "it is handed on without what was compiled: %s", err->text);
        close(fd_take(&s->attempt->images_fd));
        carry_hand_on(s);
    } else {
        log_warn(s->id, "it is compiled again, since it cannot be handed on: %s", err->text);
        submission_return(s, true);
    }
    pending_end_write(f->pending);
}

void
carry_hand_on(struct submission *s)
{
    struct attempt *j = s->attempt;
    AUTO_BUFFER struct buffer bytes = BUFFER_INIT;
    AUTO_JSON json_t *document = NULL;
    AUTO_FREE char *text = NULL;
    struct store_claim claim = s->claim;
    struct error err = { 0 };
    struct stat st;

    if (j->images_fd >= 0 && fstat(j->images_fd, &st) == 0 && can_be_carried(j, st.st_size) &&
        gather(j, (size_t)st.st_size, &bytes) == 0 && (document = about(s, (size_t)st.st_size)))
        text = json_dumps(document, JSON_COMPACT);
    const struct store_carried carried = { text, bytes.data, bytes.size };
    claim.attempts = s->attempts - 1; /* nothing was lost: the next one goes on */
    s->is_claiming = true;
    pending_begin_write(s->funnel->pending);
    if (store_hand_on(s->funnel->store, &claim, text ? &carried : NULL, handed_on_cb, s, &err) != 0)
        handed_on_cb(s, (int)err.code, &err);
}

/* --- on the other side --- */

static bool
is_usable(const json_t *document, const struct carried_row *row)
{
    return json_integer_value(json_object_get(document, "images")) > 0 &&
           json_integer_value(json_object_get(document, "images")) <= (json_int_t)row->size &&
           json_is_array(json_object_get(document, "flags")) &&
           json_is_object(json_object_get(document, "plan"));
}

void
carry_take(struct submission *s, const struct carried_row *row)
{
    struct attempt *j = s->attempt;
    AUTO_JSON json_t *document = json_loads(row->about, 0, NULL);
    const char *made = json_string_value(json_object_get(document, "key"));
    json_t *run_ms = json_object_get(document, "run_ms");
    char key[HASH_TEXT_SIZE];
    struct error err = { 0 };

    reuse_compiled_key(s->funnel, key);
    if (!*key || !made || strcmp(made, key) != 0 || !is_usable(document, row)) {
        log_info(s->id, "what another node compiled is not what this one would: it is compiled again");
        return;
    }
    size_t images = (size_t)json_integer_value(json_object_get(document, "images"));
    if (buffer_append(&j->log, row->bytes + images, row->size - images) != 0 ||
        (j->images_fd = memfd_make("images", row->bytes, images, &err)) < 0) {
        log_warn(s->id, "it is compiled again: %s", *err.text ? err.text : "no memory for what came with it");
        buffer_clear(&j->log);
        return;
    }
    attempt_add_flags(j, json_object_get(document, "flags"));
    j->kernels = json_incref(json_object_get(document, "kernels"));
    j->compiled = json_incref(json_object_get(document, "compiled"));
    j->plan = json_incref(json_object_get(document, "plan"));
    j->is_traced = j->is_carried = true;
    for (size_t i = 0; i <= STAGE_COMPILE; i++)
        j->carried_ms[i] = json_number_value(json_array_get(run_ms, i));
    j->carried_done = (int)json_integer_value(json_object_get(document, "done"));
    j->carried_of = (int)json_integer_value(json_object_get(document, "of"));
    counters_count(s->funnel->counters, COUNT_CARRIED);
}
