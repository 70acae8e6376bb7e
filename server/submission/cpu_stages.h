/* cpu_stages.h - the stages that need no device: the children of `ast`, and of `compile`. Loop thread only. */
#ifndef SUBMISSION_CPU_STAGES_H
#define SUBMISSION_CPU_STAGES_H

#include "server/submission/stage_end.h"

struct stage_end cpu_stages_ast(struct submission *s, stage_ended_cb *ended);
struct stage_end cpu_stages_compile(struct submission *s, stage_ended_cb *ended);

#endif
