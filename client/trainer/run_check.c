#include "client/trainer/run_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/trainer/run_files.h"
#include "client/trainer/run_machine.h"
#include "client/trainer/run_state.h"
#include "client/trainer/run_step.h"
#include "client/trainer/runconf.h"
#include "common/auto.h"

static int
check_training(struct run *r, const char *section, const char *method)
{
    char path[] = "/tmp/trainer-check-XXXXXX", full[PATH_MAX];
    const char *config = run_text(r, "", "model_config");
    AUTO_JSON json_t *settings = json_deep_copy(json_object_get(r->conf, section));
    json_object_set(settings, "model", runconf_get(r->conf, "", "model"));
    if (*config && *config != '/') { /* beside the configuration file */
        const char *slash = strrchr(r->file, '/');
        snprintf(full, sizeof(full), "%.*s/%s", slash ? (int)(slash - r->file) : 1, slash ? r->file : ".",
                 config);
        config = full;
    }
    AUTO_JSON json_t *request =
        json_pack("{s:O, s:f, s:s*}", "settings", settings, "gpu_memory_gb",
                  runconf_number(r->conf, "", "gpu_memory_gb"), "model_config", *config ? config : NULL);
    int fd = mkstemp(path);
    if (fd < 0 || json_dumpfd(request, fd, 0) != 0)
        return trainer_complain(TRAINER_CONFIG, "cannot write %s: %s", path, strerror(errno));
    close(fd);
    const char *argv[] = { NULL, "-m", "finetune", "check", method, path, NULL };
    int status = run_python_wait(r, argv);
    AUTO_JSON json_t *answered = json_load_file(path, 0, NULL);
    unlink(path);
    if (status == TRAINER_OK && !json_object_get(json_object_get(answered, "found"), "total_gib"))
        return trainer_complain(TRAINER_CONFIG,
                                "%s ended with status 0 and checked nothing: is it a Python that has torch, "
                                "transformers and peft?",
                                argv[0]);
    return status;
}

int
run_check_inputs(struct run *r)
{
    size_t i, k;
    json_t *step, *one;
    int status = TRAINER_OK;

    json_array_foreach(r->steps, i, step)
    {
        if (r->state && run_state_is_finished(r, step))
            continue;
        json_array_foreach(json_object_get(step, "inputs"), k, one)
        {
            struct error err = { 0 };
            const char *path = json_string_value(one);
            if (!run_is_made(r, path) && run_path_check(r, path, &err) != 0)
                status = trainer_complain(TRAINER_CONFIG, "%s: what it needs is missing: %s",
                                          json_string_value(json_object_get(step, "name")), err.text);
        }
    }
    return status;
}

/* Arguments that a step's command would refuse, hours from now. */
static int
check_arguments(struct run *r)
{
    size_t i;
    json_t *step;
    int status = TRAINER_OK;

    json_array_foreach(r->steps, i, step)
    {
        if (run_step_check(r, step) != TRAINER_OK)
            status = trainer_complain(TRAINER_CONFIG, "%s: its command refuses what %s says",
                                      json_string_value(json_object_get(step, "name")), r->file);
    }
    return status;
}

int
run_check_ahead(struct run *r)
{
    int inputs = run_check_inputs(r), arguments = check_arguments(r), machine = run_machine_check(r);
    return inputs ? inputs : arguments ? arguments : machine;
}

int
run_check(struct run *r)
{
    int status = run_check_ahead(r);
    if (status != TRAINER_OK)
        return status;
    const char *method = run_text(r, "rl", "method");
    int sft = check_training(r, "sft", "sft");
    int rl = check_training(r, "train", method);
    status = sft ? sft : rl;
    if (status == TRAINER_OK)
        printf("%s: %zu steps, their files, memory and shapes are well\n", r->file,
               json_array_size(r->steps));
    return status;
}
