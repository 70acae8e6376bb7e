/* verifier status: what runs, what waits, and how the machine is, in ten lines. */
#include <stdlib.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

#define RUNNING_SHOWN 8

/* "3 h 12 min", "4 s" */
static void
put_duration(struct buffer *out, double seconds)
{
    long s = (long)seconds;

    if (s < 60)
        buffer_printf(out, "%ld s", s);
    else if (s < 3600)
        buffer_printf(out, "%ld min %ld s", s / 60, s % 60);
    else if (s < 86400)
        buffer_printf(out, "%ld h %ld min", s / 3600, s % 3600 / 60);
    else
        buffer_printf(out, "%ld d %ld h", s / 86400, s % 86400 / 3600);
}

static void
print_head(const struct cli *cli, const json_t *status)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    const char *why = text_member(status, "why");

    buffer_printf(&text, "%s at %s: %s", text_or(status, "version", ""), cli->url,
                  text_or(status, "state", "unknown"));
    if (why)
        buffer_printf(&text, " (%s)", why);
    buffer_add(&text, ", up ");
    put_duration(&text, number_under(status, "uptime_s", NULL));
    if (text_member(status, "access"))
        buffer_add(&text, text_is(status, "access", "tokens") ? ", calls need a token" : ", open to all");
    view_label("verifierd", text.data);
}

/* The queues for CPU slots and devices, of both kinds of work. */
static void
print_queue(json_t *queues)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *queued = json_object_get(queues, "queued"), *ready = json_object_get(queues, "ready");
    json_t *oldest = json_object_get(queues, "oldest_s");
    double cpu = number_under(queued, "interactive", NULL) + number_under(queued, "batch", NULL);
    double device = number_under(ready, "interactive", NULL) + number_under(ready, "batch", NULL);
    double oldest_s = number_under(oldest, "queued", NULL) > number_under(oldest, "ready", NULL)
                          ? number_under(oldest, "queued", NULL)
                          : number_under(oldest, "ready", NULL);

    if (!queues)
        return;
    buffer_printf(&text, "%.0f for a CPU slot, %.0f for a device", cpu, device);
    if (cpu + device > 0) {
        buffer_add(&text, "; the oldest for ");
        put_duration(&text, oldest_s);
    }
    buffer_printf(&text, " (room for %.0f)", number_under(queues, "limit", NULL));
    view_label("waiting", text.data);
    buffer_clear(&text);
    buffer_printf(&text, "%.0f of %.0f CPU slots, %.0f on devices", number_under(queues, "cpu_running", NULL),
                  number_under(queues, "cpu_slots", NULL), number_under(queues, "gpu_running", NULL));
    if (number_under(queues, "registering", NULL) > 0)
        buffer_printf(&text, ", %.0f tasks being registered", number_under(queues, "registering", NULL));
    view_label("running", text.data);
}

/* "019a…  softmax  full, 2 s" of the newest that run. */
static void
print_running(json_t *page)
{
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(page, "items"), i, item)
    {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        const char *stage = text_member(item, "stage");
        buffer_printf(&text, "%s  %s%s%s", text_or(item, "id", "-"),
                      text_or(item, "task_name", text_or(item, "task", "-")), stage ? "  in " : "",
                      stage ? stage : "");
        view_label("", text.data);
    }
    if (text_member(page, "next"))
        view_label("", "and more: verifier list --state running");
}

/* "H200, busy; 1980 MHz, 54 degrees, 610 W when it last timed" */
static void
print_gpu(json_t *gpu)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    json_t *seen = json_object_get(gpu, "seen");
    const char *failed = text_member(json_object_get(gpu, "canary"), "failed");

    buffer_printf(&text, "%s, %s", text_or(gpu, "name", "a GPU"), text_or(gpu, "state", "state unknown"));
    if (json_is_object(seen))
        buffer_printf(&text, "; %.0f MHz, %.0f degrees, %.0f W%s when it last timed",
                      number_under(seen, "sm_mhz", NULL), number_under(seen, "temp_c", NULL),
                      number_under(seen, "power_w", NULL),
                      json_is_true(json_object_get(seen, "throttled")) ? ", throttled," : "");
    if (failed)
        buffer_printf(&text, "; its canary failed: %s", failed);
    view_label(text_or(gpu, "device", "GPU"), text.data);
}

static void
print_machine(const json_t *status)
{
    json_t *gpus = json_object_get(status, "gpus"), *workers = json_object_get(status, "workers"), *row;
    size_t i, n_ready = 0;

    json_array_foreach(gpus, i, row) print_gpu(row);
    if (gpus && i == 0)
        view_label("GPU", text_is(status, "state", "starting")
                              ? "not known yet"
                              : "none: kernels run in Triton's interpreter, and nothing is timed");
    json_array_foreach(workers, i, row)
    {
        if (text_is(row, "state", "ready")) {
            n_ready++;
            continue;
        }
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        const char *why = text_member(row, "why");
        buffer_printf(&text, "%s: %s%s%s", text_or(row, "name", "one"), text_or(row, "state", "unknown"),
                      why ? ", " : "", why ? why : "");
        view_label("worker", text.data);
    }
    if (workers && n_ready == i) {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        buffer_printf(&text, "all %zu ready", n_ready);
        view_label("workers", text.data);
    }
}

/* "484 verdicts: ok 300, mismatch 100; 3 cancelled" */
static void
print_counts(json_t *counts)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    const char *class, *before = ": ";
    json_t *n;

    if (!counts)
        return;
    buffer_printf(&text, "%.0f verdicts", number_under(counts, "finished", NULL));
    json_object_foreach(json_object_get(counts, "classes"), class, n)
    {
        buffer_printf(&text, "%s%s %.0f", before, class, json_number_value(n));
        before = ", ";
    }
    view_label("since start", text.data);
    buffer_clear(&text);
    buffer_printf(&text, "%.0f done, %.0f cancelled; tasks: %.0f", number_under(counts, "done", NULL),
                  number_under(counts, "cancelled", NULL), number_under(counts, "tasks", NULL));
    view_label("stored", text.data);
}

static void
print_disks(const json_t *status)
{
    json_t *disk;
    size_t i;

    json_array_foreach(json_object_get(status, "disks"), i, disk)
    {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        buffer_printf(&text, "%.1f of %.1f GB free", number_under(disk, "free_bytes", NULL) / 1e9,
                      number_under(disk, "total_bytes", NULL) / 1e9);
        if (number_under(disk, "used_bytes", NULL) > 0)
            buffer_printf(&text, ", %.1f MB used", number_under(disk, "used_bytes", NULL) / 1e6);
        view_label(text_or(disk, "what", "disk"), text.data);
    }
}

const struct argp status_argp =
    CLI_ARGP(NULL, NULL, "Show what verifierd is doing.\v--json has every figure.");

int
status_command(struct cli *cli, int argc, char **argv)
{
    AUTO_BUFFER struct buffer path = BUFFER_INIT;
    AUTO_JSON json_t *status = NULL, *running = NULL;

    CLI_TAKE(cli, &status_argp, argc, argv);
    int code = api_call(cli, "GET", "/v1/status", NULL, &status);
    if (code == CLI_OK && cli->is_json)
        text_json(status);
    if (code != CLI_OK || cli->is_json)
        return code;
    buffer_printf(&path, "/v1/submissions?state=running&view=brief&limit=%d", RUNNING_SHOWN);
    code = api_find(cli, path.data, &running);
    if (code != CLI_OK && code != CLI_NOT_FOUND)
        return code;
    print_head(cli, status);
    print_queue(json_object_get(status, "queues"));
    print_running(running);
    print_machine(status);
    print_counts(json_object_get(status, "counts"));
    print_disks(status);
    return CLI_OK;
}
