#include "server/submission/node_about.h"

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
