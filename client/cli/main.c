/* main.c - verifier: the command line of verifierd. */
#include <argp.h>
#include <locale.h>
#include <stdio.h>

#include "client/cli/cli.h"
#include "client/cli/profile.h"
#include "common/program.h"

#ifndef VERIFIERD_VERSION
#define VERIFIERD_VERSION "unknown"
#endif

int
main(int argc, char **argv)
{
    struct cli cli = { .url = program_environment("VERIFIERD_URL", "http://127.0.0.1:8080"),
                       .token = program_environment("VERIFIERD_TOKEN", NULL) };
    const char *server = program_environment("VERIFIERD_SERVER", NULL);

    setlocale(LC_CTYPE, "");
    argp_err_exit_status = CLI_USAGE;
    argp_program_version = "verifier " VERIFIERD_VERSION;
    cli_note_id(NULL);
    if (server && profile_use(&cli, server) != CLI_OK)
        return CLI_CONFIG;
    cli.is_profile = server;
    int code = command_main(&cli, argc, argv);
    http_client_free(cli.http);
    if (fflush(stdout) != 0 && code == CLI_OK)
        code = cli_complain(CLI_CONFIG, "cannot write to standard output");
    return code;
}
