/* ask.h - what `verifier submit` and `verifier group` ask for alike: the task, the rules, the reward, and whether to wait. */
#ifndef CLI_ASK_H
#define CLI_ASK_H

#include "client/cli/cli.h"

struct ask {
    struct cli *cli;
    const char *task, *reference; /* one of them; borrowed from argv, as the others */
    const char *entry_point, *until, *gpu, *client, *priority;
    json_t *policy, *reward, *metadata; /* NULL: not given; given up by ask_release() */
    bool is_completion, is_uncached, is_waiting, is_sanitized;
    double limit_s; /* of the wait; < 0: none */
};

/* The first child of their argp; its input is a struct ask with cli and limit_s set. Bad values end the program. */
extern const struct argp ask_argp;
void ask_release(struct ask *a);

/*
 * Put all that was asked into a request's body, and post it: an enum cli_exit. With --wait out is how it ended, given;
 * else its id is printed, and out is NULL. On CLI_TIMEOUT it may be how far it came.
 */
int ask_post(const struct ask *a, const char *path, json_t *body, json_t **out);
/* {"candidate" or "completion": the text of a file}, given, or NULL: an enum cli_exit. */
int ask_candidate(const struct ask *a, const char *file, json_t **out);

#endif
