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
    CLI_SKIPPED = 77, /* the command cannot be done on this machine */
    CLI_INTERRUPTED = 130,
};

struct cli {
    const char *url;          /* borrowed from argv or the environment */
    const char *token;        /* NULL: none */
    bool is_json;             /* print what the daemon answered, for programs */
    struct http_client *http; /* NULL until the first call */
    bool is_profile;          /* the token is of a server that was named (profile.h) */
    bool is_token_given;      /* by --token, which no server's own token replaces */
    bool is_alone;            /* verifierd was started for this command and ends with it */
};

/* --url, --token, --json: the first child of each command's argp, its input a struct cli. */
extern const struct argp cli_common_argp;
/* That child alone. */
extern const struct argp_child cli_children[];

/* The parser of a command that takes cli_children's options and no arguments; its input is the struct cli. */
error_t cli_parse_nothing(int key, char *arg, struct argp_state *state);

/* Print "verifier: ..." on stderr; returns code. */
int cli_complain(enum cli_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Say what to do with this id when the user presses Ctrl-C; "" or NULL: nothing to say. Copied. */
void cli_note_id(const char *id);

/* --policy: the "policy" of a request, given; ends the program if it cannot be read. */
json_t *cli_policy(struct argp_state *state, const char *text);

/* --- the commands: commands.c --- */

struct command {
    const char *name; /* "submit", "task add" */
    const struct argp *argp;
    int (*run)(struct cli *cli, int argc, char **argv); /* argv[0]: "verifier task add"; an enum cli_exit */
};

extern const struct command commands[];
extern const size_t commands_count;

/* Read the program's own options, find the command and run it: an enum cli_exit. */
int command_main(struct cli *cli, int argc, char **argv);
/* The first words of what a command does, without a stop; given: free(). NULL: no memory. */
char *command_summary(const struct argp *argp);

#define COMMAND(name)                     \
    extern const struct argp name##_argp; \
    int name##_command(struct cli *cli, int argc, char **argv)

COMMAND(submit);
COMMAND(group);
COMMAND(judge);
COMMAND(task_add);
COMMAND(task_list);
COMMAND(task_show);
COMMAND(task_rename);
COMMAND(task_rm);
COMMAND(show);
COMMAND(timing);
COMMAND(list);
COMMAND(top);
COMMAND(status);
COMMAND(calibrate);
COMMAND(cancel);
COMMAND(events);
COMMAND(failures);
COMMAND(get);
COMMAND(leaderboard);
COMMAND(open_page);
COMMAND(rescore);
COMMAND(selftest);
COMMAND(export);
COMMAND(bundle);
COMMAND(replay);
COMMAND(retention);
COMMAND(policies);
COMMAND(doctor);
COMMAND(completion);
COMMAND(help);
COMMAND(version);

#endif
