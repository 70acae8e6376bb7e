#include "server/http/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/error.h"

/*
 * Names follow Prometheus' convention: a prefix, the unit in plural at the
 * end, _total for a counter. Counters start at 0 with the process, so a
 * restart is a reset, which rate() handles.
 */

/* --- the format --- */

static void
add_label_value(struct buffer *out, const char *value)
{
    for (; *value; value++) {
        const char plain[2] = { *value, '\0' };
        buffer_add(out, *value == '\n' ? "\\n" : *value == '"' ? "\\\"" : *value == '\\' ? "\\\\" : plain);
    }
}

/* labels: name, value, name, value, …, NULL */
static void
sample(struct buffer *out, const char *name, const char *const *labels, double value)
{
    char number[40];

    buffer_add(out, name);
    for (size_t i = 0; labels && labels[i]; i += 2) {
        buffer_add(out, i ? "," : "{");
        buffer_add(out, labels[i]);
        buffer_add(out, "=\"");
        add_label_value(out, labels[i + 1]);
        buffer_add(out, "\"");
    }
    const char *end = labels && labels[0] ? "}" : "";
    if (isinf(value))
        snprintf(number, sizeof(number), "%s +Inf\n", end);
    else
        snprintf(number, sizeof(number), "%s %.15g\n", end, value);
    buffer_add(out, number);
}

/* {"bounds","counts","sum"}; labels has room for le behind its n words. */
static void
histogram(struct buffer *out, const char *name, const char **labels, size_t n, json_t *h)
{
    json_t *bounds = json_object_get(h, "bounds"), *counts = json_object_get(h, "counts");
    double total = 0;
    char part[80], le[32];

    for (size_t i = 0; i < json_array_size(counts); i++) {
        total += json_number_value(json_array_get(counts, i));
        snprintf(le, sizeof(le), i < json_array_size(bounds) ? "%.15g" : "+Inf",
                 json_number_value(json_array_get(bounds, i)));
        labels[n] = "le";
        labels[n + 1] = le;
        snprintf(part, sizeof(part), "%s_bucket", name);
        sample(out, part, labels, total);
    }
    labels[n] = NULL;
    snprintf(part, sizeof(part), "%s_sum", name);
    sample(out, part, labels, json_number_value(json_object_get(h, "sum")));
    snprintf(part, sizeof(part), "%s_count", name);
    sample(out, part, labels, total);
}

/* --- the figures --- */

/*
 * One row for each figure; rows of a family are adjacent, and the first has its help. over is the path of an array or
 * object whose elements have the figure each (after "//", the elements of each of those); NULL: the document has it.
 * A label is a word, "*" for the element's key, or a path after a dot. The value is a number; for an array its length,
 * for a text whether it equals the one after "=", for null the number there, otherwise 1. A missing one is left out.
 */
static const struct series {
    const char *name, *type, *over, *labels, *path, *help;
    double scale;
} all[] = {
    { "verifierd_build_info", "gauge", NULL, "version=.version", "", "1, with the version.", 1 },
    { "verifierd_node_info", "gauge", NULL, "node=.node/name role=.node/role version=.node/version", "node",
      "1, with the name, the role and the version of this node.", 1 },
    { "verifierd_node_draining", "gauge", NULL, "node=.node/name", "node/state=draining",
      "Whether it takes no more work.", 1 },
    { "verifierd_node_gpus", "gauge", NULL, "node=.node/name", "node/gpus", "Devices that it judges on.", 1 },
    { "verifierd_node_running", "gauge", NULL, "node=.node/name", "node/running",
      "Submissions that this node judges.", 1 },
    { "verifierd_node_lease_seconds", "gauge", NULL, "node=.node/name", "node/lease_s=+Inf",
      "Until its lease ends, unless it is renewed; +Inf: it needs no renewal.", 1 },
    { "verifierd_ready", "gauge", NULL, NULL, "ready", "Whether work can be judged now.", 1 },
    { "verifierd_uptime_seconds", "gauge", NULL, NULL, "uptime_s", "Since the daemon was started.", 1 },
    { "verifierd_waiting_submissions", "gauge", NULL, NULL, "queues/waiting",
      "Submissions that count against queue_limit.", 1 },
    { "verifierd_queue_limit", "gauge", NULL, NULL, "queues/limit",
      "Submissions that may wait; above it clients get 429.", 1 },
    { "verifierd_cpu_slots", "gauge", NULL, NULL, "queues/cpu_slots",
      "Submissions that the CPU stages take side by side.", 1 },
    { "verifierd_registering_tasks", "gauge", NULL, NULL, "queues/registering",
      "Tasks whose reference is being run.", 1 },
    { "verifierd_tasks", "gauge", NULL, NULL, "counts/tasks", "Tasks stored.", 1 },
    { "verifierd_known_tasks", "gauge", NULL, NULL, "counts/known_tasks",
      "Tasks of which the daemon knows without asking the store.", 1 },
    { "verifierd_returned_total", "counter", NULL, NULL, "counts/returned",
      "Submissions put back to the queue, since a worker was lost or the daemon drained.", 1 },
    { "verifierd_fenced_total", "counter", NULL, NULL, "counts/fenced",
      "Verdicts that the store refused, since another node has the submission or has ended it.", 1 },
    { "verifierd_handed_on_total", "counter", NULL, NULL, "counts/handed_on",
      "Submissions that were compiled here for a node with a device.", 1 },
    { "verifierd_carried_total", "counter", NULL, NULL, "counts/carried", "Submissions that came compiled.",
      1 },
    { "verifierd_store_commits_total", "counter", NULL, NULL, "store/commits", "Transactions committed.", 1 },
    { "verifierd_store_rows_written_total", "counter", NULL, NULL, "store/rows_written", "Rows written.", 1 },
    { "verifierd_store_queued_writes", "gauge", NULL, NULL, "store/queued_writes",
      "Writes that wait for a commit.", 1 },
    { "verifierd_store_wal_bytes", "gauge", NULL, NULL, "store/wal_bytes", "Size of the write-ahead log.",
      1 },
    { "verifierd_store_commit_last_seconds", "gauge", NULL, NULL, "store/commit_ms_last",
      "How long the last commit took.", 1e-3 },
    { "verifierd_store_commit_max_seconds", "gauge", NULL, NULL, "store/commit_ms_max",
      "How long the slowest commit took.", 1e-3 },
    { "verifierd_http_connections", "gauge", NULL, NULL, "http/connections", "Connections that are open.",
      1 },
    { "verifierd_http_connections_limit", "gauge", NULL, NULL, "http/connections_limit",
      "Most that may be open.", 1 },
    { "verifierd_http_connections_refused_total", "counter", NULL, NULL, "http/connections_refused",
      "Connections that were one too many.", 1 },
    { "verifierd_http_event_streams", "gauge", NULL, NULL, "http/streams", "Event streams that are open.",
      1 },
    { "verifierd_loop_turns_long_total", "counter", NULL, NULL, "http/loop_turns_long",
      "Turns of the loop that took longer than 2 ms: nothing else was served meanwhile.", 1 },
    { "verifierd_loop_turn_longest_seconds", "gauge", NULL, NULL, "http/loop_turn_longest_ms",
      "The longest turn of the loop since the start.", 1e-3 },
    { "verifierd_http_event_streams_dropped_total", "counter", NULL, NULL, "http/streams_dropped",
      "Event streams ended since their reader was too slow.", 1 },
    { "verifierd_notices_delivered_total", "counter", NULL, NULL, "http/notices_delivered",
      "Ends of groups that were posted to their makers.", 1 },
    { "verifierd_notices_failed_total", "counter", NULL, NULL, "http/notices_failed",
      "Ends of groups that could not be posted: each try failed, or too many waited.", 1 },
    { "verifierd_notices_waiting", "gauge", NULL, NULL, "http/notices_waiting",
      "Ends of groups that are being posted.", 1 },
    { "verifierd_http_exports", "gauge", NULL, NULL, "http/exports", "Exports that are being sent.", 1 },
    { "process_cpu_seconds_total", "counter", NULL, NULL, "process/cpu_s",
      "Time of the daemon's own process.", 1 },
    { "process_resident_memory_bytes", "gauge", NULL, NULL, "process/resident_bytes",
      "Resident memory of it.", 1 },
    { "process_virtual_memory_bytes", "gauge", NULL, NULL, "process/virtual_bytes", "Virtual memory of it.",
      1 },
    { "process_open_fds", "gauge", NULL, NULL, "process/open_fds", "Descriptors that are open.", 1 },
    { "process_max_fds", "gauge", NULL, NULL, "process/max_fds", "Most descriptors that may be open.", 1 },
    { "process_threads", "gauge", NULL, NULL, "process/threads", "Threads of it.", 1 },
    { "process_start_time_seconds", "gauge", NULL, NULL, "process/start_time_s",
      "When it was started, since 1970.", 1 },
    { "verifierd_rerun_seconds_total", "counter", NULL, NULL, "counts/reruns/held_s",
      "Time for which all others waited so that one could be judged alone.", 1 },
    { "verifierd_cache_differences_total", "counter", NULL, NULL, "counts/cache/differed",
      "Verdicts that were checked by judging again, and came out otherwise.", 1 },
    { "verifierd_device_seconds_total", "counter", NULL, NULL, "counts/device_s/used",
      "Time that submissions held devices.", 1 },
    { "verifierd_http_held_requests", "gauge", NULL, NULL, "http/held", "Long polls that are waiting.", 1 },
    { "verifierd_verdicts_total", "counter", "counts/classes", "class=*", "",
      "Submissions that ended, by class; cancelled ones too.", 1 },
    { "verifierd_rejections_total", "counter", "counts/rejections", "class=.class rule=.rule", "n",
      "Candidates refused by a rule, or as a hack; rule is empty where the class says all.", 1 },
    { "verifierd_submission_seconds_sum", "summary", NULL, NULL, "counts/verdict_s",
      "From the submission to its verdict.", 1 },
    { "verifierd_submission_seconds_count", "summary", NULL, NULL, "counts/finished", NULL, 1 },
    { "verifierd_submissions", "gauge", NULL, "state=queued", "counts/queued",
      "Submissions stored, by state.", 1 },
    { "verifierd_submissions", "gauge", NULL, "state=running", "counts/running", NULL, 1 },
    { "verifierd_submissions", "gauge", NULL, "state=done", "counts/done", NULL, 1 },
    { "verifierd_submissions", "gauge", NULL, "state=cancelled", "counts/cancelled", NULL, 1 },
    { "verifierd_reruns_total", "counter", NULL, "outcome=confirmed", "counts/reruns/confirmed",
      "Failures that a neighbour may have brought about: judged again alone, with the same class (confirmed) "
      "or another, or not judged again since the share of the time for that was used up (refused).",
      1 },
    { "verifierd_reruns_total", "counter", NULL, "outcome=cleared", "counts/reruns/cleared", NULL, 1 },
    { "verifierd_reruns_total", "counter", NULL, "outcome=refused", "counts/reruns/refused", NULL, 1 },
    { "verifierd_cache_answers_total", "counter", NULL, "result=hits", "counts/cache/hits",
      "Submissions that an identical one's verdict could answer, by what became of them.", 1 },
    { "verifierd_cache_answers_total", "counter", NULL, "result=joined", "counts/cache/joined", NULL, 1 },
    { "verifierd_cache_answers_total", "counter", NULL, "result=misses", "counts/cache/misses", NULL, 1 },
    { "verifierd_cache_answers_total", "counter", NULL, "result=rechecked", "counts/cache/rechecked", NULL,
      1 },
    { "verifierd_queue_oldest_age_seconds", "gauge", NULL, "queue=queued", "queues/oldest_s/queued=0",
      "How long the oldest has waited; 0: none waits.", 1 },
    { "verifierd_queue_oldest_age_seconds", "gauge", NULL, "queue=ready", "queues/oldest_s/ready=0", NULL,
      1 },
    { "verifierd_stage_entered_total", "counter", "counts/stages", "stage=*", "entered",
      "Submissions that entered a stage.", 1 },
    { "verifierd_stage_run_seconds_total", "counter", "counts/stages", "stage=*", "run_ms",
      "Time spent in a stage, waiting not counted.", 1e-3 },
    { "verifierd_stage_device_seconds_total", "counter", "counts/stages", "stage=*", "device_s",
      "Time that a stage held a device.", 1 },
    { "verifierd_stage_spared_total", "counter", "counts/stages", "stage=*", "spared",
      "Submissions that did not come to a stage, since they had failed before.", 1 },
    { "verifierd_stage_outcomes_total", "counter", "counts/stages", "stage=* outcome=pass", "pass",
      "How they left it.", 1 },
    { "verifierd_stage_outcomes_total", "counter", "counts/stages", "stage=* outcome=fail", "fail", NULL, 1 },
    { "verifierd_stage_outcomes_total", "counter", "counts/stages", "stage=* outcome=skip", "skip", NULL, 1 },
    { "verifierd_stage_wait_seconds_sum", "summary", "counts/stages", "stage=*", "wait_ms",
      "Time that submissions waited for a stage, by those that waited.", 1e-3 },
    { "verifierd_stage_wait_seconds_count", "summary", "counts/stages", "stage=*", "waited", NULL, 1 },
    { "verifierd_device_seconds_saved_total", "counter", NULL, "by=rejection",
      "counts/device_s/saved_by_rejection",
      "Time of devices that was not needed: after an early failure (by the mean of those that came so far), "
      "or for an identical candidate.",
      1 },
    { "verifierd_device_seconds_saved_total", "counter", NULL, "by=cache", "counts/device_s/saved_by_cache",
      NULL, 1 },
    { "verifierd_queue_length", "gauge", "queues/queued", "queue=queued priority=*", "",
      "Submissions that wait: queued for the CPU stages, ready for a device.", 1 },
    { "verifierd_queue_length", "gauge", "queues/ready", "queue=ready priority=*", "", NULL, 1 },
    { "verifierd_running_submissions", "gauge", NULL, "where=cpu", "queues/cpu_running",
      "Submissions that are being judged.", 1 },
    { "verifierd_running_submissions", "gauge", NULL, "where=device", "queues/gpu_running", NULL, 1 },
    { "verifierd_worker_ready", "gauge", "workers", "worker=.name", "state=ready",
      "Whether a worker is there.", 1 },
    { "verifierd_worker_starts_total", "counter", "workers", "worker=.name", "starts",
      "How often it was started.", 1 },
    { "verifierd_device_state", "gauge", "workers", "device=.device state=.lane", "lane",
      "1 for the state that a device is in.", 1 },
    { "verifierd_pool_children", "gauge", "workers", "device=.device state=ready", "pool/ready",
      "Children that wait to be used, or will when they are made.", 1 },
    { "verifierd_pool_children", "gauge", "workers", "device=.device state=making", "pool/making", NULL, 1 },
    { "verifierd_pool_made_total", "counter", "workers", "device=.device", "pool/made",
      "Children that were made ready.", 1 },
    { "verifierd_pool_lost_total", "counter", "workers", "device=.device", "pool/lost",
      "Children that died before they were used.", 1 },
    { "verifierd_pool_wait_seconds_total", "counter", "workers", "device=.device", "pool/waited_s",
      "Time that devices were held by work that waited for a child.", 1 },
    { "verifierd_references", "gauge", "workers", "device=.device", "references/kept",
      "References that are loaded.", 1 },
    { "verifierd_reference_hits_total", "counter", "workers", "device=.device", "references/hits",
      "Submissions whose task's reference was loaded already.", 1 },
    { "verifierd_reference_loads_total", "counter", "workers", "device=.device", "references/loads",
      "References that a child was taken for.", 1 },
    { "verifierd_reference_evicted_total", "counter", "workers", "device=.device", "references/evicted",
      "References ended to make room for others.", 1 },
    { "verifierd_reference_recalled_total", "counter", "workers", "device=.device", "references/recalled",
      "Right answers to small cases that had been asked for already.", 1 },
    { "verifierd_spare_children", "gauge", "workers//spares", "stage=*", "kept",
      "Children of a CPU stage that wait for work.", 1 },
    { "verifierd_spare_taken_total", "counter", "workers//spares", "stage=*", "taken",
      "Submissions that found one.", 1 },
    { "verifierd_spare_missed_total", "counter", "workers//spares", "stage=*", "missed",
      "Submissions that found none and waited for one to be made.", 1 },
    { "verifierd_spare_lost_total", "counter", "workers//spares", "stage=*", "lost",
      "That died before they were used.", 1 },
    { "verifierd_gpu_info", "gauge", "gpus", "device=.device name=.name driver=.driver", "",
      "1, with the name and driver of a GPU.", 1 },
    { "verifierd_gpu_memory_bytes", "gauge", "gpus", "device=.device", "memory_bytes=0", "Memory of a GPU.",
      1 },
    { "verifierd_canary_age_seconds", "gauge", "gpus", "device=.device", "canary/age_s",
      "Since a canary of a GPU last passed; missing before the first.", 1 },
    { "verifierd_canary_drift_ratio", "gauge", "gpus", "device=.device", "canary/drift",
      "Time of a GPU's last canary over its norm, less 1; missing where it has none.", 1 },
    { "verifierd_canary_passes_total", "counter", "gpus", "device=.device", "canary/passes",
      "Canaries of a GPU that passed.", 1 },
    { "verifierd_canary_failures_total", "counter", "gpus", "device=.device", "canary/failures",
      "Canaries of a GPU that failed.", 1 },
    { "verifierd_disk_free_bytes", "gauge", "disks", "what=.what", "free_bytes",
      "Room that is left where the store and the scratch directory are.", 1 },
    { "verifierd_disk_size_bytes", "gauge", "disks", "what=.what", "total_bytes", "Size of that file system.",
      1 },
    { "verifierd_store_bytes", "gauge", NULL, NULL, "disks/0/used_bytes", "Size of the store with its log.",
      1 },
    { "verifierd_stage_duration_seconds", "histogram", "counts/stages", "stage=*", "run_seconds",
      "Time in a stage, waiting not counted.", 1 },
    { "verifierd_reward", "histogram", NULL, NULL, "counts/rewards",
      "Rewards of verdicts; those that have none are left out.", 1 },
    { "verifierd_speedup_ratio", "histogram", NULL, NULL, "counts/speedups", "Speed-ups that were measured.",
      1 },
    { "verifierd_store_commit_duration_seconds", "histogram", NULL, NULL, "store/commit_seconds",
      "How long commits took.", 1 },
    { "verifierd_http_request_duration_seconds", "histogram", "http/durations", "method=.method route=.route",
      "seconds",
      "From the request line to the answer, long polls with their wait; route \"other\" is the page and what "
      "was refused.",
      1 },
    { "verifierd_http_requests_total", "counter", "http/answers", "code=*", "",
      "Requests answered, by status.", 1 },
};

/* "queues/limit", "disks/0/used_bytes"; it ends at a "=", too. */
static json_t *
at(json_t *document, const char *path)
{
    char key[40];

    for (; *path && *path != '=' && document; path += *path == '/') {
        size_t size = strcspn(path, "/=");
        snprintf(key, sizeof(key), "%.*s", (int)size, path);
        document = json_is_array(document) ? json_array_get(document, strtoul(key, NULL, 10))
                                           : json_object_get(document, key);
        path += size;
    }
    return document;
}

/* False: there is none. */
static bool
figure_of(const struct series *s, json_t *value, double *out)
{
    const char *is = strchr(s->path, '=');

    if (!value || (json_is_null(value) && !is))
        return false;
    if (json_is_null(value))
        *out = strtod(is + 1, NULL);
    else if (json_is_number(value))
        *out = json_number_value(value) * s->scale;
    else if (json_is_array(value))
        *out = (double)json_array_size(value);
    else
        *out = is ? strcmp(json_string_value(value), is + 1) == 0 : !json_is_false(value);
    return true;
}

#define LABELS_MAX 4

/* key: of the element, where it is an object's. */
static void
write_one(struct buffer *out, const struct series *s, const char *key, json_t *element)
{
    const char *labels[2 * LABELS_MAX + 1] = { NULL };
    json_t *value = at(element, s->path);
    char words[80];
    char *rest = words, *word;
    double figure = 0;
    size_t n = 0;

    if (!figure_of(s, value, &figure))
        return;
    snprintf(words, sizeof(words), "%s", s->labels ? s->labels : "");
    while ((word = strsep(&rest, " ")) && *word) {
        char *is = strchr(word, '=') + 1;
        const char *text = *is == '.' ? json_string_value(at(element, is + 1)) : *is == '*' ? key : is;
        is[-1] = '\0';
        labels[n++] = word;
        labels[n++] = text ? text : "";
    }
    if (strcmp(s->type, "histogram") == 0)
        histogram(out, s->name, labels, n, value);
    else
        sample(out, s->name, labels, figure);
}

static void
write_each(struct buffer *out, const struct series *s, const char *over, json_t *document)
{
    const char *deeper = strstr(over, "//"), *key;
    char path[40];
    json_t *element;
    size_t i;

    snprintf(path, sizeof(path), "%.*s", deeper ? (int)(deeper - over) : (int)strlen(over), over);
    json_t *elements = at(document, path);
    json_array_foreach(elements, i, element)
    {
        if (deeper)
            write_each(out, s, deeper + 2, element);
        else
            write_one(out, s, NULL, element);
    }
    json_object_foreach(elements, key, element) write_one(out, s, key, element);
}

/* A family with a figure for each element is written even when there are no elements. */
static void
write_family(struct buffer *out, const struct series *s, json_t *status)
{
    double unused;
    size_t size = strlen(s->name) - (strcmp(s->type, "summary") == 0 ? strlen("_sum") : 0);

    if (s->over || figure_of(s, at(status, s->path), &unused))
        buffer_printf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)size, s->name, s->help, (int)size,
                      s->name, s->type);
}

int
metrics_write(json_t *status, struct buffer *out)
{
    for (const struct series *s = all; s < all + ARRAY_LEN(all); s++) {
        if (s->help)
            write_family(out, s, status);
        if (s->over)
            write_each(out, s, s->over, status);
        else
            write_one(out, s, NULL, status);
    }
    return out->is_short ? ERR_NOMEM : 0;
}
