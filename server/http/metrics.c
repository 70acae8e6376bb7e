#include "server/http/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/auto.h"
#include "common/error.h"

/*
 * Names follow Prometheus' convention: a prefix, the unit in plural at the
 * end, _total for what only grows. Counters begin with the process, so a
 * restart is a reset, which rate() knows of.
 */

/* --- the format --- */

/* ERR_NOMEM stays once it has happened. */
struct writer {
    struct buffer *out;
    int rc;
};

static void
add(struct writer *w, const char *text)
{
    if (w->rc == 0)
        w->rc = buffer_add(w->out, text);
}

static void
family(struct writer *w, const char *name, const char *type, const char *help)
{
    if (w->rc == 0)
        w->rc = buffer_printf(w->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void
add_label_value(struct writer *w, const char *value)
{
    for (; *value; value++) {
        const char plain[2] = { *value, '\0' };
        add(w, *value == '\n' ? "\\n" : *value == '"' ? "\\\"" : *value == '\\' ? "\\\\" : plain);
    }
}

/* labels: name, value, name, value, …, NULL */
static void
sample(struct writer *w, const char *name, const char *const *labels, double value)
{
    char number[40];

    add(w, name);
    for (size_t i = 0; labels && labels[i]; i += 2) {
        add(w, i ? "," : "{");
        add(w, labels[i]);
        add(w, "=\"");
        add_label_value(w, labels[i + 1]);
        add(w, "\"");
    }
    const char *end = labels && labels[0] ? "}" : "";
    if (isinf(value))
        snprintf(number, sizeof(number), "%s +Inf\n", end);
    else
        snprintf(number, sizeof(number), "%s %.15g\n", end, value);
    add(w, number);
}

/* {"bounds","counts","sum"} with up to two labels before le: name, value, name, value; NULL: none. */
static void
histogram(struct writer *w, const char *name, const char *const *labels, json_t *h)
{
    json_t *bounds = json_object_get(h, "bounds"), *counts = json_object_get(h, "counts");
    const char *all[7] = { NULL };
    size_t n = 0;
    double total = 0;
    char part[80], le[32];

    for (; n < 4 && labels[n]; n++)
        all[n] = labels[n];
    if (!h)
        return;
    for (size_t i = 0; i < json_array_size(counts); i++) {
        total += json_number_value(json_array_get(counts, i));
        snprintf(le, sizeof(le), i < json_array_size(bounds) ? "%.15g" : "+Inf",
                 json_number_value(json_array_get(bounds, i)));
        all[n] = "le";
        all[n + 1] = le;
        snprintf(part, sizeof(part), "%s_bucket", name);
        sample(w, part, all, total);
    }
    all[n] = NULL;
    snprintf(part, sizeof(part), "%s_sum", name);
    sample(w, part, all, json_number_value(json_object_get(h, "sum")));
    snprintf(part, sizeof(part), "%s_count", name);
    sample(w, part, all, total);
}

#define LABELS(...)             \
    (const char *const[])       \
    {                           \
        __VA_ARGS__, NULL, NULL \
    }

/* --- the figures --- */

/* "queues/limit" */
static json_t *
at(json_t *document, const char *path)
{
    char key[40];

    for (; *path && document; path += *path == '/') {
        size_t size = strcspn(path, "/");
        snprintf(key, sizeof(key), "%.*s", (int)size, path);
        document = json_object_get(document, key);
        path += size;
    }
    return document;
}

static double
number(json_t *value)
{
    return json_is_true(value) ? 1 : json_number_value(value);
}

/* One figure each. */
static const struct {
    const char *name, *type, *path, *help;
    double scale;
} figures[] = {
    { "verifierd_ready", "gauge", "ready", "Whether work can be judged now.", 1 },
    { "verifierd_uptime_seconds", "gauge", "uptime_s", "Since the daemon was started.", 1 },
    { "verifierd_waiting_submissions", "gauge", "queues/waiting",
      "Submissions that count against queue_limit.", 1 },
    { "verifierd_queue_limit", "gauge", "queues/limit",
      "Submissions that may wait; above it clients get 429.", 1 },
    { "verifierd_cpu_slots", "gauge", "queues/cpu_slots",
      "Submissions that the CPU stages take side by side.", 1 },
    { "verifierd_registering_tasks", "gauge", "queues/registering", "Tasks whose reference is being run.",
      1 },
    { "verifierd_tasks", "gauge", "counts/tasks", "Tasks stored.", 1 },
    { "verifierd_known_tasks", "gauge", "counts/known_tasks",
      "Tasks of which the daemon knows without asking the store.", 1 },
    { "verifierd_returned_total", "counter", "counts/returned",
      "Submissions put back to the queue, since a worker was lost or the daemon drained.", 1 },
    { "verifierd_fenced_total", "counter", "counts/fenced",
      "Verdicts that the store refused, since another node has the submission or has ended it.", 1 },
    { "verifierd_handed_on_total", "counter", "counts/handed_on",
      "Submissions that were compiled here for a node with a device.", 1 },
    { "verifierd_carried_total", "counter", "counts/carried", "Submissions that came compiled.", 1 },
    { "verifierd_store_commits_total", "counter", "store/commits", "Transactions committed.", 1 },
    { "verifierd_store_rows_written_total", "counter", "store/rows_written", "Rows written.", 1 },
    { "verifierd_store_queued_writes", "gauge", "store/queued_writes", "Writes that wait for a commit.", 1 },
    { "verifierd_store_wal_bytes", "gauge", "store/wal_bytes", "Size of the write-ahead log.", 1 },
    { "verifierd_store_commit_last_seconds", "gauge", "store/commit_ms_last",
      "How long the last commit took.", 1e-3 },
    { "verifierd_store_commit_max_seconds", "gauge", "store/commit_ms_max",
      "How long the slowest commit took.", 1e-3 },
    { "verifierd_http_connections", "gauge", "http/connections", "Connections that are open.", 1 },
    { "verifierd_http_connections_limit", "gauge", "http/connections_limit", "Most that may be open.", 1 },
    { "verifierd_http_connections_refused_total", "counter", "http/connections_refused",
      "Connections that were one too many.", 1 },
    { "verifierd_http_event_streams", "gauge", "http/streams", "Event streams that are open.", 1 },
    { "verifierd_loop_turns_long_total", "counter", "http/loop_turns_long",
      "Turns of the loop that took longer than 2 ms: nothing else was served meanwhile.", 1 },
    { "verifierd_loop_turn_longest_seconds", "gauge", "http/loop_turn_longest_ms",
      "The longest turn of the loop since the start.", 1e-3 },
    { "verifierd_http_event_streams_dropped_total", "counter", "http/streams_dropped",
      "Event streams ended since their reader was too slow.", 1 },
    { "verifierd_notices_delivered_total", "counter", "http/notices_delivered",
      "Ends of groups that were posted to their makers.", 1 },
    { "verifierd_notices_failed_total", "counter", "http/notices_failed",
      "Ends of groups that could not be posted: each try failed, or too many waited.", 1 },
    { "verifierd_notices_waiting", "gauge", "http/notices_waiting", "Ends of groups that are being posted.",
      1 },
    { "verifierd_http_exports", "gauge", "http/exports", "Exports that are being sent.", 1 },
    { "process_cpu_seconds_total", "counter", "process/cpu_s", "Time of the daemon's own process.", 1 },
    { "process_resident_memory_bytes", "gauge", "process/resident_bytes", "Resident memory of it.", 1 },
    { "process_virtual_memory_bytes", "gauge", "process/virtual_bytes", "Virtual memory of it.", 1 },
    { "process_open_fds", "gauge", "process/open_fds", "Descriptors that are open.", 1 },
    { "process_max_fds", "gauge", "process/max_fds", "Most descriptors that may be open.", 1 },
    { "process_threads", "gauge", "process/threads", "Threads of it.", 1 },
    { "process_start_time_seconds", "gauge", "process/start_time_s", "When it was started, since 1970.", 1 },
    { "verifierd_rerun_seconds_total", "counter", "counts/reruns/held_s",
      "Time for which all others waited so that one could be judged alone.", 1 },
    { "verifierd_cache_differences_total", "counter", "counts/cache/differed",
      "Verdicts that were checked by judging again, and came out otherwise.", 1 },
    { "verifierd_device_seconds_total", "counter", "counts/device_s/used",
      "Time that submissions held devices.", 1 },
    { "verifierd_http_held_requests", "gauge", "http/held", "Long polls that are waiting.", 1 },
};

static void
write_figures(struct writer *w, json_t *status)
{
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
        json_t *value = at(status, figures[i].path);
        if (!value)
            continue;
        family(w, figures[i].name, figures[i].type, figures[i].help);
        sample(w, figures[i].name, NULL, number(value) * figures[i].scale);
    }
}

static void
write_verdicts(struct writer *w, json_t *counts)
{
    json_t *value, *row;
    const char *name;
    size_t i;

    family(w, "verifierd_verdicts_total", "counter", "Submissions that ended, by class; cancelled ones too.");
    json_object_foreach(json_object_get(counts, "classes"), name, value)
        sample(w, "verifierd_verdicts_total", LABELS("class", name), number(value));
    family(w, "verifierd_rejections_total", "counter",
           "Candidates refused by a rule, or as a hack; rule is empty where the class says all.");
    json_array_foreach(json_object_get(counts, "rejections"), i, row)
    {
        const char *class_ = json_string_value(json_object_get(row, "class"));
        const char *rule = json_string_value(json_object_get(row, "rule"));
        sample(w, "verifierd_rejections_total",
               LABELS("class", class_ ? class_ : "", "rule", rule ? rule : ""),
               number(json_object_get(row, "n")));
    }
    family(w, "verifierd_submission_seconds", "summary", "From the submission to its verdict.");
    sample(w, "verifierd_submission_seconds_sum", NULL, number(json_object_get(counts, "verdict_s")));
    sample(w, "verifierd_submission_seconds_count", NULL, number(json_object_get(counts, "finished")));
}

/* One figure by one label. */
static const struct {
    const char *name, *type, *path, *label, *values[5], *help;
} split[] = {
    { "verifierd_submissions",
      "gauge",
      "counts",
      "state",
      { "queued", "running", "done", "cancelled" },
      "Submissions stored, by state." },
    { "verifierd_reruns_total",
      "counter",
      "counts/reruns",
      "outcome",
      { "confirmed", "cleared", "refused" },
      "Failures that a neighbour may have brought about: judged again alone, with the same class (confirmed) "
      "or another, or not judged again since the share of the time for that was used up (refused)." },
    { "verifierd_cache_answers_total",
      "counter",
      "counts/cache",
      "result",
      { "hits", "joined", "misses", "rechecked" },
      "Submissions that an identical one's verdict could answer, by what became of them." },
    { "verifierd_queue_oldest_age_seconds",
      "gauge",
      "queues/oldest_s",
      "queue",
      { "queued", "ready" },
      "How long the oldest has waited; 0: none waits." },
};

static void
write_split(struct writer *w, json_t *status)
{
    for (size_t i = 0; i < ARRAY_LEN(split); i++) {
        json_t *object = at(status, split[i].path);
        if (!json_object_get(object, split[i].values[0])) /* a store that does not answer */
            continue;
        family(w, split[i].name, split[i].type, split[i].help);
        for (const char *const *value = split[i].values; *value; value++)
            sample(w, split[i].name, LABELS(split[i].label, *value), number(json_object_get(object, *value)));
    }
}

static void
write_stages(struct writer *w, json_t *stages)
{
    static const char *const outcomes[] = { "pass", "fail", "skip" };
    static const struct {
        const char *name, *key, *help;
        double scale;
    } rows[] = {
        { "verifierd_stage_entered_total", "entered", "Submissions that entered a stage.", 1 },
        { "verifierd_stage_run_seconds_total", "run_ms", "Time spent in a stage, waiting not counted.",
          1e-3 },
        { "verifierd_stage_device_seconds_total", "device_s", "Time that a stage held a device.", 1 },
        { "verifierd_stage_spared_total", "spared",
          "Submissions that did not come to a stage, since they had failed before.", 1 },
    };
    json_t *stage;
    const char *name;

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        family(w, rows[k].name, "counter", rows[k].help);
        json_object_foreach(stages, name, stage)
            sample(w, rows[k].name, LABELS("stage", name),
                   number(json_object_get(stage, rows[k].key)) * rows[k].scale);
    }
    family(w, "verifierd_stage_outcomes_total", "counter", "How they left it.");
    json_object_foreach(stages, name, stage)
    {
        for (size_t i = 0; i < ARRAY_LEN(outcomes); i++)
            sample(w, "verifierd_stage_outcomes_total", LABELS("stage", name, "outcome", outcomes[i]),
                   number(json_object_get(stage, outcomes[i])));
    }
    family(w, "verifierd_stage_wait_seconds", "summary",
           "Time that submissions waited for a stage, by those that waited.");
    json_object_foreach(stages, name, stage)
    {
        sample(w, "verifierd_stage_wait_seconds_sum", LABELS("stage", name),
               number(json_object_get(stage, "wait_ms")) / 1000);
        sample(w, "verifierd_stage_wait_seconds_count", LABELS("stage", name),
               number(json_object_get(stage, "waited")));
    }
}

static void
write_devices(struct writer *w, json_t *device)
{
    family(w, "verifierd_device_seconds_saved_total", "counter",
           "Time of devices that was not needed: after an early failure (by the mean of those that came so "
           "far), or "
           "for an identical candidate.");
    sample(w, "verifierd_device_seconds_saved_total", LABELS("by", "rejection"),
           number(json_object_get(device, "saved_by_rejection")));
    sample(w, "verifierd_device_seconds_saved_total", LABELS("by", "cache"),
           number(json_object_get(device, "saved_by_cache")));
}

static void
write_queues(struct writer *w, json_t *queues)
{
    static const char *const names[] = { "queued", "ready" };
    json_t *value;
    const char *priority;

    family(w, "verifierd_queue_length", "gauge",
           "Submissions that wait: queued for the CPU stages, ready for a device.");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        json_object_foreach(json_object_get(queues, names[i]), priority, value) sample(
            w, "verifierd_queue_length", LABELS("queue", names[i], "priority", priority), number(value));
    family(w, "verifierd_running_submissions", "gauge", "Submissions that are being judged.");
    sample(w, "verifierd_running_submissions", LABELS("where", "cpu"),
           number(json_object_get(queues, "cpu_running")));
    sample(w, "verifierd_running_submissions", LABELS("where", "device"),
           number(json_object_get(queues, "gpu_running")));
}

static const char *
text(json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static void
write_workers(struct writer *w, json_t *workers)
{
    json_t *worker;
    size_t i;

    family(w, "verifierd_worker_ready", "gauge", "Whether a worker is there.");
    json_array_foreach(workers, i, worker)
        sample(w, "verifierd_worker_ready", LABELS("worker", text(worker, "name")),
               strcmp(text(worker, "state"), "ready") == 0);
    family(w, "verifierd_worker_starts_total", "counter", "How often it was started.");
    json_array_foreach(workers, i, worker)
        sample(w, "verifierd_worker_starts_total", LABELS("worker", text(worker, "name")),
               number(json_object_get(worker, "starts")));
    family(w, "verifierd_device_state", "gauge", "1 for the state that a device is in.");
    json_array_foreach(workers, i, worker)
    {
        if (*text(worker, "lane"))
            sample(w, "verifierd_device_state",
                   LABELS("device", text(worker, "device"), "state", text(worker, "lane")), 1);
    }
}

static void
write_node(struct writer *w, json_t *node)
{
    static const struct {
        const char *name, *key, *help;
    } rows[] = {
        { "verifierd_node_running", "running", "Submissions that this node judges." },
        { "verifierd_node_lease_seconds", "lease_s",
          "Until its lease ends, unless it is renewed; +Inf: it needs no renewal." },
    };
    const char *name = text(node, "name");

    if (!node)
        return;
    family(w, "verifierd_node_info", "gauge", "1, with the name, the role and the version of this node.");
    sample(w, "verifierd_node_info",
           LABELS("node", name, "role", text(node, "role"), "version", text(node, "version")), 1);
    family(w, "verifierd_node_draining", "gauge", "Whether it takes no more work.");
    sample(w, "verifierd_node_draining", LABELS("node", name), strcmp(text(node, "state"), "draining") == 0);
    family(w, "verifierd_node_gpus", "gauge", "Devices that it judges on.");
    sample(w, "verifierd_node_gpus", LABELS("node", name),
           (double)json_array_size(json_object_get(node, "gpus")));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *value = json_object_get(node, rows[i].key);
        family(w, rows[i].name, "gauge", rows[i].help);
        sample(w, rows[i].name, LABELS("node", name), json_is_null(value) ? INFINITY : number(value));
    }
}

/* Of the CPU stages: those that wait for work. */
static void
write_spares(struct writer *w, json_t *workers)
{
    static const struct {
        const char *key, *name, *type, *help;
    } rows[] = {
        { "kept", "verifierd_spare_children", "gauge", "Children of a CPU stage that wait for work." },
        { "taken", "verifierd_spare_taken_total", "counter", "Submissions that found one." },
        { "missed", "verifierd_spare_missed_total", "counter",
          "Submissions that found none and waited for one to be made." },
        { "lost", "verifierd_spare_lost_total", "counter", "That died before they were used." },
    };
    json_t *worker, *spares;
    const char *stage;
    size_t i;

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        family(w, rows[k].name, rows[k].type, rows[k].help);
        json_array_foreach(workers, i, worker)
            json_object_foreach(json_object_get(worker, "spares"), stage, spares)
                sample(w, rows[k].name, LABELS("stage", stage), number(json_object_get(spares, rows[k].key)));
    }
}

static void
write_pools(struct writer *w, json_t *workers)
{
    static const struct {
        const char *part, *key, *name, *type, *help;
    } rows[] = {
        { "pool", "made", "verifierd_pool_made_total", "counter", "Children that were made ready." },
        { "pool", "lost", "verifierd_pool_lost_total", "counter",
          "Children that died before they were used." },
        { "pool", "waited_s", "verifierd_pool_wait_seconds_total", "counter",
          "Time that devices were held by work that waited for a child." },
        { "references", "kept", "verifierd_references", "gauge", "References that are loaded." },
        { "references", "hits", "verifierd_reference_hits_total", "counter",
          "Submissions whose task's reference was loaded already." },
        { "references", "loads", "verifierd_reference_loads_total", "counter",
          "References that a child was taken for." },
        { "references", "evicted", "verifierd_reference_evicted_total", "counter",
          "References ended to make room for others." },
        { "references", "recalled", "verifierd_reference_recalled_total", "counter",
          "Right answers to small cases that had been asked for already." },
    };
    static const char *const states[] = { "ready", "making" };
    json_t *worker, *pool;
    size_t i;

    family(w, "verifierd_pool_children", "gauge",
           "Children that wait to be used, or will when they are made.");
    json_array_foreach(workers, i, worker)
    {
        if (!(pool = json_object_get(worker, "pool")))
            continue;
        for (size_t k = 0; k < ARRAY_LEN(states); k++)
            sample(w, "verifierd_pool_children", LABELS("device", text(worker, "device"), "state", states[k]),
                   number(json_object_get(pool, states[k])));
    }
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        family(w, rows[k].name, rows[k].type, rows[k].help);
        json_array_foreach(workers, i, worker)
        {
            if ((pool = json_object_get(worker, rows[k].part)))
                sample(w, rows[k].name, LABELS("device", text(worker, "device")),
                       number(json_object_get(pool, rows[k].key)));
        }
    }
}

/* Of GPUs alone: where there is none, a canary has no time and comes after suspicious ends only. */
static void
write_canaries(struct writer *w, json_t *gpus)
{
    static const struct {
        const char *name, *key, *type, *help;
    } rows[] = {
        { "verifierd_canary_age_seconds", "age_s", "gauge",
          "Since a canary of a GPU last passed; missing before the first." },
        { "verifierd_canary_drift_ratio", "drift", "gauge",
          "Time of a GPU's last canary over its norm, less 1; missing where it has none." },
        { "verifierd_canary_passes_total", "passes", "counter", "Canaries of a GPU that passed." },
        { "verifierd_canary_failures_total", "failures", "counter", "Canaries of a GPU that failed." },
    };
    json_t *gpu, *figure;
    size_t i;

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        family(w, rows[k].name, rows[k].type, rows[k].help);
        json_array_foreach(gpus, i, gpu)
        {
            figure = json_object_get(json_object_get(gpu, "canary"), rows[k].key);
            if (json_is_number(figure))
                sample(w, rows[k].name, LABELS("device", text(gpu, "device")), number(figure));
        }
    }
}

static void
write_disks(struct writer *w, json_t *disks)
{
    static const struct {
        const char *name, *key, *help;
    } rows[] = {
        { "verifierd_disk_free_bytes", "free_bytes",
          "Room that is left where the store and the scratch directory are." },
        { "verifierd_disk_size_bytes", "total_bytes", "Size of that file system." },
    };
    json_t *disk;
    size_t i;

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        family(w, rows[k].name, "gauge", rows[k].help);
        json_array_foreach(disks, i, disk) sample(w, rows[k].name, LABELS("what", text(disk, "what")),
                                                  number(json_object_get(disk, rows[k].key)));
    }
    family(w, "verifierd_store_bytes", "gauge", "Size of the store with its log.");
    sample(w, "verifierd_store_bytes", NULL, number(json_object_get(json_array_get(disks, 0), "used_bytes")));
}

static void
write_histograms(struct writer *w, json_t *status)
{
    json_t *stage, *route, *stages = at(status, "counts/stages");
    const char *name;
    size_t i;

    family(w, "verifierd_stage_duration_seconds", "histogram", "Time in a stage, waiting not counted.");
    json_object_foreach(stages, name, stage) histogram(
        w, "verifierd_stage_duration_seconds", LABELS("stage", name), json_object_get(stage, "run_seconds"));
    family(w, "verifierd_reward", "histogram", "Rewards of verdicts; those that have none are left out.");
    histogram(w, "verifierd_reward", LABELS(NULL), at(status, "counts/rewards"));
    family(w, "verifierd_speedup_ratio", "histogram", "Speed-ups that were measured.");
    histogram(w, "verifierd_speedup_ratio", LABELS(NULL), at(status, "counts/speedups"));
    family(w, "verifierd_store_commit_duration_seconds", "histogram", "How long commits took.");
    histogram(w, "verifierd_store_commit_duration_seconds", LABELS(NULL), at(status, "store/commit_seconds"));
    family(w, "verifierd_http_request_duration_seconds", "histogram",
           "From the request line to the answer, long polls with their wait; route \"other\" is the page and "
           "what was refused.");
    json_array_foreach(at(status, "http/durations"), i, route)
        histogram(w, "verifierd_http_request_duration_seconds",
                  LABELS("method", text(route, "method"), "route", text(route, "route")),
                  json_object_get(route, "seconds"));
}

static void
write_gpus(struct writer *w, json_t *gpus)
{
    json_t *gpu;
    size_t i;

    family(w, "verifierd_gpu_info", "gauge", "1, with the name and driver of a GPU.");
    json_array_foreach(gpus, i, gpu)
        sample(w, "verifierd_gpu_info",
               (const char *const[]){ "device", text(gpu, "device"), "name", text(gpu, "name"), "driver",
                                      text(gpu, "driver"), NULL },
               1);
    family(w, "verifierd_gpu_memory_bytes", "gauge", "Memory of a GPU.");
    json_array_foreach(gpus, i, gpu)
        sample(w, "verifierd_gpu_memory_bytes", LABELS("device", text(gpu, "device")),
               number(json_object_get(gpu, "memory_bytes")));
}

int
metrics_write(json_t *status, struct buffer *out)
{
    struct writer w = { .out = out };
    json_t *value;
    const char *code;

    family(&w, "verifierd_build_info", "gauge", "1, with the version.");
    sample(&w, "verifierd_build_info", LABELS("version", text(status, "version")), 1);
    write_node(&w, json_object_get(status, "node"));
    write_figures(&w, status);
    write_verdicts(&w, json_object_get(status, "counts"));
    write_split(&w, status);
    write_stages(&w, at(status, "counts/stages"));
    write_devices(&w, at(status, "counts/device_s"));
    write_queues(&w, json_object_get(status, "queues"));
    write_workers(&w, json_object_get(status, "workers"));
    write_pools(&w, json_object_get(status, "workers"));
    write_spares(&w, json_object_get(status, "workers"));
    write_gpus(&w, json_object_get(status, "gpus"));
    write_canaries(&w, json_object_get(status, "gpus"));
    write_disks(&w, json_object_get(status, "disks"));
    write_histograms(&w, status);
    family(&w, "verifierd_http_requests_total", "counter", "Requests answered, by status.");
    json_object_foreach(at(status, "http/answers"), code, value)
        sample(&w, "verifierd_http_requests_total", LABELS("code", code), number(value));
    return w.rc;
}
