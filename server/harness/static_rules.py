"""Trip-wires on a candidate's syntax tree (docs/static.md has the reason for each).

Two lists. What only a cheat writes is a Rule: the candidate is refused, and the rule's name says why. What honest
code may write too is a Flag: it is shown beside the verdict, and the checks that run the candidate decide. Both look
at the tree and never at words: comments and strings are nothing. Neither is a wall. Whoever gets past them meets the
sandbox, the referee's clock and the evidence of what ran; that is where a cheat has to be stopped.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from names import Imports, dotted

HARNESS: Final = frozenset(path.stem for path in Path(__file__).parent.glob("*.py"))


def _below(module: str, names: str) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for name in names.split())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True)
class Rule:
    """One thing that is looked for. A name ending in `.*` stands for all below it."""

    name: str
    why: str
    modules: frozenset[str] = frozenset()
    """modules whose import is enough, and anything of them"""
    names: frozenset[str] = frozenset()
    """dotted names that are used, called or not; that one is imported and never used is nothing"""
    builtins: frozenset[str] = frozenset()
    """bare names that the source does not define itself"""
    attributes: frozenset[str] = frozenset()
    """attributes, of whatever object"""


RULES: Final = (
    Rule(
        "native_code",
        "runs native code past every check",
        modules=_words("ctypes _ctypes cffi _cffi_backend numba llvmlite cupy pycuda"),
        names=_below(
            "torch",
            "utils.cpp_extension.* ops.load_library classes.load_library cuda.cudart cuda._compile_kernel "
            "cuda.jiterator.*",
        ),
        attributes=_words("load_binary"),
    ),
    Rule(
        "process",
        "starts, signals or replaces processes",
        modules=_words("subprocess multiprocessing _posixsubprocess torch.multiprocessing pty"),
        names=_below(
            "os",
            "fork forkpty system popen posix_spawn posix_spawnp kill killpg pidfd_open execl execle execlp execlpe "
            "execv execve execvp execvpe spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe",
        ),
    ),
    Rule(
        "thread",
        "does work beside the call that is timed",
        modules=_words("_thread concurrent asyncio"),
        names=_below(
            "threading",
            "Thread Timer _start_new_thread _start_joinable_thread enumerate settrace setprofile main_thread "
            "current_thread",
        )
        | _below("torch", "jit.fork jit.wait futures.Future nn.parallel.parallel_apply nn.parallel.parallel_apply.*")
        | _words("logging.handlers.QueueListener"),
    ),
    Rule(
        "network",
        "talks to other processes",
        modules=_words("socket _socket socketserver ssl http urllib requests ftplib xmlrpc select selectors")
        | _words("torch.distributed torch.utils.tensorboard"),
    ),
    Rule(
        "files",
        "reads or writes files, descriptors or other memory",
        modules=_words("mmap sqlite3 dbm fcntl fileinput posix"),
        names=_below(
            "os",
            "open fdopen read write readv writev pread pwrite sendfile pipe dup dup2 memfd_create listdir scandir walk "
            "unlink remove rename replace symlink link mkfifo ftruncate truncate",
        )
        | _below("io", "open FileIO open_code")
        | _words("shutil.* tempfile.*")
        | _below("torch", "load save from_file UntypedStorage.from_file serialization.*")
        | _below("numpy", "load save savez memmap fromfile loadtxt genfromtxt savetxt fromregex DataSource")
        | _words("codecs.open tokenize.open linecache.* gzip.open bz2.open lzma.open zipfile.ZipFile tarfile.open"),
        builtins=_words("open"),
        attributes=_words("read_text read_bytes write_text write_bytes tofile"),
    ),
    Rule(
        "pickle",
        "packs or unpacks objects that run code",
        modules=_words("pickle _pickle cPickle dill cloudpickle marshal shelve copyreg"),
    ),
    Rule(
        "dynamic_code",
        "makes code that is not in the source",
        modules=_words("runpy code codeop zipimport imp"),
        names=_below("importlib", "import_module reload __import__ machinery.* util.module_from_spec")
        | _below("importlib", "util.spec_from_file_location abc.*")
        | _below("types", "CodeType FunctionType")
        | _words("typing.get_type_hints typing.ForwardRef inspect.get_annotations pkgutil.resolve_name pydoc.locate"),
        builtins=_words("eval exec compile __import__ breakpoint"),
    ),
    Rule(
        "reflection",
        "looks into frames, modules or objects that are not its own",
        modules=_words("__main__ builtins"),
        names=_below("gc", "get_objects get_referrers get_referents callbacks set_debug")
        | _below("inspect", "currentframe stack trace getouterframes getinnerframes getattr_static")
        | _below("sys", "_getframe _current_frames modules settrace setprofile meta_path path_hooks addaudithook")
        | _below("traceback", "walk_stack extract_stack"),
        builtins=_words("__builtins__ __loader__ __spec__"),
        attributes=_words("__globals__ __code__ __closure__ __builtins__ __subclasses__ cell_contents")
        | _words("f_back f_globals f_locals f_builtins tb_frame gi_frame cr_frame ag_frame"),
    ),
    Rule("harness", "is a module of the process that judges it", modules=HARNESS),
    Rule("exit_hook", "runs after the verdict's calls, or in the middle of them", modules=_words("atexit signal")),
    Rule(
        "compiler",
        "has kernels written by another compiler than the candidate",
        modules=_words("torch.export torch_tensorrt"),
        names=_below(
            "torch",
            "compile jit.script jit.script_method jit.trace jit.trace_module jit.load jit.freeze "
            "jit.optimize_for_inference _dynamo.optimize _inductor.compile _inductor.compile_fx.* "
            "_inductor.aot_compile _inductor.aoti_compile_and_package fx.experimental.*",
        ),
    ),
    Rule(
        "allocator",
        "changes whence memory comes",
        names=_below(
            "torch.cuda",
            "CUDAPluggableAllocator MemPool use_mem_pool caching_allocator_alloc caching_allocator_delete "
            "change_current_allocator memory.CUDAPluggableAllocator memory.MemPool memory.use_mem_pool "
            "memory.caching_allocator_alloc memory.caching_allocator_delete memory.change_current_allocator "
            "memory._set_allocator_settings",
        ),
    ),
    Rule(
        "tensor_subclass",
        "makes tensors that are not what they seem",
        modules=_words("torch.overrides torch.utils._python_dispatch torch._subclasses"),
        attributes=_words("_make_subclass _make_wrapper_subclass as_subclass"),
    ),
    Rule(
        "unseen",
        "has torch work where its functions and operators are not seen",
        attributes=_words(
            "DisableTorchFunction DisableTorchFunctionSubclass _DisableTorchDispatch _disable_profiler "
            "_pop_torch_function_stack _set_torch_function_state _get_function_stack_at _len_torch_function_stack "
            "_get_dispatch_stack_at _len_torch_dispatch_stack _profiler_enabled to_dlpack "
            "_to_dlpack _to_dlpack_versioned redispatch redispatch_boxed _op_dk _enable_record_function "
            "__array_interface__ __array_struct__ __cuda_array_interface__"
        ),
    ),
    Rule("patch", "changes what belongs to Python, torch or triton", modules=_words("unittest.mock mock")),
)
BY_NAME: Final = {rule.name: rule for rule in RULES}

FLAGS: Final = (
    Rule(
        "foreign_compute",
        "computes with torch: strict and hybrid ask how much of the time that was",
        names=_below("torch.nn", "functional.*")
        | _below("torch", "special.* linalg.* fft.* ops.aten.*")
        | _below(
            "torch",
            "abs add addmm addmv amax amin argmax argmin baddbmm bmm chain_matmul clamp conv1d conv2d conv3d cumprod "
            "cumsum div dot einsum eq erf exp ge gelu gt inner layer_norm le log log_softmax logsumexp lt lerp matmul "
            "max maximum mean min minimum mm mul mv ne neg norm outer pow prod relu rms_norm rsqrt sigmoid sign silu "
            "softmax sqrt square std sub sum tanh tensordot threshold topk tril triu var var_mean where",
        ),
        attributes=_words(
            "matmul addmm baddbmm bmm einsum softmax log_softmax logsumexp relu sigmoid tanh gelu silu layer_norm "
            "cumsum cumprod rsqrt"
        ),
    ),
    Rule(
        "stream",
        "uses streams: the clock waits for all of them",
        names=_below("torch.cuda", "Stream stream ExternalStream set_stream default_stream"),
        attributes=_words("wait_stream wait_event record_stream"),
    ),
    Rule(
        "cuda_graph",
        "replays a graph: whether on the inputs of this call, the comparison says",
        names=_below("torch.cuda", "CUDAGraph graph graphs.* make_graphed_callables"),
    ),
    Rule(
        "global_state",
        "changes a setting of the process: each call is made with the settings of the referee",
        names=_below(
            "torch",
            "set_default_dtype set_default_device set_default_tensor_type set_float32_matmul_precision manual_seed "
            "seed set_rng_state cuda.manual_seed cuda.manual_seed_all cuda.set_rng_state set_num_threads "
            "use_deterministic_algorithms set_deterministic_debug_mode set_grad_enabled set_flush_denormal "
            "cuda.set_per_process_memory_fraction",
        ),
    ),
    Rule(
        "storage",
        "handles memory behind a tensor's back: outputs are judged where they lie",
        names=_below("torch", "as_strided frombuffer from_dlpack utils.dlpack.* _C.*"),
        attributes=_words("untyped_storage storage _typed_storage set_ resize_ as_strided as_strided_ __dlpack__"),
    ),
    Rule(
        "clock",
        "reads a clock: it might behave otherwise while it is timed",
        names=_below("time", "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time")
        | _below("torch", "cuda.Event cuda.elapsed_time profiler.* autograd.profiler.*")
        | _below("triton", "testing.*"),
    ),
    Rule("environment", "reads or changes the environment", names=_below("os", "environ getenv putenv unsetenv")),
    Rule(
        "indirect",
        "finds what it calls by other means than a name",
        names=_below("operator", "attrgetter methodcaller") | _below("gc", "*") | _below("inspect", "*"),
        builtins=_words("globals locals vars"),
    ),
    Rule("finalizer", "has __del__: when it runs is not the candidate's to say"),
    Rule("own_compile", "compiles kernels by itself", names=_below("triton", "compile compiler.* runtime.jit.*")),
)
FLAGS_BY_NAME: Final = {rule.name: rule for rule in FLAGS}

# Roots that belong to everybody: to assign below them is to patch.
PATCHED: Final = _words(
    "torch triton time math random numpy os sys gc inspect operator functools itertools types typing statistics copy"
)
# But these are there to be set.
SETTINGS: Final = _words("torch.backends torch._dynamo.config torch._inductor.config triton.knobs")
SENSITIVE: Final = _words("os sys gc inspect importlib threading builtins io types")
IMPORTED_BY_OTHERS: Final = _words(
    "sys os ctypes builtins importlib gc inspect threading io subprocess multiprocessing mmap pickle traceback atexit "
    "_thread socket shutil tempfile posix"
)
"""Modules that no library has a name of its own for: whose attribute they are does not matter."""
TENSOR_BASES: Final = _words("torch.Tensor torch.overrides.TorchFunctionMode torch.cuda.FloatTensor torch.FloatTensor")
TENSOR_METHODS: Final = _words("__torch_function__ __torch_dispatch__")


@dataclass(frozen=True)
class Finding:
    """One place where a rule or a flag holds."""

    line: int
    rule: str
    what: str


class _Source:
    """The names of one source, and which of them it defines itself."""

    def __init__(self, tree: ast.Module, imports: Imports, kernels: Iterable[str]) -> None:
        self.tree = tree
        self.kernels = frozenset(kernels)
        everything = list(ast.walk(tree))
        self.own = _defined(everything)
        self.has_honest_self = _has_honest_self(everything)
        self.imports = Imports(dict(imports.names), imports.has_star)
        self.held: dict[_Said, tuple[tuple[str, str], ...]] = {}
        self._follow_aliases(everything)

    def _follow_aliases(self, everything: Sequence[ast.AST]) -> None:
        """`cuda = torch.cuda`: another name for what was imported, where it is never anything else."""
        stored = Counter(
            node.id for node in everything if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        for node in everything:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Name | ast.Attribute):
                continue
            meaning = self.meaning(node.value)
            for target in node.targets:
                if meaning is not None and isinstance(target, ast.Name) and stored[target.id] == 1:
                    self.imports.names.setdefault(target.id, meaning)

    def meaning(self, node: ast.AST) -> str | None:
        """The full dotted name of what was imported; None for anything else."""
        name = dotted(node)
        if name is None:
            return None
        first, _, rest = name.partition(".")
        known = self.imports.names.get(first)
        return f"{known}.{rest}" if known is not None and rest else known

    def nodes(self) -> Iterator[ast.AST]:
        """Every node but those below `if __name__ == "__main__"`, which is never so here."""
        never = set() if "__name__" in self.own else {id(item) for item in self.tree.body if _is_script_part(item)}
        pending: list[ast.AST] = [self.tree]
        while pending:
            node = pending.pop()
            yield node
            pending += [child for child in ast.iter_child_nodes(node) if id(child) not in never]


def _is_script_part(node: ast.AST) -> bool:
    if not isinstance(node, ast.If) or node.orelse or not isinstance(node.test, ast.Compare):
        return False
    test = node.test
    sides = [test.left, *test.comparators]
    is_equal = len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)
    names = {dotted(side) or _constant(side) for side in sides}
    return is_equal and names == {"__name__", "__main__"}


def _defined(everything: Sequence[ast.AST]) -> frozenset[str]:
    found: set[str] = set()
    for node in everything:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


def _has_honest_self(everything: Sequence[ast.AST]) -> bool:
    """Whether `self` is nothing but the first parameter of methods."""
    methods = {
        id(item.args.args[0])
        for node in everything
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.args.args and not item.decorator_list
    }
    for node in everything:
        if isinstance(node, ast.arg) and node.arg == "self" and id(node) not in methods:
            return False
        if isinstance(node, ast.Name) and node.id == "self" and not isinstance(node.ctx, ast.Load):
            return False
    return True


def _constant(node: ast.AST) -> str | None:
    """The text of a literal, also one put together with `+`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts: list[str] = []
        pending: list[ast.AST] = [node]
        while pending:
            item = pending.pop()
            if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Add):
                pending += [item.right, item.left]
            elif isinstance(item, ast.Constant) and isinstance(item.value, str):
                parts.append(item.value)
            else:
                return None
        return "".join(parts)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_in(name: str, wanted: frozenset[str]) -> bool:
    """Whether a dotted name is one of those, or below one that ends in `.*`."""
    if name in wanted:
        return True
    parts = name.split(".")
    return any(".".join((*parts[:end], "*")) in wanted for end in range(1, len(parts)))


def _is_below(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


# --- what a node mentions ---


def _imported(node: ast.AST) -> tuple[str, ...]:
    """The full names that an import brings; `from os import *` brings `os.*`."""
    if isinstance(node, ast.Import):
        return tuple(alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return tuple(f"{node.module}.{alias.name}" for alias in node.names)
    return ()


def _looked_up(node: ast.AST, source: _Source) -> tuple[str, str | None] | None:
    """`getattr(module, name)`: the module, and the name where it is a literal."""
    if not isinstance(node, ast.Call) or len(node.args) < 2 or dotted(node.func) != "getattr":
        return None
    module = source.meaning(node.args[0])
    return None if module is None else (module, _constant(node.args[1]))


def _behind(names: Iterable[str]) -> Iterator[str]:
    """`torch.sys.modules` and `from torch import sys` are `sys.modules` and `sys`: imported by another module."""
    for name in names:
        parts = name.split(".")
        for start in range(1, len(parts)):
            if parts[start] in IMPORTED_BY_OTHERS:
                yield ".".join(parts[start:])


def _attribute(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1:
        return _constant(node.args[1])
    return None


def _builtin(node: ast.AST, source: _Source) -> str | None:
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return None
    return None if node.id in source.own or node.id in source.imports.names else node.id


@dataclass(frozen=True)
class _Said:
    """All of one node that a rule may be about: nodes that say the same are alike to every rule."""

    imported: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    attribute: str | None = None
    is_of_module: bool = False
    """`torch.backends.cuda.matmul` multiplies nothing"""
    builtin: str | None = None
    matched: tuple[str, ...] = ()
    """`case object(__globals__=found)` reads an attribute"""


def _said(node: ast.AST, source: _Source) -> _Said | None:
    if isinstance(node, ast.Name | ast.Attribute):
        meaning = source.meaning(node)
        used = () if meaning is None else (meaning, *_behind((meaning,)))
        return _Said((), used, _attribute(node), meaning is not None, _builtin(node, source))
    if isinstance(node, ast.Call):
        found = _looked_up(node, source)
        name = None if found is None or found[1] is None else f"{found[0]}.{found[1]}"
        return _Said(used=() if name is None else (name, *_behind((name,))), attribute=_attribute(node))
    if isinstance(node, ast.Import | ast.ImportFrom):
        imported = _imported(node)
        return _Said(imported, tuple(_behind(imported)))
    return _Said(matched=tuple(node.kwd_attrs)) if isinstance(node, ast.MatchClass) else None


def _holds(rule: Rule, said: _Said) -> str | None:
    """What of this the rule is about; None where nothing is."""
    for name in said.matched:
        if name in rule.attributes:
            return f"uses .{name}"
    for name in said.imported:
        module, _, last = name.rpartition(".")
        if _is_below(name, rule.modules):
            return f"imports {name}"
        if last == "*" and module in SENSITIVE and any(known.startswith(f"{module}.") for known in rule.names):
            return f"imports {name}"
    for name in said.used:
        if _is_in(name, rule.names) or _is_below(name, rule.modules - HARNESS):
            return f"uses {name}"
        if rule.name in BY_NAME and name.rpartition(".")[2] in rule.attributes:  # also by an import's own name for it
            return f"uses {name}"
    if said.attribute in rule.attributes and not (rule.name in FLAGS_BY_NAME and said.is_of_module):
        return f"uses .{said.attribute}"
    return f"uses {said.builtin}" if said.builtin is not None and said.builtin in rule.builtins else None


def _words_of(rule: Rule) -> frozenset[str]:
    return rule.modules | rule.names | rule.builtins | rule.attributes


ABOUT: Final = {
    word: tuple(rule for rule in (*RULES, *FLAGS) if word in _words_of(rule))
    for word in frozenset().union(*(_words_of(rule) for rule in (*RULES, *FLAGS)))
}
"""The rules that have a word, whatever it means to them."""


def _mentioned_words(said: _Said) -> Iterator[str]:
    """Every word of a rule that could hold of this."""
    for name in (*said.imported, *said.used):
        parts = name.split(".")
        yield parts[-1]
        for end in range(1, len(parts) + 1):
            start = ".".join(parts[:end])
            yield start
            yield f"{start}.*"
    yield from said.matched
    if said.attribute is not None:
        yield said.attribute
    if said.builtin is not None:
        yield said.builtin


def _candidates(said: _Said) -> Iterable[Rule]:
    """The rules that may hold of this, in their order: the others have no word of it."""
    if any(name.endswith(".*") for name in said.imported):
        return (*RULES, *FLAGS)
    found = {rule.name for word in _mentioned_words(said) for rule in ABOUT.get(word, ())}
    return [rule for rule in (*RULES, *FLAGS) if rule.name in found] if found else ()


def _held(node: ast.AST, source: _Source) -> tuple[tuple[str, str], ...]:
    """(rule or flag, what) of each list's rows: a source says the same in many places, which is looked at once."""
    said = _said(node, source)
    if said is None:
        return ()
    if said not in source.held:
        whats = ((rule.name, _holds(rule, said)) for rule in _candidates(said))
        source.held[said] = tuple((name, what) for name, what in whats if what is not None)
    return source.held[said]


# --- rules that are more than a name ---


def _targets(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns to or deletes, tuples taken apart."""
    if isinstance(node, ast.Assign | ast.Delete):
        pending = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
        pending = [node.target]
    elif isinstance(node, ast.With):
        pending = [item.optional_vars for item in node.items if item.optional_vars is not None]
    else:
        return []
    found: list[ast.expr] = []
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Tuple | ast.List):
            pending += item.elts
        else:
            found.append(item.value if isinstance(item, ast.Starred) else item)
    return found


CHANGING: Final = _words("update setdefault pop popitem clear __setitem__ __delitem__ __ior__")
"""Methods of dictionaries."""


def _whose_dictionary(node: ast.AST) -> ast.AST | None:
    """`x` of `vars(x)` and of `x.__dict__`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value
    is_vars = isinstance(node, ast.Call) and dotted(node.func) == "vars" and bool(node.args)
    return node.args[0] if is_vars and isinstance(node, ast.Call) else None


def _assigned(node: ast.AST, source: _Source) -> Iterator[tuple[ast.AST, str]]:
    """(whose attribute, which) for each attribute that a node sets or deletes, by whatever means."""
    for target in _targets(node):
        if isinstance(target, ast.Attribute):
            yield target.value, target.attr
        elif isinstance(target, ast.Subscript):
            owner = _whose_dictionary(target.value)
            if owner is not None:
                yield owner, _constant(target.slice) or "?"
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            owner = _whose_dictionary(node.func.value)
            if owner is not None:
                yield owner, "?"
        name = dotted(node.func)
        if name in ("setattr", "delattr", "object.__setattr__", "type.__setattr__") and len(node.args) > 1:
            yield node.args[0], _constant(node.args[1]) or "?"


def _is_own_type(call: ast.Call, source: _Source) -> bool:
    """`type(self)`: the class that the method stands in, or one derived from it. Honest code keeps figures there."""
    return len(call.args) == 1 and dotted(call.args[0]) == "self" and source.has_honest_self


def _patches(node: ast.AST, source: _Source) -> tuple[str, str] | None:
    """(rule or flag, what) where a node sets an attribute of something that is not the candidate's."""
    for owner, attribute in _assigned(node, source):
        if isinstance(owner, ast.Attribute) and owner.attr == "__self__":
            return "patch", f"sets {attribute} of what a function belongs to"
        is_type = isinstance(owner, ast.Call) and dotted(owner.func) == "type" and not _is_own_type(owner, source)
        if attribute == "__class__" or is_type:
            return "patch", f"sets {attribute} of a type that it did not make"
        meaning = source.meaning(owner)
        if meaning is not None and meaning.partition(".")[0] in PATCHED:
            flag = "global_state" if _is_below(meaning, SETTINGS) else "patch"
            return flag, f"sets {meaning}.{attribute}"
        name = dotted(owner)
        if name is not None and name.partition(".")[0] in source.kernels and name not in source.imports.names:
            return "patch", f"sets {name}.{attribute}, a kernel's own"
    if isinstance(node, ast.Call) and source.meaning(node.func) in ("torch.library.Library", "torch.library.impl"):
        first = _constant(node.args[0]) if node.args else None
        if first is not None and first.partition("::")[0] in ("aten", "prims"):
            return "patch", f"puts its own in place of torch's {first}"
    return None


def _subclasses_tensor(node: ast.AST, source: _Source) -> str | None:
    if not isinstance(node, ast.ClassDef):
        return None
    for base in node.bases:
        meaning = source.meaning(base)
        if meaning in TENSOR_BASES:
            return f"derives {node.name} from {meaning}"
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name in TENSOR_METHODS:
            return f"defines {node.name}.{statement.name}"
    return None


def _hidden_lookup(node: ast.AST, source: _Source) -> tuple[str, str] | None:
    """`getattr(module, <what cannot be read>)`."""
    found = _looked_up(node, source)
    if found is None or found[1] is not None:
        return None
    root = found[0].partition(".")[0]
    return ("reflection" if root in SENSITIVE else "indirect"), f"looks up a hidden name in {found[0]}"


# --- all of them ---


def _find(node: ast.AST, source: _Source) -> Iterator[tuple[str, str]]:
    """(rule or flag, what) for everything that holds of this one node."""
    yield from _held(node, source)
    patched = _patches(node, source)
    if patched is not None:
        yield patched
    what = _subclasses_tensor(node, source)
    if what is not None:
        yield "tensor_subclass", what
    hidden = _hidden_lookup(node, source)
    if hidden is not None:
        yield hidden
    if isinstance(node, ast.FunctionDef) and node.name == "__del__":
        yield "finalizer", "defines __del__"


def findings(tree: ast.Module, imports: Imports, kernels: Iterable[str]) -> tuple[list[Finding], list[str]]:
    """What is certain, in the source's order, and the names of the flags."""
    source = _Source(tree, imports, kernels)
    certain: list[Finding] = []
    flags: set[str] = set()
    for node in source.nodes():
        for name, what in _find(node, source):
            if name in BY_NAME:
                certain.append(Finding(getattr(node, "lineno", 0), name, what))
            else:
                flags.add(name)
    return sorted(certain, key=lambda finding: finding.line), sorted(flags)
