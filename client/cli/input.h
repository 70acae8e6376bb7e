/* input.h - files and key=value pairs from the command line, as JSON. Return an enum cli_exit; failures are explained. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include <jansson.h>

/* The text of a file, "-" for stdin, as a JSON string: given. CLI_USAGE: unreadable, too large, not UTF-8. */
int input_text(const char *path, json_t **out);
/* "key=value" into an object, as a string. */
int input_pair(const char *pair, json_t *object);
/* The file's name without directory and ".py". Given: free(). */
char *input_name(const char *path);

#endif
