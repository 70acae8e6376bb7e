"""verl's scoring of code by SandboxFusion, and its loading of a reward function by name."""

from __future__ import annotations

import json
import sys
import threading

from packages import answer, bare

bare("verl")
bare("verl.utils")
from verl.utils.import_utils import load_extern_object  # noqa: E402
from verl.utils.reward_score import default_compute_score  # noqa: E402

url, scripts = sys.argv[1], sys.argv[2:]
GATES = ["compiled", "correct", "speedup>=1", "speedup>=1.2", "speedup>=1.4", "reward>=0.2", "reward>=0.8"]
cases = {
    "inputs": [json.dumps({"task": "scripted", "gate": gate}) for gate in GATES],
    "outputs": ["1"] * len(GATES),
}
compute_score = load_extern_object("pkg://verifierd_client.verl", "compute_score")
found = []
for number, script in enumerate(scripts):
    by_address = default_compute_score(
        "taco",
        answer(script, number),
        json.dumps(cases),
        sandbox_fusion_url=url + "/compat/sandboxfusion/run_code",
        concurrent_semaphore=threading.Semaphore(64),
        memory_limit_mb=1024,
    )
    by_function = compute_score(  # type: ignore[operator]
        data_source="kernels",
        solution_str=answer(script, number),
        ground_truth="scripted",
        extra_info={"num_turns": None, "rollout_reward_scores": {}},
        url=url,
        fill=0.125,
    )
    found.append({"gates": by_address, **by_function})
print(json.dumps(found))
