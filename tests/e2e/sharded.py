"""python sharded.py METHOD REQUEST: finetune with FSDP on processes without a GPU, where accelerate would pass over it.

accelerate shards where processes have a GPU each; torch does so on CPUs too, with gloo between them.
"""

import sys

from accelerate import PartialState
from accelerate.utils import DistributedType

inner = PartialState.__init__


def as_with_gpus(self: PartialState, cpu: bool = False, **more: object) -> None:
    inner(self, cpu, **more)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU


if __name__ == "__main__":
    PartialState.__init__ = as_with_gpus
    from finetune.__main__ import main

    sys.exit(main())
