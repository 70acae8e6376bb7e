#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

int
error_set(struct error *err, enum err_code code, const char *format, ...)
{
    int saved = errno;
    if (err) {
        va_list args;
        err->code = code;
        err->sys_errno = code == ERR_SYS ? saved : 0;
        va_start(args, format);
        vsnprintf(err->text, sizeof(err->text), format, args);
        va_end(args);
        if (code == ERR_SYS) {
            char buf[96];
            size_t used = strlen(err->text);
            snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerror_r(saved, buf, sizeof(buf)));
        }
        /* A text cut in the middle of a character could not be sent as JSON. */
        utf8_clean(err->text);
    }
    errno = saved;
    return (int)code;
}

void
error_prefix(struct error *err, const char *format, ...)
{
    char old[sizeof(err->text)];
    va_list args;

    if (!err)
        return;
    memcpy(old, err->text, sizeof(old));
    va_start(args, format);
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof(err->text) - used, ": %s", old);
    utf8_clean(err->text);
}
