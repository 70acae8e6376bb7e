#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/json.h"
#include "server/queue/scheduler.h"
#include "server/store/store.h"
#include "server/submission/admission.h"
#include "server/submission/counters.h"
#include "server/submission/funnel.h"
#include "server/submission/node.h"
#include "server/submission/node_about.h"
#include "server/submission/parts.h"
#include "server/submission/pending.h"
#include "server/submission/registry.h"
#include "server/submission/reuse.h"
#include "server/submission/single_flight.h"
#include "server/task/registrar.h"
#include "server/workers/device_worker.h"
#include "server/workers/prefork_pool.h"
#include "server/workers/scratch.h"
#include "server/workers/zygote.h"

static const char starting[] = "starting workers"; /* all other reasons need somebody to mend them */

/* Of those without which nothing is judged, one that is out of service for its sandbox; NULL: none is. */
static const struct zygote *
unconfined(const struct funnel *f)
{
    const struct zygote *const stages[] = { f->static_zygote, f->zygote };

    for (size_t i = 0; i < ARRAY_LEN(stages); i++)
        if (zygote_lacks_layers(stages[i]))
            return stages[i];
    for (int i = 0; i < f->n_device_workers; i++)
        if (zygote_lacks_layers(device_worker_zygote(f->device_workers[i])))
            return device_worker_zygote(f->device_workers[i]);
    return NULL;
}

bool
funnel_is_ready(struct funnel *f, char *why, size_t size)
{
    int quarantined = 0;

    if (pending_is_draining(f->pending)) {
        snprintf(why, size, "draining");
        return false;
    }
    if (!store_is_writable(f->store)) {
        const char *trouble = store_trouble(f->store);
        snprintf(why, size, "%s", trouble ? trouble : "the store cannot be written");
        return false;
    }
    const char *scratch = scratch_trouble(f->config->scratch);
    if (scratch) {
        snprintf(why, size, "%s", scratch);
        return false;
    }
    for (int i = 0; i < f->n_device_workers; i++) {
        enum device_state state = device_worker_state(f->device_workers[i]);
        quarantined += state == DEVICE_QUARANTINED;
        if (zygotes_are_ready(f) &&
            (state == DEVICE_IDLE || state == DEVICE_BUSY ||
             (state == DEVICE_CHECKING && !device_worker_is_suspect(f->device_workers[i])))) {
            snprintf(why, size, "%s",
                     f->config->paused ? "paused: submissions are stored, none is judged" : "");
            return !f->config->paused;
        }
    }
    const struct zygote *bare = unconfined(f);
    if (bare)
        snprintf(why, size, "the %s lacks a layer of the sandbox that is required: the log says which",
                 zygote_name(bare));
    else
        snprintf(why, size, "%s",
                 quarantined == f->n_device_workers ? "every device is quarantined" : starting);
    return false;
}

/* Seconds that the oldest of them has waited; null: none is. */
static void
print_oldest(struct buffer *out, const char *key, double waited_s)
{
    if (waited_s >= 0)
        buffer_printf(out, "%s%.6f", key, waited_s);
    else
        buffer_printf(out, "%snull", key);
}

static void
print_queues(const struct funnel *f, struct buffer *out)
{
    struct scheduler_counts n;

    scheduler_count(f->scheduler, &n);
    buffer_printf(out,
                  "{\"queued\":{\"interactive\":%lld,\"batch\":%lld},\"ready\":{\"interactive\":%lld,"
                  "\"batch\":%lld},\"waiting\":%lld,\"limit\":%lld,\"cpu_running\":%lld,\"cpu_slots\":%lld,"
                  "\"gpu_running\":%lld,\"registering\":%lld,\"joined\":%lld",
                  (long long)n.queued[FAIR_INTERACTIVE] + reuse_asking(f->reuse, FAIR_INTERACTIVE),
                  (long long)n.queued[FAIR_BATCH] + reuse_asking(f->reuse, FAIR_BATCH),
                  (long long)n.ready[FAIR_INTERACTIVE], (long long)n.ready[FAIR_BATCH],
                  (long long)admission_waiting(f), (long long)f->config->queue_limit,
                  (long long)n.cpu_running, (long long)n.slots, (long long)n.gpu_running,
                  (long long)registrar_registering(f->registrar), (long long)flight_following(f->flight));
    print_oldest(out, ",\"oldest_s\":{\"queued\":", registry_oldest_s(f->registry, REGISTRY_FOR_SLOT));
    print_oldest(out, ",\"ready\":", registry_oldest_s(f->registry, REGISTRY_FOR_DEVICE));
    buffer_add(out, "}}");
}

json_t *
funnel_stats(const struct funnel *f)
{
    return counters_stats_json(f->counters, f->n_device_workers);
}

/* Since the start, and what the store holds. */
static json_t *
counts_json(const struct funnel *f, const struct store_counts *stored)
{
    struct scheduler_counts n;

    scheduler_count(f->scheduler, &n);
    json_t *out = counters_json(f->counters, n.rerun_held_s);
    if (stored) {
        for (int i = 0; i < SUBMISSION_NSTATES; i++)
            json_object_set_new(out, submission_state_name((enum submission_state)i),
                                json_integer(stored->by_state[i]));
        json_object_set_new(out, "tasks", json_integer(stored->tasks));
    }
    json_object_set_new(out, "known_tasks", json_integer(registrar_known(f->registrar)));
    return out;
}

static json_t *
store_json(const struct funnel *f)
{
    struct store_figures s;

    store_figures(f->store, &s);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "holder", store_holder(f->store),
                     "durability", store_is_file(f->config->store) ? "strict" : f->config->durability,
                     "commits", (json_int_t)s.commits, "rows_written", (json_int_t)s.rows_written,
                     "queued_writes", (json_int_t)s.queued_writes, "wal_bytes", (json_int_t)s.wal_bytes,
                     "commit_ms_last", s.commit_ms_last, "commit_ms_max", s.commit_ms_max, "commit_seconds",
                     histogram_json(&s.commit_seconds, &histogram_seconds));
}

static json_t *
env_json(const struct funnel *f)
{
    json_t *versions = json_object_get(zygote_ready_message(f->zygote), "versions");
    json_t *gpu = f->n_device_workers > 0 ? device_worker_gpu(f->device_workers[0]) : NULL;
    json_t *env = json_is_object(versions) ? json_copy(versions) : json_object();

    json_object_set_new(env, "gpu", get_or_null(gpu, "name"));
    json_object_set_new(env, "driver", get_or_null(gpu, "driver"));
    json_object_set_new(
        env, "device",
        json_string(f->n_device_workers > 0 ? device_worker_device(f->device_workers[0]) : "none"));
    json_object_set_new(env, "target", json_string(f->config->target));
    return env;
}

static json_t *
sandbox_json(const struct funnel *f)
{
    json_t *layers = json_object_get(json_object_get(zygote_ready_message(f->zygote), "sandbox"), "layers");
    json_t *run = f->n_device_workers > 0 ? device_worker_sandbox(f->device_workers[0]) : NULL;

    return json_pack("{s:O?, s:O?, s:s}", "layers", layers, "run_layers", run, "require",
                     f->config->sandbox_require);
}

void
funnel_pulse(struct funnel *f, struct buffer *out)
{
    char why[128] = "";

    bool is_ready = funnel_is_ready(f, why, sizeof(why));
    const char *state = pending_is_draining(f->pending) ? "draining"
                        : f->config->paused             ? "paused"
                        : is_ready                      ? "ready"
                        : strcmp(why, starting) == 0    ? "starting"
                                                        : "failing";
    const char *quote = *why ? "\"" : ""; /* the reasons are our own words, with nothing in them to escape */
    buffer_printf(out, "{\"state\":\"%s\",\"ready\":%s,\"why\":%s%s%s,\"queues\":", state,
                  is_ready ? "true" : "false", quote, *why ? why : "null", quote);
    print_queues(f, out);
    buffer_add(out, "}");
}

const char *
funnel_node_name(const struct funnel *f)
{
    return node_lease(f->node)->node;
}

json_t *
funnel_node(const struct funnel *f)
{
    const struct store_lease *l = node_lease(f->node);
    double lease_s = node_lease_s(f->node);
    json_t *item = node_about(f);

    json_object_set_new(item, "name", json_string(l->node));
    json_object_set_new(item, "epoch", json_integer(l->epoch));
    json_object_set_new(item, "state",
                        json_string(lease_s < 0                       ? "lost"
                                    : pending_is_draining(f->pending) ? "draining"
                                                                      : "alive"));
    json_object_set_new(item, "lease_s", real_or_null(lease_s));
    json_object_set(item, "claimed", json_object_get(item, "running"));
    return item;
}

uint64_t
funnel_generation(const struct funnel *f)
{
    /* Both only grow. Changes of the store's counts are covered by its commits. */
    return counters_generation(f->counters) + (uint64_t)store_commits(f->store);
}

static json_t *
stage_pool_json(const struct prefork_pool *pool)
{
    struct prefork_counts n;

    prefork_pool_count(pool, &n);
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "most", (json_int_t)n.most, "kept", (json_int_t)n.kept,
                     "taken", (json_int_t)n.taken, "missed", (json_int_t)n.missed, "lost",
                     (json_int_t)n.lost);
}

/* A zygote of the CPU stages, and its children that wait for work, by stage. */
static json_t *
stage_zygote_json(const struct funnel *f, const struct zygote *z)
{
    json_t *worker = zygote_status(z), *spares = json_object();

    for (int role = 0; role < CHILD_RUN; role++)
        if (z == funnel_zygote_of(f, (enum child_role)role))
            json_object_set_new(spares, child_role_name((enum child_role)role),
                                stage_pool_json(f->stage_pools[role]));
    json_object_set_new(worker, "spares", spares);
    return worker;
}

json_t *
funnel_figures(struct funnel *f, const struct store_counts *stored)
{
    json_t *workers = json_array(), *gpus = json_array();

    json_array_append_new(workers, stage_zygote_json(f, f->static_zygote));
    json_array_append_new(workers, stage_zygote_json(f, f->zygote));
    for (int i = 0; i < f->n_device_workers; i++)
        device_worker_status(f->device_workers[i], workers, gpus);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "version", VERIFIERD_VERSION, "workers",
                     workers, "gpus", gpus, "sandbox", sandbox_json(f), "counts", counts_json(f, stored),
                     "store", store_json(f), "env", env_json(f), "node", funnel_node(f));
}
