/* find.h - short ids: what the beginning of one on the command line stands for. */
#ifndef CLI_FIND_H
#define CLI_FIND_H

#include <stdbool.h>

#include <jansson.h>

#include "client/cli/cli.h"

enum find_what {
    FIND_SUBMISSION = 1,
    FIND_GROUP = 2,
    FIND_EITHER = FIND_SUBMISSION | FIND_GROUP,
};

/*
 * The whole id that begins with text, of which 6 characters are needed; more than one match is an error that lists
 * them. "-" is the newest submission, or the newest group if only groups are wanted. A text that is whole, or cannot
 * begin an id, is returned unchanged. id: given, free(). An enum cli_exit.
 */
int find_id(struct cli *cli, const char *text, enum find_what what, char **id);
/* The submission or group of an id, whose kind the id does not show: found is given. An enum cli_exit. */
int find_document(struct cli *cli, const char *id, json_t **found, bool *is_group);
/* The same of a task, by "sha256:" and 6 digits of its hash at least; names stay as they are. */
int find_task_id(struct cli *cli, const char *text, char **id);

#endif
