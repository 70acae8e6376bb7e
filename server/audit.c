#include "server/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "common/clock.h"

#define TAIL_BYTES (256 * 1024) /* of the file's end, for reading */

static int
audit_open(const char *tokens, int flags, struct error *err)
{
    AUTO_FREE char *path = NULL;

    if (asprintf(&path, "%s.audit", tokens) < 0) {
        path = NULL;
        error_set(err, ERR_NOMEM, "no memory for the audit trail");
        return -1;
    }
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        error_set(err, ERR_SYS, "open %s", path);
    return fd;
}

int
audit_write(const char *tokens, const char *who, const char *action, const char *object,
            const char *request_id, struct error *err)
{
    AUTO_BUFFER struct buffer line = BUFFER_INIT;
    char now[CLOCK_TEXT_SIZE];

    clock_text(clock_wall_ms(), now);
    AUTO_JSON json_t *entry = json_pack("{s:s, s:s, s:s, s:s?, s:s?}", "time", now, "who", who, "action",
                                        action, "object", object, "request_id", request_id);
    AUTO_FREE char *text = entry ? json_dumps(entry, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (!text || buffer_printf(&line, "%s\n", text) != 0)
        return error_set(err, ERR_NOMEM, "no memory for the audit trail");
    AUTO_FD int fd = audit_open(tokens, O_WRONLY | O_APPEND | O_CREAT, err);
    if (fd < 0)
        return (int)err->code;
    /* One write to the end, also with concurrent writers: lines do not mix. */
    ssize_t n = write(fd, line.data, line.size);
    if (n != (ssize_t)line.size || fdatasync(fd) != 0)
        return error_set(err, ERR_SYS, "write the audit trail");
    return 0;
}

/* The end of the file, from the beginning of a line on. */
static int
read_tail(int fd, struct buffer *out, struct error *err)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        return error_set(err, ERR_SYS, "read the audit trail");
    off_t from = status.st_size > TAIL_BYTES ? status.st_size - TAIL_BYTES : 0;
    if (buffer_reserve(out, TAIL_BYTES + 1) != 0)
        return error_set(err, ERR_NOMEM, "no memory for the audit trail");
    ssize_t n = pread(fd, out->data, TAIL_BYTES, from);
    if (n < 0)
        return error_set(err, ERR_SYS, "read the audit trail");
    out->size = (size_t)n;
    out->data[n] = '\0';
    return 0;
}

json_t *
audit_read(const char *tokens, int limit, struct error *err)
{
    AUTO_BUFFER struct buffer tail = BUFFER_INIT;
    struct error why = { 0 };
    AUTO_JSON json_t *out = json_array();

    AUTO_FD int fd = audit_open(tokens, O_RDONLY, &why);
    if (fd < 0 && why.code == ERR_SYS && why.sys_errno == ENOENT)
        return json_incref(out);
    if (fd < 0 || read_tail(fd, &tail, &why) != 0) {
        *err = why;
        return NULL;
    }
    for (size_t end = tail.size; end > 0 && (int)json_array_size(out) < limit;) {
        size_t start = end - 1;
        while (start > 0 && tail.data[start - 1] != '\n')
            start--;
        /* The first line of the part may be cut; a line that is none is left out. */
        json_t *entry = json_loadb(tail.data + start, end - start, 0, NULL);
        if (entry)
            json_array_append_new(out, entry);
        end = start;
    }
    return json_incref(out);
}
