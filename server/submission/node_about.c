#include "server/submission/node_about.h"

#include <string.h>

#include "common/auto.h"
#include "server/queue/scheduler.h"
#include "server/submission/parts.h"
#include "server/workers/device_worker.h"

json_t *
node_about(const struct funnel *f)
{
    json_t *gpus = json_array();
    struct scheduler_counts n;

    for (int i = 0; i < f->n_device_workers; i++) {
        const struct device_worker *w = f->device_workers[i];
        json_t *name = json_object_get(device_worker_gpu(w), "name");
        json_array_append_new(gpus, json_pack("{s:s, s:O?, s:s}", "device", device_worker_device(w), "name",
                                              name, "state", device_state_name(device_worker_state(w))));
    }
    scheduler_count(f->scheduler, &n);
    return json_pack("{s:s, s:s, s:o, s:I, s:I, s:I}", "version", VERIFIERD_VERSION, "role", f->config->role,
                     "gpus", gpus, "running", (json_int_t)n.cpu_running + (json_int_t)n.gpu_running,
                     "waiting", (json_int_t)scheduler_waiting(f->scheduler), "slots", (json_int_t)n.slots);
}

bool
node_about_has_gpu(const char *about, const char *name)
{
    AUTO_JSON json_t *said = about ? json_loads(about, 0, NULL) : NULL;
    json_t *gpus = json_object_get(said, "gpus"), *gpu;
    const char *first = json_string_value(json_object_get(json_array_get(gpus, 0), "name"));
    size_t i;

    json_array_foreach(gpus, i, gpu)
    {
        const char *other = json_string_value(json_object_get(gpu, "name"));
        if (!first || !other || strcmp(first, other) != 0)
            return false;
    }
    return first && strstr(first, name);
}
