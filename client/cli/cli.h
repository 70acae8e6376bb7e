/*
 * cli.h - what the commands of `verifier` share: its exit codes, where the
 * daemon is, and the options that every command takes. Data goes to stdout,
 * talk to stderr.
 */
#ifndef CLI_H
#define CLI_H

#include <argp.h>
#include <stdbool.h>

#include "common/http_client.h"

/* Scripts depend on these: see EXIT STATUS in verifier(1). */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the candidate failed: its class is not "ok"; or the selftest did */
    CLI_USAGE = 2,
    CLI_CONFIG = 3,
    CLI_AUTH = 4,
    CLI_NOT_FOUND = 5,
    CLI_REFUSED = 6,
    CLI_NETWORK = 7,
    CLI_TIMEOUT = 8,
    CLI_SKIPPED = 77, /* what was asked for cannot be done on this machine */
    CLI_INTERRUPTED = 130,
};

struct cli {
    const char *url;          /* borrowed from argv or the environment */
    const char *token;        /* NULL: none */
    bool is_json;             /* print what the daemon answered, for programs */
    struct http_client *http; /* NULL until the first call */
};

/* --url, --token, --json: the first child of each command's argp, its input a struct cli. */
extern const struct argp cli_common_argp;

/* Print "verifier: ..." on stderr; returns code. */
int cli_complain(enum cli_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Say what to do with this id when the user presses Ctrl-C; "" or NULL: nothing to say. Copied. */
void cli_note_id(const char *id);

/* --policy: what a request says as "policy", given; ends the program where it cannot be read. */
json_t *cli_policy(struct argp_state *state, const char *text);

/* The commands. argv[0] is the command's full name ("verifier task add"); each returns an enum cli_exit. */
int submit_command(struct cli *cli, int argc, char **argv);
int group_command(struct cli *cli, int argc, char **argv);
int task_command(struct cli *cli, int argc, char **argv);
int show_command(struct cli *cli, int argc, char **argv);
int timing_command(struct cli *cli, int argc, char **argv);
int list_command(struct cli *cli, int argc, char **argv);
int top_command(struct cli *cli, int argc, char **argv);
int status_command(struct cli *cli, int argc, char **argv);
int calibrate_command(struct cli *cli, int argc, char **argv);
int cancel_command(struct cli *cli, int argc, char **argv);
int rescore_command(struct cli *cli, int argc, char **argv);
int selftest_command(struct cli *cli, int argc, char **argv);
int export_command(struct cli *cli, int argc, char **argv);
int bundle_command(struct cli *cli, int argc, char **argv);
int replay_command(struct cli *cli, int argc, char **argv);
int retention_command(struct cli *cli, int argc, char **argv);
int policies_command(struct cli *cli, int argc, char **argv);
int doctor_command(struct cli *cli, int argc, char **argv);

#endif
