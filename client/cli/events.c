/* verifier events: what happens, a line for each event, as it happens. */
#include <stdio.h>
#include <string.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/text.h"
#include "common/auto.h"

#define EVENT_MAX ((size_t)64 * 1024 * 1024) /* a verdict is far shorter */
#define STALL_S 900                          /* three of the longest heartbeats that a daemon may have */

struct follow {
    struct cli *cli;
    const char *id, *run, *wait;
    struct buffer kind, document; /* of the event that is coming */
    bool has_ended;
    int code; /* of what came */
};

enum { OPT_RUN = 256, OPT_WAIT };

static const struct argp_option options[] = {
    { "run", OPT_RUN, "NAME", 0, "Only verdicts of this run", 0 },
    { "wait", OPT_WAIT, "SECONDS", 0, "End after so long; 0: only what there is", 0 },
    { 0 },
};

const struct argp events_argp =
    CLI_ARGP(options, "[ID]", "Follow one submission or group to its end, or all that happens.");

/* "verdict  ID  softmax  mismatch  0.58": what an event has of these, between two blanks. */
static void
print_event(const char *kind, const json_t *data)
{
    static const char *const keys[] = { "id", "task_name", "stage", "class", "reward", "reason" };

    text_print(stdout, kind);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        AUTO_BUFFER struct buffer text = BUFFER_INIT;
        const json_t *value = json_object_get(data, keys[i]);
        if (!value || (json_is_null(value) && strcmp(keys[i], "reward") != 0))
            continue;
        text_value(&text, value);
        fputs("  ", stdout);
        text_print(stdout, text.data ? text.data : "");
    }
    putchar('\n');
}

static bool
is_wanted(const struct follow *f, const char *kind, const json_t *data)
{
    return !f->run || strcmp(kind, "end") == 0 || strcmp(kind, "gap") == 0 ||
           text_is(json_object_get(data, "metadata"), "run", f->run);
}

/* The stream may end before its submission or group does. */
static int
code_of_end(const json_t *data)
{
    if (text_is(data, "reason", "finished") || text_is(data, "reason", "wait"))
        return CLI_OK;
    if (text_is(data, "reason", "token"))
        return cli_complain(CLI_AUTH, "the token is no longer accepted");
    return cli_complain(CLI_NETWORK, "verifierd is stopping, and ended the stream");
}

static bool
finish_event(struct follow *f)
{
    const char *kind = f->kind.data ? f->kind.data : "message";
    const char *text = f->document.data ? f->document.data : "";
    json_error_t why;
    AUTO_JSON json_t *data = json_loadb(text, f->document.size, JSON_ALLOW_NUL, &why);

    if (!data)
        f->code = cli_complain(CLI_NETWORK, "an event is left out: it is not JSON at byte %d", why.position);
    if (data && strcmp(kind, "end") == 0) {
        f->has_ended = true;
        f->code = f->code == CLI_OK ? code_of_end(data) : f->code;
    }
    if (data && is_wanted(f, kind, data)) {
        if (f->cli->is_json) {
            AUTO_JSON json_t *whole = json_pack("{s:s, s:O}", "event", kind, "data", data);
            text_json_line(whole);
        } else if (strcmp(kind, "open") != 0) { /* which only marks that later events are new */
            print_event(kind, data);
        }
    }
    buffer_clear(&f->kind);
    buffer_clear(&f->document);
    return fflush(stdout) == 0;
}

/* One line of the stream, without its end: "event: verdict", "data: {...}", ": a comment", or the empty one. */
static bool
take_line(void *arg, const char *line, size_t size)
{
    static const char event[] = "event: ", data[] = "data: ";
    struct follow *f = arg;

    if (size == 0)
        return f->kind.size == 0 || finish_event(f);
    if (size >= strlen(event) && memcmp(line, event, strlen(event)) == 0)
        return buffer_append(&f->kind, line + strlen(event), size - strlen(event)) == 0;
    if (size >= strlen(data) && memcmp(line, data, strlen(data)) == 0)
        return buffer_append(&f->document, line + strlen(data), size - strlen(data)) == 0;
    return true;
}

/* "/v1/groups/ID/events?view=brief&wait=5"; whole verdicts, which have their metadata, if a run is given. */
static int
stream_path(const struct follow *f, struct buffer *path)
{
    buffer_add(path, "/v1");
    if (f->id) {
        AUTO_JSON json_t *found = NULL;
        bool is_group;
        int code = find_document(f->cli, f->id, &found, &is_group);
        if (code != CLI_OK)
            return code;
        api_path_add(path, is_group ? "/groups/" : "/submissions/", text_member(found, "id"));
    }
    buffer_printf(path, "/events?view=%s", f->run ? "full" : "brief");
    if (f->wait)
        api_path_add(path, "&wait=", f->wait);
    return CLI_OK;
}

int
events_command(struct cli *cli, int argc, char **argv)
{
    struct follow f = { .cli = cli, .kind = BUFFER_INIT, .document = BUFFER_INIT };
    struct api_lines lines = { take_line, &f, EVENT_MAX, BUFFER_INIT };
    AUTO_BUFFER struct buffer path = BUFFER_INIT;

    CLI_TAKE(cli, &events_argp, argc, argv, TAKE_ARGUMENT(&f.id, NULL), TAKE_TEXT(OPT_RUN, &f.run),
             TAKE_TEXT(OPT_WAIT, &f.wait));
    int code = stream_path(&f, &path);
    if (code == CLI_OK)
        code = api_download(cli, path.data, STALL_S, api_lines_cb, &lines);
    if (code == CLI_OK && !f.has_ended)
        f.code = cli_complain(CLI_NETWORK, "the stream broke off before its end");
    buffer_release(&lines.line);
    buffer_release(&f.kind);
    buffer_release(&f.document);
    return code == CLI_OK ? f.code : code;
}
