#include "client/trainer/prompt.h"

#include <string.h>

#include "common/error.h"

/* The file itself, so that there is no second copy to fall behind. */
__asm__(".pushsection .rodata\n"
        "prompt_template:\n"
        ".incbin \"client/prompt/kernel.txt\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char prompt_template[];

void
prompt_digest(char out[HASH_TEXT_SIZE])
{
    hash_text(prompt_template, strlen(prompt_template), out);
}

int
prompt_make(const char *reference, const char *class_name, struct buffer *out)
{
    static const char reference_mark[] = "{{reference}}", class_mark[] = "{{class}}";
    int rc = 0;

    for (const char *at = prompt_template; *at && rc == 0;) {
        size_t plain = strcspn(at, "{");
        rc = buffer_append(out, at, plain);
        at += plain;
        if (rc == 0 && strncmp(at, reference_mark, strlen(reference_mark)) == 0) {
            rc = buffer_add(out, reference);
            at += strlen(reference_mark);
        } else if (rc == 0 && strncmp(at, class_mark, strlen(class_mark)) == 0) {
            rc = buffer_add(out, class_name);
            at += strlen(class_mark);
        } else if (rc == 0 && *at) {
            rc = buffer_append(out, at++, 1);
        }
    }
    return rc;
}
