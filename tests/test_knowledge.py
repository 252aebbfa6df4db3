"""The tables: every row has its source, the figures are plausible and do not contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from each import each
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpudoctor import catalog, knowledge
from gpudoctor.knowledge import cuda, errors, gpus, health, rm, version, wheels, xids
from gpudoctor.knowledge.gpus import Gpu
from gpudoctor.knowledge.tables import Table
from gpudoctor.model import Action

TABLES = version.TABLES
GPUS = {gpu.name: gpu for gpu in gpus.gpus()}

# What NVIDIA's tokens ask for, where that is one thing to do.
NVIDIA_ASKS = {
    "IGNORE": Action.NONE,
    "RESTART_APP": Action.RESTART_APP,
    "RESET_GPU": Action.RESET_GPU,
    "RESTART_BM": Action.REBOOT,
    "RESTART_VM": Action.REBOOT,
    "UPDATE_SWFW": Action.INSTALL,
    "CHECK_MECHANICALS": Action.REPLACE_HARDWARE,
    "CONTACT_SUPPORT": Action.WATCH,
}


def descending(values: Iterable[Any]) -> bool:
    return all(left >= right for left, right in pairwise(values))


def unique(values: Iterable[Any]) -> bool:
    listed = list(values)
    return len(set(listed)) == len(listed)


@each("name", TABLES)
def test_every_row_has_a_known_source(name: str) -> None:
    table: Table = TABLES[name]()
    used = {key for rows in table.rows().values() for row in rows for key in row.source}
    assert used == set(table.sources)
    for rows in table.rows().values():
        assert rows
        assert all(row.source and len(table.references(row)) == len(row.source) for row in rows)


@each("name", TABLES)
def test_every_source_says_where_and_when(name: str) -> None:
    for key, source in TABLES[name]().sources.items():
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", key), key
        assert source.url or source.what, key
        assert not source.url or re.fullmatch(r"https://\S+", source.url), key
        assert date(2026, 1, 1) <= source.read <= date(2099, 1, 1), key
    for rows in TABLES[name]().rows().values():
        assert all(TABLES[name]().read(row) for row in rows)


@each("name", TABLES)
def test_every_problem_that_is_named_exists(name: str) -> None:
    rows = [row for rows in TABLES[name]().rows().values() for row in rows]
    named = {getattr(row, "problem", None) for row in rows} | {cause for row in rows for cause in getattr(row, "causes", ())}
    assert named - {None} <= set(catalog.problems())
    for row in rows:
        causes = getattr(row, "causes", ())
        assert unique(causes)
        assert getattr(row, "problem", None) not in causes


@each("name", TABLES)
def test_what_is_from_memory_is_not_called_verified(name: str) -> None:
    rows = [row for rows in TABLES[name]().rows().values() for row in rows]
    assert not [row for row in rows if "memory" in row.source and row.verified]


def test_toolkits_descend_with_their_drivers() -> None:
    rows = knowledge.toolkits()
    shipped = [Version(row.shipped) for row in rows if row.shipped]
    assert descending(row.cuda for row in rows)
    assert unique(row.cuda for row in rows)
    assert descending(shipped)


@each("row", knowledge.toolkits(), ids=lambda row: ".".join(map(str, row.cuda)))
def test_least_driver_is_the_floor_and_not_newer_than_the_shipped_one(row: cuda.Toolkit) -> None:
    assert row.least == knowledge.minimum_driver(row.cuda[:2]) or row.cuda[:2] in {(9, 2), (8, 0)}
    if row.shipped and row.cuda[:2] != (11, 0):  # the floor of 11.x is newer than what 11.0 shipped with
        assert Version(row.least) <= Version(row.shipped)


def test_branches_descend_with_their_cuda() -> None:
    rows = cuda.table().branches
    assert descending(row.number for row in rows)
    assert unique(row.number for row in rows)
    assert descending(row.cuda for row in rows)
    assert all(re.fullmatch(r"20\d\d-(0\d|1[0-2])", row.end_of_life) for row in rows if row.end_of_life)


def test_shipped_drivers_are_of_a_branch_that_knows_their_cuda() -> None:
    for row in knowledge.toolkits():
        if row.shipped and row.cuda >= (10, 2, 0):
            assert knowledge.cuda_of_branch(int(row.shipped.split(".")[0])) == row.cuda[:2]


def test_forward_compatibility_goes_from_older_to_newer_branches() -> None:
    for row in cuda.table().forward_compatibility:
        columns = [*row.compatible, *([row.same] if row.same else []), *row.not_provided]
        assert columns == [535, 570, 580, 590, 595, 610, 615]
        assert row.same is None or knowledge.cuda_of_branch(row.same) == row.cuda


def test_architectures_ascend() -> None:
    rows = cuda.table().architectures
    assert descending(row.compute_capability for row in reversed(rows))
    assert unique(row.compute_capability for row in rows)
    for row in rows:
        assert row.last_cuda is None or row.last_cuda > row.first_cuda
        assert row.last_driver_branch in {None, 390, 470, 580}


def test_host_compilers_never_go_backwards() -> None:
    rows = cuda.table().host_compilers
    assert descending((row.cuda, row.gcc, row.clang) for row in rows)
    assert descending(row.gcc for row in rows)
    assert descending(row.clang for row in rows)


def test_codes_are_unique() -> None:
    of_errors = list(errors.table().rows().values())
    for rows in (*of_errors, xids.table().xids, xids.table().sxids, rm.table().statuses):
        codes = [row.code for row in rows]  # type: ignore[attr-defined]
        assert codes == sorted(set(codes))


def test_names_of_codes_are_unique() -> None:
    for rows in (errors.table().nvml, errors.table().cudnn, errors.table().cublas, rm.table().statuses, xids.table().xids):
        assert unique(getattr(row, "mnemonic", "") or row.name for row in rows)
    cuda_names = [name for row in errors.table().cuda for name in {row.name, row.runtime} - {""}]
    assert unique(cuda_names)


def test_texts_are_those_of_the_runtime() -> None:
    """Word by word, since that is what people paste."""
    texts = {row.code: row.text for row in errors.table().cuda}
    assert texts[802] == "system not yet initialized"
    assert texts[803] == "system has unsupported display driver / cuda driver combination"
    assert texts[209] == "no kernel image is available for execution on the device"
    assert texts[911] == "an async error has occured in external entity outside of CUDA"  # NVIDIA's spelling
    assert {code for code, text in texts.items() if not text} == {47, 202, 916}  # only in the driver's API


def test_several_causes_come_with_the_command_that_decides() -> None:
    for rows in errors.table().rows().values():
        for row in rows:
            assert isinstance(row, errors.Error)
            assert row.decide or len(row.causes) < 2, row.name
            assert not row.cause or row.meaning, row.name
    for failure in rm.table().failures:
        assert failure.decide or failure.confidence != "unknown", failure.words


@each("code", [3, 34, 46, 100, 209, 214, 222, 802, 803, 804, 999])
def test_codes_that_a_machine_can_cause_say_why_and_what_to_do(code: int) -> None:
    row = knowledge.cuda_error(code)
    assert row
    assert row.meaning
    assert row.cause
    assert row.fix


def test_every_xid_is_there() -> None:
    assert [row.code for row in xids.table().xids] == list(range(1, 177))
    assert len(xids.table().sxids) == 399


@each("row", xids.table().xids, ids=lambda row: str(row.code))
def test_what_to_do_is_nvidias_action_or_says_why_not(row: xids.Xid) -> None:
    assert row.why or row.ours is NVIDIA_ASKS[row.action]
    if row.problem:
        assert catalog.problems()[row.problem][1].action is row.ours
    else:
        assert row.ours in (Action.NONE, Action.WATCH)
    order = list(Action)
    assert row.again is None or order.index(row.again) >= order.index(row.ours)
    assert not row.again or row.severity == "fatal" or row.code == 94


def test_echoes_are_never_what_a_gpu_is_reset_for() -> None:
    echoes = {row.code: row for row in xids.table().xids if row.follows}
    assert {43, 45, 154} <= set(echoes)
    assert all(row.severity != "fatal" and not row.again for row in echoes.values())


def test_xids_that_matter_are_explained() -> None:
    for row in xids.table().xids:
        if row.severity == "fatal":
            assert row.meaning
            assert row.cause
        if row.action:
            assert knowledge.xid_action(row.action), row.action


def test_gpus_are_told_apart() -> None:
    assert len(GPUS) == len(gpus.gpus()) == 99
    for gpu in gpus.gpus():
        assert knowledge.gpu_by_name(gpu.name) is gpu
        assert knowledge.gpu_by_name(gpu.name.removeprefix("NVIDIA ")) is gpu


@each("gpu", GPUS.values(), ids=list(GPUS))
def test_figures_of_a_gpu_are_plausible(gpu: Gpu) -> None:
    assert 4 <= gpu.memory_gb <= 300
    assert 100 <= gpu.memory_gb_per_s <= 10_000
    assert 30 <= gpu.tdp_watts <= 1500
    assert gpu.sms is None or 8 <= gpu.sms <= 200
    assert gpu.boost_mhz is None or 900 <= gpu.boost_mhz <= 3200
    assert gpu.pcie_generation in {None, 3, 4, 5, 6}
    assert gpu.pcie_width in {None, 1, 8, 16}
    assert gpu.memory_mib is None or 0.9 <= gpu.memory_mib / (gpu.memory_gb * 1024) <= 1.03
    assert gpu.mig is None or (gpu.mig.instances in {2, 4, 7} and Version(gpu.mig.least_driver).major >= 450)
    assert set(gpu.unverified) <= set(gpu.__struct_fields__)


@each("gpu", GPUS.values(), ids=list(GPUS))
def test_generation_by_name_by_device_id_and_by_compute_capability_agree(gpu: Gpu) -> None:
    row = knowledge.architecture(gpu.compute_capability)
    assert row
    assert row.name == gpu.architecture
    for device_id in gpu.device_ids:
        listed = [row for row in gpus.table().device_ranges if row.first <= device_id <= row.last]
        assert [row.architecture for row in listed] == [gpu.architecture]


@each("gpu", GPUS.values(), ids=list(GPUS))
def test_smaller_types_are_not_slower(gpu: Gpu) -> None:
    peaks = gpu.peak_tflops
    order = (peaks.fp64, peaks.fp32, peaks.tf32, peaks.fp16, peaks.fp8, peaks.fp4)
    known = [peak for peak in order if peak is not None]
    assert known == sorted(known)
    assert known
    if peaks.bf16 is not None:
        assert peaks.bf16 == peaks.fp16
    if peaks.fp16 is not None and peaks.int8 is not None:
        assert peaks.int8 >= peaks.fp16
    if peaks.fp16 is not None and peaks.fp16_fp16_accumulate is not None:
        assert peaks.fp16_fp16_accumulate == pytest.approx(2 * peaks.fp16, rel=0.01)


@each("gpu", [gpu for gpu in GPUS.values() if gpu.nvlink], ids=lambda gpu: gpu.name)
def test_nvlink_is_not_faster_than_its_links(gpu: Gpu) -> None:
    assert gpu.nvlink
    one_way = knowledge.nvlink_gb_per_s(gpu.nvlink.version, gpu.nvlink.links)
    assert one_way
    assert one_way / 2 <= gpu.nvlink.gb_per_s / 2 <= one_way


def test_device_ranges_do_not_overlap() -> None:
    rows = gpus.table().device_ranges
    assert all(row.first <= row.last for row in rows)
    assert all(left.last < right.first for left, right in pairwise(rows))


def test_torch_releases_are_complete() -> None:
    rows = wheels.table().torch
    assert descending(Version(row.version) for row in rows)
    assert unique(row.version for row in rows)
    for row in rows:
        SpecifierSet(row.requires_python)
        assert row.default in row.variants
        assert set(row.experimental) | set(row.cudnn_by_variant) | set(row.nccl_by_variant) <= set(row.variants)
        assert row.cudnn is None or row.cudnn_by_variant.get(row.default, row.cudnn) == row.cudnn
        assert all(knowledge.variant(name) for name in row.variants)


def test_architecture_lists_are_of_known_variants_and_in_order() -> None:
    rows = wheels.table().torch_architectures
    assert unique((row.torch, name, row.machine) for row in rows for name in row.variants)
    for row in rows:
        numbers = [int(name.partition("_")[2]) for name in row.architectures]
        assert numbers == sorted(numbers)
        assert {name.partition("_")[0] for name in row.architectures} <= {"sm", "compute"}


def test_no_wheel_is_built_for_a_gpu_that_its_cuda_does_not_know() -> None:
    for row in wheels.table().torch_architectures:
        releases = [known.cuda for name in row.variants if (known := knowledge.variant(name))]
        for name in row.architectures:
            digits = name.partition("_")[2]
            target = knowledge.architecture((int(digits[:-1]), int(digits[-1])))
            assert target
            assert all(target.first_cuda <= release for release in releases)
            assert all(target.last_cuda is None or release <= target.last_cuda for release in releases)


@each("row", wheels.table().variants, ids=lambda row: row.variant)
def test_variant_floors_follow_from_the_cuda_table(row: wheels.Variant) -> None:
    assert row.variant == f"cu{row.cuda[0]}{row.cuda[1]}"
    assert row.least == knowledge.minimum_driver(row.cuda)
    assert row.native == knowledge.shipped_driver(row.cuda)


def test_package_rows_are_unique() -> None:
    assert unique((row.package, row.version) for row in wheels.table().packages)


def test_health_rows_are_unique() -> None:
    assert unique((row.group, row.value) for row in health.table().modes)
    assert sum(row.bit for row in health.table().clock_reasons if row.benign is False) == 0xE8


def test_steps_of_the_initialisation_do_not_overlap() -> None:
    for code in {step.code for step in rm.table().steps}:
        for branch in (515, 525, 535, 550, 560, 580, 595):
            assert sum(step.code == code and step.is_of(branch) for step in rm.table().steps) <= 1
    assert rm.rm_status(0xFFFFFFFF) == rm.rm_status(0xFFFF)


@each("failure", rm.table().failures, ids=lambda failure: failure.words[:40])
def test_failures_name_a_step_or_a_status_or_a_message(failure: rm.Failure) -> None:
    assert failure.log or failure.step is not None or failure.status is not None
    assert not failure.log or re.compile(failure.log)
    assert failure.step is None or rm.rm_step(failure.step)
    assert failure.status is None or rm.rm_status(failure.status)
    assert failure.confidence != "confirmed" or failure.log  # numbers alone prove nothing


def test_no_failure_hides_behind_a_more_general_one() -> None:
    rows = rm.table().failures
    for place, row in enumerate(rows):
        if not row.log:
            step, status = row.step if row.step is not None else 0x40, row.status if row.status is not None else 0x01
            assert rm.rm_failure(step, status) is row or row in rows[:place], row.words


def test_the_version_tells_the_newest_source_and_the_content() -> None:
    newest = max(count.newest for count in version.counts() if count.newest)
    assert re.fullmatch(rf"{newest}-[0-9a-f]{{8}}", version.version())
    assert {count.table for count in version.counts()} >= set(TABLES)
    assert all(sum(count.rows.values()) for count in version.counts())
