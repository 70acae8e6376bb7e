/* trainer extraction FILE: do known-good answers give code? What cannot be extracted from these never is from a model's. */
#include <stdio.h>
#include <string.h>

#include "client/trainer/trainer.h"
#include "common/auto.h"
#include "common/extract.h"

enum { ROWS = 20 };

static bool
gives_code(const char *line)
{
    struct extract code;
    AUTO_JSON json_t *row = json_loads(line, 0, NULL);
    json_t *output = json_object_get(row, "output");

    return json_is_string(output) &&
           extract_code(json_string_value(output), json_string_length(output), NULL, &code) == 0 &&
           code.from != EXTRACT_TEXT && !code.is_truncated && memmem(code.code, code.size, "class ", 6);
}

int
extraction_command(struct trainer *t, int argc, char **argv)
{
    AUTO_FREE char *line = NULL;
    size_t capacity = 0, rows = 0, good = 0;

    (void)t;
    if (argc != 2)
        return trainer_complain(TRAINER_USAGE, "extraction takes a file of fine-tuning rows");
    FILE *file = fopen(argv[1], "r");
    while (file && rows < ROWS && getline(&line, &capacity, file) > 0) {
        rows++;
        good += gives_code(line);
    }
    if (file)
        fclose(file);
    if (rows == 0)
        return trainer_complain(
            TRAINER_FAILED,
            "%s has no rows: nothing was prepared that can be learned (dropped.jsonl says why)", argv[1]);
    if (good < rows)
        return trainer_complain(TRAINER_FAILED,
                                "code is extracted from %zu of the first %zu known-good answers of %s: an "
                                "evaluation would find none either",
                                good, rows, argv[1]);
    fprintf(stderr, "trainer: code is extracted from all of the first %zu known-good answers\n", rows);
    return TRAINER_OK;
}
