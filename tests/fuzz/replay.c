/* replay.c - run a fuzz target over files, once each. A directory stands for its files. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/auto.h"
#include "common/buffer.h"
#include "tests/fuzz/fuzz.h"

static int
complain(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return -1;
}

/* The input gets a block of exactly its own size, so that the sanitizer sees a read beyond its end. */
static void
run(const struct buffer *input)
{
    AUTO_FREE char *exact = malloc(input->size ? input->size : 1);
    if (!exact)
        abort();
    if (input->size)
        memcpy(exact, input->data, input->size);
    LLVMFuzzerTestOneInput((const uint8_t *)exact, input->size);
}

static int
replay_file(const char *path)
{
    AUTO_BUFFER struct buffer input = BUFFER_INIT;
    char block[4096];
    size_t n;
    FILE *from = fopen(path, "re");
    if (!from)
        return complain(path);
    while ((n = fread(block, 1, sizeof(block), from)) > 0)
        if (buffer_append(&input, block, n) < 0)
            abort();
    int code = ferror(from) ? complain(path) : 1;
    fclose(from);
    if (code == 1)
        run(&input);
    return code;
}

/* How many files were replayed; -1: one could not be read. */
static int
replay(const char *path)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return complain(path);
    if (!S_ISDIR(info.st_mode))
        return replay_file(path);
    DIR *dir = opendir(path);
    if (!dir)
        return complain(path);
    int total = 0;
    for (struct dirent *entry; total >= 0 && (entry = readdir(dir)) != NULL;) {
        AUTO_BUFFER struct buffer name = BUFFER_INIT;
        if (entry->d_name[0] == '.' || buffer_printf(&name, "%s/%s", path, entry->d_name) < 0)
            continue;
        int n = replay(name.data);
        total = n < 0 ? n : total + n;
    }
    closedir(dir);
    return total;
}

int
main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);
        if (n < 0)
            return 1;
        total += n;
    }
    if (total == 0) {
        fprintf(stderr, "usage: %s FILE|DIRECTORY... (no input was found)\n", argv[0]);
        return 2;
    }
    printf("%s: %d inputs\n", argv[0], total);
    return 0;
}
