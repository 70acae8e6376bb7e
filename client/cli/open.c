/* verifier open, verifier get: a page of the dashboard, and any other document. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/api.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/text.h"
#include "client/cli/view.h"
#include "common/auto.h"

extern char **environ;

enum { OPT_RUN = 256 };

static const struct argp_option open_options[] = {
    { "run", OPT_RUN, "NAME", 0, "The page of this run", 0 },
    { 0 },
};
const struct argp open_page_argp = CLI_ARGP(open_options, "[ID]",
                                            "Print the dashboard's address of a submission, group or run.\v"
                                            "On a terminal with a display it is opened, too.");
const struct argp get_argp = CLI_ARGP(NULL, "PATH", "Print the answer to GET PATH, as /v1/trends?window=1h.");

/* By the desktop's own program, which is not waited for. If there is none the address has been printed. */
static void
open_browser(char *address)
{
    static char program[] = "xdg-open";
    char *argv[] = { program, address, NULL };
    pid_t pid;

    if (!isatty(STDOUT_FILENO) || (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY")))
        return;
    if (posix_spawnp(&pid, program, NULL, NULL, argv, environ) == 0)
        waitpid(pid, NULL, 0);
}

int
open_page_command(struct cli *cli, int argc, char **argv)
{
    const char *id = NULL, *run = NULL;
    AUTO_BUFFER struct buffer address = BUFFER_INIT;

    CLI_TAKE(cli, &open_page_argp, argc, argv, TAKE_ARGUMENT(&id, NULL), TAKE_TEXT(OPT_RUN, &run));
    if (id && run)
        return cli_misuse(argv[0], "ID and --run are a page each");
    size_t size = strlen(cli->url);
    while (size > 0 && cli->url[size - 1] == '/')
        size--;
    buffer_append(&address, cli->url, size);
    buffer_add(&address, "/#/");
    if (run)
        api_path_add(&address, "runs/", run);
    if (id) {
        AUTO_JSON json_t *found = NULL;
        bool is_group;
        int code = find_document(cli, id, &found, &is_group);
        if (code != CLI_OK)
            return code;
        api_path_add(&address, is_group ? "groups/" : "submissions/", text_member(found, "id"));
    }
    puts(address.data);
    open_browser(address.data);
    return CLI_OK;
}

int
get_command(struct cli *cli, int argc, char **argv)
{
    const char *wanted = "";
    AUTO_BUFFER struct buffer text = BUFFER_INIT;

    CLI_TAKE(cli, &get_argp, argc, argv, TAKE_ARGUMENT(&wanted, "which PATH?"));
    if (wanted[0] != '/')
        return cli_misuse(argv[0], "a PATH begins with /, as /v1/trends does");
    int code = api_get_text(cli, wanted, &text);
    if (code != CLI_OK)
        return code;
    AUTO_JSON json_t *document = json_loadb(text.data ? text.data : "", text.size, JSON_ALLOW_NUL, NULL);
    if (json_is_object(document) && cli->is_json)
        text_json(document);
    else if (json_is_object(document))
        view_document(document);
    else if (!text_dump(stdout, text.data, text.size))
        return cli_complain(CLI_CONFIG, "cannot write to standard output");
    return CLI_OK;
}
