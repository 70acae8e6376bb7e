/* outfile.h - a file that exists completely or not at all: written under a temporary name, and renamed at the end. */
#ifndef CLI_OUTFILE_H
#define CLI_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>

struct outfile {
    FILE *to;
    char *path, *beside; /* NULL: standard output */
};

/* path NULL or "-": standard output. An enum cli_exit; a value other than CLI_OK was explained. */
int outfile_open(struct outfile *f, const char *path);
/* keep: put it in its place, else remove it. As above. Once for each outfile_open() that was CLI_OK. */
int outfile_close(struct outfile *f, bool keep);

#endif
