#include "server/store/labels.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/auto.h"
#include "common/json.h"
#include "common/utf8.h"

static bool
is_run(const json_t *run)
{
    size_t size = json_string_length(run);

    return size > 0 && strlen(json_string_value(run)) == size &&
           utf8_length(json_string_value(run), size) <= LABEL_MAX_CHARS;
}

void
labels_read(const char *request, struct labels *out)
{
    *out = (struct labels){ .step = LABEL_STEP_NONE };
    /* Most have none, and need no parsing. */
    if (!request || (!strstr(request, "\"run\"") && !strstr(request, "\"gpu\"")))
        return;
    AUTO_JSON json_t *document = json_of(request);
    const char *gpu = json_string_value(json_object_get(document, "gpu"));
    if (gpu && strlen(gpu) < sizeof(out->gpu))
        snprintf(out->gpu, sizeof(out->gpu), "%s", gpu);
    json_t *metadata = json_object_get(document, "metadata");
    json_t *run = json_object_get(metadata, "run"), *step = json_object_get(metadata, "step");

    if (!is_run(run))
        return;
    snprintf(out->run, sizeof(out->run), "%s", json_string_value(run));
    if (json_is_integer(step) && json_integer_value(step) >= 0 && json_integer_value(step) <= LABEL_STEP_MAX)
        out->step = json_integer_value(step);
}
