#include "client/trainer/run_state.h"

#include <string.h>
#include <unistd.h>

#include "client/trainer/output.h"
#include "client/trainer/run_files.h"
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
run_state_set(struct run *r, json_t *step, const char *state, double seconds, struct error *err)
{
    char at[CLOCK_TEXT_SIZE];
    const char *name = json_string_value(json_object_get(step, "name"));
    clock_text(clock_wall_ms(), at);
    json_t *old = finished(r, name);
    double before = json_number_value(json_object_get(old, "seconds"));
    bool is_same = json_equal(json_object_get(old, "argv"), json_object_get(step, "argv"));
    json_object_set_new(json_object_get(r->state, "steps"), name,
                        json_pack("{s:s, s:f, s:s, s:O, s:s, s:b}", "state", state, "seconds",
                                  seconds + (is_same ? before : 0), "at", at, "argv",
                                  json_object_get(step, "argv"), "stage",
                                  json_string_value(json_object_get(step, "stage")), "trains",
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

bool
run_state_is_finished(struct run *r, json_t *step)
{
    size_t i;
    json_t *one, *was = finished(r, json_string_value(json_object_get(step, "name")));
    const char *state = json_string_value(json_object_get(was, "state"));
    struct error ignored = { 0 };

    AUTO_JSON json_t *before = work_of(json_object_get(was, "argv")),
                     *now = work_of(json_object_get(step, "argv"));
    if (!state || !json_equal(before, now))
        return false;
    if (strcmp(state, "skipped") == 0)
        return true;
    if (strcmp(state, "done") != 0)
        return false;
    json_array_foreach(json_object_get(step, "outputs"), i,
                       one) if (run_path_check(r, json_string_value(one), &ignored) != 0) return false;
    return true;
}
