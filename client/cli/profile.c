#include "client/cli/profile.h"

#include <confuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/auto.h"

/* server lab { url = "https://judge:8443"  token = "vd_…"  cacert = "/etc/lab.pem" } */

static char *
file_path(void)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool is_given = config && config[0] == '/';
    char *path = NULL;

    if (asprintf(&path, "%s%s/verifier.conf",
                 is_given ? config
                 : home   ? home
                          : "",
                 is_given ? "" : "/.config") < 0)
        return NULL;
    return path;
}

static void __attribute__((format(printf, 2, 0))) error_cb(cfg_t *cfg, const char *format, va_list args)
{
    fprintf(stderr, "verifier: %s:%d: ", cfg->filename ? cfg->filename : "?", cfg->line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

/* If it has a token, other users must not be able to read it. */
static int
check_mode(const char *path)
{
    struct stat status;

    if (stat(path, &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)))
        return cli_complain(CLI_CONFIG, "%s has a token, and others may read it: chmod 600 %s", path, path);
    return CLI_OK;
}

/* A value that the program keeps until it ends. */
static const char *
kept(cfg_t *server, const char *key)
{
    const char *text = cfg_getstr(server, key);
    return text ? strdup(text) : NULL;
}

static int
use(struct cli *cli, cfg_t *file, const char *name, const char *path)
{
    cfg_t *server = cfg_gettsec(file, "server", name);
    struct error err = { 0 };

    if (!server)
        return cli_complain(CLI_CONFIG, "%s has no server \"%s\"", path, name);
    const char *url = kept(server, "url"), *cacert = cfg_getstr(server, "cacert");
    if (!url)
        return cli_complain(CLI_CONFIG, "%s: server \"%s\" has no url", path, name);
    if (cfg_getstr(server, "token") && check_mode(path) != CLI_OK)
        return CLI_CONFIG;
    if (cacert && http_client_cacert(cacert, &err) != 0)
        return cli_complain(CLI_CONFIG, "%s: server \"%s\": %s", path, name, err.text);
    cli->url = url;
    if (!cli->is_token_given)
        cli->token = kept(server, "token");
    return CLI_OK;
}

int
profile_use(struct cli *cli, const char *name)
{
    cfg_opt_t keys[] = { CFG_STR("url", NULL, CFGF_NODEFAULT), CFG_STR("token", NULL, CFGF_NODEFAULT),
                         CFG_STR("cacert", NULL, CFGF_NODEFAULT), CFG_END() };
    cfg_opt_t top[] = { CFG_SEC("server", keys, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES), CFG_END() };
    AUTO_FREE char *path = file_path();
    cfg_t *file = path ? cfg_init(top, CFGF_NONE) : NULL;

    if (!file)
        return cli_complain(CLI_CONFIG, "out of memory");
    cfg_set_error_function(file, error_cb);
    int rc = cfg_parse(file, path);
    int code = rc == CFG_SUCCESS ? use(cli, file, name, path)
               : rc == CFG_FILE_ERROR
                   ? cli_complain(CLI_CONFIG, "cannot read %s, which names the servers", path)
                   : CLI_CONFIG;
    cfg_free(file);
    return code;
}
