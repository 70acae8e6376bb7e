"""Evidence of whose kernels did the work: CUPTI's records, their attribution, decoys."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import activity
import evidence
import judge
import launches
import native
import pytest
import rig
from activity import KERNEL, Activity, BadRecords, Record
from evidence import Own, kernel_kind, weigh_records
from launches import kind_of, python_behind, stores_of, uses_of
from wire import clean_text

FAKE = Path(__file__).with_name("fake_cupti.c")
DRIVE = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import native
try:
    native.cupti_open(["/nonexistent/libcupti.so"])
    sys.exit("opened what is not there")
except native.NativeError as error:
    assert "libcupti" in str(error), error
assert native.cupti_open(["/nonexistent/libcupti.so", sys.argv[2]]) == 999
native.cupti_watch()
fake = ctypes.CDLL(sys.argv[2])
fake.fake_kernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]
fake.fake_copy.argtypes = [ctypes.c_uint8, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
fake.fake_load_module.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
fake.fake_load_module(b"image one", 9)
fake.fake_kernel(b"before", 1, 2)
native.cupti_record(True)
KERNELS
native.cupti_record(False)
fake.fake_kernel(b"after", 1, 2)
open(sys.argv[3], "wb").write(native.cupti_take())
"""


def recorded(directory: Path, kernels: str) -> activity.Activity:
    """What a process of its own records while it runs these lines against the fake CUPTI."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build the fake CUPTI with")
    library, out = directory / "libfake.so", directory / "records"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, FAKE], check=True)
    script = DRIVE.replace("KERNELS", kernels)
    subprocess.run([sys.executable, "-c", script, str(rig.HARNESS), library, out], check=True, env=dict(os.environ))
    return activity.parse(out.read_bytes())


def test_records_are_those_between_on_and_off(tmp_path: Path) -> None:
    lines = 'fake.fake_kernel(b"add_kernel", 1000, 1500)\nfake.fake_copy(8, 4096, 1600, 1700)'
    found = recorded(tmp_path, lines)
    assert [(item.name, item.ns, item.threads, item.stream) for item in found.records] == [
        ("add_kernel", 500, 4 * 2 * 128, 7),
        ("memcpy", 100, 1024, 7),
    ]
    assert found.modules == {"sha256:" + hashlib.sha256(b"image one").hexdigest()}
    assert found.lost == 0


def test_more_records_than_there_is_room_for_are_counted(tmp_path: Path) -> None:
    lines = 'names = [b"k%d" % i for i in range(300)]\nfor i in range(9000): fake.fake_kernel(names[i % 300], i, i + 1)'
    found = recorded(tmp_path, lines)
    kept = len(found.records)
    assert kept <= activity.RECORDS_MAX and kept + found.lost == 9000
    assert len({item.name for item in found.records}) == activity.NAMES_MAX


def test_sha256_is_sha256() -> None:
    library = ctypes.CDLL(str(native.LIBRARY))
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 4099):
        data, out = bytes(i * 7 % 251 for i in range(size)), ctypes.create_string_buffer(32)
        library.harness_sha256(data, ctypes.c_size_t(size), out)
        assert out.raw == hashlib.sha256(data).digest(), size


# --- hostile records ---


def packed(
    records: list[tuple[int, ...]],
    names: list[bytes],
    modules: tuple[bytes, ...] = (),
    head: tuple[int, ...] | None = None,
    lost: int = 0,
) -> bytes:
    data = activity.HEAD.pack(*(head or (activity.MAGIC, 1, len(records), len(modules), len(names), lost, 0)))
    data += b"".join(activity.RECORD.pack(*item) for item in records)
    data += b"".join(activity.MODULE.pack(item, 1) for item in modules)
    return data + b"".join(name.ljust(activity.NAME_SIZE, b"\0") for name in names)


def kernel(name: int = 0, start: int = 10, end: int = 20) -> tuple[int, ...]:
    return (activity.KERNEL, name, start, end, 0, 1, 1, 1, 32, 1, 1, 7, 1)


def test_a_whole_one_is_read() -> None:
    found = activity.parse(packed([kernel()], [b"add"], (b"\1" * 32, b"\0" * 32)))
    assert [item.name for item in found.records] == ["add"]
    assert found.modules == {"sha256:" + "01" * 32}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 31,
        packed([kernel()], [b"add"])[:-1],
        packed([kernel()], [b"add"]) + b"\0",
        packed([], [], head=(activity.MAGIC, 1, 0xFFFFFFFF, 0, 0, 0, 0)),
        packed([], [], head=(activity.MAGIC, 1, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0)),
        packed([], [], head=(activity.MAGIC, 2, 0, 0, 0, 0, 0)),
        packed([], [], head=(0x4D4D4D4D, 1, 0, 0, 0, 0, 0)),
        packed([kernel(name=1)], [b"add"]),
        packed([kernel(name=0xFFFFFFFF)], [b"add"]),
        packed([kernel(start=20, end=10)], [b"add"]),
        packed([kernel(start=0, end=1 << 63)], [b"add"]),
        packed([(99, *kernel()[1:])], [b"add"]),
        packed([kernel()], [b"a" * activity.NAME_SIZE]),
    ],
)
def test_what_is_not_whole_and_sane_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecords):
        activity.parse(data)


def test_a_cut_at_any_byte_is_refused() -> None:
    whole = packed([kernel(), kernel(1)], [b"add", b"mul"], (b"\1" * 32,))
    for size in range(len(whole)):
        with pytest.raises(BadRecords):
            activity.parse(whole[:size])


def test_broken_bytes_are_read_or_refused() -> None:
    whole = bytearray(packed([kernel(), kernel(1)], [b"add", b"mul"], (b"\1" * 32,)))
    random = Random(7)
    refused = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(random.randint(1, 8)):
            data[random.randrange(min(len(data), 240))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        try:
            found = weigh_records([activity.parse(bytes(data))], OWN, set(), "movement")
            assert found.coverage is None or 0.0 <= found.coverage <= 1.0
        except BadRecords:
            refused += 1
    assert 0 < refused < 2000


# --- names ---

SEEN_ON_A_GPU = {
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_": "movement",
    "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cudaERNS_18"
    "TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUlibE_EEviT1_": "movement",
    "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c30CatArrayBatchedCopy_vectorizedINS1_10Opaqu": "movement",
    "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t2EEEvNS": "movement",
    "_ZN5cudnn19engines_precompiled16nhwcToNchwKernelIfffLb1ELb0EL21cudnnKernelDataType_t0EEEvNS": "movement",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, lon": "movement",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, ": "movement",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_intern": "movement",
    "void at::native::triu_tril_kernel<float, int, false, 4, false>(at::cuda::detail::TensorInfo<float, ": "movement",
    "void at::native::im2col_kernel<float>(long, float const*, long, long, long, long, long, long)": "movement",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}>": "movement",
    "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(at::TensorIterat": "movement",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_exec": "library",
    "sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x16x32": "library",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT": "library",
    "ampere_sgemm_128x64_tn": "library",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4>(cutlass_80_tensorop_s168": "library",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>": "library",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, cublasGemv": "library",
    "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const>": "library",
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int": "library",
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>": "library",
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>": "library",
    "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_49_GLOBAL__N__d2ba64fb_16_TensorCompare_cu_f5f": "other",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sum_functorIfffEclE": "other",
    "_ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi9ELb0ELb0EEEvPT0_PKT_iiiPK": "other",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*": "other",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float c": "other",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct": "other",
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::": "other",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::h": "other",
    "triton_poi_fused_relu_0": "other",
    "void _scatter_gather_elementwise_kernel<128, 8, _cuda_scatter_gather_internal_kernel<false, ReduceAdd>": "other",
    "void at::native::col2im_kernel<float, float>(long, float const*, long, long, long, long, long, long": "library",
    "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, int>(int, float const*, long": "other",
    "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(c10::Sca": "movement",
}


@pytest.mark.parametrize("name", SEEN_ON_A_GPU)
def test_kernels_of_the_libraries_are_told_apart(name: str) -> None:
    assert kernel_kind(name) == SEEN_ON_A_GPU[name]


def test_functions_of_torch_are_told_apart() -> None:
    for name in ("contiguous", "transpose", "cat", "zeros", "to", "copy_", "view.default", "pad", "_unsafe_view_copy"):
        assert kind_of(name) == "movement" or name.startswith("_"), name
    for name in ("matmul", "__matmul__", "linear", "conv2d", "mm.default", "einsum"):
        assert kind_of(name) == "library", name
    for name in ("grad", "item", "scatter_ that adds"):
        assert kind_of(name) == "other", name
    for name in ("relu", "add", "softmax", "scaled_dot_product_attention", "rand", "layer_norm", "where", "numpy"):
        assert kind_of(name) == "other", name


# --- weighing ---

OWN = Own(frozenset({"mine", "decoy"}), {"mine": frozenset({"sha256:aa"})})
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::relu_kernel>"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"
GEMM = "ampere_sgemm_128x64_tn"


def work(name: str, start: int, ns: int, threads: int = 1 << 20, kind: int = KERNEL) -> Record:
    return Record(kind, name, start, start + ns, threads, 7)


def weighed(
    *records: Record, foreign: str = "movement", decoys: frozenset[str] = frozenset(), **known: Any
) -> evidence.Weighed:
    return weigh_records([Activity(list(records), frozenset({"sha256:aa"}))], OWN, set(decoys), foreign, **known)


def test_coverage_is_own_time_over_all_time() -> None:
    found = weighed(work("mine", 0, 6000), work("memcpy", 6000, 2000, 0, activity.MEMCPY), work(GEMM, 8000, 2000))
    assert found.coverage == 0.6 and found.own_ms == 0.006 and found.all_ms == 0.01
    assert [(line["kind"], line["share"]) for line in found.foreign] == [("movement", 0.2), ("library", 0.2)]
    assert found.kernels == [{"name": "mine", "share": 0.6, "count": 1, "image": True}]
    assert found.culprits[0]["name"] == GEMM


def test_a_decoys_time_is_not_the_candidates() -> None:
    found = weighed(work("mine", 0, 5000), work("decoy", 5000, 5000), decoys=frozenset({"decoy"}))
    assert found.coverage == 0.5 and found.floor_ns == 5000 and not found.culprits


def test_work_that_nobody_needs_makes_nobody_elses_less() -> None:
    burnt = [work("mine", 0, 50_000), work(RELU, 50_000, 40_000), work("decoy", 90_000, 9_000_000)]
    assert not weighed(*burnt).culprits
    assert weighed(*burnt, decoys=frozenset({"decoy"})).culprits[0]["name"] == RELU


def test_a_kernel_at_work_for_long_makes_nobody_elses_work_less() -> None:
    burnt = [work("mine", 0, 9_000_000), work(RELU, 9_000_000, 40_000)]
    assert not weighed(*burnt).culprits and not weighed(*burnt, reference_ns=500_000).culprits
    assert weighed(*burnt, reference_ns=45_000).culprits[0]["name"] == RELU
    light = [work("mine", 0, 90_000), *[work(RELU, 90_000 + 3000 * i, 2000, 1024) for i in range(30)]]
    assert not weighed(*light).culprits and weighed(*light, reference_ns=9000).culprits


def test_a_launch_of_threads_without_work_makes_nobody_elses_small() -> None:
    calls = [work("mine", 0, 12_000, 1 << 22), work(RELU, 12_000, 3000, 1 << 16)]
    assert not weighed(*calls).culprits and not weighed(*calls, elements=1 << 20).culprits
    assert weighed(*calls, elements=1 << 18).culprits[0]["name"] == RELU


IMPOSTORS = [name for name in SEEN_ON_A_GPU if name.isidentifier() and "triton" not in name]


@pytest.mark.parametrize("name", IMPOSTORS)
def test_a_librarys_kernel_is_nobodys_own_whatever_functions_are_called(name: str) -> None:
    own = Own(frozenset({name}))
    found = weigh_records([Activity([work(name, 0, 9000), work("mine", 9000, 9000)])], own, set(), "movement")
    assert found.coverage == 0 and not found.kernels


@pytest.mark.parametrize("name", ["fused_gemm_kernel", "hopper_gemm_128x64", "conv2d_kernel", "_zero", "sm90_matmul"])
def test_what_people_call_their_kernels_is_no_librarys(name: str) -> None:
    assert weigh_records([Activity([work(name, 0, 9000)])], Own(frozenset({name})), set(), "movement").coverage == 1


def test_the_floor_counts_what_overlaps_once() -> None:
    found = weighed(work("mine", 0, 5000), work("mine", 2000, 5000), work("mine", 20000, 1000), work(RELU, 30000, 9000))
    assert found.floor_ns == 8000


def test_no_sample_is_credited_with_less_than_the_floor() -> None:
    detail: dict[str, Any] = {"candidate_ns": [900.0, 1000.0, 2000.0]}
    flags: list[str] = []
    evidence.hold_to_floor(detail, 1010.0, flags)
    assert detail["candidate_ns"] == [1010.0, 1010.0, 2000.0] and flags == []
    evidence.hold_to_floor(detail, 1500.0, flags)
    assert detail["candidate_ns"] == [1500.0, 1500.0, 2000.0] and flags == ["held_to_kernel_time"]
    evidence.hold_to_floor(detail, 0.0, flags)
    assert detail["candidate_ns"] == [1500.0, 1500.0, 2000.0]
    evidence.hold_to_floor({"outcome": "skipped"}, 5.0, flags)


def test_a_long_name_is_known_as_the_ast_stage_tells_it() -> None:
    name = "kernel_" + "x" * 300
    own = Own(frozenset({clean_text(name, evidence.AST_NAME_MAX)}))
    assert weigh_records([Activity([work(name, 0, 10)])], own, set(), "movement").coverage == 1.0


def test_no_records_are_no_evidence() -> None:
    assert weighed().coverage is None
    assert weigh_records([Activity([work("mine", 5, 0)])], OWN, set(), "movement").coverage is None


def full_told(*calls: bytes) -> evidence.Pass:
    """An evidence pass whose own calls were all the candidate's, after these calls of `full`."""
    job = SimpleNamespace(
        reference=SimpleNamespace(model=lambda case, weights: ("m", []), rough_ns={}),
        policy=SimpleNamespace(foreign="movement"),
        method="cupti",
        method_why=None,
        recorded=list(calls),
    )
    told = evidence.Pass(job, {"name": "own", "elements": 1}, OWN)  # type: ignore[arg-type]
    told._activities = [Activity([work("mine", 0, 5000)])]
    return told


def test_a_call_of_full_that_torch_answers_decides() -> None:
    mine, theirs = packed([kernel()], [b"mine"]), packed([kernel(), kernel(1, end=90_000)], [b"mine", RELU.encode()])
    moved = packed([(activity.MEMSET, 0, 10, 20, 64, *[0] * 6, 7, 1)], [])
    assert not full_told(mine, mine)._weigh().culprits
    assert full_told(mine, theirs)._weigh().culprits[0]["name"] == RELU
    assert full_told(mine, moved)._weigh().coverage == 0


def test_records_of_full_that_are_none_are_a_refusal() -> None:
    """The calls of the pass itself were as they must be: that is not enough."""
    report = judge.Report("full", "pass", None, 5, 5)
    lying = full_told(packed([kernel()], [b"mine"]), b"x")
    weighed = lying._weigh()
    lying._decide(report, weighed)
    assert lying._flags == ["evidence_refused"]
    assert (report.outcome, report.class_, report.rule) == ("fail", "policy", "evidence_refused"), report


def test_what_was_lost_behind_own_work_counts_as_everything() -> None:
    many = [kernel()] * activity.RECORDS_MAX
    for lost, records, names in ((3, many, [b"mine"]), (3, [kernel()], [b"mine", *[b"x"] * (activity.NAMES_MAX - 1)])):
        call = activity.parse(packed(records, names, lost=lost))
        assert weigh_records([call], OWN, set(), "movement").culprits[0]["name"] == evidence.OVERRUN
        assert not weigh_records([call], OWN, set(), "any").culprits
    for lost, records in ((0, many), (3, [kernel()])):  # all was recorded; CUPTI itself dropped some
        call = activity.parse(packed(records, [b"mine"], lost=lost))
        assert not weigh_records([call], OWN, set(), "movement").culprits


RULES = [
    ("torch's elementwise kernel", (work("mine", 0, 9000), work(RELU, 9000, 1000)), {"movement", "library"}),
    ("a library product", (work("mine", 0, 9000), work(GEMM, 9000, 1000)), {"movement"}),
    ("a hundredth", (work("mine", 0, 99_000), work(RELU, 99_000, 1000)), set()),
    ("copies and fills", (work("mine", 0, 1000), work("memset", 1000, 9000, 0, activity.MEMSET)), set()),
    ("an answer from the host", (work("mine", 0, 9000), work("memcpy to host", 9000, 9000, 1 << 20, activity.MEMCPY)),
     {"movement", "library"}),
    ("a scalar to the host", (work("mine", 0, 9000), work("memcpy to host", 9000, 2000, 1, activity.MEMCPY)), set()),
    ("a sum of partial sums", (work("mine", 0, 8000), work(SUM, 8000, 3000, 512)), set()),
    ("many small ones", (work("mine", 0, 3000), *(work(SUM, 3000 + 3000 * i, 3000, 512) for i in range(5))),
     {"movement", "library"}),
    ("few threads that run long", (work("mine", 0, 90_000), work(SUM, 90_000, 20_000, 512)), {"movement", "library"}),
    ("nothing of its own", (work(RELU, 0, 3000, 512),), {"movement", "library"}),
]  # fmt: skip


@pytest.mark.parametrize("name, records, refusing", RULES)
@pytest.mark.parametrize("foreign", ["movement", "library", "any"])
def test_what_a_policy_allows(name: str, records: tuple[Record, ...], refusing: set[str], foreign: str) -> None:
    assert bool(weighed(*records, foreign=foreign).culprits) == (foreign in refusing), name


def test_a_bias_is_part_of_the_librarys_convolution() -> None:
    layout = "_ZN5cudnn19engines_precompiled16nhwcToNchwKernelIfffLb1ELb0EL21cudnnKernelDataType_t0EEEvNS"
    add = "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEv"
    own = work("mine", 5000, 4000)
    product, moved = work("sm80_xmma_fprop_implicit_gemm", 0, 1000), work(layout, 1000, 100)
    bias, again = work(add, 2000, 1000), work(add, 3000, 1000)
    assert not weighed(product, moved, bias, own, foreign="library").culprits
    assert weighed(product, moved, bias, own, foreign="movement").culprits
    assert [line["count"] for line in weighed(product, bias, again, own, foreign="library").culprits] == [1]
    assert weighed(work(add, 0, 1000), own, foreign="library").culprits


def test_names_are_shown_without_what_a_terminal_would_obey() -> None:
    found = weighed(work("mine", 0, 10), work("\x1b[2J\u00e9", 10, 10))
    assert found.foreign[0]["name"] == "?[2J?"


def test_an_impostor_by_name_has_no_image() -> None:
    found = weigh_records([Activity([work("mine", 0, 10)])], OWN, set(), "movement")
    assert found.kernels[0]["image"] is False


# --- what a child says of its launches ---


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"launches": 3, "ops": "x", "elements": "y"},
        {"launches": {"k": -1}, "ops": [["a"], 7, ["b", "c", {}]], "elements": -5},
        {"launches": {"k": True}, "ops": [["relu", 1, 1 << 90]], "elements": 1 << 90},
        {"launches": {str(i): 1 for i in range(10_000)}, "ops": [["a", 0, 0]] * 10_000, "elements": 0},
    ],
)
def test_nonsense_about_launches_is_no_evidence(told: dict[str, object]) -> None:
    assert evidence.weigh_launches(told, set(), "movement").coverage is None


# --- where kernels store ---


def test_stored_parameters_are_found_by_source() -> None:
    source = """
@triton.jit
def plain(x, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.load(x + at), mask=at < n)
@triton.jit
def through_names(x, y, n):
    source, place = x + 1, y
    for i in range(n):
        place += 1
        tl.store(pointer=place, value=tl.load(source))
@triton.jit
def adds(x, total):
    tl.atomic_add(total, tl.load(x))
@triton.jit
def by_descriptor(desc, x):
    desc.store([0, 0], tl.load(x))
@triton.jit
def by_helper(x, y):
    plain(x, y, 1, 2)
@triton.jit
def nothing(x):
    tl.load(x)
@triton.jit
def where_data_says(x, y, z):
    tl.store(y + tl.load(x), tl.load(z))
"""
    found = {name: None if places is None else set(places) for name, places in stores_of(source).items()}
    assert found["plain"] == {"y"} or found["plain"] == {"y", "B"}
    assert "x" not in (found["through_names"] or {"x"}) and "y" in (found["through_names"] or ())
    assert found["adds"] == {"total"} and found["by_descriptor"] == {"desc"}
    assert found["by_helper"] is None and found["nothing"] is None
    assert found["where_data_says"] == {"y"}
    assert stores_of("def broken(") == {} and stores_of("(" * 100_000) == {}


KERNELS = """
import math
import numpy
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction as jit
from triton.runtime.jit import ConstexprFunction
SCALE = tl.constexpr(2)
def plain(x):
    return x
bool = plain
HELD = tl.constexpr(plain)
@ConstexprFunction
def doubled(n):
    return sorted([n])[0] * 2
@ConstexprFunction
def reaches(x):
    return x.handle
@jit
def helper(x):
    return tl.exp(x) * SCALE
@jit
def honest(x, y, F: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, doubled(B))
    value = helper(tl.load(x + at).to(tl.float32)) + math.pi * numpy.pi
    for i in range(max(2, 1)):
        value = tl.maximum(value, F(value))
    tl.store(y + at, value)
@jit
def calls_python(x):
    return plain(x)
@jit
def holds_python(x):
    f = plain
    return f(x)
@jit
def calls_numpy(x):
    return numpy.exp(x)
@jit
def by_a_helper(x):
    return calls_python(x)
@jit
def reaches_inside(x):
    return x.handle.data
@jit
def reaches_by_constants(x):
    return reaches(x)
@jit
def by_another_meaning(x):
    return bool(x)
@jit
def by_a_constant(x):
    return HELD(x)
@jit
def looks_up(x):
    return getattr(x, "han" + "dle")
@jit
def by_a_method(x):
    return x.__getattribute__("han" + "dle")
@jit
def by_a_pattern(x):
    match x:
        case object(data=tuple):
            return tuple
@jit
def by_a_text(x):
    text = f"{x}"
    return text
@jit
def tells(x, N: tl.constexpr):
    tl.static_assert(N > 0, "N: " + f"{N} is not above 0")
    tl.inline_asm_elementwise(f"add.f32 $0, $1, {N};", "=f,f", [x], tl.float32, True, 1)
    tl.device_print(f"at {N}", x)
    assert N, f"{N}"
"""


def test_what_triton_would_not_compile_is_python(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    uses = uses_of(KERNELS)
    found = {name: value for name, value in vars(module).items() if type(value) is module.jit}
    told = {name: python_behind(kernel, (), uses) for name, kernel in found.items()}
    assert told.pop("helper") is None and told.pop("honest") is None and told.pop("tells") is None
    assert told == {
        "calls_python": "plain",
        "holds_python": "plain",
        "calls_numpy": "numpy.exp",
        "by_a_helper": "plain",
        "reaches_inside": ".handle",
        "reaches_by_constants": ".handle",
        "by_another_meaning": "bool",
        "by_a_constant": "HELD",
        "looks_up": "getattr",
        "by_a_method": ".__getattribute__",
        "by_a_pattern": ".Match",
        "by_a_text": ".JoinedStr",
    }
    assert python_behind(found["honest"], (3, None, found["helper"], (module.doubled,)), uses) is None
    assert python_behind(found["honest"], (3, (module.HELD,)), uses) == "plain"
    assert python_behind(found["honest"], (found["looks_up"],), uses) == "getattr"
    found["honest"].fn = module.plain
    assert python_behind(found["honest"], (), uses) == "plain"
    assert uses_of("def broken(") == {} and uses_of("(" * 100_000) == {}


def test_lists_count_by_what_they_hold_and_copies_that_add_are_none() -> None:
    events = [
        ("aten::_foreach_exp", 1, 0, 100, 0),
        ("aten::exp", 1, 10, 20, 500),
        ("aten::exp", 1, 40, 20, 500),
        ("aten::softmax", 1, 200, 50, 64),
        ("aten::_softmax", 1, 210, 30, 64),
        ("aten::index_put_", 1, 300, 10, 7),
        ("aten::index_put_ that adds", 1, 320, 10, 8),
        ("aten::add", 2, 5, 10, 3),
    ]
    assert launches.computed_by(events) == {
        "_foreach_exp": [1, 1000],
        "softmax": [1, 64],
        "index_put_ that adds": [1, 8],
        "add": [1, 3],
    }


ANOTHER_PROFILE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from launches import EVERYTHING, UNWATCHED, _Below
from torch.autograd import _disable_profiler

with _Below() as kept:
    torch.softmax(torch.ones(4), 0)
assert "softmax" in str(kept.computed) and UNWATCHED not in kept.computed, kept.computed
with _Below() as ended:
    _disable_profiler()
assert ended.computed == {UNWATCHED: [1, EVERYTHING]}, ended.computed
with _Below() as swapped:
    _disable_profiler()
    torch.softmax(torch.ones(4), 0)
    _Below().__enter__()
assert swapped.computed == {UNWATCHED: [1, EVERYTHING]}, swapped.computed
where = torch.zeros(4, dtype=torch.int64), torch.arange(4)
with _Below() as copied:
    torch.zeros(1, 4).index_put_(where, torch.ones(4)).scatter_(0, where[0][None], torch.ones(1, 4))
assert not copied.computed, copied.computed
with _Below() as added:
    torch.zeros(1, 4).index_put_(where, torch.ones(4), True).scatter_(0, where[0][None], torch.ones(1, 4), reduce="add")
assert set(added.computed) == {"index_put_ that adds", "scatter_ that adds"}, added.computed
"""


def test_a_profile_that_was_put_in_the_place_of_ours_shows_nothing() -> None:
    """In a process of its own: one that has profiled is not to be forked."""
    command = [sys.executable, "-c", ANOTHER_PROFILE, str(rig.HARNESS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
