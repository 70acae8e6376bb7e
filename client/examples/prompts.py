"""prompts.py DIRECTORY OUTPUT: registers a directory's modules as tasks, and writes a prompt for each.

OUTPUT.jsonl is for OpenRLHF and slime (columns prompt, task), OUTPUT.parquet for verl.
"""

import json
import sys
from pathlib import Path

from datasets import Dataset
from verifierd_client import Client

PROMPT = """Rewrite this PyTorch module as a class `ModelNew` that computes the same in Triton kernels of your own, as
fast as you can make it. Answer in one python block.\n```python\n{}\n```"""

client = Client()  # VERIFIERD_URL, else http://127.0.0.1:8080
rows = []
for number, file in enumerate(sorted(Path(sys.argv[1]).glob("*.py"))):
    task = client.add_task(file.stem, file.read_text())["id"]
    row = {"prompt": [{"role": "user", "content": PROMPT.format(file.read_text())}], "task": task}
    verl = {"data_source": "kernels", "ability": "kernels", "reward_model": {"style": "rule", "ground_truth": task}}
    rows.append(row | verl | {"extra_info": {"index": number, "split": "train"}})
Path(sys.argv[2] + ".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
Dataset.from_list(rows).to_parquet(sys.argv[2] + ".parquet")
