#include "client/cli/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "common/auto.h"
#include "common/buffer.h"

#define INPUT_MAX ((size_t)8 * 1024 * 1024) /* the size limit of a request */

int
input_text(const char *path, json_t **out)
{
    AUTO_BUFFER struct buffer text = BUFFER_INIT;
    struct error err;
    bool is_stdin = strcmp(path, "-") == 0;

    *out = NULL;
    FILE *from = is_stdin ? stdin : fopen(path, "re");
    if (!from)
        return cli_complain(CLI_USAGE, "%s: %s", path, strerror(errno));
    int rc = buffer_read(&text, from, is_stdin ? "standard input" : path, INPUT_MAX, &err);
    if (!is_stdin)
        fclose(from);
    if (rc != 0)
        return cli_complain(rc == ERR_NOMEM ? CLI_CONFIG : CLI_USAGE, "%s", err.text);
    *out = json_stringn(text.data ? text.data : "", text.size);
    if (!*out)
        return cli_complain(CLI_USAGE, "%s: is not UTF-8 text", path);
    return CLI_OK;
}

/* A step is a number to the daemon (docs/http.md); all else is text. */
static json_t *
pair_value(const char *key, const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (strcmp(key, "step") == 0 && digits > 0 && digits <= 16 && !text[digits])
        return json_integer(strtoll(text, NULL, 10));
    return json_string(text);
}

int
input_pair(const char *pair, json_t *object)
{
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair)
        return cli_complain(CLI_USAGE, "--metadata takes KEY=VALUE, not \"%s\"", pair);
    AUTO_FREE char *key = strndup(pair, (size_t)(equals - pair));
    if (!key || json_object_set_new(object, key, pair_value(key, equals + 1)) < 0)
        return cli_complain(CLI_USAGE, "--metadata %s: is not UTF-8 text", pair);
    return CLI_OK;
}

char *
input_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t size = strlen(base);
    if (size > 3 && strcmp(base + size - 3, ".py") == 0)
        size -= 3;
    return strndup(base, size);
}
