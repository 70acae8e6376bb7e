#include "client/cli/outfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"

int
outfile_open(struct outfile *f, const char *path)
{
    *f = (struct outfile){ .to = stdout };
    if (!path || strcmp(path, "-") == 0)
        return CLI_OK;
    f->path = strdup(path);
    if (!f->path || asprintf(&f->beside, "%s.part-%ld", path, (long)getpid()) < 0) {
        free(f->path);
        return cli_complain(CLI_CONFIG, "out of memory");
    }
    f->to = fopen(f->beside, "wxe");
    if (f->to)
        return CLI_OK;
    int code = cli_complain(CLI_USAGE, "cannot make %s: %s", f->beside, strerror(errno));
    free(f->path);
    free(f->beside);
    return code;
}

int
outfile_close(struct outfile *f, bool keep)
{
    int code = CLI_OK;

    if (!f->path) {
        if (fflush(stdout) != 0)
            code = cli_complain(CLI_CONFIG, "cannot write to standard output");
        return code;
    }
    bool is_written = !keep || (fflush(f->to) == 0 && fsync(fileno(f->to)) == 0);
    is_written = fclose(f->to) == 0 && is_written;
    if (keep && (!is_written || rename(f->beside, f->path) != 0)) {
        code = cli_complain(CLI_CONFIG, "cannot write %s: %s", f->path, strerror(errno));
        keep = false;
    }
    if (!keep)
        unlink(f->beside);
    free(f->path);
    free(f->beside);
    return code;
}
