"""`nvidia-smi -q -x`; if it is truncated, the readable part."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import nvml_answers
from gpudoctor.evidence.readers.nvidia_smi_fields import plain
from gpudoctor.model import Reply


def read(text: str) -> dict[str, Reply] | None:
    root = _root(text)
    if root is None:
        return None
    gpus = [_gpu(element) for element in root.findall("gpu")]
    system = nvml_answers.system(
        _text(root, "kmd_version") or _text(root, "driver_version"),
        _text(root, "cuda_umd_version") or _text(root, "cuda_version"),
    )
    if not system and not gpus:
        return None
    return nvml_answers.replies(system, gpus or ([] if _text(root, "attached_gpus") == "0" else None))


def _root(text: str) -> ElementTree.Element | None:
    """Parsed without the document type declaration, which names a file of NVIDIA's, or anything its author wrote there."""
    start = text.find("<nvidia_smi_log>")
    builder = ElementTree.TreeBuilder()
    parser = ElementTree.XMLParser(target=builder)
    with contextlib.suppress(ElementTree.ParseError):
        parser.feed(text[start:] if start >= 0 else "")
    with contextlib.suppress(ElementTree.ParseError, AssertionError):
        return builder.close()
    return None


def _gpu(element: ElementTree.Element) -> nvml_answers.Answers:
    said: dict[str, str] = {}
    for path, text in _fields(element):
        said.setdefault(path, text)
    said.setdefault("pci/pcibusid", element.get("id", ""))
    found = nvml_answers.answers("x", said)
    listed = element.find("processes")
    if listed is not None and plain(listed.text or "") != "na":
        found |= nvml_answers.processes([_process(process) for process in listed.findall("process_info")])
    devices = element.find("mig_devices")
    if devices is not None and plain(devices.text or "") != "na":
        found["MigDevices"] = [_mig_device(device) for device in devices.findall("mig_device")]
    for name in ("vgpu_software_licensed_product", "grid_licensed_product"):
        if status := _text(element, f"{name}/license_status"):
            found["GridLicensableFeatures"] = nvml_answers.licence(_text(element, f"{name}/licensed_product_name"), status)
    return found


def _fields(element: ElementTree.Element, above: str = "") -> Iterator[tuple[str, str]]:
    for child in element:
        if child.tag not in ("processes", "mig_devices", "supported_clocks", "accounted_processes"):
            path = above + plain(child.tag)
            if (child.text or "").strip():
                yield path, (child.text or "").strip()
            yield from _fields(child, f"{path}/")


def _process(element: ElementTree.Element) -> dict[str, str]:
    names = {"pid": "pid", "type": "type", "name": "process_name", "used": "used_memory"}
    return {name: _text(element, tag) for name, tag in names.items()}


def _mig_device(element: ElementTree.Element) -> nvml_answers.Answers:
    return nvml_answers.mig_device(
        _text(element, "gpu_instance_id"), _text(element, "compute_instance_id"), _text(element, "fb_memory_usage/total")
    )


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


READER = Reader(
    kind="nvidia-smi -q -x",
    anchors=("<nvidia_smi_log>",),
    begins=re.compile(r"<nvidia_smi_log>"),
    ends=re.compile(r"^(?!None$)[^\s<]"),
    read=read,
)
