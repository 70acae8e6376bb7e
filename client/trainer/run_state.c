#include "client/trainer/run_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainer/output.h"
#include "client/trainer/run_files.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"
#include "common/clock.h"

static json_t *
finished(const struct run *r, const char *name)
{
    return json_object_get(json_object_get(r->state, "steps"), name);
}

static int
write_state(struct run *r, struct error *err)
{
    return output_document(r->state_path, r->state, err);
}

int
run_state_open(struct run *r, struct error *err)
{
    r->state = json_load_file(r->state_path, 0, NULL);
    if (access(r->state_path, F_OK) == 0 && !json_is_object(json_object_get(r->state, "steps")))
        return error_set(err, ERR_INPUT, "%s cannot be read: remove it to begin again", r->state_path);
    if (!r->state)
        r->state = json_pack("{s:{}}", "steps");
    json_object_set(r->state, "configuration", r->conf);
    json_object_set_new(r->state, "file", json_string(r->file));
    json_object_set_new(r->state, "pid", json_integer(getpid()));
    json_object_set_new(r->state, "along", json_object());
    return write_state(r, err);
}

int
run_state_note(struct run *r, const char *name, json_t *value, struct error *err)
{
    json_object_set_new(json_object_get(r->state, "along"), name, value);
    return write_state(r, err);
}

int
run_round_of(json_t *step)
{
    const char *name = json_string_value(json_object_get(step, "name"));
    return atoi(name + strcspn(name, "0123456789"));
}

void
run_state_adapter(const struct run *r, int round, char path[RUN_ADAPTER_SIZE])
{
    struct error ignored = { 0 };
    for (int n = round > 0 ? round - 1 : (int)runconf_number(r->conf, "rl", "rounds"); n > 0; n--) {
        snprintf(path, RUN_ADAPTER_SIZE, "checkpoints/rl_round%d", n);
        const char *state =
            json_string_value(json_object_get(finished(r, path + strlen("checkpoints/")), "state"));
        bool is_left_over = !run_is_made(r, path) || (state && strcmp(state, "skipped") == 0);
        if (!is_left_over && run_path_check(r, path, &ignored) == 0)
            return;
    }
    snprintf(path, RUN_ADAPTER_SIZE, "checkpoints/sft_final");
}

static void
add_digest(const struct run *r, json_t *out, const char *path)
{
    char digest[80];
    struct error ignored = { 0 };
    if (run_path_digest(r, path, digest, &ignored) == 0)
        json_object_set_new(out, path, json_string(digest));
}

/* What a step reads, as it is now: the digest of each input that is there, of the adapter that it begins at, and which base answers. */
static json_t *
inputs_of(const struct run *r, json_t *step)
{
    json_t *out = json_object(), *one;
    const char *serve = json_string_value(json_object_get(step, "serve"));
    bool has_adapter = serve && strcmp(serve, "{adapter}") == 0;
    char adapter[RUN_ADAPTER_SIZE];
    size_t i;

    json_array_foreach(json_object_get(step, "inputs"), i, one) add_digest(r, out, json_string_value(one));
    json_array_foreach(json_object_get(step, "argv"), i, one)
    {
        const char *text = json_string_value(one);
        has_adapter = has_adapter || strstr(text, "{adapter}") || strcmp(text, "@publish") == 0;
    }
    if (has_adapter) {
        run_state_adapter(r, run_round_of(step), adapter);
        add_digest(r, out, adapter);
    }
    if (serve && !*serve)
        json_object_set_new(out, "model", json_pack("[s, s]", r->serving.model, r->serving.name));
    return out;
}

/* Of what was read when it was begun, is anything another thing now? A record of an older release does not say. */
static bool
has_other_inputs(const struct run *r, json_t *step, json_t *was)
{
    const char *path;
    json_t *digest, *before = json_object_get(was, "from");
    AUTO_JSON json_t *now = inputs_of(r, step);
    if (!before)
        return false;
    json_object_foreach(now, path,
                        digest) if (!json_equal(digest, json_object_get(before, path))) return true;
    return false;
}

int
run_state_set(struct run *r, json_t *step, const char *state, double seconds, struct error *err)
{
    char at[CLOCK_TEXT_SIZE];
    const char *name = json_string_value(json_object_get(step, "name"));
    clock_text(clock_wall_ms(), at);
    json_t *old = finished(r, name);
    double before = json_number_value(json_object_get(old, "seconds"));
    bool is_same = json_equal(json_object_get(old, "argv"), json_object_get(step, "argv"));
    bool is_begun = strcmp(state, "running") == 0 || strcmp(state, "skipped") == 0;
    json_t *from = is_same && !is_begun ? json_incref(json_object_get(old, "from")) : NULL;
    json_object_set_new(json_object_get(r->state, "steps"), name,
                        json_pack("{s:s, s:f, s:s, s:O, s:o, s:s, s:b}", "state", state, "seconds",
                                  seconds + (is_same ? before : 0), "at", at, "argv",
                                  json_object_get(step, "argv"), "from", from ? from : inputs_of(r, step),
                                  "stage", json_string_value(json_object_get(step, "stage")), "trains",
                                  json_is_true(json_object_get(step, "trains"))));
    return write_state(r, err);
}

/* Where services and programs are is not what is computed. */
static json_t *
work_of(json_t *argv)
{
    static const char *const places[] = { "--url=", "--endpoint=", "--concurrency=", "--python=" };
    json_t *out = json_array(), *one;
    size_t i;
    json_array_foreach(argv, i, one)
    {
        bool is_place = false;
        for (size_t k = 0; k < ARRAY_LEN(places); k++)
            is_place = is_place || strncmp(json_string_value(one), places[k], strlen(places[k])) == 0;
        if (!is_place)
            json_array_append(out, one);
    }
    return out;
}

/* As it is in the plan, and from what is there now? */
static bool
is_same_work(const struct run *r, json_t *step, json_t *was)
{
    AUTO_JSON json_t *before = work_of(json_object_get(was, "argv")),
                     *now = work_of(json_object_get(step, "argv"));
    return json_equal(before, now) && !has_other_inputs(r, step, was);
}

bool
run_state_is_other(const struct run *r, json_t *step)
{
    json_t *was = finished(r, json_string_value(json_object_get(step, "name")));
    return was && !is_same_work(r, step, was);
}

bool
run_state_is_finished(struct run *r, json_t *step)
{
    size_t i;
    json_t *one, *was = finished(r, json_string_value(json_object_get(step, "name")));
    const char *state = json_string_value(json_object_get(was, "state"));
    struct error ignored = { 0 };

    if (!state || !is_same_work(r, step, was))
        return false;
    if (strcmp(state, "skipped") == 0)
        return true;
    if (strcmp(state, "done") != 0)
        return false;
    json_array_foreach(json_object_get(step, "outputs"), i,
                       one) if (run_path_check(r, json_string_value(one), &ignored) != 0) return false;
    return true;
}
