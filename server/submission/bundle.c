#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/json.h"
#include "server/store/store.h"
#include "server/submission/funnel.h"
#include "server/submission/request.h"

/*
 * A bundle is one JSON document with everything that a verdict depended on but
 * the machine: with it another daemon can be asked for a verdict to compare.
 * Its parts are the bodies of other calls: "task" registers the task,
 * "request" is the stored settings of how the candidate is to be judged.
 */

static int
set_task(json_t *out, const struct task_row *task)
{
    AUTO_JSON json_t *spec = json_of(task->spec);
    AUTO_JSON json_t *metadata = json_of(task->metadata);
    json_t *declared = json_object_get(spec, "declared");
    json_t *entry = json_object_get(declared, "entry_point");

    /* Tasks of before bundles: most had no entry point declared, which is then null. */
    json_t *part = json_pack("{s:s?, s:s%, s:O?, s:i, s:b, s:O?, s:O?}", "name", task->name, "reference",
                             task->reference, task->reference_size, "entry_point", entry, "level",
                             task->level, "dynamic_shapes", (int)task->dynamic_shapes, "cases",
                             json_object_get(declared, "cases"), "metadata", metadata);
    return json_object_set_new(out, "task", part);
}

/* The request as it is stored, with the seed that was used: a shared verdict has that of the one that was judged. */
static json_t *
request_of(const struct submission_row *row, json_t *verdict)
{
    static const char *const keys[] = { "entry_point", "policy", "reward",        "until",
                                        "seed",        "flags",  "extract_fault", "is_guess" };
    AUTO_JSON json_t *stored = json_of(row->request);
    json_t *out = json_object(), *seed = json_object_get(verdict, "seed");

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        json_object_set(out, keys[i], json_object_get(stored, keys[i]));
    if (json_is_string(seed))
        json_object_set(out, "seed", seed);
    return out;
}

static int
read_parts(struct store_reader *r, const struct submission_row *row, json_t *out, struct error *err)
{
    AUTO_BUFFER struct buffer source = BUFFER_INIT;
    struct task_row task = { 0 };

    int rc = reader_get_task(r, row->task_id, &task, err);
    if (rc == 0)
        rc = reader_get_source(r, row->source_hash, &source, err);
    if (rc == 0 && (set_task(out, &task) != 0 ||
                    json_object_set_new(out, "candidate",
                                        json_stringn(source.data ? source.data : "", source.size)) != 0))
        rc = error_set(err, ERR_NOMEM, "no memory for the bundle");
    task_row_release(&task);
    return rc;
}

int
bundle_read(struct store_reader *r, const struct submission_row *row, json_t **out, struct error *err)
{
    char now[CLOCK_TEXT_SIZE];

    *out = NULL;
    if (row->state != SUBMISSION_DONE)
        return 0;
    AUTO_JSON json_t *verdict = json_of(row->verdict);
    if (!verdict)
        return error_set(err, ERR_STORE, "the verdict of %s cannot be read", row->id);
    clock_text(clock_wall_ms(), now);
    AUTO_JSON json_t *bundle =
        json_pack("{s:s, s:i, s:s, s:s, s:s}", "format", BUNDLE_FORMAT, "version", BUNDLE_VERSION, "made",
                  now, "by", "verifierd " VERIFIERD_VERSION, "task_id", row->task_id);
    int rc = read_parts(r, row, bundle, err);
    if (rc != 0)
        return rc;
    json_object_set_new(bundle, "request", request_of(row, verdict));
    json_object_set(bundle, "verdict", verdict);
    *out = ptr_take(&bundle);
    return 0;
}
