/*
 * endpoint.h - answers from a model behind an OpenAI-compatible endpoint (vLLM, SGLang, llama.cpp).
 * One for each thread. Everything that decides what is sampled is sent, so that no server's
 * default does (unless trainer.is_plain).
 */
#ifndef TRAINER_ENDPOINT_H
#define TRAINER_ENDPOINT_H

#include <stdint.h>

#include <jansson.h>

#include "client/trainer/trainer.h"

struct endpoint;

int endpoint_new(const struct trainer *t, struct endpoint **out, struct error *err);
void endpoint_free(struct endpoint *e);

/*
 * n answers to a conversation ([{"role", "content"}], borrowed). Asks once for n; a server that gives fewer, or refuses n > 1,
 * is asked one by one, seeds counting up from seed. Each answer: {"text", "reasoning"?, "finish_reason", "seed", "token_ids"?,
 * "logprobs"?}. Retries what may pass (no connection, time-out, 408, 425, 429, 5xx) with growing, jittered pauses.
 * With trainer.cache, what was answered once is not asked again: by model, prompt and all parameters.
 * 0, or ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_INPUT (it refused: what it said), ERR_PROTOCOL (what it sent is no answer), ERR_SYS (the cache cannot
 * be written), ERR_NOMEM.
 */
int endpoint_sample(struct endpoint *e, json_t *messages, int n, uint64_t seed, json_t **answers,
                    struct error *err);
/* {"model", "temperature", "top_p", "max_tokens", "endpoint"}: what every record of a run says. Given. */
json_t *endpoint_provenance(const struct trainer *t);

#endif
