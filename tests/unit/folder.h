/*
 * folder.h - a folder below /tmp for each test, and files in it: for one test program, which includes it once.
 */
#ifndef FOLDER_H
#define FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static int
make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/verifierd-unit.XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int
remove_directory(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    return system(command);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

/* A file below the directory, with the directories that it is in; its path is good until the next call. */
__attribute__((unused)) static char *
put(const char *name, const char *text)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    for (char *at = path + strlen(directory) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(path, 0777);
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

#endif
