#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/log.h"
#include "server/submission/private.h"

/*
 * Identical candidates are judged once. What makes two of them identical is the *content*: client, task, source,
 * entry point, policy, until, and how the code was found; not the reward, which is computed anew. The first that
 * arrives leads, those that arrive while it is in flight follow it, and those that come later get the verdict that
 * the store has under its *key*: the content, and the environment that judged it.
 *
 * A verdict is written by the daemon alone, and is handed on only under the hash of all bytes that it judged, within
 * one client: a candidate can spoil none but its own. What says more about the moment than about the candidate (a
 * worker of ours that failed, a limit, a crash, an unclear timing) is not handed on, and a sample is judged again.
 */

/* --- keys --- */

void
cache_content(const struct submission_row *row, json_t *request, char out[HASH_TEXT_SIZE])
{
    out[0] = '\0';
    if (!request || json_is_false(json_object_get(request, "cache")))
        return;
    AUTO_JSON json_t *content = json_pack(
        "{s:s?, s:s, s:s, s:O?, s:O?, s:O?, s:O?, s:O?, s:O?}", "client", row->client, "task", row->task_id,
        "source", row->source_hash, "entry_point", json_object_get(request, "entry_point"), "policy",
        json_object_get(request, "policy"), "until", json_object_get(request, "until"), "flags",
        json_object_get(request, "flags"), "extract_fault", json_object_get(request, "extract_fault"),
        "is_guess", json_object_get(request, "is_guess"));
    AUTO_FREE char *text = content ? json_dumps(content, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (text)
        hash_text(text, strlen(text), out);
}

static int
add_file(struct buffer *names, const char *directory, const char *name)
{
    AUTO_BUFFER struct buffer bytes = BUFFER_INIT;
    char path[4096], hash[HASH_TEXT_SIZE];
    struct stat about;
    int rc = 0;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        return 0;
    for (ssize_t n = 1; rc == 0 && n > 0;) {
        rc = buffer_reserve(&bytes, bytes.size + 65536);
        n = rc == 0 ? read(fd, bytes.data + bytes.size, 65536) : 0;
        if (n > 0)
            bytes.size += (size_t)n;
    }
    hash_text(bytes.data ? bytes.data : "", bytes.size, hash);
    return rc == 0 ? buffer_printf(names, "%s %s\n", name, hash) : rc;
}

static bool
is_judging(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".so") == 0);
}

static int
is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* under: a folder below the harness, with a slash at its end, or "". */
static void
add_files(struct buffer *names, const char *harness, const char *under)
{
    char path[4096], name[1024];
    struct dirent **entries = NULL;

    snprintf(path, sizeof(path), "%s/%s", harness, under);
    int n = scandir(path, &entries, is_visible, alphasort); /* what is no folder has no entries */
    for (int i = 0; i < n; i++) {
        bool is_file = is_judging(entries[i]->d_name);
        int size = snprintf(name, sizeof(name), "%s%s%s", under, entries[i]->d_name, is_file ? "" : "/");
        if (size < (int)sizeof(name) && is_file)
            add_file(names, harness, name);
        else if (size < (int)sizeof(name))
            add_files(names, harness, name);
        free(entries[i]);
    }
    free(entries);
}

void
cache_fingerprint(const char *harness, char out[HASH_TEXT_SIZE])
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    buffer_printf(&text, "%s\n", VERIFIERD_VERSION);
    add_files(&text, harness, "");
    add_file(&text, harness, "../libharness.so");
    hash_text(text.data ? text.data : "", text.size, out);
}

static void
forget_environment(struct cache_environment *e)
{
    json_decref(e->versions);
    json_decref(e->run_versions);
    json_decref(e->gpu);
    *e = (struct cache_environment){ .versions = NULL };
}

void
cache_forget_environments(struct funnel *f)
{
    for (size_t i = 0; i < ARRAY_LEN(f->environments); i++)
        forget_environment(&f->environments[i]);
}

/* What judges there, hashed once for as long as the workers are what they said. */
static const char *
environment_hash(struct funnel *f, const struct lane *l, struct cache_environment *e, json_t *versions,
                 json_t *gpu)
{
    if (e->versions == versions && e->run_versions == lane_versions(l) && e->gpu == gpu)
        return e->hash;
    forget_environment(e);
    AUTO_JSON json_t *key = json_pack(
        "{s:s, s:s, s:O, s:O, s:b, s:O?, s:O?, s:s, s:I, s:I, s:I}", "harness", f->fingerprint, "judge",
        f->config->judge, "versions", versions, "run_versions", lane_versions(l), "is_gpu",
        (int)lane_is_gpu(l), "gpu", json_object_get(gpu, "name"), "driver", json_object_get(gpu, "driver"),
        "target", f->config->target, "interpreter_elements", (json_int_t)f->config->interpreter_elements,
        "memory_limit_bytes", (json_int_t)f->config->memory_limit_bytes, "file_limit_bytes",
        (json_int_t)f->config->file_limit_bytes);
    AUTO_FREE char *text = key ? json_dumps(key, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!text)
        return "";
    e->versions = json_incref(versions);
    e->run_versions = json_incref(lane_versions(l));
    e->gpu = json_incref(gpu);
    hash_text(text, strlen(text), e->hash);
    return e->hash;
}

/*
 * The key of a content as lane i would judge it; "" where the workers have not said yet what they are. Settings are in
 * it that decide how a candidate is judged and what it may use.
 */
static void
key_on(struct funnel *f, int i, const char *content, char out[HASH_TEXT_SIZE])
{
    const struct lane *l = f->lanes[i];
    json_t *versions = json_object_get(zygote_ready_message(f->zygote), "versions");
    json_t *gpu = lane_gpu(l);
    char text[2 * HASH_TEXT_SIZE + 1];

    out[0] = '\0';
    if (!versions || !lane_versions(l) || (lane_is_gpu(l) && !gpu))
        return;
    const char *environment = environment_hash(f, l, &f->environments[i], versions, gpu);
    if (!*environment)
        return;
    int n = snprintf(text, sizeof(text), "%s %s", content, environment);
    hash_text(text, (size_t)n, out);
}

/* --- what may be handed on --- */

/* By what was found; who judged it is another matter. */
static bool
is_reusable(const struct judgement *j)
{
    const char *timing = json_string_value(json_object_get(j->timing, "outcome"));
    const char *baseline = json_string_value(json_object_get(j->baseline, "outcome"));

    if (baseline && (strcmp(baseline, "inconclusive") == 0 || strcmp(baseline, "lost") == 0))
        return false;
    return j->row.state == SUBMISSION_DONE && j->row.verdict && j->row.class_ &&
           class_info(verdict_class_of(j))->is_reusable && !(timing && strcmp(timing, "inconclusive") == 0);
}

void
cache_key(const struct submission *s, char out[HASH_TEXT_SIZE])
{
    struct funnel *f = s->funnel;
    const char *device = json_string_value(json_object_get(s->judgement->env, "device"));
    int judged = 0;

    out[0] = '\0';
    for (int i = 0; device && i < f->n_lanes; i++)
        if (strcmp(lane_device(f->lanes[i]), device) == 0)
            judged = i;
    /* That it was not among the best is its group's word, and nobody else's. */
    bool is_passed_over = s->judgement->stages[STAGE_TIMING].why != NULL;
    if (*s->content && f->n_lanes > 0 && !is_passed_over && is_reusable(s->judgement))
        key_on(f, judged, s->content, out);
}

/* --- handing on --- */

static json_t *
text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

/* The verdict of another, as it is for this one. */
static json_t *
adopt(const struct submission *s, const struct submission_row *from)
{
    const struct judgement *j = s->judgement;
    json_t *out = json_loads(from->verdict ? from->verdict : "", JSON_ALLOW_NUL, NULL);
    struct reward_input in;
    char text[CLOCK_TEXT_SIZE];

    if (!out || !verdict_input(out, &in)) {
        json_decref(out);
        return NULL;
    }
    json_t *group_index = *j->row.group_id ? json_integer(j->row.group_index) : json_null();
    json_t *metadata = json_object_get(j->request, "metadata");
    json_t *source = json_object_get(out, "cached_from");
    json_object_set_new(out, "cached_from",
                        json_is_string(source) ? json_incref(source) : json_string(from->id));
    json_object_set_new(out, "id", json_string(s->id));
    json_object_set_new(out, "group", text_or_null(j->row.group_id));
    json_object_set_new(out, "group_index", group_index);
    json_object_set_new(out, "client", text_or_null(j->row.client));
    json_object_set_new(out, "priority",
                        json_string(s->priority == PRIORITY_BATCH ? "batch" : "interactive"));
    json_object_set_new(out, "metadata", metadata ? json_incref(metadata) : json_null());
    json_object_set_new(out, "cache", json_string(s->cache));
    json_object_set_new(out, "attempts", json_integer(s->attempts));
    json_object_set_new(out, "rerun", json_null());
    clock_text(j->row.created_ms, text);
    json_object_set_new(out, "created", json_string(text));
    clock_text(j->row.finished_ms, text);
    json_object_set_new(out, "finished", json_string(text));
    json_object_set_new(out, "reward_spec", reward_spec_json(&j->reward));
    json_object_set_new(out, "reward", real_or_null(verdict_reward(&j->reward, &in)));
    json_object_set_new(out, "reward_parts", reward_parts_json(&j->reward, &in));
    return out;
}

/* That judging it took of a device. */
static double
device_seconds(json_t *verdict)
{
    json_t *stage;
    double seconds = 0;
    size_t i;

    json_array_foreach(json_object_get(verdict, "stages"), i, stage)
    {
        const char *name = json_string_value(json_object_get(stage, "stage"));
        if (name && stage_find(name) >= STAGE_TINY)
            seconds += json_number_value(json_object_get(stage, "run_ms")) / 1000;
    }
    return seconds;
}

/* Ends s with the verdict of `from`. False: that cannot be done, and nothing has changed. */
static bool
hand_on(struct submission *s, const struct submission_row *from, const char *how)
{
    struct funnel *f = s->funnel;
    struct error err = { 0 };

    int rc = judgement_read(s, &err);
    if (rc == 0)
        rc = store_get_log(f->store, from->id, &s->judgement->log, &err);
    if (rc == 0) {
        s->cache = how;
        s->judgement->row.finished_ms = clock_wall_ms();
        AUTO_JSON json_t *verdict = adopt(s, from);
        if (verdict && submission_conclude_as(s, from, verdict) == 0) {
            counters_save_by_reuse(f->counters, device_seconds(verdict));
            return true;
        }
        error_set(&err, ERR_STORE, "the verdict of %s cannot be handed on", from->id);
    }
    log_warn(s->id, "it is judged itself: %s", err.text);
    judgement_free(f, ptr_take(&s->judgement));
    s->cache = "miss";
    return false;
}

/* --- finding --- */

/* The newest verdict of this content by one of the lanes there are. False: none, or it is not known yet. */
static bool
find_stored(struct submission *s, struct submission_row *out)
{
    struct funnel *f = s->funnel;
    char key[HASH_TEXT_SIZE], last[HASH_TEXT_SIZE] = "";

    for (int i = 0; i < f->n_lanes; i++) {
        key_on(f, i, s->content, key);
        if (*key && strcmp(key, last) != 0) {
            s->is_looked_up = true;
            if (store_find_cached(f->store, key, out, NULL) == 0)
                return true;
        }
        memcpy(last, key, sizeof(last));
    }
    return false;
}

bool
cache_answers(struct submission *s)
{
    struct funnel *f = s->funnel;
    struct submission_row row = { 0 };
    bool is_answered = false;

    if (s->is_looked_up || !*s->content || !f->config->cache)
        return false;
    if (find_stored(s, &row)) {
        if ((int64_t)(random_u64() % 100) < f->config->cache_recheck_percent) {
            memcpy(s->recheck_of, row.id, sizeof(s->recheck_of));
            s->cache = "rechecked";
            counters_reuse(f->counters, REUSE_RECHECKED);
        } else {
            is_answered = hand_on(s, &row, "hit");
            if (is_answered)
                counters_reuse(f->counters, REUSE_HIT);
        }
    }
    submission_row_release(&row);
    return is_answered;
}

/*
 * A group that chooses whom to time waits for all of its members: were one to follow a stranger, two groups could wait
 * for each other.
 */
static void
flight_key(const struct submission *s, char out[HASH_TEXT_SIZE])
{
    char text[HASH_TEXT_SIZE + ID_SIZE];

    memcpy(out, s->content, HASH_TEXT_SIZE);
    if (!s->group || !group_times_some(s->group))
        return;
    int n = snprintf(text, sizeof(text), "%s %s", s->content, group_id(s->group));
    hash_text(text, (size_t)n, out);
}

static struct submission *
submission_of(struct flight_member *m)
{
    return m ? scheduler_owner(m, struct submission, flight) : NULL;
}

void
cache_enqueue(struct submission *s)
{
    struct funnel *f = s->funnel;
    char key[HASH_TEXT_SIZE];

    if (*s->content && f->config->cache) {
        flight_key(s, key);
        struct submission *primary = submission_of(flight_find(f->flight, key));
        if (primary) {
            s->cache = "joined";
            flight_follow(f->flight, &s->flight, &primary->flight);
            if (s->group)
                group_begin_following(s->group);
            scheduler_hurry(f->scheduler, &primary->job, s->job.urgency);
            return;
        }
        if (cache_answers(s))
            return;
        flight_lead(f->flight, &s->flight, key);
        if (!*s->recheck_of)
            counters_reuse(f->counters, REUSE_MISS);
    }
    scheduler_add_for_slot(f->scheduler, &s->job, false);
}

void
cache_leave(struct submission *s)
{
    flight_leave(s->funnel->flight, &s->flight);
    if (s->group)
        group_end_following(s->group);
}

void
cache_settle(struct submission *s, struct judgement *j)
{
    struct funnel *f = s->funnel;
    struct submission *follower;
    bool is_usable = is_reusable(j);

    flight_land(f->flight, &s->flight);
    while ((follower = submission_of(flight_take_follower(f->flight, &s->flight))) != NULL) {
        if (follower->group)
            group_end_following(follower->group);
        follower->cache = "miss";
        if (is_usable && hand_on(follower, &j->row, "joined"))
            counters_reuse(f->counters, REUSE_JOINED);
        else
            cache_enqueue(follower); /* the first of them leads now */
    }
}

/* --- judged again --- */

static double
number_in(json_t *verdict, const char *key)
{
    return json_number_value(json_object_get(json_object_get(verdict, "timing"), key));
}

static bool
is_measured(json_t *verdict)
{
    const char *outcome = json_string_value(json_object_get(json_object_get(verdict, "timing"), "outcome"));
    return outcome && strcmp(outcome, "measured") == 0;
}

/* Machines drift by a few percent from day to day, so intervals have to lie well apart. */
#define DRIFT 1.1

static bool
is_other_speed(json_t *a, json_t *b)
{
    return is_measured(a) && is_measured(b) &&
           (number_in(a, "speedup_lo") > DRIFT * number_in(b, "speedup_hi") ||
            number_in(b, "speedup_lo") > DRIFT * number_in(a, "speedup_hi"));
}

void
cache_compare(struct submission *s)
{
    struct funnel *f = s->funnel;
    const struct submission_row *now = &s->judgement->row;
    struct submission_row then = { 0 };

    if (!*s->recheck_of || now->state != SUBMISSION_DONE || !now->class_ ||
        class_info(class_find(now->class_))->fault == FAULT_SERVICE ||
        store_get_submission(f->store, s->recheck_of, &then, NULL) != 0)
        return;
    AUTO_JSON json_t *old = json_loads(then.verdict ? then.verdict : "", JSON_ALLOW_NUL, NULL);
    AUTO_JSON json_t *new = json_loads(now->verdict ? now->verdict : "", JSON_ALLOW_NUL, NULL);
    bool is_same_stage = json_equal(json_object_get(old, "failed_at"), json_object_get(new, "failed_at"));
    if (!then.class_ || strcmp(then.class_, now->class_) != 0 || !is_same_stage || is_other_speed(old, new)) {
        counters_reuse(f->counters, REUSE_DIFFERED);
        log_warn(s->id, "judged again, and not as before: %s, speedup %.4g now; %s, %.4g as %s", now->class_,
                 number_in(new, "speedup"), then.class_ ? then.class_ : "nothing", number_in(old, "speedup"),
                 then.id);
    }
    submission_row_release(&then);
}
