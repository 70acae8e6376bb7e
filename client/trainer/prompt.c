#include "client/trainer/prompt.h"

#include <string.h>

#include "common/auto.h"
#include "common/embed.h"
#include "common/error.h"
#include "common/policy.h"

EMBED_TEXT(prompt_template, "client/prompt/kernel.txt");
EMBED_TEXT(prompt_sizes, "client/prompt/sizes.txt");

/* Policies were read when they were given; one that cannot be read is refused where it counts. */
static bool
tries_sizes(const char *text)
{
    struct error err = { 0 };
    struct json_fault fault;
    struct policy policy;
    AUTO_JSON json_t *value = NULL;

    return text && policy_parse(text, &value, &err) == 0 && policy_read(value, "", &policy, &fault) == 0 &&
           strcmp(policy.shapes, "require") == 0;
}

void
prompt_digest(const char *policy, char out[HASH_TEXT_SIZE])
{
    AUTO_BUFFER struct buffer all = BUFFER_INIT;

    if (tries_sizes(policy) && buffer_printf(&all, "%s%s", prompt_template, prompt_sizes) == 0)
        hash_text(all.data, all.size, out);
    else
        hash_text(prompt_template, strlen(prompt_template), out);
}

int
prompt_make(const char *reference, const char *class_name, const char *policy, struct buffer *out)
{
    static const char reference_mark[] = "{{reference}}", class_mark[] = "{{class}}";

    for (const char *at = prompt_template; *at;) {
        size_t plain = strcspn(at, "{");
        buffer_append(out, at, plain);
        at += plain;
        if (strncmp(at, reference_mark, strlen(reference_mark)) == 0) {
            buffer_add(out, reference);
            at += strlen(reference_mark);
        } else if (strncmp(at, class_mark, strlen(class_mark)) == 0) {
            buffer_add(out, class_name);
            at += strlen(class_mark);
        } else if (*at) {
            buffer_append(out, at++, 1);
        }
    }
    return buffer_add(out, tries_sizes(policy) ? prompt_sizes : "");
}
