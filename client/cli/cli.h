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
#include "common/take.h"

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

/* A command's argp: its own options, or NULL; what it is in help; and the options of every command. */
#define CLI_ARGP(options, args_doc, doc)                            \
    {                                                               \
        options, cli_parse, args_doc, doc, cli_children, NULL, NULL \
    }
error_t cli_parse(int key, char *arg, struct argp_state *state);
/* Read a command's line as the rows say that follow. child: what the argp's child fills, of a CLI_ARGP the struct cli. */
#define CLI_TAKE(child, argp, argc, argv, ...)                              \
    cli_take(child, argp, argc, argv, (const struct take[]){ __VA_ARGS__ }, \
             sizeof((const struct take[]){ __VA_ARGS__ }) / sizeof(struct take))
void cli_take(void *child, const struct argp *argp, int argc, char **argv, const struct take *rows, size_t n);

/* Print "verifier: ..." on stderr; returns code. */
int cli_complain(enum cli_exit code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What argp_error() prints, once argp has ended; command: argv[0]. Returns CLI_USAGE. */
int cli_misuse(const char *command, const char *text);

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

/* Each by its words, and by what its argp and its function are called. */
#define COMMANDS(ROW)                  \
    ROW("submit", submit)              \
    ROW("group", group)                \
    ROW("judge", judge)                \
    ROW("check", judge) /* the same */ \
    ROW("task add", task_add)          \
    ROW("task list", task_list)        \
    ROW("task show", task_show)        \
    ROW("task rename", task_rename)    \
    ROW("task rm", task_rm)            \
    ROW("show", show)                  \
    ROW("timing", timing)              \
    ROW("list", list)                  \
    ROW("failures", failures)          \
    ROW("leaderboard", leaderboard)    \
    ROW("events", events)              \
    ROW("open", open_page)             \
    ROW("get", get)                    \
    ROW("cancel", cancel)              \
    ROW("rescore", rescore)            \
    ROW("status", status)              \
    ROW("top", top)                    \
    ROW("export", export)              \
    ROW("bundle", bundle)              \
    ROW("replay", replay)              \
    ROW("policies", policies)          \
    ROW("doctor", doctor)              \
    ROW("selftest", selftest)          \
    ROW("calibrate", calibrate)        \
    ROW("retention", retention)        \
    ROW("completion", completion)      \
    ROW("help", help)                  \
    ROW("version", version)

#define DECLARE(words, symbol)              \
    extern const struct argp symbol##_argp; \
    int symbol##_command(struct cli *cli, int argc, char **argv);
COMMANDS(DECLARE)
#undef DECLARE

#endif
