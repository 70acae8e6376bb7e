/*
 * api.h - calls to verifierd. Functions return an enum cli_exit; a value other
 * than CLI_OK has been explained on stderr.
 */
#ifndef CLI_API_H
#define CLI_API_H

#include <jansson.h>

#include "client/cli/cli.h"
#include "common/buffer.h"

/* One call. body: borrowed, NULL for none. out: given (json_decref()), NULL for an empty answer; out may be NULL. */
int api_call(struct cli *cli, const char *method, const char *path, json_t *body, json_t **out);
/* The answer as it is: a source, a log. Appended to out. */
int api_get_text(struct cli *cli, const char *path, struct buffer *out);
/* A GET of any size, to sink as it comes. CLI_CONFIG where sink would not take it, CLI_TIMEOUT where none comes for stall_s. */
int api_download(struct cli *cli, const char *path, int stall_s, http_sink_cb *sink, void *arg);
/* A sink, arg: a struct api_lines, that hands on whole lines, without their ends. */
struct api_lines {
    bool (*take)(void *arg, const char *line, size_t size); /* false: as a sink's */
    void *arg;
    size_t most;        /* bytes of a line */
    struct buffer line; /* as far as it has come; owned */
};
bool api_lines_cb(void *lines, const char *bytes, size_t size);
/* As api_call() with GET, but a 404 is CLI_NOT_FOUND without a word: the caller will look elsewhere. */
int api_find(struct cli *cli, const char *path, json_t **out);

/* A POST that makes something: its id is a view of the answer, which is given. */
int api_make(struct cli *cli, const char *path, json_t *body, json_t **answer, const char **id);

/* Whether a submission or group is done or cancelled. */
bool api_is_finished(const json_t *document);
/*
 * Long polls of a submission or group, "/v1/groups" and its id, until it is finished; survives a restart of the daemon,
 * and prints the progress on stderr, except with --json. limit_s < 0: no limit. On CLI_TIMEOUT out has the last state
 * seen, or NULL.
 */
int api_follow(struct cli *cli, const char *path, const char *id, double limit_s, json_t **out);

/* Add "prefix" and text with all but unreserved characters (RFC 3986) percent-encoded. */
void api_path_add(struct buffer *path, const char *prefix, const char *text);

/* Add a path and its query: the pairs that have a value. The last one's name is NULL. */
struct api_pair {
    const char *name, *value;
};
void api_query(struct buffer *out, const char *path, const struct api_pair *pairs);

/* The id of a task from its id or unique name: given, free(). */
int api_find_task(struct cli *cli, const char *name, char **id);

#endif
