#include "client/trainer/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/auto.h"

struct journal {
    int fd;
    off_t end; /* of the last whole record */
    pthread_mutex_t mutex;
};

/* Read all whole lines; *end is where they end. */
static int
replay(FILE *file, const char *path, journal_cb *cb, void *arg, off_t *end, struct error *err)
{
    AUTO_FREE char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t size;

    *end = 0;
    while ((size = getline(&line, &capacity, file)) > 0) {
        number++;
        if (line[size - 1] != '\n')
            return 0; /* cut short by a crash: it was never acknowledged */
        AUTO_JSON json_t *record =
            json_loadb(line, (size_t)size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (!json_is_object(record))
            return error_set(err, ERR_INPUT, "%s, line %zu is not a JSON object", path, number);
        cb(arg, record);
        *end += size;
    }
    return ferror(file) ? error_set(err, ERR_SYS, "cannot read %s", path) : 0;
}

int
journal_open(const char *path, journal_cb *cb, void *arg, struct journal **out, struct error *err)
{
    AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    off_t end;

    *out = NULL;
    if (fd < 0)
        return error_set(err, ERR_SYS, "cannot open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? error_set(err, ERR_CONFLICT, "another run is writing %s", path)
                                    : error_set(err, ERR_SYS, "cannot lock %s", path);
    FILE *file = fdopen(dup(fd), "r");
    if (!file)
        return error_set(err, ERR_SYS, "cannot read %s", path);
    int rc = replay(file, path, cb, arg, &end, err);
    fclose(file);
    if (rc != 0)
        return rc;
    if (ftruncate(fd, end) != 0 || lseek(fd, end, SEEK_SET) < 0)
        return error_set(err, ERR_SYS, "cannot write %s", path);
    struct journal *j = calloc(1, sizeof(*j));
    if (!j)
        return error_set(err, ERR_NOMEM, "out of memory");
    j->fd = fd_take(&fd);
    j->end = end;
    pthread_mutex_init(&j->mutex, NULL);
    *out = j;
    return 0;
}

void
journal_close(struct journal *j)
{
    if (!j)
        return;
    close(j->fd);
    pthread_mutex_destroy(&j->mutex);
    free(j);
}

static int
write_line(struct journal *j, const char *line, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pwrite(j->fd, line + done, size - done, j->end + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return fdatasync(j->fd);
}

int
journal_add(struct journal *j, json_t *record, struct error *err)
{
    AUTO_FREE char *text = json_dumps(record, JSON_COMPACT);
    size_t size = text ? strlen(text) : 0;

    if (!text)
        return error_set(err, ERR_NOMEM, "out of memory");
    text[size] = '\n'; /* in place of the NUL */
    pthread_mutex_lock(&j->mutex);
    int rc = write_line(j, text, size + 1);
    if (rc == 0) {
        j->end += (off_t)size + 1;
    } else {
        rc = error_set(err, ERR_SYS, "cannot write the journal");
        if (ftruncate(j->fd, j->end) != 0)
            error_prefix(err, "half a line is left behind");
    }
    pthread_mutex_unlock(&j->mutex);
    return rc;
}
