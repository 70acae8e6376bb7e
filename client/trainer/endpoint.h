/*
 * endpoint.h - answers from a model behind an OpenAI-compatible endpoint (vLLM, SGLang, llama.cpp).
 * One for each thread. All sampling parameters are sent, so that a server's defaults have no
 * effect (unless trainer.is_plain).
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
 * 1 to n answers to a conversation ([{"role", "content"}], borrowed). One request for n; if a server refuses n > 1, one
 * for a single answer. Each answer: {"text", "reasoning"?, "finish_reason", "seed", "token_ids"?, "logprobs"?}. Retries
 * transient failures (no connection, time-out, 408, 425, 429, 5xx) with growing, jittered pauses. With trainer.cache, a
 * stored answer is used again: by model, prompt and all parameters. 0, or ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_INPUT (it
 * refused; err has its message), ERR_PROTOCOL (its response is not an answer), ERR_SYS (the cache cannot be written),
 * ERR_NOMEM.
 */
int endpoint_sample(struct endpoint *e, json_t *messages, int n, uint64_t seed, json_t **answers,
                    struct error *err);
/* {"model", "temperature", "top_p", "max_tokens", "endpoint"}: part of every record of a run. Given. */
json_t *endpoint_provenance(const struct trainer *t);

#endif
