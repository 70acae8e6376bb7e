"""make bench-gradient: what a gradient step costs, by method, beside the same work in plain transformers or TRL.

The model has the architecture of Qwen2.5-Coder-0.5B, random weights, and a tokenizer made here. Each figure is from a
process of its own, ours and the plain one in turn, on the same rows, model, adapter and precision:

    sft, weighted   transformers' Trainer (weighted: with the weighted loss as its compute_loss)
    reinforce       a loop of transformers' generate, one pass and AdamW, as one would write it down
    grpo            TRL's GRPOTrainer, called directly; both need TRL (--wheels DIR: wheels that are unpacked for it)

A model of random weights writes no kernels. So that waiting for rewards is what it would be, a proxy puts kernels of
tests/candidates in the place of its answers, all different, half of them wrong, before the real daemon gets them
(--judge scripted: rewards at once). They are judged until `full`: one GPU cannot train and time at once.

Raw data are OUT/gradient.jsonl. Without a GPU: ARGS=--tiny, the mechanics alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "client" / "python")]

import corpus  # noqa: E402
from answering import answering, document  # noqa: E402
from daemon import Daemon, running_daemon  # noqa: E402

Json = dict[str, Any]
METHODS = ("sft", "weighted", "reinforce", "grpo")
SIDES = ("ours", "plain")
WORDS = [a + b + c for a in ("ka", "lo", "mi", "ne") for b in ("ru", "sa", "ti", "vo") for c in ("d", "f", "g", "h")]
TASK = "relu"
RIGHT, WRONG = "relu/honest", "relu/leaky"
QWEN_0_5B = {
    "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}  # fmt: skip
TINY_MODEL = QWEN_0_5B | {
    "vocab_size": 1024, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
}  # fmt: skip


class BenchError(Exception):
    """Something that ends the run; the text is for people."""


@dataclass(frozen=True)
class Sizes:
    """Tokens are counted as prompt and answer together; all rows and all answers are equally long."""

    length: int = 1024
    batch: int = 8
    accumulation: int = 2
    steps: int = 10
    prompt: int = 128
    answer: int = 128
    tasks_per_step: int = 4
    samples: int = 8
    rl_steps: int = 4


TINY = Sizes(length=64, batch=2, accumulation=1, steps=3, prompt=32, answer=4, tasks_per_step=2, samples=2, rl_steps=2)


# --- what is trained, and on what ---


def words(n: int, draw: random.Random) -> str:
    """n words, each one token with the blank before it; the first has none."""
    return " ".join(draw.choices(WORDS, k=n))


def make_model(directory: Path, config: Json) -> int:
    """Random weights and a tokenizer; the number of parameters."""
    import torch
    from finetune.tiny import make_tokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    draw = random.Random(0)
    tokenizer = make_tokenizer([*WORDS, *(words(50, draw) for _ in range(200))] * 4, 900)
    torch.manual_seed(0)
    where = "cuda" if torch.cuda.is_available() else "cpu"
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    with torch.device(where):
        model = Qwen2ForCausalLM(Qwen2Config(**config, **ends)).to(torch.bfloat16 if where == "cuda" else torch.float32)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return int(model.num_parameters())


def write_rows(path: Path, tokenizer: Any, sizes: Sizes) -> int:
    """Rows of exactly sizes.length tokens, with rewards; how many tokens a prompt has beside its words."""
    from finetune.data import encode

    draw = random.Random(1)
    half = sizes.length // 2
    ids, frame = encode(tokenizer, words(8, draw), words(8, draw))
    around = len(ids) - 16
    rows = []
    for _ in range(sizes.steps * sizes.batch * sizes.accumulation):
        asked = half - (frame - 8)
        said = sizes.length - half - (around - (frame - 8))
        row = {"instruction": words(asked, draw), "output": words(said, draw), "reward": draw.random()}
        rows.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {len(encode(tokenizer, str(r["instruction"]), str(r["output"]))[0]) for r in rows}
    if found != {sizes.length}:
        raise SystemExit(f"gradient: rows of {sorted(found)} tokens, not of {sizes.length}")
    return frame - 8


def settings_given(method: str, sizes: Sizes, directory: Path, is_tiny: bool) -> Json:
    given: Json = {
        "model": str(directory / "model"), "learning_rate": 1e-5, "batch": sizes.batch, "save_steps": 1000000,
        "length": max(sizes.length, sizes.prompt + sizes.answer), "lora_dropout": 0.0, "checkpointing": not is_tiny,
    }  # fmt: skip
    if method in ("sft", "weighted"):
        given |= {"data": str(directory / "rows.jsonl"), "accumulation": sizes.accumulation, "epochs": 1}
        given |= {"least_loss": 0.0, "schedule": "constant", "warmup": 0.0}
    else:
        given |= {"tasks_per_step": sizes.tasks_per_step, "samples": sizes.samples, "answer_tokens": sizes.answer}
        given |= {"reward": "staged", "until": "full", "epochs": 1, "constant_steps": 1000000}
    if method == "reinforce":
        given["truncated"] = "keep"  # random weights never end an answer
    return given


# --- one figure: in a process of its own ---


class Steps:
    """Writes a line for each step: when it ended, its tokens, and what was spent waiting and sampling by then."""

    def __init__(self, path: Path, tokens: int, answer_tokens: int) -> None:
        """Of each step: tokens of prompts and answers, and of the answers that it samples (0: none)."""
        self._path, self._tokens, self._answer_tokens = path, tokens, answer_tokens

    def add(self, waited_s: float, sampled_s: float = 0.0) -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated()
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        row = {"at": time.monotonic(), "tokens": self._tokens, "waited_s": waited_s, "peak_bytes": peak}
        row |= {"sampled_s": sampled_s, "answer_tokens": self._answer_tokens}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def ours(method: str, settings: Any, workdir: Path, request: Json, steps: Steps) -> None:
    """The product's own training, told of each step by what it writes to metrics.jsonl."""
    from finetune import policy, runs, supervised

    waited = sampled = 0.0
    inner = runs.Metrics.add

    def add(self: Any, row: Json) -> None:
        nonlocal waited, sampled
        inner(self, row)
        waited += float(row.get("wait_s") or 0)
        sampled += float(row.get("sampling_s") or 0)
        steps.add(waited, sampled)

    runs.Metrics.add = add  # type: ignore[method-assign]
    train = policy.train if method in ("reinforce", "grpo") else supervised.train
    train(method, settings, workdir, request)


def plain_rows(method: str, settings: Any, workdir: Path, steps: Steps) -> None:
    """transformers' Trainer over the same rows."""
    import torch
    from finetune import data
    from finetune import model as models
    from transformers import Trainer, TrainerCallback, TrainingArguments

    model, tokenizer, _ = models.prepare(settings, lambda text: None)
    rows = data.examples(tokenizer, settings, Path(settings.data), [], method == "weighted", lambda text: None)
    items = [{"input_ids": row.ids, "labels": row.labels, "weight": row.reward} for row in rows]

    def collate(batch: Sequence[Json]) -> Json:
        tensors = {name: torch.tensor([item[name] for item in batch]) for name in batch[0]}
        if method != "weighted":
            tensors.pop("weight")
        return tensors | {"attention_mask": torch.ones_like(tensors["input_ids"])}

    class Weighted(Trainer):  # type: ignore[misc, unused-ignore]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
            weight, labels = inputs.pop("weight"), inputs.pop("labels")
            logits = model(**inputs).logits[:, :-1].float()
            nll = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), labels[:, 1:], ignore_index=data.IGNORED, reduction="none"
            )
            each = nll.sum(1) / (labels[:, 1:] != data.IGNORED).sum(1)
            return (weight * each).sum() / weight.sum()

    class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            steps.add(0.0)

    precision = models.precision_of(settings)
    arguments = TrainingArguments(
        output_dir=str(workdir / "trainer"),
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulation,
        num_train_epochs=1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=settings.gradient_norm,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    kind = Weighted if method == "weighted" else Trainer
    kind(model=model, args=arguments, data_collator=collate, train_dataset=items, callbacks=[Watch()]).train()


def plain_reinforce(settings: Any, request: Json, steps: Steps) -> None:
    """Sample all answers of a step in one batch, have them judged, step on -A log p."""
    import torch
    from finetune import model as models
    from finetune import rewards
    from finetune.data import chat_prompt
    from finetune.judge import Judge, tasks_of

    model, tokenizer, _ = models.prepare(settings, lambda text: None)
    sampled_s = 0.0
    where = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(where)
    half = torch.autocast(where, torch.bfloat16, enabled=where == "cuda")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=settings.learning_rate)
    judge = Judge(str(request["daemon"]), settings.reward, settings.until, settings.run)
    tasks = tasks_of(request)
    for at in range(0, len(tasks), settings.tasks_per_step):
        chosen = tasks[at : at + settings.tasks_per_step]
        prompts = [chat_prompt(tokenizer, task.prompt) for task in chosen for _ in range(settings.samples)]
        given = torch.tensor(prompts, device=where)
        model.eval()
        began = time.monotonic()
        with torch.no_grad(), half:
            out = model.generate(
                input_ids=given, attention_mask=torch.ones_like(given), do_sample=True, top_k=0, top_p=1.0,
                temperature=settings.temperature, max_new_tokens=settings.answer_tokens,
                pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
            )  # fmt: skip
        out.tolist()  # waits for the GPU
        sampled_s += time.monotonic() - began
        texts = tokenizer.batch_decode(out[:, given.shape[1] :], skip_special_tokens=True)
        n = settings.samples
        groups = [(task, texts[i * n : (i + 1) * n]) for i, task in enumerate(chosen)]
        verdicts = judge.judge(groups, at // settings.tasks_per_step + 1)
        advantages = [
            a or 0.0 for group in verdicts for a in rewards.advantages([v.reward for v in group], "leave_one_out")
        ]
        total = out[:, given.shape[1] :].numel()
        model.train()
        for part in range(0, len(prompts), settings.batch):
            ids = out[part : part + settings.batch]
            factor = torch.tensor(advantages[part : part + settings.batch], device=where)
            with half:
                logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
            scores = logits[:, given.shape[1] - 1 : -1].float() / settings.temperature
            chances = torch.log_softmax(scores, -1).gather(2, ids[:, given.shape[1] :].unsqueeze(2)).squeeze(2)
            (-(factor.unsqueeze(1) * chances).sum() / total).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_norm)
        optimizer.step()
        optimizer.zero_grad()
        steps.add(judge.waited_s, sampled_s)


def plain_grpo(settings: Any, workdir: Path, request: Json, steps: Steps) -> None:
    """TRL's GRPOTrainer with a reward function, as its documentation has it."""
    from datasets import Dataset
    from finetune import policy, runs
    from finetune.judge import Judge, tasks_of
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    judge = Judge(str(request["daemon"]), settings.reward, settings.until, settings.run)
    tasks = tasks_of(request)
    by_id = {task.id: task for task in tasks}

    def verifierd(
        prompts: Any, completions: Any, task: list[str], trainer_state: Any, **more: Any
    ) -> list[float | None]:
        groups = itertools.groupby(zip(task, completions, strict=True), key=lambda pair: pair[0])
        posted = [(by_id[one], [str(said[-1]["content"]) for _, said in group]) for one, group in groups]
        return [verdict.reward for group in judge.judge(posted, trainer_state.global_step + 1) for verdict in group]

    class Watch(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            steps.add(judge.waited_s)

    run = runs.Run("grpo", settings, workdir, {})
    arguments = policy.arguments(run, len(tasks))
    arguments.save_strategy = "no"
    rows = [{"prompt": [{"role": "user", "content": task.prompt}], "task": task.id} for task in tasks]
    GRPOTrainer(
        model=run.model, reward_funcs=verifierd, args=arguments, train_dataset=Dataset.from_list(rows),
        processing_class=run.tokenizer, callbacks=[Watch()],
    ).train()  # fmt: skip


def prepare(job: Json) -> int:
    """The model and its rows, and what this machine is. A child's work: who has used a GPU is in the daemon's way."""
    import torch
    import transformers
    from finetune.model import tokenizer_of

    directory, sizes = Path(job["directory"]), Sizes(**job["sizes"])
    parameters = make_model(directory / "model", TINY_MODEL if job["is_tiny"] else QWEN_0_5B)
    frame = write_rows(directory / "rows.jsonl", tokenizer_of(str(directory / "model")), sizes)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    found = {"gpu": gpu, "torch": torch.__version__, "transformers": transformers.__version__}
    (directory / "prepared.json").write_text(json.dumps(found | {"parameters": parameters, "frame": frame}))
    return 0


def child(job: Json) -> int:
    """What the parent started: train by one method on one side, a line for each step."""
    if job["packages"]:
        sys.path.append(job["packages"])  # what the machine has itself comes first
    from finetune.errors import TrainError
    from finetune.settings import settings_of

    method, workdir = job["method"], Path(job["workdir"])
    steps = Steps(workdir / "steps.jsonl", job["tokens"], job["answer_tokens"])
    try:
        settings = settings_of(method, job["settings"])
        if job["side"] == "ours":
            ours(method, settings, workdir, job["request"], steps)
        elif method == "reinforce":
            plain_reinforce(settings, job["request"], steps)
        elif method == "grpo":
            plain_grpo(settings, workdir, job["request"], steps)
        else:
            plain_rows(method, settings, workdir, steps)
    except (TrainError, ImportError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


# --- who judges ---


class Substitute:
    """Stands between a training and the daemon: other texts go in, what comes out is the daemon's."""

    def __init__(self, daemon: Daemon | None, task: str) -> None:
        """daemon: None answers at once, with rewards of its own."""
        self._daemon, self._task = daemon, task
        self._number = itertools.count()
        self._scripted: dict[str, Json] = {}
        texts = [corpus.HERE / "candidates" / f"{label}.py" for label in (RIGHT, WRONG)]
        self._sources = [path.read_text() for path in texts]

    def _fresh(self, number: int) -> str:
        """A kernel that no cache knows: a comment in it is its own."""
        before, mark, after = self._sources[number % 2].partition("    tl.store(")
        return f"{before}    # {os.getpid()}.{number}\n{mark}{after}"

    def answer(self, method: str, path: str, body: Json | None) -> Json:
        if method == "POST" and body is not None:
            numbers = [next(self._number) for _ in body["candidates"]]
            if self._daemon is None:
                name = f"group-{numbers[0]}"
                items = [{"reward": 0.3 + 0.4 * (n % 2 == 0), "class": "ok"} for n in numbers]
                self._scripted[name] = {"id": name, "state": "done", "items": items}
                return {"id": name}
            real = body | {"task": self._task, "candidates": [{"candidate": self._fresh(n)} for n in numbers]}
            return dict(self._daemon.post(path, real))
        if self._daemon is None:
            return self._scripted[path.removeprefix("/v1/groups/").partition("?")[0]]
        return dict(self._daemon.get(path, 60))


@contextmanager
def substituted(daemon: Daemon | None, task: str) -> Iterator[str]:
    judge = Substitute(daemon, task)

    with answering(lambda call: document(200, judge.answer(call.method, call.path, call.body))) as url:
        yield url


@contextmanager
def judging(given: argparse.Namespace) -> Iterator[str]:
    """The address of what judges, live or scripted."""
    if given.judge == "scripted":
        with substituted(None, "") as url:
            yield url
        return
    programs = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build")).resolve() / "bin"
    with running_daemon(programs, given.python, log=given.out / "verifierd.log") as daemon:
        daemon.wait_until_ready(given.limit_s / 3)
        task = corpus.load_task(corpus.HERE / "tasks" / f"{TASK}.py")
        name = str(daemon.post("/v1/tasks", task.registration())["id"])
        with substituted(daemon, name) as url:
            yield url


# --- the whole ---


def figures(path: Path, status: int, said: str) -> Json:
    """Of one child. The first step warms up: rates are of those after it."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    found: Json = {"status": status, "steps": len(rows)}
    if status != 0:
        found["why"] = said.strip().splitlines()[-1][-300:] if said.strip() else "no time was left"
    if rows:
        found["peak_gib"] = round(max(row["peak_bytes"] for row in rows) / (1 << 30), 3)
    if len(rows) > 1:
        seconds = rows[-1]["at"] - rows[0]["at"]
        found |= {
            "seconds": round(seconds, 3),
            "tokens_per_s": round(sum(row["tokens"] for row in rows[1:]) / seconds, 1),
            "step_s": [round(b["at"] - a["at"], 3) for a, b in itertools.pairwise(rows)],
            "waiting": round((rows[-1]["waited_s"] - rows[0]["waited_s"]) / seconds, 4),
        }
        sampled_s = rows[-1]["sampled_s"] - rows[0]["sampled_s"]
        if sampled_s > 0:
            sampled = sum(row["answer_tokens"] for row in rows[1:])
            found |= {
                "sampling": round(sampled_s / seconds, 4),
                "rollout_tokens_per_s": round(sampled / sampled_s, 1),
            }
    return found


def run_one(job: Json, python: str, left_s: float, cpu_threads: str | None) -> Json:
    workdir = Path(job["workdir"])
    workdir.mkdir(parents=True)
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if cpu_threads:
        environment |= {"OMP_NUM_THREADS": cpu_threads}
    said = workdir / "said.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [python, str(Path(__file__).resolve()), "--child", json.dumps(job)],
            stdout=log, stderr=log, env=environment, cwd=workdir,
        )  # fmt: skip
        try:
            status = process.wait(max(1.0, left_s))
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            process.kill()
            process.wait()
    return figures(workdir / "steps.jsonl", status, said.read_text(errors="replace") if status > 0 else "")


def table(rows: Sequence[Json]) -> str:
    by = {(row["method"], row["side"]): row for row in rows if row["kind"] == "figure"}

    def cell(row: Json | None, name: str, form: str) -> str:
        return "-" if row is None or row.get(name) is None else form.format(row[name])

    lines = [
        "| method | tokens/s, ours | plain | ratio | peak GiB, ours | plain | waiting for rewards, ours | plain "
        "| sampled tokens/s, ours | plain |",
        "|" + " --- |" * 10,
    ]
    for method in METHODS:
        a, b = by.get((method, "ours")), by.get((method, "plain"))
        if a is None and b is None:
            continue
        both = a and b and a.get("tokens_per_s") and b.get("tokens_per_s")
        ratio = f"{a['tokens_per_s'] / b['tokens_per_s']:.2f}" if both and a and b else "-"
        waits = method in ("reinforce", "grpo")
        shares = " | ".join(cell(row, "waiting", "{:.1%}") if waits else "-" for row in (a, b))
        lines.append(
            f"| {method} | {cell(a, 'tokens_per_s', '{:.0f}')} | {cell(b, 'tokens_per_s', '{:.0f}')} | {ratio} "
            f"| {cell(a, 'peak_gib', '{:.2f}')} | {cell(b, 'peak_gib', '{:.2f}')} | {shares} "
            f"| {cell(a, 'rollout_tokens_per_s', '{:.0f}')} | {cell(b, 'rollout_tokens_per_s', '{:.0f}')} |"
        )
    return "\n".join(lines)


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of a gradient step, beside plain transformers and TRL.")
    parser.add_argument("--limit-s", type=float, default=200.0, help="of all of it; what is left out then is named")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--judge", choices=("live", "scripted"), default="live")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few steps: the mechanics, on a CPU")
    parser.add_argument("--wheels", type=Path, help="a directory of wheels (TRL and what it needs) for the trainings")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "gradient")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    for name, value in asdict(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"default {value}")
    given = parser.parse_args()
    given.python = os.environ.get("PYTHON", sys.executable)
    given.methods = given.methods.split(",")
    if unknown := set(given.methods) - set(METHODS):
        parser.error(f"--methods: there is no {', '.join(sorted(unknown))}")
    given.sizes = replace(
        TINY if given.tiny else Sizes(),
        **{name: value for name in asdict(Sizes()) if (value := getattr(given, name)) is not None},
    )
    return given


def unpacked(wheels: Path | None, into: Path) -> str:
    """Where the packages of these wheels lie; "" for none."""
    if wheels is None:
        return ""
    found = sorted(wheels.glob("*.whl"))
    if not found:
        raise SystemExit(f"gradient: --wheels {wheels}: there are none")
    for wheel in found:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(into)
    return str(into)


def measure(given: argparse.Namespace, directory: Path, record: Any) -> None:
    began, s = time.monotonic(), given.sizes
    packages = unpacked(given.wheels, directory / "site-packages")  # by this name dill knows what it need not pickle
    job: Json = {"directory": str(directory), "sizes": asdict(s), "is_tiny": given.tiny}
    command = [given.python, str(Path(__file__).resolve()), "--prepare", json.dumps(job)]
    done = subprocess.run(command, check=False, timeout=given.limit_s / 2, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise BenchError(f"the model was not made ({done.returncode}): {done.stderr.strip()[-1000:]}")
    machine = json.loads((directory / "prepared.json").read_text())
    frame, has_gpu = machine.pop("frame"), machine["gpu"] is not None
    draw = random.Random(2)
    tasks = [
        {
            "name": f"task{i}",
            "id": f"task{i}",
            "prompt": words(s.prompt - frame, draw),
            "policy": "strict",
            "entry_point": "ModelNew",
        }
        for i in range(s.tasks_per_step * s.rl_steps)
    ]
    record(kind="machine", **machine, cores=os.cpu_count(), load=os.getloadavg(), sizes=asdict(s), judge=given.judge)
    with judging(given) as url:
        pairs = list(itertools.product(given.methods, SIDES))
        for number, (method, side) in enumerate(pairs):
            is_rl = method in ("reinforce", "grpo")
            per_step = s.tasks_per_step * s.samples * (s.prompt + s.answer)
            job = {
                "method": method, "side": side, "workdir": str(directory / f"{method}_{side}"), "packages": packages,
                "settings": settings_given(method, s, directory, given.tiny),
                "request": {"daemon": url, "tasks": tasks},
                "tokens": per_step if is_rl else s.batch * s.accumulation * s.length,
                "answer_tokens": s.tasks_per_step * s.samples * s.answer if is_rl else 0,
            }  # fmt: skip
            left_s = given.limit_s - (time.monotonic() - began)
            # Twice its share of what is left: one that hangs takes nothing from most of the others.
            most_s = min(left_s, max(20.0, 2 * left_s / (len(pairs) - number)))
            found = (
                run_one(job, given.python, most_s, None if has_gpu else "1")
                if left_s > 5
                else {"status": -1, "steps": 0, "why": "no time was left"}
            )
            record(kind="figure", method=method, side=side, **found)
            rate = found.get("tokens_per_s")
            said = "-" if rate is None else f"{rate:.0f} tokens/s"
            print(f"  {method:<10} {side:<6} {said}, {found['steps']} steps {found.get('why', '')}", flush=True)


def main() -> int:
    given = arguments_of()
    if given.prepare:
        return prepare(json.loads(given.prepare))
    if given.child:
        return child(json.loads(given.child))
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[Json] = []
    path = given.out / "gradient.jsonl"
    path.unlink(missing_ok=True)

    def record(**row: Any) -> None:
        rows.append(row)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="gradient-") as name:
        try:
            measure(given, Path(name), record)
        except (Exception, KeyboardInterrupt) as error:  # what was measured by then is told
            record(kind="failure", why=f"{type(error).__name__}: {error}")
            print(f"gradient: {type(error).__name__}: {error}", file=sys.stderr)
    measured = {(r["method"], r["side"]) for r in rows if r["kind"] == "figure" and "tokens_per_s" in r}
    missing = [f"{m} ({s})" for m, s in itertools.product(given.methods, SIDES) if (m, s) not in measured]
    print(f"\nraw data in {path}\n\n{table(rows)}")
    if missing:
        print(f"\nnot measured: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
